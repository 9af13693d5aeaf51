"""Names of a package that are imported when they are first asked for, and modules of users."""

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any

from bmdp.errors import ConfigError


def asked_later(
    package: str, homes: Mapping[str, Iterable[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns `__getattr__` and `__dir__` of a package (PEP 562).

    A checker of types must see neither of them, or it takes every name for one of the package.

    Args:
        package: its name.
        homes: names by the module of the package that has them; modules themselves by `""`.
    """
    places = {name: home for home, names in homes.items() for name in names}
    namespace = vars(sys.modules[package])

    def get(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name)
        home = import_module(f"{package}.{places[name] or name}")
        namespace[name] = found = getattr(home, name) if places[name] else home
        return found

    return get, lambda: sorted({*namespace, *places})


def imported(module: str, wanted_by: str) -> Any:
    """Returns a module of a user, by its name.

    Args:
        module: its name.
        wanted_by: what needs it, for messages.

    Raises:
        ConfigError: if there is none, or it fails while it is imported.

    >>> imported("math", "learner.model").pi
    3.141592653589793
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"{wanted_by} needs the module {module}: {error}. Put its folder on PYTHONPATH."
        ) from error
    except Exception as error:  # of the module, whatever it may be
        kind = type(error).__name__
        raise ConfigError(
            f"{wanted_by} needs the module {module}, which cannot be imported: {kind}: {error}."
        ) from error
