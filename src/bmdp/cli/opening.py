"""Runs and policies that a verb is given, with the environment to play in."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from gymnasium.envs.registration import EnvSpec

from bmdp.errors import ConfigError
from bmdp.policies import BudgetedPolicy, load_policy
from bmdp.storage import SPEC

RunPath = Annotated[
    Path, typer.Argument(metavar="RUN", help="Folder of a training run, or of a policy.")
]
EnvName = Annotated[
    str | None,
    typer.Option(metavar="ENV", help="Environment; without: that of the run, as it was set."),
]
EnvSettings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="env.a=b", help="Change a setting of the environment."),
]


class Opened(NamedTuple):
    """A policy, and where it is to be played."""

    policy: BudgetedPolicy
    env: EnvSpec


def open_run(run: Path, env: str | None, settings: Sequence[str]) -> Opened:
    """Returns the policy of a folder and an environment.

    Raises:
        StoreError: if the folder holds no policy.
        ConfigError: if no environment is known, or it does not take its settings.
    """
    from bmdp.learn.learners import FTQConfig
    from bmdp.learn.runs import RunFolder, spec_of
    from bmdp.learn.spec import EnvConfig, Exploration, TrainingSpec, with_setting

    # The settings of a run import the modules that its policy needs.
    own = spec_of(RunFolder(run)) if (run / SPEC).exists() else None
    policy = load_policy(run)
    if env is not None:
        spec = TrainingSpec(EnvConfig(env), FTQConfig(gamma=1.0), Exploration())
    elif own is not None:
        spec = own
    else:
        raise _nameless(run)
    for text in settings:
        if not text.startswith("env."):
            raise ConfigError(f"--set is for the environment here, env.a=b; got '{text}'.")
        spec = with_setting(spec, text)
    if spec.env is None:
        raise _nameless(run)
    return Opened(policy, spec.env.spec())


def _nameless(run: Path) -> ConfigError:
    return ConfigError(f"{run} does not name an environment: give --env ENV.")
