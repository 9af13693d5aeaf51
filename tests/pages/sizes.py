"""What makes work small: episodes that are asked for in Python, and all that is learned.

Episodes that commands ask for are in `pages.rules`.
"""

import argparse
import functools
import signal
from dataclasses import replace
from pathlib import Path

import uvicorn

import bmdp
import bmdp.learn
from bmdp.envs import corridors
from bmdp.learn.fit import Iterations
from bmdp.learn.runs import discard
from bmdp.models import networks
from bmdp.paper import runner
from pages.rules import N_EXPLORED, N_PLAYED, SMALL_FIT, SMALL_RUN
from pictures import draw_once
from tiny_experiments import run_inline

SCRIPT_SIZES = (("--quick",), ("--models=2", "--budgets=31"), ("--seeds=0:0", "--workers=1"))
"""What makes a script small: the first of these of which it has the first option."""
MOST = {
    "evaluate": ("n_episodes", N_PLAYED),
    "calibrate": ("n_episodes", N_PLAYED),
    "evaluate_offline": ("n_bootstrap", 5),
}
"""The most of something that functions are asked for."""
COARSE = {
    corridors: {"resolution": 5, "n_episodes": 1000, "max_disagreement": 1.0},
}
"""How true frontiers are found."""


def make_small(patches):
    """Few episodes and steps, frontiers on coarse grids, few pictures, no other processes.

    Args:
        patches: pytest's `monkeypatch`.
    """

    def patch(name, change, *modules):
        for module in modules:
            patches.setattr(module, name, change(getattr(module, name)))

    patches.setattr(runner, "run_jobs", run_inline)
    patches.setattr(uvicorn.Server, "main_loop", _interrupted)
    draw_once(patches)
    patch("most", lambda real: lambda schedule, gamma: min(real(schedule, gamma), 2), Iterations)
    patch("descend", lambda real: functools.partial(_few_steps, real), networks)
    patch("preset", lambda real: lambda name: _training(real(name)), bmdp, bmdp.learn)
    for name in ("train", "train_from_data"):
        patch(name, lambda real: functools.partial(_anew, real), bmdp.learn)
    patch("fit", lambda real: functools.partial(_soon, real), bmdp, bmdp.learn)
    for name in MOST:
        patch(name, lambda real: functools.partial(_few, real, *MOST[real.__name__]), bmdp)
    patch("asked_spec", lambda real: functools.partial(_smoke, real), runner)
    for module, settings in COARSE.items():
        coarse = functools.partial(_frontier, module.true_frontier, tuple(settings.items()))
        patches.setattr(module, "true_frontier", lambda task=None, coarse=coarse, **_: coarse(task))


async def _interrupted(server):
    """Ends a service as soon as it listens, by Ctrl-C."""
    signal.raise_signal(signal.SIGINT)


def _few_steps(real, stack, samples, settings, *others):
    """Takes a few steps of gradient descent."""
    return real(stack, samples, replace(settings, steps=min(settings.steps, 3)), *others)


def _training(given):
    how = given.exploration
    n_episodes = min(how.episodes, N_EXPLORED // 2)
    how = replace(how, rounds=min(how.rounds, 2), episodes=n_episodes)
    return replace(given, exploration=how)


def _anew(real, *given, **others):
    """Overwrites a run that is there."""
    folder = next(value for value in given if isinstance(value, str | Path))
    if Path(folder).exists():
        discard(folder)
    return real(*given, **others)


def _soon(real, source, **how):
    """Plays few episodes, and overwrites a run that is there."""
    if how.get("out") is not None and Path(how["out"]).exists():
        discard(how["out"])
    if "gamma" not in how:  # no log
        how |= {"episodes": int(SMALL_FIT["--episodes"]), "minutes": float(SMALL_FIT["--minutes"])}
    return real(source, **how)


def _few(real, number, most, *given, **others):
    return real(*given, **others | {number: min(others.get(number, most), most)})


def _smoke(real, experiment, preset, **others):
    """Checks what is asked, and returns the smallest."""
    real(experiment, preset, **others)
    return real(experiment, SMALL_RUN["--preset"], **others | {"seeds": (0,), "device": "cpu"})


@functools.cache
def _frontier(real, settings, task):
    """The same frontier is found once."""
    return real(task, **dict(settings))


class Enough(Exception):
    """The arguments of a script are right, and none would make it small."""


_parse_args = argparse.ArgumentParser.parse_args


def parse_small(parser, is_example, arguments=None, namespace=None):
    """Parses the arguments of a script as they are written, then with those that make it small.

    Raises:
        Enough: if there are none, but for examples, which are small as they are.
    """
    _parse_args(parser, arguments)
    known = parser._option_string_actions
    sizes = next((s for s in SCRIPT_SIZES if s[0].partition("=")[0] in known), ())
    if not sizes and not is_example:
        raise Enough
    return _parse_args(parser, [*arguments, *sizes], namespace)
