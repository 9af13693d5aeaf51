"""A policy in production: as a service over HTTP."""

from bmdp.deployment.endpoints import application
from bmdp.deployment.service import Service

__all__ = ["Service", "application"]
