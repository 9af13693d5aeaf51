"""The folder of a training run, which is right at every moment, whenever it is killed.

    RUN/
      spec.json            schema, what is learned and how, seed, device, threads, versions
      records.jsonl        how each collection and iteration went, a line each; at last a prediction
      round-000/
        batch.npz          the episodes of this round alone
        fit.safetensors    the learner after its last iteration, until there is a policy
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
import shutil
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from bmdp.data import TransitionBatch
from bmdp.errors import StoreError
from bmdp.learn.fit import Record, TrainedPolicy
from bmdp.learn.spec_folders import SPEC as SPEC
from bmdp.learn.spec_folders import create_folder, discard_folder, locked, read_header
from bmdp.learn.whole_files import FitKeeper, save_policy, write_aside, write_text
from bmdp.policies.loading import load_policy

RECORDS, LOCK, DONE, POLICY = "records.jsonl", "lock", "done", "policy"
_BATCH, _FIT = "batch.npz", "fit.safetensors"


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

    def final_policy(self) -> TrainedPolicy:
        """The policy of a run that is finished."""
        return _loaded(self.path / POLICY)

    def finish(self, policy: TrainedPolicy) -> None:
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

    def policy(self, number: int) -> TrainedPolicy | None:
        """The policy of a round, if it was learned."""
        path = self._round(number) / POLICY
        return _loaded(path) if path.exists() else None

    def keep_policy(self, number: int, policy: TrainedPolicy) -> None:
        """Keeps the policy of a round, and no longer what its learner needed to go on."""
        save_policy(policy, self._round(number) / POLICY)
        (self._round(number) / _FIT).unlink(missing_ok=True)

    def keeper(self, number: int) -> FitKeeper:
        """Of what the learner of a round needs to go on."""
        return FitKeeper(self._round(number) / _FIT)

    def note(self, record: Record) -> None:
        """Adds a record."""
        with (self.path / RECORDS).open("a") as file:
            file.write(json.dumps(_finite(record)) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def records(self) -> list[Record]:
        """All records."""
        return read_records(self.path / RECORDS)

    def prediction(self) -> Record | None:
        """What held-out episodes say of the last policy, if any were."""
        return next((r for r in reversed(self.records()) if r["kind"] == "prediction"), None)

    def tidy(self) -> None:
        """Takes away what a kill left: records of what was not kept, files half written."""
        for place in (self.path, *self.path.glob("round-*")):
            for left in place.glob(".*.new*"):
                shutil.rmtree(left) if left.is_dir() else left.unlink()
            if (place / POLICY).exists():
                (place / _FIT).unlink(missing_ok=True)
        kept = []
        for record in self.records():
            if not self._is_kept(record):
                break
            kept.append(json.dumps(record) + "\n")
        write_text(self.path / RECORDS, "".join(kept))

    def _is_kept(self, record: Record) -> bool:
        """Whether what a record tells of was kept."""
        place = self._round(record["round"])
        if record["kind"] == "prediction":  # there is nothing else of it: it is made again
            return False
        if record["kind"] == "collection":
            return (place / _BATCH).exists()
        if (place / POLICY).exists():
            return True
        found = self.keeper(record["round"]).n_done()
        return bool(record["iteration"] < found)

    def _round(self, number: int) -> Path:
        return self.path / f"round-{number:03d}"


def read_records(path: Path) -> list[Record]:
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


def _loaded(folder: Path) -> TrainedPolicy:
    policy = load_policy(folder)
    if not isinstance(policy, TrainedPolicy):
        raise StoreError(f"{folder} holds a {type(policy).__name__}, which no run leaves.")
    return policy


def _is_run(header: dict[str, Any]) -> bool:
    return header.get("kind") != "experiment"


def _finite(record: Record) -> Record:
    """A record as JSON has it, which has no number for what is not finite."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in record.items()
    }
