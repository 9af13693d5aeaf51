"""A module imports only from lower levels, so the import order is the reading order."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import bmdp

SOURCE = Path(bmdp.__file__).parent
HEAVY = {"torch", "sklearn", "matplotlib", "highway_env", "pandas"}

# First match wins. Each level may import from the levels above it in this list.
LEVELS = [
    (
        *("errors", "arrays", "later", "checks", "kinds", "randomness", "storage", "workers"),
        *("cluster", "settings"),
    ),
    ("frontier",),
    ("policies",),
    ("exact",),
    ("envs",),
    ("data",),
    ("models",),
    ("learn",),
    ("evaluation",),
    ("report",),
    ("deployment",),
    ("paper",),
    ("cli",),
]
MODULES = sorted(
    ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
    for path in SOURCE.rglob("*.py")
    if path != SOURCE / "__init__.py"
)


def level(module):
    return next(i for i, names in enumerate(LEVELS) if module.split(".")[0] in names)


def text_of(module):
    path = SOURCE.joinpath(*module.split("."))
    return (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text()


def imports(module):
    """Modules of the package that a module imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(text_of(module))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} has a relative import"
            base = node.module.split(".")
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            deeper = [n for n in names if ".".join(n.split(".")[1:]) in MODULES]
            found.update(deeper if deeper else ([node.module] if base[0] == "bmdp" else []))
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
    return {name.removeprefix("bmdp.") for name in found if name.startswith("bmdp.")}


def test_every_module_has_a_level():
    assert {m.split(".")[0] for m in MODULES} <= {name for names in LEVELS for name in names}


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_from_lower_levels_or_its_own_package(module):
    package = module.split(".")[0]
    for imported in imports(module):
        same_package = imported.split(".")[0] == package
        same_level = (
            level(imported) == level(module) == 0
        )  # single modules, checked for cycles below
        assert same_package or same_level or level(imported) < level(module), imported


def test_the_paper_is_imported_by_two_verbs_alone():
    from_outside = {m for m in MODULES if any(i.startswith("paper") for i in imports(m))}
    assert {m for m in from_outside if not m.startswith("paper")} == {"cli.run", "cli.report"}


def test_no_module_imports_itself_by_a_detour():
    graph = {module: imports(module) & set(MODULES) for module in MODULES}
    order = []
    while graph:
        ready = sorted(m for m, needs in graph.items() if not needs - set(order))
        assert ready, f"these import each other: {sorted(graph)}"
        order.extend(ready)
        graph = {m: needs for m, needs in graph.items() if m not in ready}


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("bmdp", {"numba", "scipy", "safetensors", *HEAVY, "pydantic"}),
        ("bmdp.policies", {*HEAVY, "pydantic"}),
        ("bmdp.learn", HEAVY - {"torch"}),
        ("bmdp.cli.main", {"numba", "scipy", *HEAVY}),
    ],
)
def test_importing_loads_nothing_that_is_heavy(module, heavy):
    code = f"import sys, {module}; print(*{{m.split('.')[0] for m in sys.modules}})"
    loaded = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.split()
    assert "bmdp" in loaded
    assert not heavy & set(loaded)


@pytest.mark.parametrize("module", MODULES)
def test_a_docstring_says_what_a_thing_is(module):
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    nodes = [node for node in ast.walk(ast.parse(text_of(module))) if isinstance(node, kinds)]
    for node in nodes:
        first = (ast.get_docstring(node) or "").split(" ")[0]
        assert first not in ("What", "How", "Of"), f"{getattr(node, 'name', module)}: {first} ..."
