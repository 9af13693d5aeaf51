"""Training runs that survive a kill.

A run writes its folder as it goes, and `resume` goes on from there. All random numbers come from
streams that are named after what they are for, so what a kill interrupted is done again in the same
way: with the same number of threads on the same device, a run that was killed ends with the very
policy of one that was not.

    RUN/
      spec.json            schema, what is learned and how, seed, device, threads, versions,
                           machine, command and time; of a log also its files and checksum
      records.jsonl        how each collection and iteration went, a line each; at last a prediction
      round-000/
        batch.npz          the episodes of this round alone
        fit/               the learner so far, a file for each step, until there is a policy
        policy/            the policy of this round, once it is learned
      policy/              that of the last round
      done                 an empty mark
      lock                 of the process that writes here

Every file is written aside, brought to the disk, and renamed; the folder of a log begins with the
copy of its transitions. A record is written before what it tells of is kept, so what has been kept
has its record, and records of what was not are dropped.
"""

from __future__ import annotations

import json
import math
import os
import platform
import shutil
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

import gymnasium
import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

import bmdp
from bmdp import settings
from bmdp.checks import require_count
from bmdp.data import TransitionBatch
from bmdp.envs.slots import open_slots
from bmdp.errors import ConfigError, StoreError
from bmdp.kinds import checked
from bmdp.learn.collect import threads
from bmdp.learn.evaluation import Parts, split_episodes
from bmdp.learn.explore import OnRunRecord, Rounds, RunRecord
from bmdp.learn.fit import torch_device
from bmdp.learn.learners import Learner
from bmdp.learn.spec import TrainingSpec, data_notes, from_json, to_json
from bmdp.policies.policy import Policy, load_policy
from bmdp.randomness import stream_key
from bmdp.storage import (
    SPEC,
    AnyPath,
    Header,
    arrays_hash,
    create_folder,
    discard_folder,
    locked,
    read_header,
    sweep,
    write_text,
    written,
)

T = TypeVar("T")
Row = dict[str, Any]
"""A line of records.jsonl."""

RECORDS, LOCK, DONE, POLICY = "records.jsonl", "lock", "done", "policy"
_BATCH, _FIT = "batch.npz", "fit"
_COUNTS = {"n_rounds": 1, "n_iterations": 1}  # numbers of a record, from which on
_COUNTS |= dict.fromkeys(("round", "iteration", "transitions", "n_episodes"), 0)
_NEEDED = {"collection": {"round"}, "iteration": {"round", "iteration"}, "prediction": {"round"}}
_LISTS, _MEANS = ("budgets", "reward", "cost"), ("delta", "last_loss", "seconds")
_PROCESSORS = Path("/proc/cpuinfo")  # of Linux


def _ignore(told: object) -> None:
    pass


