"""Training runs that survive a kill.

A run writes its folder as it goes, and `resume` goes on from there. All random numbers come from
streams that are named after what they are for, so what a kill interrupted is done again in the same
way: with the same number of threads on the same device, a run that was killed ends with the very
policy of one that was not.

    RUN/
      spec.json            schema, what is learned and how, seed, device, threads, versions
      records.jsonl        how each collection and iteration went, a line each; at last a prediction
      round-000/
        batch.npz          the episodes of this round alone
        fit/               the learner so far, a file for each step, until there is a policy
        policy/            the policy of this round, once it is learned
      policy/              that of the last round
      done                 an empty mark
      lock                 of the process that writes here

Every file is written aside, brought to the disk, and renamed. A record is written before what it
tells of is kept, so what has been kept has its record, and records of what was not are dropped.
"""

from __future__ import annotations

import json
import math
import os
import platform
import shutil
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

import bmdp
from bmdp.arrays import FloatArray
from bmdp.checks import require_count
from bmdp.data import TransitionBatch, load_batches
from bmdp.envs.slots import open_slots
from bmdp.errors import ConfigError, DataError, StoreError
from bmdp.learn.collect import threads
from bmdp.learn.evaluation import HeldOut, split_episodes
from bmdp.learn.explore import Manner, RunRecord, learn_round, play_rounds
from bmdp.learn.fit import Backward, torch_device
from bmdp.learn.learners import Learner
from bmdp.learn.spec import TrainingSpec, from_json, to_json
from bmdp.policies.policy import Policy, load_policy
from bmdp.randomness import stream_key
from bmdp.storage import (
    SPEC,
    arrays_hash,
    create_folder,
    discard_folder,
    locked,
    read_header,
    to_disk,
    write_aside,
    write_text,
)

AnyPath = str | os.PathLike[str]
OnRecord = Callable[[RunRecord], None]
Row = dict[str, Any]
"""A line of records.jsonl."""

RECORDS, LOCK, DONE, POLICY = "records.jsonl", "lock", "done", "policy"
_BATCH, _FIT = "batch.npz", "fit"


def _nothing(record: RunRecord) -> None:
    """Takes no note."""


