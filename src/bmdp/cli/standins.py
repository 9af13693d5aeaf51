"""Stand-ins for functions of `bmdp.learn` that are written elsewhere: delete at the merge.

`fit` takes train, train_from_data, share_done and last_line from here instead of
`bmdp.learn.runs`, and `options` takes with_env_setting instead of `bmdp.learn.spec`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bmdp.data import TransitionBatch
from bmdp.errors import ConfigError, StoreError
from bmdp.experiments.running.pace import all_work, most_iterations, work_done
from bmdp.learn import runs
from bmdp.learn.evaluation import split_episodes
from bmdp.learn.explore import RunRecord
from bmdp.learn.learners import FTQConfig, Learner
from bmdp.learn.spec import EnvConfig, Exploration, TrainingSpec, with_setting

AnyPath = str | os.PathLike[str]


def train(spec: TrainingSpec, folder: AnyPath, *, command: str = "", **how: Any) -> Any:
    """Explores and learns."""
    policy = runs.train(spec, folder, **how)
    _keep_command(folder, command)
    return policy


def _keep_command(folder: AnyPath, command: str) -> None:
    path = Path(folder, "spec.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), "command": command}))


def train_from_data(
    batch: TransitionBatch,
    learner: Learner,
    folder: AnyPath,
    *,
    command: str = "",
    on_note: Callable[[str], None] = lambda note: None,
    **how: Any,
) -> Any:
    """Learns from a log."""
    parts = split_episodes(batch, how.get("held_out", 0.0), seed=how["seed"], number=0)
    for note in runs.data_notes(parts.learned, learner):
        on_note(note)
    policy = runs.train_from_data(batch, learner, folder, **how)
    _keep_command(folder, command)
    return policy


def share_done(folder: AnyPath) -> float:
    """Share of a run that is done, by its records."""
    try:
        run = runs.RunFolder(folder)
        spec, records = runs.spec_of(run), run.records()
    except StoreError:
        return 0.0
    if run.is_done or not records:
        return float(run.is_done)
    last = next((row for row in reversed(records) if row["kind"] == "iteration"), None)
    n_rounds = 1 if spec.exploration is None else spec.exploration.rounds
    n_iterations = most_iterations(spec.learner, last)
    return work_done(records[-1], n_rounds, n_iterations) / all_work(n_rounds, n_iterations)


def last_line(record: RunRecord) -> str:
    """A record in a few words."""
    row = record.as_dict()
    where = f"round {record.round + 1}"
    if record.kind == "iteration":
        return f"{where}, iteration {row['iteration'] + 1}"
    return f"{where}, {record.kind}"


def with_env_setting(env: EnvConfig, text: str) -> EnvConfig:
    """An environment with one of its settings changed."""
    if not text.startswith("env."):
        raise ConfigError(f"--set is for the environment here, env.a=b; got '{text}'.")
    spec = TrainingSpec(env, FTQConfig(gamma=1.0), Exploration())
    changed = with_setting(spec, text).env
    assert changed is not None
    return changed
