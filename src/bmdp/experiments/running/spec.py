"""What is asked of an experiment, and whether a folder is of the same."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from bmdp.checks import require_count
from bmdp.errors import ConfigError, StoreError
from bmdp.experiments.catalog import settings_of
from bmdp.experiments.running.machine import machine
from bmdp.learn.runs import checked_device, versions
from bmdp.learn.spec import plain
from bmdp.randomness import stream_key

KIND = "experiment"
_MOST_TOLD = 3  # differences in one message


@dataclass(frozen=True)
class ExperimentSpec:
    """An experiment, its size, its seeds, and what numbers depend on besides.

    Args:
        experiment: its name in the catalog, or `module:attribute`.
        preset: its size.
        seeds: each once.
        device: of learners and policies: "cpu", "cuda" or "cuda:1".
        threads: of each process; sums are rounded as threads cut them.

    Raises:
        ConfigError: if there is no such experiment or preset, or a number is wrong.
    """

    experiment: str
    preset: str
    seeds: tuple[int, ...]
    device: str = "cpu"
    threads: int = 1

    def __post_init__(self) -> None:
        """Checks everything."""
        plain(self.settings)
        require_count("threads", self.threads, 1)
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise ConfigError(f"seeds must be at least one, each once; got {list(self.seeds)}.")
        for seed in self.seeds:
            stream_key(seed, "")

    @property
    def settings(self) -> Any:
        """Those of the preset."""
        return settings_of(self.experiment, self.preset)

    @property
    def device_kind(self) -> str:
        """The device, whichever of its kind."""
        return self.device.partition(":")[0]

    def command(self, folder: str) -> str:
        """Returns the command that runs it, and goes on with it after a kill."""
        words = ["bmdp", "run", self.experiment, "--preset", self.preset]
        words += ["--seeds", seeds_text(self.seeds), "--device", self.device_kind]
        return shlex.join([*words, "--threads", str(self.threads), "--out", folder])

    def header(self, folder: str) -> dict[str, Any]:
        """Returns what `spec.json` says, but for its schema."""
        return {
            "kind": KIND,
            **self._compared(),
            "versions": versions(),
            "machine": machine(),
            "began": datetime.now(UTC).isoformat(timespec="seconds"),
            "command": self.command(folder),
        }

    def require_same(
        self, header: Mapping[str, Any], folder: str, *, may_add_seeds: bool = False
    ) -> None:
        """Checks that a folder is of this spec.

        Args:
            header: of the folder.
            folder: its name.
            may_add_seeds: whether it may have some of the seeds only.

        Raises:
            StoreError: if it is not; it says in what they differ.
        """
        asked = self._compared()
        there = {name: header.get(name) for name in asked}
        if may_add_seeds and set(there["seeds"] or [None]) <= set(asked["seeds"]):
            there["seeds"] = asked["seeds"]
        there["device"] = str(there["device"]).partition(":")[0]
        differing = list(_differences(there, asked, ""))
        if differing:
            more = len(differing) - _MOST_TOLD
            told = "; ".join(differing[:_MOST_TOLD]) + (f"; and {more} more" if more > 0 else "")
            raise StoreError(
                f"{folder} is of another spec: {told}. Choose another folder; --force deletes it."
            )

    def _compared(self) -> dict[str, Any]:
        """What must be equal, or else results are not."""
        return {
            "experiment": self.experiment,
            "preset": self.preset,
            "seeds": list(self.seeds),
            "device": self.device_kind,
            "threads": self.threads,
            "settings": plain(self.settings),
        }


def asked_spec(
    experiment: str,
    preset: str,
    *,
    seeds: Sequence[int] | None = None,
    device: str = "auto",
    threads: int = 1,
) -> ExperimentSpec:
    """Returns what is asked for, with defaults.

    Args:
        experiment: its name in the catalog, or `module:attribute`.
        preset: its size.
        seeds: without, as many as the preset says (`n_seeds`), or one.
        device: "auto" for the GPU of this machine, if it has one.
        threads: of each process.

    Raises:
        ConfigError: if there is no such experiment or preset, or a number is wrong.
    """
    if seeds is None:
        seeds = range(getattr(settings_of(experiment, preset), "n_seeds", 1))
    found = checked_device("auto") if device == "auto" else device
    return ExperimentSpec(experiment, preset, tuple(seeds), found, threads)


def seeds_text(seeds: Sequence[int]) -> str:
    """Returns seeds as the command line has them.

    >>> seeds_text([0, 1, 2, 3]), seeds_text([3, 7])
    ('0:4', '3,7')
    """
    if list(seeds) == list(range(seeds[0], seeds[-1] + 1)):
        return f"{seeds[0]}:{seeds[-1] + 1}"
    return ",".join(map(str, seeds))


def _differences(there: Any, asked: Any, where: str) -> Iterator[str]:
    """What is not the same, in words."""
    if isinstance(there, Mapping) and isinstance(asked, Mapping):
        for name in dict.fromkeys((*there, *asked)):
            inner = f"{where}.{name}" if where else name
            yield from _differences(there.get(name), asked.get(name), inner)
    elif there != asked:
        yield f"its {where} is {there!r}, asked is {asked!r}"
