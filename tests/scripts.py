"""Examples and benchmarks as modules."""

import importlib.util
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def script(path):
    """The module of a script, given its path in the repository."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module
