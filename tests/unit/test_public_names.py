"""What a package exports is what it lists, and is documented so that it can be used.

A public name is one of the `__all__` that every package has, but for those of the command. What it
must have goes by its kind:

- a module or an exception: a docstring;
- a constant: a string below its assignment;
- a function or a class: a docstring, an example that is run and says what comes out (in the
  docstring, or in that of a public method), and a word on each argument, under `Args:`, or where a
  field is declared: a comment beside it, or a string below it.

Nobody calls an enumeration or a protocol to make one, so these have no arguments, and protocols no
example. What regressors of one's own are made of has its example on docs/extending.md.
"""

import ast
import doctest
import importlib
import inspect
import re
import textwrap
import types
from enum import EnumType
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

import bmdp

SOURCE = Path(bmdp.__file__).parent


TOOLS = ("cli", "paper", "report")  # what the command is made of
PLACES = [path.relative_to(SOURCE).parent.parts for path in SOURCE.rglob("__init__.py")]
PACKAGES = sorted(".".join(("bmdp", *place)) for place in PLACES if not {*place[:1]} & {*TOOLS})


PAGE = (Path(__file__).parents[2] / "docs" / "extending.md").read_text()
(OWN,) = [block for block in PAGE.split("```")[1::2] if "@register_regressor" in block]
OWN_REGRESSORS = set(re.findall(r"\w+", OWN))


def thing(package, name):
    return getattr(importlib.import_module(package), name)


def public_names():
    """Package and name of all that is public, each thing once, but for constants."""
    found = {}
    for package in PACKAGES:
        for name in importlib.import_module(package).__all__:
            value = thing(package, name)
            key = f"{package}.{name}" if is_constant(value) else id(value)
            if not (name.startswith("__") and name.endswith("__")):
                found.setdefault(key, (package, name))
    return list(found.values())


def is_constant(value):
    return not isinstance(value, types.ModuleType | types.FunctionType | type)


def is_used(value):
    """Whether it is called, or made: a function, or a class that is no exception."""
    is_exception = isinstance(value, type) and issubclass(value, BaseException)
    return isinstance(value, types.FunctionType | type) and not is_exception


PUBLIC = public_names()
USED = [names for names in PUBLIC if is_used(thing(*names))]
CONSTANTS = [names for names in PUBLIC if is_constant(thing(*names))]


def by_name(names):
    return pytest.mark.parametrize(("package", "name"), names, ids=[".".join(n) for n in names])


@pytest.mark.parametrize("name", PACKAGES)
def test_all_is_what_is_exported(name):
    package = importlib.import_module(name)
    submodules = {p.stem for p in Path(package.__file__).parent.iterdir() if p.stem != "__init__"}
    public = {
        n
        for n, value in vars(package).items()
        if not n.startswith("_") and not (isinstance(value, types.ModuleType) and n in submodules)
    }
    listed = set(package.__all__) - {"__version__"}
    modules = {n for n in listed if isinstance(getattr(package, n), types.ModuleType)}
    later = {n for names in getattr(package, "_LATER", {}).values() for n in names}
    assert later <= listed
    assert listed - modules - later == public - later - {"TYPE_CHECKING"}


@pytest.mark.parametrize("name", ["bmdp", "bmdp.envs"])
def test_a_checker_of_types_is_told_of_all_that_is_imported_later(name):
    package = importlib.import_module(name)
    tree = ast.parse(Path(package.__file__).read_text())
    (block,) = (
        n for n in tree.body if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING"
    )
    told = {(n.module, alias.name) for n in block.body for alias in n.names}
    places = {
        (f"{name}.{home}".rstrip("."), n) for home, names in package._LATER.items() for n in names
    }
    assert told == places


def test_a_name_that_is_not_there_is_said_to_be_missing():
    with pytest.raises(AttributeError, match="module 'bmdp' has no attribute 'nonsense'"):
        _ = bmdp.nonsense
    assert set(bmdp.__all__) <= set(dir(bmdp))


