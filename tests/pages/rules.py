"""What words of commands must look like, whether they are run or not.

`pip install`: extras, names and files must be there; `make`: its targets; `bmdp`: verb, options,
values, experiment and preset. `pytest`, `git`, `cd`, `source` and `tensorboard` are not looked at.
"""

import re
import tomllib

import typer

from bmdp import BmdpError
from bmdp.cli import main
from bmdp.cli.options import parse_seeds
from bmdp.paper.runner import asked_spec
from pages.reading import ROOT

VERBS = {name: main.verb(name) for name in main.VERBS}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PLACEHOLDER = re.compile(r"[A-Z][A-Z_]+")
REQUIREMENT = re.compile(r"([\w.-]+?)(?:\[([\w,-]+)\])?(?:[<>=~!].*)?")


class RuleError(Exception):
    """Something that is wrong, or that no rule covers."""


class NotWhole(RuleError):
    """Something is missing, as where a sentence speaks of `bmdp fit`."""


FITS = ("fit", "train")  # the same verb
NEEDED = {"solve": (("model", "textbook_name"),)} | dict.fromkeys(FITS, (("out", "resume"),))
"""What verbs refuse to do without, at least one of each."""


# The words of `bmdp`


def check_bmdp(words):
    """Whether there are such a verb, options, and experiment.

    Raises:
        NotWhole: if something is missing, but nothing is wrong.
        RuleError: if a verb, an option or a value is wrong.
    """
    verb, *words = words
    if verb.startswith("-"):
        return
    require(verb in VERBS, f"bmdp has no verb {verb!r}; it has {', '.join(VERBS)}.")
    for word in words:
        known = not word.startswith("--") or word.partition("=")[0] in options(verb)
        require(known, f"bmdp {verb} has no option {word}.")
    try:
        values = VERBS[verb].make_context(verb, list(words)).params
    except typer.Exit:  # --help
        return
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        missing = type(error).__name__ in ("MissingParameter", "BadOptionUsage")
        kind = NotWhole if missing else RuleError
        raise kind(f"bmdp {verb}: {error.format_message()}") from error
    for needed in NEEDED.get(verb, ()):
        if all(values[name] is None for name in needed):
            raise NotWhole(f"bmdp {verb} needs {' or '.join(needed)}.")
    if verb == "run":
        check_experiment(values)


def options(verb):
    """Names of its options."""
    return {name for option in VERBS[verb].params for name in option.opts} | {"--help"}


def check_experiment(values):
    """Whether there is such an experiment, of such a size, with such seeds."""
    seeds = None if values["seeds"] is None else parse_seeds(values["seeds"])
    try:
        asked_spec(values["experiment"], values["preset"], seeds=seeds, device="cpu")
    except BmdpError as error:
        raise RuleError(str(error)) from error


def value_of(words, option):
    """What an option is given, the last time; None if it is not."""
    found = [words[i + 1] for i, word in enumerate(words[:-1]) if word == option]
    found += [word.partition("=")[2] for word in words if word.startswith(f"{option}=")]
    return found[-1] if found else None


# Other programs


def check_pip(words):
    """Whether what is to be installed is there: files, extras, and names of packages."""
    if words[:1] != ["install"]:
        raise RuleError(f"no rule covers pip {words[0] if words else ''}.")
    extras = PROJECT["optional-dependencies"]
    known = {
        REQUIREMENT.fullmatch(text)[1]
        for texts in (PROJECT["dependencies"], *extras.values())
        for text in texts
    }
    rest = iter(words[1:])
    for word in rest:
        if word in ("-c", "-r"):
            require((ROOT / (given := next(rest, ""))).is_file(), f"there is no file {given!r}.")
        elif word in ("--index-url", "--extra-index-url", "--find-links"):
            next(rest, None)
        elif not word.startswith("-") and not word.startswith("build/dist/"):
            match = REQUIREMENT.fullmatch(word)
            require(match, f"no rule covers the requirement {word!r}.")
            name, asked = match[1], (match[2] or "").split(",")
            require(name in {".", "bmdp", *known}, f"pyproject.toml does not name {name!r}.")
            for extra in filter(None, asked):
                there = ", ".join(extras)
                require(extra in extras, f"there is no extra {extra!r}; there are {there}.")


def check_make(words):
    """Whether the targets are there."""
    rules = re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for target in (word for word in words if "=" not in word):
        require(target in rules, f"the Makefile has no target {target!r}.")


def check_nothing(words):
    """What can be neither run nor checked."""


def require(holds, rule):
    """Raises what a page did wrong."""
    if not holds:
        raise RuleError(rule)


CHECKED = {
    "pip": check_pip,
    "make": check_make,
    "tensorboard": check_nothing,
    "pytest": check_nothing,
    "git": check_nothing,
    "cd": check_nothing,
    "source": check_nothing,
}
"""Programs that are not run, and what is checked instead."""