def train(
    spec: TrainingSpec,
    folder: AnyPath,
    *,
    seed: int,
    workers: int = 1,
    device: str = "auto",
    on_record: OnRecord = _nothing,
) -> Any:
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
    >>> from bmdp.learn import BFTQConfig, EnvConfig, Exploration, Iterations
    >>> from bmdp.models import LinearModel
    >>> learner = BFTQConfig(gamma=1.0, model=LinearModel(), schedule=Iterations(1))
    >>> spec = TrainingSpec(EnvConfig("corridors"), learner, Exploration(rounds=1, episodes=4))
    >>> with tempfile.TemporaryDirectory() as place:
    ...     policy = train(spec, f"{place}/run", seed=0)
    ...     sorted(path.name for path in Path(place, "run").iterdir())
    ['done', 'lock', 'policy', 'records.jsonl', 'round-000', 'spec.json']
    """
    require_new(Path(folder))
    require_count("workers", workers, 1)
    if spec.env is None:
        raise ConfigError("spec.env must be given to explore; use train_from_data for a log.")
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
) -> Any:
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
    >>> learner = BFTQConfig(gamma=0.9, model=TableModel(), ensemble=1)
    >>> with tempfile.TemporaryDirectory() as place:
    ...     train_from_data(log, learner, f"{place}/run", seed=0).frontier([0]).reward_at(0.25)
    2.5
    """
    require_new(Path(folder))
    header = _header(TrainingSpec(None, learner, None, held_out), seed, device)
    data_notes(split_episodes(batch, held_out, seed=seed, number=0).learned, learner)  # checks
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
) -> Any:
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
    >>> learner = BFTQConfig(gamma=0.9, model=TableModel(), ensemble=1)
    >>> with tempfile.TemporaryDirectory() as place:
    ...     policy = train_from_data(log, learner, f"{place}/run", seed=0)
    ...     resume(f"{place}/run").frontier([0]).reward_at(0.25)
    2.5
    """
    require_count("workers", workers, 1)
    return _go_on(RunFolder(folder), workers, device, on_record)


def _go_on(run: RunFolder, workers: int, device: str | None, on_record: OnRecord) -> Any:
    """Does what is still to do."""
    spec, seed, own_device, n_threads = _read(run)  # imports what a kept policy needs
    if run.is_done:
        return run.final_policy()
    manner = Manner(seed, workers, own_device if device is None else device)
    checked_device(manner.device)

    def note(record: RunRecord) -> None:
        run.note(record)
        on_record(record)

    with run.locked(), threads(n_threads):
        run.tidy()
        if spec.env is None:
            policy = _learn(spec, manner, run, note)
        else:
            _, policy = play_rounds(spec, manner, run, note)
        run.finish(policy)
    return policy


def _learn(spec: TrainingSpec, manner: Manner, run: RunFolder, note: OnRecord) -> Any:
    """The only round of a run from data."""
    parts = split_episodes(_data_of(run), spec.held_out, seed=manner.seed, number=0)
    policy = learn_round(spec, parts.learned, 0, manner, run, note)
    held_out = HeldOut.of([parts], spec.learner, manner.seed, manner.device)
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


def _header(spec: TrainingSpec, seed: int, device: str) -> dict[str, Any]:
    """Content of spec.json."""
    stream_key(seed, "")  # checks it
    return {
        "kind": "data" if spec.env is None else "exploration",
        "spec": to_json(spec),
        "seed": int(seed),
        "device": checked_device(device),
        "threads": torch.get_num_threads(),
        "versions": versions(),
    }


def _read(run: RunFolder) -> tuple[TrainingSpec, int, str, int]:
    """Settings, seed, device and threads of a run."""
    header, spec = run.header, spec_of(run)
    try:
        seed, threads = header["seed"], header["threads"]
        stream_key(seed, "")
        require_count("threads", threads, 1)
        if spec.env is None and not isinstance(header["data"], dict):
            raise ConfigError("data must be settings by name.")
        return spec, seed, str(header["device"]), threads
    except (ConfigError, KeyError) as error:
        raise StoreError(f"{run.path}/spec.json does not make sense: {error}") from error


def spec_of(run: RunFolder) -> TrainingSpec:
    """Returns what a run learns, and how.

    Raises:
        StoreError: if its settings are wrong.
    """
    try:
        return from_json(run.header.get("spec"))
    except ConfigError as error:
        raise StoreError(f"{run.path}/spec.json does not make sense: {error}") from error


class FitKeeper:
    """Keeps a learner in files of a folder, one for each step: only what is new is written.

    Each has its arrays, the number of iterations done, and a checksum.
    """

    def __init__(self, path: Path) -> None:
        """Keeps in a folder that need not be there yet."""
        self.path = path

    def n_done(self) -> int:
        """Number of iterations done, without a look at the arrays."""
        return max((self._read(file, arrays=False)[0] for file in self._files()), default=0)

    def load(self) -> tuple[int, float | None, dict[int, dict[str, Tensor]]]:
        """Number of iterations done, the last change, and the arrays of each step."""
        n_done, last, found = 0, None, {}
        for file in self._files():
            number, change, tensors = self._read(file, arrays=True)
            found[int(file.stem.removeprefix("step-"))] = tensors
            n_done, last = max((n_done, last), (number, change), key=lambda both: both[0])
        return n_done, last, dict(sorted(found.items(), reverse=True))

    def save(
        self, n_done: int, change: float | None, step: int, tensors: dict[str, Tensor]
    ) -> None:
        """Keeps what was fitted at a step."""
        self.path.mkdir(parents=True, exist_ok=True)
        whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        marks = {"n_done": str(n_done), "change": "" if change is None else change.hex()}
        marks["sha256"] = self._hash(whole, marks)
        file = self.path / f"step-{step:04d}.safetensors"
        write_aside(file, lambda aside: save_file(whole, aside, metadata=marks))

    def discard(self) -> None:
        """Deletes all of it."""
        shutil.rmtree(self.path, ignore_errors=True)

    def _files(self) -> list[Path]:
        return sorted(self.path.glob("step-*.safetensors"))

    def _read(self, file: Path, *, arrays: bool) -> tuple[int, float | None, dict[str, Tensor]]:
        try:
            with safe_open(file, "pt") as opened:
                marks = opened.metadata() or {}
                names = opened.keys() if arrays else ()
                found = {name: opened.get_tensor(name) for name in names}
            n_done, change = int(marks["n_done"]), marks["change"]
        except (OSError, SafetensorError, KeyError, ValueError) as error:
            raise self._damaged(file) from error
        if arrays and self._hash(found, marks) != marks.get("sha256"):
            raise self._damaged(file)
        return n_done, float.fromhex(change) if change else None, found

    def _hash(self, tensors: dict[str, Tensor], marks: dict[str, str]) -> str:
        arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
        return arrays_hash(arrays, f"{marks['n_done']}/{marks['change']}")

    def _damaged(self, file: Path) -> StoreError:
        return StoreError(
            f"{file} is damaged. Delete the folder {self.path} and resume: the iterations of its "
            "round are then done again."
        )


def save_policy(policy: Policy, folder: Path) -> None:
    """Saves a policy, unless it is there: a folder is there whole or not at all."""
    if folder.exists():
        return
    aside = folder.with_name(f".{folder.name}.{os.getpid()}.new")
    policy.save(aside, overwrite=True)
    for path in (*aside.rglob("*"), aside):
        to_disk(path)
    os.rename(aside, folder)
    to_disk(folder.parent)


class RunFolder:
    """A folder that holds a run."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Opens a run that is there.

        Raises:
            StoreError: if there is none, or it is of a newer schema.
        """
        self.path = Path(path)
        self.header = read_header(self.path, "training run", _is_run)

    @classmethod
    def create(cls, path: str | os.PathLike[str], header: dict[str, Any]) -> RunFolder:
        """Makes the folder of a new run, whole or not at all.

        Raises:
            StoreError: if there is something of that name, or it cannot be written.
        """
        target = Path(path)
        require_new(target)
        create_folder(target, header)
        return cls(target)

    def locked(self) -> AbstractContextManager[None]:
        """Keeps other processes away. The lock of a process that died holds nobody back.

        Raises:
            StoreError: if another process is at work here.
        """
        return locked(self.path / LOCK, self.path)

    @property
    def is_done(self) -> bool:
        """Whether the run is finished."""
        return (self.path / DONE).exists()

    def final_policy(self) -> Any:
        """The policy of a run that is finished."""
        return load_policy(self.path / POLICY)

    def finish(self, policy: Policy) -> None:
        """Keeps the last policy, and marks the run as done."""
        save_policy(policy, self.path / POLICY)
        write_text(self.path / DONE, "")

    def batch(self, number: int) -> TransitionBatch | None:
        """Episodes of a round, if they were played."""
        path = self._round(number) / _BATCH
        return TransitionBatch.from_npz(path) if path.exists() else None

    def keep_batch(self, number: int, batch: TransitionBatch) -> None:
        """Keeps the episodes of a round."""
        self._round(number).mkdir(exist_ok=True)
        write_aside(self._round(number) / _BATCH, batch.to_npz)

    def policy(self, number: int) -> Any:
        """The policy of a round, if it was learned."""
        path = self._round(number) / POLICY
        return load_policy(path) if path.exists() else None

    def keep_policy(self, number: int, policy: Policy) -> None:
        """Keeps the policy of a round, and no longer what its learner needed to go on."""
        save_policy(policy, self._round(number) / POLICY)
        self.keeper(number).discard()

    def keeper(self, number: int) -> FitKeeper:
        """Keeps what the learner of a round needs to go on."""
        return FitKeeper(self._round(number) / _FIT)

    def note(self, record: RunRecord) -> None:
        """Adds a record."""
        row = _finite({"kind": record.kind, **record.as_dict()})
        with (self.path / RECORDS).open("a") as file:
            file.write(json.dumps(row) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def records(self) -> list[Row]:
        """All records."""
        return read_records(self.path / RECORDS)

    def prediction(self) -> Row | None:
        """What held-out episodes say of the last policy, if any were."""
        return next((r for r in reversed(self.records()) if r["kind"] == "prediction"), None)

    def tidy(self) -> None:
        """Takes away what a kill left: records of what was not kept, files half written."""
        for place in (self.path, *self.path.glob("round-*")):
            for left in (*place.glob(".*.new*"), *place.glob(f"{_FIT}/.*.new*")):
                shutil.rmtree(left) if left.is_dir() else left.unlink()
            if (place / POLICY).exists():
                shutil.rmtree(place / _FIT, ignore_errors=True)
        n_done = cache(self._n_done)  # it opens the files of a round
        kept = []
        for record in self.records():
            if record["kind"] == "prediction":  # there is nothing else of it: it is made again
                break
            if record["kind"] == "collection":
                is_kept = (self._round(record["round"]) / _BATCH).exists()
            else:
                is_kept = record["iteration"] < n_done(record["round"])
            if not is_kept:
                break
            kept.append(json.dumps(record) + "\n")
        write_text(self.path / RECORDS, "".join(kept))

    def _n_done(self, number: int) -> float:
        """Iterations of a round that were kept: all, if there is a policy."""
        if (self._round(number) / POLICY).exists():
            return math.inf
        return self.keeper(number).n_done()

    def _round(self, number: int) -> Path:
        return self.path / f"round-{number:03d}"


def read_records(path: Path) -> list[Row]:
    """Returns the records of a file, if it is there, up to one that a kill cut off."""
    lines = path.read_text(errors="replace").splitlines() if path.is_file() else []
    found = []
    for line in lines:
        try:
            record = json.loads(line)
        except ValueError:  # what it tells of was not kept
            break
        if isinstance(record, dict):
            found.append(record)
    return found


def require_new(path: Path) -> None:
    """Checks that there is nothing of a name.

    Raises:
        StoreError: if there is.
    """
    if path.exists():
        way = ", or resume the run in it" if (path / SPEC).exists() else ""
        raise StoreError(f"{path} exists already: choose another folder{way}.")


def discard(path: str | os.PathLike[str]) -> None:
    """Deletes a run, and nothing that is none.

    Raises:
        StoreError: if the folder holds something else, or a process is at work in it.
    """
    discard_folder(path, "training run", lambda target: RunFolder(target).locked())


def _is_run(header: dict[str, Any]) -> bool:
    return header.get("kind") != "experiment"


def _finite(record: Row) -> Row:
    """A record as JSON has it, which has no number for what is not finite."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in record.items()
    }