@by_name([names for names in PUBLIC if names not in CONSTANTS])
def test_every_public_name_has_a_docstring(package, name):
    value = thing(package, name)
    docstring = vars(value).get("__doc__") if isinstance(value, type) else value.__doc__
    assert docstring
    assert not docstring.startswith(f"{name}(")  # what a dataclass without one is given


@by_name(CONSTANTS)
def test_every_public_constant_has_a_string_below_it(package, name):
    folder = SOURCE.joinpath(*package.split(".")[1:])
    assert any(name in described_in(path) for path in folder.glob("*.py"))


@cache
def described_in(path):
    """Names that a module assigns, with a string after the assignment."""
    body = ast.parse(path.read_text()).body
    return {
        node.id
        for statement, following in pairwise(body)
        if isinstance(statement, ast.Assign | ast.AnnAssign) and is_string(following)
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }


def is_string(statement):
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def is_protocol(value):
    return getattr(value, "_is_protocol", False)


@by_name([names for names in USED if not is_protocol(thing(*names))])
def test_every_public_function_and_class_has_an_example(package, name):
    value = thing(package, name)
    own = f"{value.__module__}.{value.__qualname__}"
    methods = {f"{own}.{m}" for m in vars(value) if not m.startswith("_")}
    places = {own} | (methods if isinstance(value, type) else set())
    on_page = package == "bmdp.models" and name in OWN_REGRESSORS
    assert on_page or places & examples_of(value.__module__), f"{own} has no example"


@cache
def examples_of(module):
    """What has an example in a module, as pytest finds them, that is run and prints something."""
    found = doctest.DocTestFinder(exclude_empty=True).find(importlib.import_module(module))
    return {
        test.name
        for test in found
        if any(example.want for example in test.examples)
        and not any(example.options.get(doctest.SKIP) for example in test.examples)
    }


def test_examples_of_the_source_are_run(pytestconfig):
    assert pytestconfig.getoption("doctestmodules")
    roots = [pytestconfig.rootpath / path for path in pytestconfig.getini("testpaths")]
    assert any(SOURCE.is_relative_to(root) for root in roots)


@by_name(USED)
def test_every_argument_of_a_public_name_is_documented(package, name):
    value = thing(package, name)
    assert arguments(value) - documented(value) == set()


def arguments(value):
    """Names of the arguments of a function, or of what makes a class."""
    if isinstance(value, EnumType) or is_protocol(value):
        return set()
    return set(inspect.signature(value).parameters)


def documented(value):
    """Names that are under `Args:`, or described where they are declared as fields."""
    if isinstance(value, types.FunctionType):
        return listed_arguments(value.__doc__)
    bases = [base for base in value.__mro__ if base.__module__.startswith("bmdp")]
    return set().union(*(listed_arguments(b.__doc__) | described_fields(b) for b in bases))


def listed_arguments(docstring):
    """Names under `Args:`: those that are indented least."""
    section = re.search(r"^Args:\n((?:[ ]+.*\n?|\n)+)", inspect.cleandoc(docstring or ""), re.M)
    if section is None:
        return set()
    lines = re.findall(r"^([\w*, ]+):", textwrap.dedent(section[1]), re.MULTILINE)
    return {name.strip(" *") for line in lines for name in line.split(",")}


@cache
def described_fields(cls):
    """Fields of a class that have a comment beside them, or a string below them."""
    lines = textwrap.dedent(inspect.getsource(cls)).splitlines()
    body = ast.parse("\n".join(lines)).body[0].body
    return {
        statement.target.id
        for statement, following in zip(body, [*body[1:], None], strict=True)
        if isinstance(statement, ast.AnnAssign)
        and (is_string(following) or "  # " in lines[statement.end_lineno - 1])
    }


def test_every_error_belongs_to_the_tree():
    errors = [v for v in vars(bmdp.errors).values() if isinstance(v, type)]
    assert all(issubclass(error, bmdp.BmdpError) for error in errors)
    drawn = set(re.findall(r"(\w+)(?:\(|\n)", bmdp.errors.__doc__))
    assert {error.__name__ for error in errors} <= drawn
