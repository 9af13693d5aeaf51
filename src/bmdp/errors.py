"""Errors of the library, as one tree under `BmdpError`.

    BmdpError
    ├── DataError(ValueError)           arrays or files of the wrong shape, type or content
    ├── ModelError(ValueError)          a finite model that is none, or that a solver cannot take
    ├── BudgetError(ValueError)         a budget that is no number, or that a policy does not take
    ├── ConfigError(ValueError)         a setting out of its range, or unknown
    ├── PolicyError(RuntimeError)       a policy or a tracker used out of its order or form
    ├── EnvError(RuntimeError)          an environment used out of its order
    ├── ConvergenceError(RuntimeError)  a solver that stopped before it was done
    ├── StoreError(OSError)             a folder that cannot be written or is not what it claims
    └── MissingDependency(ImportError)  an extra that is not installed

Messages say where, the rule, what was given, and at which element:
`<argument> must <rule>; got <value> at [<index>]. <what to do>`.
"""

from __future__ import annotations


class BmdpError(Exception):
    r"""Base of all errors of this library. What they say is one line.

    >>> str(BmdpError("log.csv\n must be a file."))
    'log.csv must be a file.'
    """

    def __str__(self) -> str:
        return " ".join(line.strip() for line in super().__str__().splitlines())


class DataError(BmdpError, ValueError):
    """Arrays or files of the wrong shape, type or content."""


class ModelError(BmdpError, ValueError):
    """A finite model that breaks a rule, or that a solver cannot handle."""


class BudgetError(BmdpError, ValueError):
    """A budget that is not a finite number, or is out of the range of a policy."""


class ConfigError(BmdpError, ValueError):
    """A setting that is unknown, or out of its range."""


class PolicyError(BmdpError, RuntimeError):
    """A policy or a tracker that is called in the wrong order or form."""


class EnvError(BmdpError, RuntimeError):
    """An environment that breaks a rule, or is called in the wrong order."""


class ConvergenceError(BmdpError, RuntimeError):
    """A solver that stopped before it converged."""


class StoreError(BmdpError, OSError):
    """A file or folder that cannot be read or written, or is damaged."""


class MissingDependency(BmdpError, ImportError):
    """A package of an extra that is not installed."""
