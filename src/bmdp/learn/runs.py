"""Training runs that survive a kill.

A run writes its folder as it goes, and `resume` goes on from there. All random numbers come from
streams that are named after what they are for, so what a kill interrupted is done again in the same
way: with the same number of threads on the same device, a run that was killed ends with the very
policy of one that was not.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from bmdp.checks import require_count
from bmdp.data import TransitionBatch, load_batches
from bmdp.envs.slots import open_slots
from bmdp.errors import ConfigError, StoreError
from bmdp.learn.collect import threads
from bmdp.learn.config import DataSpec, TrainingSpec
from bmdp.learn.data_notes import data_notes
from bmdp.learn.exploration import Manner, learner_of, of_round, play_rounds
from bmdp.learn.fit import Record, TrainedPolicy
from bmdp.learn.fit_config import Learner
from bmdp.learn.held_out import HeldOut, split_episodes
from bmdp.learn.machine import checked_device, versions
from bmdp.learn.run_folder import RunFolder, require_new
from bmdp.learn.spec_files import from_json, to_json
from bmdp.learn.whole_files import arrays_hash
from bmdp.randomness import stream_key

AnyPath = str | os.PathLike[str]
OnRecord = Callable[[Record], None]


def _nothing(record: Record) -> None:
    """Takes no note."""


def train(
    spec: TrainingSpec,
    folder: AnyPath,
    *,
    seed: int,
    workers: int = 1,
    device: str = "auto",
    on_record: OnRecord = _nothing,
) -> TrainedPolicy:
    """Explores an environment and learns from it, in a folder from which it can be resumed.

    Args:
        spec: what to learn, and how.
        folder: of the run; a new one.
        seed: of everything.
        workers: processes that collect episodes; any number collects the same ones.
        device: of the learner: "cpu", "cuda", or "auto" for the GPU if there is one.
        on_record: called after each collection and each iteration with how it went, and with the
            prediction of held-out episodes, if there are any.

    Raises:
        StoreError: if the folder exists, or cannot be written.
        ConfigError: if a setting is wrong, or cannot be written down.

    Paper: Algorithm 4.

    >>> import tempfile
    >>> from bmdp.learn import BFTQConfig, EnvConfig, Exploration
    >>> from bmdp.models import LinearModel
    >>> learner = BFTQConfig(gamma=1.0, model=LinearModel(), iterations=1)
    >>> spec = TrainingSpec(EnvConfig("corridors"), learner, Exploration(rounds=1, episodes=4))
    >>> with tempfile.TemporaryDirectory() as place:
    ...     policy = train(spec, f"{place}/run", seed=0)
    ...     sorted(path.name for path in Path(place, "run").iterdir())
    ['done', 'lock', 'policy', 'records.jsonl', 'round-000', 'spec.json']
    """
    require_new(Path(folder))
    require_count("workers", workers, 1)
    open_slots(spec.env.spec()).close()  # settings that it does not take are refused here
    header = _header(spec, seed, device)
    return _go_on(RunFolder.create(folder, header), workers, None, on_record)


def train_from_data(  # noqa: PLR0913
    batch: TransitionBatch,
    learner: Learner,
    folder: AnyPath,
    *,
    seed: int,
    device: str = "auto",
    held_out: float = 0.0,
    files: Sequence[AnyPath] = (),
    on_record: OnRecord = _nothing,
) -> TrainedPolicy:
    """Learns from a log, in a folder from which it can be resumed.

    The folder has a copy of the transitions, so resuming does not need the log.

    Args:
        batch: transitions.
        learner: what to learn, and how: settings of `BFTQ`, `FTQ` or `LagrangianFTQ`.
        folder: of the run; a new one.
        seed: of everything.
        device: of the learner.
        held_out: share of episodes that are not learned from, but say what the policy will earn and
            pay: a record of kind "prediction".
        files: which the batch is from, to be written down.
        on_record: called after each iteration with how it went, and with the prediction.

    Raises:
        StoreError: if the folder exists, or cannot be written.
        DataError: if these settings cannot learn from these data; `data_notes` has warnings.

    Paper: Algorithm 2.

    >>> import tempfile
    >>> from bmdp.learn import BFTQConfig
    >>> from bmdp.models import TableModel
    >>> log = TransitionBatch([0, 0], [0, 1], [0, 10], [0, 1], [0, 0], [True, True])
    >>> learner = BFTQConfig(gamma=0.9, model=TableModel(), valuation="self", iterations=1)
    >>> with tempfile.TemporaryDirectory() as place:
    ...     train_from_data(log, learner, f"{place}/run", seed=0).frontier([0]).reward_at(0.25)
    2.5
    """
    require_new(Path(folder))
    header = _header(DataSpec(learner, held_out), seed, device)
    data_notes(split_episodes(batch, held_out, seed=seed, number=0).learned, learner)
    header["data"] = {
        "files": [os.path.abspath(name) for name in files],
        "transitions": len(batch),
        "sha256": arrays_hash(batch.to_arrays()),
    }
    run = RunFolder.create(folder, header)
    with run.locked():
        run.keep_batch(0, batch)
    return _go_on(run, 1, None, on_record)


def resume(
    folder: AnyPath,
    *,
    workers: int = 1,
    device: str | None = None,
    on_record: OnRecord = _nothing,
) -> TrainedPolicy:
    """Goes on with a run that was interrupted; one that is finished gives its policy at once.

    Args:
        folder: of the run.
        workers: processes that collect episodes.
        device: of the learner; that of the run, if not given. On another one numbers are rounded
            differently.
        on_record: called after each collection and each iteration that is still to do.

    Raises:
        StoreError: if there is no run, or it is damaged, of a newer schema, or being worked on.

    >>> import tempfile
    >>> from bmdp.learn import BFTQConfig
    >>> from bmdp.models import TableModel
    >>> log = TransitionBatch([0, 0], [0, 1], [0, 10], [0, 1], [0, 0], [True, True])
    >>> learner = BFTQConfig(gamma=0.9, model=TableModel(), valuation="self", iterations=1)
    >>> with tempfile.TemporaryDirectory() as place:
    ...     policy = train_from_data(log, learner, f"{place}/run", seed=0)
    ...     resume(f"{place}/run").frontier([0]).reward_at(0.25)
    2.5
    """
    require_count("workers", workers, 1)
    return _go_on(RunFolder(folder), workers, device, on_record)


def _go_on(run: RunFolder, workers: int, device: str | None, on_record: OnRecord) -> TrainedPolicy:
    """Does what is still to do."""
    if run.is_done:
        return run.final_policy()
    spec, seed, own_device, n_threads = _read(run)
    manner = Manner(seed, workers, own_device if device is None else device)
    checked_device(manner.device)

    def note(record: Record) -> None:
        run.note(record)
        on_record(record)

    with run.locked(), threads(n_threads):
        run.tidy()
        if isinstance(spec, DataSpec):
            policy = _learn(spec, manner, run, note)
        else:
            _, policy = play_rounds(spec, manner, run, note)
        run.finish(policy)
    return policy


def _learn(spec: DataSpec, manner: Manner, run: RunFolder, note: OnRecord) -> TrainedPolicy:
    """The only round of a run from data."""
    parts = split_episodes(_data_of(run), spec.held_out, seed=manner.seed, number=0)
    held_out = HeldOut.of([parts], spec.learner, manner.seed, manner.device)
    policy = run.policy(0)
    if policy is None:
        policy = learner_of(spec.learner).fit(
            parts.learned,
            seed=manner.seed,
            device=manner.device,
            on_record=of_round(note, 0),
            keeper=run.keeper(0),
        )
        run.keep_policy(0, policy)
    if held_out is not None:
        note(held_out.prediction(policy, 0))
    return policy


def _data_of(run: RunFolder) -> TransitionBatch:
    """The data of a run; from their files, if it was killed before it had a copy."""
    batch, data = run.batch(0), run.header["data"]
    if batch is None and data.get("files"):
        batch = load_batches(data["files"])
        run.keep_batch(0, batch)
    if batch is None or arrays_hash(batch.to_arrays()) != data.get("sha256"):
        raise StoreError(f"{run.path} does not hold the data that the run began with: begin anew.")
    return batch


def _header(spec: TrainingSpec | DataSpec, seed: int, device: str) -> dict[str, Any]:
    """What spec.json says."""
    stream_key(seed, "")  # checks it
    return {
        "kind": "data" if isinstance(spec, DataSpec) else "exploration",
        "spec": to_json(spec),
        "seed": int(seed),
        "device": checked_device(device),
        "threads": torch.get_num_threads(),
        "versions": versions(),
    }


def _read(run: RunFolder) -> tuple[TrainingSpec | DataSpec, int, str, int]:
    """Settings, seed, device and threads of a run."""
    header, spec = run.header, spec_of(run)
    try:
        seed, threads = header["seed"], header["threads"]
        stream_key(seed, "")
        require_count("threads", threads, 1)
        if isinstance(spec, DataSpec) and not isinstance(header["data"], dict):
            raise ConfigError("data must be settings by name.")
        return spec, seed, str(header["device"]), threads
    except (ConfigError, KeyError) as error:
        raise StoreError(f"{run.path}/spec.json does not make sense: {error}") from error


def spec_of(run: RunFolder) -> TrainingSpec | DataSpec:
    """Returns what a run learns, and how.

    Raises:
        StoreError: if its settings are wrong.
    """
    settings = run.header.get("spec")
    try:
        if run.header.get("kind") == "data":
            return from_json(settings, DataSpec)
        return from_json(settings)
    except ConfigError as error:
        raise StoreError(f"{run.path}/spec.json does not make sense: {error}") from error
