"""A policy in production."""