def versions() -> dict[str, str]:
    """Returns the versions of what results depend on, by name."""
    return {
        "bmdp": bmdp.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "torch": torch.__version__,
        "gymnasium": gymnasium.__version__,
    }


def checked_device(name: str) -> str:
    """Returns the name of a device that is here; "auto" is the GPU if there is one.

    Raises:
        ConfigError: if it is not here.
    """
    try:
        device = torch_device(name)
    except RuntimeError:
        raise ConfigError(f"device must be 'auto', 'cpu' or 'cuda'; got {name!r}.") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(f"device {name!r} is not here; 'auto' takes what there is.")
    return str(device)


def data_notes(batch: TransitionBatch, learner: Learner) -> tuple[str, ...]:
    """Returns what to beware of, in plain words: what the log says of itself, and of budgets.

    Raises:
        DataError: if these settings cannot learn from this log at all.
    """
    notes = list(batch.summary().notes)
    if learner.gamma == 1 and not batch.terminal.any():
        notes.append(
            "gamma is 1 and no row is terminal: values grow with every iteration, and never settle"
        )
    _require_columns(batch, learner)
    notes.extend(_budget_notes(batch, learner))
    return tuple(notes)


def _require_columns(batch: TransitionBatch, learner: Learner) -> None:
    n_episodes = len(batch) if batch.episode is None else len(np.unique(batch.episode))
    if n_episodes < learner.ensemble:
        raise DataError(
            f"episode must name at least {learner.ensemble} episodes for learner.ensemble, which "
            f"gives each of so many models its own; got {n_episodes}. Use learner.ensemble=1."
        )
    if getattr(learner.model, "labels", "") == "stored" and batch.budget is None:
        raise DataError(
            "budget must be given for learner.model.labels 'stored'; the log has none. Use "
            "learner.model.labels=uniform."
        )
    if isinstance(learner.schedule, Backward) and batch.step is None:
        raise DataError("step must be given for learner.schedule Backward; the log has none.")


