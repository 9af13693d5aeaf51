"""What commands of pages must look like, and how they are made small.

Checked, but never run: `pip install` (extras, names and files must be there), `make` (targets must
be there), `tensorboard` (its folder must be there), `curl` (a service must take it), `pytest`,
`git`, `cd`, `source`; of `bmdp`, what asks for Ray, and what has words in capitals for something
that the page has not made: verb and options must be right. Code in a sentence that is no whole
command is checked in the same way.
"""

import re
import tomllib
from pathlib import Path

from bmdp import BmdpError
from bmdp.cli import main
from bmdp.cli.options import parse_seeds
from bmdp.deployment.service import DecideBody, FrontierBody, ObserveBody, StartBody
from bmdp.paper.runner import asked_spec
from pages.reading import ROOT

VERBS = {name: main.verb(name) for name in main.VERBS}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PLACEHOLDER = re.compile(r"[A-Z][A-Z_]+")
REQUIREMENT = re.compile(r"([\w.-]+?)(?:\[([\w,-]+)\])?(?:[<>=~!].*)?")

SMALL_RUN = {"--preset": "smoke", "--seeds": "0:1", "--device": "cpu"}
SMALL_FIT = {"--episodes": "60", "--minutes": "0.01"}
SMALL_EXPLORATION = ("exploration.rounds=2", "exploration.decay=0.05")
N_EXPLORED, N_PLAYED = 20, 50  # episodes in all, and at each budget


class RuleError(Exception):
    """Something that is wrong, or that no rule covers."""


class NotWhole(RuleError):
    """Something is missing, as where a sentence speaks of `bmdp fit`."""


FITS = ("fit", "train")  # the same verb
NEEDED = {"solve": (("model", "textbook_name"),)} | dict.fromkeys(FITS, (("out", "resume"),))
"""What verbs refuse to do without, at least one of each."""


ASKED = {
    "/health": None,
    "/docs": None,
    "/openapi.json": None,
    "/start": StartBody,
    "/decide": DecideBody,
    "/observe": ObserveBody,
    "/frontier": FrontierBody,
}
"""What a service of `bmdp serve` can be asked, and the body of it."""


# The words of `bmdp`


def parsed(verb, words):
    """Values of the options as they are written.

    Raises:
        NotWhole: if something is missing, but nothing is wrong.
        RuleError: if a verb, an option or a value is wrong.
    """
    require(verb in VERBS, f"bmdp has no verb {verb!r}; it has {', '.join(VERBS)}.")
    for word in words:
        known = not word.startswith("--") or word.partition("=")[0] in options(verb)
        require(known, f"bmdp {verb} has no option {word}.")
    try:
        values = VERBS[verb].make_context(verb, list(words)).params
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        missing = type(error).__name__ in ("MissingParameter", "BadOptionUsage")
        kind = NotWhole if missing else RuleError
        raise kind(f"bmdp {verb}: {error.format_message()}") from error
    for needed in NEEDED.get(verb, ()):
        if all(values[name] is None for name in needed):
            raise NotWhole(f"bmdp {verb} needs {' or '.join(needed)}.")
    return values


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


def small(verb, words):
    """The same command with less work.

    `run`: the smallest preset and one seed. `fit`: few episodes, and few rounds or little time.
    `evaluate`, `calibrate` and `report`: few episodes. Wherever a device or a number of
    workers is given: the CPU, and one. `serve`: any port that is free.
    """
    words = list(words)
    if verb == "serve":
        return with_option(words, "--port", "0")
    if verb == "run":
        for option, value in SMALL_RUN.items():
            words = with_option(words, option, value)
        return words
    if verb in FITS and "--resume" not in words and "--data" not in words:
        if value_of(words, "--preset") or value_of(words, "--set"):
            words = with_option(words, "--episodes", str(N_EXPLORED))
            words += [f"--set={setting}" for setting in SMALL_EXPLORATION]
        else:
            for option, value in SMALL_FIT.items():
                words = with_option(words, option, value)
    if verb in ("evaluate", "calibrate", "report"):
        words = with_option(words, "--episodes", str(N_PLAYED))
    for option, value in (("--device", "cpu"), ("--workers", "1")):
        words = with_option(words, option, value) if value_of(words, option) else words
    return words


def value_of(words, option):
    """What an option is given, the last time; None if it is not."""
    found = [words[i + 1] for i, word in enumerate(words[:-1]) if word == option]
    found += [word.partition("=")[2] for word in words if word.startswith(f"{option}=")]
    return found[-1] if found else None


def with_option(words, option, value):
    """The words with another value of an option, in its place, or at the end."""
    words = list(words)
    for i, word in enumerate(words):
        if word == option:
            words[i + 1 : i + 2] = [value]
            return words
        if word.startswith(f"{option}="):
            words[i] = f"{option}={value}"
            return words
    return [*words, option, value]


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


def check_curl(words):
    """Whether a service has what is asked for, and takes the body."""
    url = next((word for word in words if word.startswith("http://")), "")
    path = "/" + url.partition("//")[2].partition("/")[2]
    there = ", ".join(ASKED)
    require(path in ASKED, f"a service has no {path!r}; it has {there}.")
    body = next((value_of(words, o) for o in ("--json", "-d") if value_of(words, o)), None)
    model = ASKED[path]
    require((body is None) == (model is None), f"{path} takes {'no' if body else 'a'} body.")
    if model is None or body.startswith("@"):
        return
    require("-d" not in words or "application/json" in " ".join(words), "the body must be JSON.")
    try:
        model.model_validate_json(body)
    except ValueError as error:
        raise RuleError(f"{path} does not take that: {error}") from error


def check_tensorboard(words):
    """Whether there is something to look at."""
    folder = value_of(words, "--logdir")
    require(folder is not None, "tensorboard needs --logdir.")
    require(Path(folder).is_dir(), f"no command of the page has made {folder!r}.")


def check_nothing(words):
    """What can be neither run nor checked."""


def require(holds, rule):
    """Raises what a page did wrong."""
    if not holds:
        raise RuleError(rule)


CHECKED = {
    "pip": check_pip,
    "make": check_make,
    "tensorboard": check_tensorboard,
    "curl": check_curl,
    "pytest": check_nothing,
    "git": check_nothing,
    "cd": check_nothing,
    "source": check_nothing,
}
"""Programs that are not run, and what is checked instead."""