@checked
def train(  # noqa: PLR0913
    spec: TrainingSpec,
    folder: AnyPath,
    *,
    seed: int,
    workers: int = 1,
    device: str = "auto",
    on_record: OnRunRecord = _ignore,
    command: str = "",
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
        command: that asked for the run, to be written down.

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
    began = _Beginning(spec, seed, checked_device(device), torch.get_num_threads())
    run = RunFolder.create(folder, began.header(command))
    return _go_on(run, began, workers, began.device, on_record)


@checked
def train_from_data(  # noqa: PLR0913
    batch: TransitionBatch,
    learner: Learner,
    folder: AnyPath,
    *,
    seed: int,
    device: str = "auto",
    held_out: float = 0.0,
    files: Sequence[AnyPath] = (),
    on_record: OnRunRecord = _ignore,
    on_note: Callable[[str], None] = _ignore,
    command: str = "",
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
        on_note: called before learning with each of `data_notes`.
        command: that asked for the run, to be written down.

    Raises:
        StoreError: if the folder exists, or cannot be written.
        DataError: if these settings cannot learn from these data.

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
    spec = TrainingSpec(None, learner, None, held_out)
    began = _Beginning(spec, seed, checked_device(device), torch.get_num_threads())
    parts = split_episodes(batch, held_out, seed=seed, number=0)
    for note in data_notes(parts.learned, learner):
        on_note(note)
    data = {
        "files": [os.path.abspath(name) for name in files],
        "transitions": len(batch),
        "sha256": arrays_hash(batch.to_arrays()),
    }
    run = RunFolder.create(folder, {**began.header(command), "data": data}, batch)
    return _go_on(run, began, 1, began.device, on_record, parts)


def resume(
    folder: AnyPath,
    *,
    workers: int = 1,
    device: str | None = None,
    on_record: OnRunRecord = _ignore,
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
    run = RunFolder(folder)
    names = _Beginning.__dataclass_fields__.keys() & run.header.keys()
    header = {name: run.header[name] for name in names}
    began = _read(run, partial(settings.read, _Beginning), header)
    return _go_on(run, began, workers, device or began.device, on_record)


@dataclass(frozen=True)
class _Beginning:
    """Settings that a run begins with, and keeps when it is resumed."""

    spec: TrainingSpec
    seed: int
    device: str
    threads: int

    def __post_init__(self) -> None:
        stream_key(self.seed, "")  # checks it
        require_count("threads", self.threads, 1)

    def header(self, command: str) -> Header:
        """Content of spec.json."""
        return {
            "kind": "data" if self.spec.env is None else "exploration",
            "command": command,
            "began": datetime.now(UTC).isoformat(timespec="seconds"),
            "spec": to_json(self.spec),
            "seed": int(self.seed),
            "device": self.device,
            "threads": self.threads,
            "versions": versions(),
            "machine": machine(),
        }


def _go_on(
    run: RunFolder,
    began: _Beginning,
    workers: int,
    device: str,
    on_record: OnRunRecord,
    parts: Parts | None = None,
) -> Any:
    """Does what is still to do; `parts` are the data of a log, if they are at hand."""
    if run.is_done:
        return run.final_policy()

    def note(record: RunRecord) -> None:
        run.note(record)
        on_record(record)

    rounds = Rounds(began.spec, began.seed, note, workers, checked_device(device), run)
    with run.locked(), threads(began.threads):
        run.tidy()
        if began.spec.env is None:
            policy = rounds.learn_from(parts or _kept_parts(run, began))
        else:
            _, policy = rounds.explore()
        run.finish(policy)
    return policy


def _kept_parts(run: RunFolder, began: _Beginning) -> Parts:
    """The data of a log, from the copy in the folder."""
    batch, data = run.batch(0), run.header.get("data")
    known = data.get("sha256") if isinstance(data, dict) else None
    if batch is None or arrays_hash(batch.to_arrays()) != known:
        raise StoreError(f"{run.path} does not hold the data that the run began with: begin anew.")
    return split_episodes(batch, began.spec.held_out, seed=began.seed, number=0)


def spec_of(run: RunFolder) -> TrainingSpec:
    """Returns what a run learns, and how.

    Raises:
        StoreError: if its settings are wrong.
    """
    return _read(run, from_json, run.header.get("spec"))


def _read(run: RunFolder, read: Callable[[Any], T], value: Any) -> T:
    try:
        return read(value)
    except ConfigError as error:
        raise StoreError(f"{run.path}/{SPEC} does not make sense: {error}") from error


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
            found[self._step(file)] = tensors
            n_done, last = max((n_done, last), (number, change), key=lambda both: both[0])
        return n_done, last, dict(sorted(found.items(), reverse=True))

    def save(
        self, n_done: int, change: float | None, step: int, tensors: dict[str, Tensor]
    ) -> None:
        """Keeps what was fitted at a step."""
        whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        marks = {"n_done": str(n_done), "change": "" if change is None else change.hex()}
        marks |= {"sha256": self._hash(whole, marks), "bmdp": bmdp.__version__}
        with written(self.path / f"step-{step:04d}.safetensors") as new:
            save_file(whole, new, metadata=marks)

    def discard(self) -> None:
        """Deletes all of it."""
        shutil.rmtree(self.path, ignore_errors=True)

    def _step(self, file: Path) -> int:
        """Number of the step of a file."""
        number = file.stem.removeprefix("step-")
        if not number.isdecimal():
            raise self._damaged(file)
        return int(number)

    def _files(self) -> list[Path]:
        return sorted(self.path.glob("step-*.safetensors"))

    def _read(self, file: Path, *, arrays: bool) -> tuple[int, float | None, dict[str, Tensor]]:
        try:
            with safe_open(file, "pt") as opened:
                marks = opened.metadata() or {}
                names = opened.keys() if arrays else ()
                found = {name: opened.get_tensor(name) for name in names}
            n_done, told = int(marks["n_done"]), marks["change"]
            change = float.fromhex(told) if told else None
        except (OSError, SafetensorError, KeyError, ValueError, OverflowError) as error:
            raise self._damaged(file) from error
        if n_done < 1 or (arrays and self._hash(found, marks) != marks.get("sha256")):
            raise self._damaged(file)
        return n_done, change, found

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
    if not folder.exists():
        policy.save(folder)


class RunFolder:
    """A folder that holds a run."""

    def __init__(self, path: AnyPath, header: Header | None = None) -> None:
        """Opens a run that is there; its header is read, if it is not given.

        Raises:
            StoreError: if there is none, or it is of a newer schema.
        """
        self.path = Path(path)
        self.header = header or read_header(self.path, "training run", _is_run)

    @classmethod
    def create(
        cls, path: AnyPath, header: Header, batch: TransitionBatch | None = None
    ) -> RunFolder:
        """Makes the folder of a new run, with the transitions of a log, whole or not at all.

        Raises:
            StoreError: if there is something of that name, or it cannot be written.
        """

        def fill(new: Path) -> None:
            if batch is not None:
                cls(new, header).keep_batch(0, batch)

        return cls(path, create_folder(Path(path), header, fill))

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
        batch.to_npz(self._round(number) / _BATCH, overwrite=True)

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
        try:
            with (self.path / RECORDS).open("a") as file:
                file.write(json.dumps(row) + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise StoreError(f"{self.path / RECORDS} cannot be written: {error}.") from error

    def records(self) -> list[Row]:
        """All records."""
        return read_records(self.path / RECORDS)

    def prediction(self) -> Row | None:
        """The record of held-out episodes, if there were any."""
        return next((r for r in reversed(self.records()) if r["kind"] == "prediction"), None)

    def tidy(self) -> None:
        """Takes away what a kill left: records of what was not kept, files half written."""
        sweep(self.path, within=True)
        for place in (self.path, *self.path.glob("round-*")):
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
        if not _is_record(record):
            break
        found.append(record)
    return found


def _is_record(record: Any) -> bool:
    """Whether something is a record: it has a kind, and numbers where its kind has them."""
    kind = record.get("kind") if isinstance(record, dict) else None
    if not isinstance(kind, str) or kind not in _NEEDED:
        return False
    counts = {name: record[name] for name in _COUNTS if record.get(name) is not None}
    if not counts.keys() >= _NEEDED[kind]:
        return False
    if not all(type(count) is int and count >= _COUNTS[name] for name, count in counts.items()):
        return False
    is_list = kind == "prediction"
    told = [record[name] for name in (*_LISTS, *(() if is_list else _MEANS)) if name in record]
    if not is_list:
        return all(value is None or type(value) in (int, float) for value in told)
    several = [value for value in told if isinstance(value, list)]
    return len({len(value) for value in several}) <= 1 and all(
        type(number) in (int, float) for value in several for number in value
    )


def require_new(path: Path) -> None:
    """Checks that there is nothing of a name.

    Raises:
        StoreError: if there is.
    """
    if path.exists():
        way = ", or resume the run in it" if (path / SPEC).exists() else ""
        raise StoreError(f"{path} exists already: choose another folder{way}.")


def discard(path: AnyPath) -> None:
    """Deletes a run, and nothing that is none.

    Raises:
        StoreError: if the folder holds something else, or a process is at work in it.
    """
    discard_folder(path, "training run", lambda target: RunFolder(target).locked())


def _is_run(header: Header) -> bool:
    return header.get("kind") != "experiment"


def _finite(record: Row) -> Row:
    """A record as JSON has it, which has no number for what is not finite."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in record.items()
    }


def share_done(folder: AnyPath) -> float:
    """Returns the share of a run that is done, from 0 to 1, by its last record.

    Iterations of later rounds have more data: those of round r, from 0 on, count r + 1.
    """
    records = read_records(Path(folder, RECORDS))
    if Path(folder, DONE).exists() or (records and records[-1]["kind"] == "prediction"):
        return 1.0
    if not records:
        return 0.0
    last = records[-1]
    before: int = last["round"]
    n_rounds = last.get("n_rounds", before + 1)
    n_done = last.get("iteration", -1) + 1
    rounds = before / 2 + n_done / (last.get("n_iterations") or n_done or 1)
    share: float = (before + 1) * rounds / (n_rounds * (n_rounds + 1) / 2)
    return min(share, 1.0)


def last_line(record: RunRecord | Row) -> str:
    """Returns a record in a few words.

    >>> last_line({"kind": "collection", "round": 2, "n_rounds": 10, "transitions": 9000,
    ...            "reward": 0.512, "cost": 0.25})
    'round 3 of 10, 9,000 transitions, reward 0.512 and cost 0.25 an episode'
    """
    row = record if isinstance(record, dict) else {"kind": record.kind, **record.as_dict()}
    if row["kind"] == "prediction":
        return f"prediction from {row.get('n_episodes') or 0:,} held-out episodes"
    n_rounds = row.get("n_rounds")
    name = "" if n_rounds == 1 else f"{_counted('round', row['round'], n_rounds)}, "
    if row["kind"] == "collection":
        reward, cost = (math.nan if row.get(k) is None else row[k] for k in ("reward", "cost"))
        means = f"reward {reward:.3g} and cost {cost:.3g} an episode"
        return f"{name}{row.get('transitions') or 0:,} transitions, {means}"
    loss = row.get("delta") if row.get("last_loss") is None else row["last_loss"]
    told = "" if loss is None else f", loss {loss:.3g}"
    return f"{name}{_counted('iteration', row['iteration'], row.get('n_iterations'))}{told}"


def _counted(name: str, number: int, most: int | None) -> str:
    return f"{name} {number + 1}" + (f" of {most}" if most else "")


def machine() -> dict[str, Any]:
    """Returns the machine that results come from: system, processor, cores, GiB, GPU if any."""
    gpu = {"gpu": torch.cuda.get_device_name()} if torch.cuda.is_available() else {}
    return {
        "system": f"{platform.system()} {platform.release()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory": _memory(),
        **gpu,
    }


def _processor() -> str:
    lines = _PROCESSORS.read_text().splitlines() if _PROCESSORS.is_file() else []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, "") or platform.processor() or platform.machine()


def _memory() -> float | None:
    """GiB, where the system tells."""
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (AttributeError, ValueError, OSError):
        return None


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
    device = torch_device(name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(f"device {name!r} is not here; 'auto' takes what there is.")
    return str(device)