def _budget_notes(batch: TransitionBatch, learner: Learner) -> list[str]:
    """Whether the budgets have to do with what episodes cost."""
    gamma = learner.gamma if learner.cost_gamma is None else learner.cost_gamma
    paid = episode_costs(batch, gamma)
    if paid is None or not batch.cost.any():
        return []
    low, high = learner.budget_range
    cheapest, dearest = float(paid.min()), float(paid.max())
    seen = f"episodes of the log cost {cheapest:g} to {dearest:g}"
    asked = f"budget_range, {low:g} to {high:g},"
    if high < cheapest:
        return [f"{asked} is below what any episode cost: {seen}"]
    if low >= dearest:
        return [f"{asked} is above what any episode cost: {seen}, so every budget buys the same"]
    if high - low > 20 * (dearest - low):
        return [f"{asked} is much wider than the costs: {seen}"]
    return []


def episode_costs(batch: TransitionBatch, gamma: float) -> FloatArray | None:
    """Returns the discounted cost of each episode, or None if episodes or steps are unknown."""
    if batch.episode is None or batch.step is None:
        return None
    _, which = np.unique(batch.episode, return_inverse=True)
    paid = batch.cost * gamma ** batch.step.astype(np.float64)
    costs: FloatArray = np.bincount(which, weights=paid).astype(np.float64)
    return costs
