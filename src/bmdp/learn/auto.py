"""`bmdp.fit`: a dial on anyone's task, without a setting.

The front door of the library: it reads the source, asks for what only a user can know, and hands
over to the contest of candidates (`bmdp.learn.contest`). With a folder a fit is a run:

    RUN/
      spec.json            schema, what was asked for, seed, versions, machine, command and time;
                           of a log also its files and checksum
      steps/               whatever is done: the log, with the encoder of its text and dates, or
                           the rounds of exploring, candidates, curves; a large log is in chunks
      fitted.json          summary, candidates, forecast and notes
      policy/              what is handed over
      done                 an empty mark
      lock                 of the process that writes here
"""

from __future__ import annotations

import glob
import json
import math
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.envs.registration import EnvSpec

from bmdp.checks import MOST, require_count, require_from_0, require_rising, require_share
from bmdp.cluster import Engine, engaged, require_engine
from bmdp.data import (
    Columns,
    EncodedPolicy,
    Encoder,
    StoredLog,
    TransitionBatch,
    cost_so_far,
    load_log,
    log_size,
    store_log,
)
from bmdp.data.batch import SUFFIXES
from bmdp.data.encoder import check_handling
from bmdp.data.formats import is_frame
from bmdp.data.logs import EncodedLog, given_paths
from bmdp.data.minari import local_minari
from bmdp.envs.slots import BatchedSlots, Facts, find_spec, open_slots
from bmdp.errors import ConfigError, DataError, StoreError
from bmdp.kinds import checked
from bmdp.learn import runs
from bmdp.learn.contest import (
    MINUTES,
    SAMPLE,
    SUPPORT,
    OnProgress,
    Terms,
    fit_env,
    fit_log,
    fit_stored,
)
from bmdp.learn.explore import OnRunRecord
from bmdp.learn.fitted import FITTED_FORMAT, Fitted
from bmdp.learn.natures import cautions, completed
from bmdp.learn.runs import RunFolder, checked_device, machine, require_new, versions
from bmdp.learn.shelf import Shelf
from bmdp.policies.limited import EpisodeLimitPolicy, require_limit
from bmdp.randomness import named_generator, stream_key
from bmdp.storage import (
    AnyPath,
    Header,
    arrays_hash,
    files_hash,
    one_line,
    read_sealed,
    sealed,
    sweep,
    write_text,
)
from bmdp.workers import alone

LARGE = 100_000
"""Rows of a log from which on it is put in chunks, and candidates compete on a sample of it."""

STEPS, FITTED, LOG, _ENCODER = "steps", "fitted.json", "log", "encoder"
_IN_CHUNKS = "in-chunks"  # the mark of a large log that is whole
_LEAST_SAMPLE = 1_000  # rows
_SOME_NUMBERS = 1_000_000  # of states that warnings about a large log are based on
_STORED = 0.3  # share of the work at which a large log is put in chunks
_LEAST_EPISODES = 50  # of an environment
_LONGEST = 1_000  # steps of an episode, where neither the environment nor gamma has an end
_SHORTEST = 50  # steps of an episode, however slow they are
_SOME = 20  # whole episodes that exploring has the time for; if steps are slow, these are shorter
_FOR_SOME = 0.2  # share of the time that they may take
_N_TIMED, _FOR_TIMING = 50, 0.01  # steps that tell the pace, and the share of the time for them
_LEARNED = 0.4  # share of a fit that is exploring, which a log does not need


@checked
def fit(  # noqa: PLR0913
    source: Any,
    *,
    gamma: float | None = None,
    cost_gamma: float | None = None,
    episode_limit: float | None = None,
    seed: int = 0,
    budget_range: tuple[float, float] | None = None,
    episodes: int | None = None,
    minutes: float | None = None,
    support: float | None = None,
    sample: int | None = None,
    workers: int = 1,
    engine: Engine = "local",
    device: str = "auto",
    columns: Columns | None = None,
    missing: str = "error",
    unseen: str = "error",
    out: AnyPath | None = None,
    on_progress: OnProgress = lambda share, text: None,
    command: str = "",
) -> Fitted:
    """Learns a policy with a risk dial from a log, or by exploring an environment.

    Settings that are not given are inferred from the data. `Fitted` says which, and why.

    Args:
        source: a log or an environment. A log is a `TransitionBatch`, a data frame of pandas or
            polars, a table of pyarrow, a path, several paths, a pattern such as
            `"folder/*.parquet"`, or the id of a Minari dataset. Parquet may be larger than memory.
            An environment is an id, a short name, or a gymnasium `EnvSpec`.
        gamma: discount of rewards and costs. It must be given for a log. For an environment the
            default is that of its metadata, or 1.
        cost_gamma: discount of costs, if it is not `gamma`. Use 1 for a limit on the plain sum of
            the costs of an episode. Budgets are then in costs with this discount. A log must have
            steps.
        episode_limit: a limit on the plain sum of the costs of an episode. Budgets are then
            probabilities that an episode exceeds it. A log must have whole episodes; the policy
            adds up costs by itself (`bmdp.policies.EpisodeLimitPolicy`).
        seed: seed of all random numbers.
        budget_range: lowest and highest budget of the policy, in discounted cost. By default from
            the least known cost (or 0) to the largest that still earns more.
        episodes: number of episodes to play in an environment, in all. By default up to 10,000
            explore, and others practise, choose and measure as time permits.
        minutes: time that the fit may take, about. The default is 5.
        support: number of logged episodes that must have taken an action near a state before the
            policy plays it there. The default is 5; 0 allows every action of the log.
        sample: number of rows of a large log (more than 100,000 rows) that place trees and centres;
            100,000 by default. Their means come from all rows. More are finer, and take longer.
        workers: number of processes that play. The episodes do not depend on it. With Ray they
            also add up the sums over a large log.
        engine: "local", or "ray" for the machines of a Ray cluster, all of which must see the
            folder of the run. The policy is the same, byte for byte.
        device: "cpu", "cuda", or "auto" for the GPU if there is one.
        columns: names of the columns of a log, where they are not common ones.
        missing: for missing values in states: "error", or "impute", which takes the median and adds
            a number that says so (`bmdp.data.load_log`).
        unseen: for text that the policy meets and the log does not have: "error", or "other", a
            value of its own.
        out: a new folder for the run. A killed run can be resumed (`bmdp.learn.resume`).
        on_progress: called with the share of the time that is over, from 0 to 1, and a text on the
            work under way. The share is an estimate, by the pace so far and by `minutes`.
        command: the command that asked for the run, to be recorded.

    Raises:
        ConfigError: if a setting is wrong, or gamma is missing, or there is no such environment,
            or one for a run is not registered.
        DataError: if the log cannot be read, or is empty.
        EnvError: if the environment gives no cost, or fails.
        StoreError: if the folder exists, or cannot be written.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> hurry = rng.integers(2, size=400)  # pays 10, and costs 1 half of the time
    >>> costs, zeros = hurry * rng.integers(2, size=400), np.zeros(400)
    >>> log = TransitionBatch(zeros, hurry, 10 * hurry, costs, zeros, zeros == 0)
    >>> fitted = fit(log, gamma=0.9)
    >>> fitted.policy.budget_range[0], fitted.candidates[0].name
    (0.0, 'table')
    """
    of_log: dict[str, Any] = {"columns": columns, "missing": missing, "unseen": unseen}
    how = (workers, device, support)
    of_log |= {"sample": sample, "engine": engine, "cost_gamma": cost_gamma}
    of_log |= {"episode_limit": episode_limit}
    asked = Asked(gamma, seed, budget_range, episodes, minutes, *how, **of_log)
    if out is not None:
        require_new(Path(out))
    found = read_source(source, asked)
    asked.check(found)
    if out is None:
        return _fit(found, asked, Shelf(None), on_progress)
    name = source if isinstance(source, str) else ""  # which may name a module
    header = _header(found, asked, command, name)
    return _go_on(RunFolder.create(out, header), found, asked, on_progress)


@dataclass(frozen=True)
class Log:
    """Transitions, and the files that they are from."""

    batch: TransitionBatch
    files: tuple[str, ...] = ()
    encoder: Encoder | None = None


@dataclass(frozen=True)
class LargeLog:
    """A log that is read from disk, some rows at a time, once it is in chunks."""

    given: Any  # paths, transitions, or these with an encoder
    files: tuple[str, ...]
    n_rows: int


@dataclass(frozen=True)
class Asked:
    """Settings of `fit`, as they were given."""

    gamma: float | None = None
    seed: int = 0
    budget_range: tuple[float, float] | None = None
    episodes: int | None = None
    minutes: float | None = None
    workers: int = 1
    device: str = "auto"
    support: float | None = None
    columns: Columns | None = None
    missing: str = "error"
    unseen: str = "error"
    sample: int | None = None
    engine: Engine = "local"
    cost_gamma: float | None = None
    episode_limit: float | None = None

    def __post_init__(self) -> None:
        """Checks all that can be checked without a source."""
        stream_key(self.seed, "")
        if self.gamma is not None:
            require_share("gamma", self.gamma)
        if self.cost_gamma is not None:
            require_share("cost_gamma", self.cost_gamma)
        self._check_limit()
        if self.budget_range is not None:
            require_rising("budget_range", self.budget_range)
            object.__setattr__(self, "budget_range", tuple(map(float, self.budget_range)))
        if self.episodes is not None:
            require_count("episodes", self.episodes, _LEAST_EPISODES)
        if self.minutes is not None and not 0 < self.minutes < math.inf:
            raise ConfigError(f"minutes must be above 0 and finite; got {self.minutes}.")
        if self.support is not None:
            require_from_0("support", self.support, MOST)
        require_count("workers", self.workers, 1)
        require_engine(self.engine)
        if self.sample is not None:
            require_count("sample", self.sample, _LEAST_SAMPLE)
        check_handling(self.missing, self.unseen)
        if not isinstance(self.columns, Columns | None):
            kind = type(self.columns).__name__
            raise ConfigError(f"columns must be of type Columns; got {kind}.")
        object.__setattr__(self, "device", checked_device(self.device))

    def _check_limit(self) -> None:
        if self.episode_limit is None:
            return
        object.__setattr__(self, "episode_limit", require_limit(self.episode_limit))
        if self.cost_gamma not in (None, 1):
            raise ConfigError(
                "cost_gamma must be 1, or not given, with an episode_limit: budgets are then "
                f"chances; got {self.cost_gamma}."
            )

    def check(self, source: Source) -> None:
        """Checks that the settings are of use for a source.

        Raises:
            ConfigError: if one is missing, or is of no use.
        """
        if isinstance(source, EnvSpec):
            if self.support is not None:
                raise ConfigError("support is for a log; an environment is explored.")
            if self.sample is not None:
                raise ConfigError("sample is for a log; an environment is explored.")
            if self.columns is not None:
                raise ConfigError("columns are for a log; an environment has none.")
            return
        if self.gamma is None:
            raise ConfigError(
                "gamma must be given for a log, which does not say how rewards and costs are "
                "discounted: 1 if an episode counts as a whole, 0.99 or so if it has no end."
            )
        if self.episodes is not None:
            raise ConfigError("episodes are for exploring; a log has the episodes it has.")

    def terms(self, gamma: float) -> Terms:
        """The settings of a contest."""
        minutes = MINUTES if self.minutes is None else float(self.minutes)
        support = SUPPORT if self.support is None else float(self.support)
        how = (self.workers, self.device, support, SAMPLE if self.sample is None else self.sample)
        cost_gamma = self.cost_gamma if self.episode_limit is None else 1.0
        cost_gamma = None if cost_gamma in (None, gamma) else cost_gamma
        if cost_gamma is not None and min(gamma, cost_gamma) <= 0:
            raise ConfigError(
                "gamma and cost_gamma must be above 0 where they differ; got "
                f"{gamma:g} and {cost_gamma:g}."
            )
        return Terms(
            gamma,
            self.seed,
            self.budget_range,
            minutes,
            *how,
            self.engine,
            cost_gamma,
            self.episode_limit,
        )


Source = Log | LargeLog | EnvSpec


def read_source(source: Any, asked: Asked | None = None) -> Source:
    """Returns the transitions of a log, or the specification of an environment.

    A log of Parquet that is large is not read yet.

    Args:
        source: as for `fit`.
        asked: how to read a log.

    Raises:
        DataError: if it is neither, or the log cannot be read.
        ConfigError: if there is no such environment.
        StoreError: if there is no such file.

    >>> read_source("corridors").id
    'bmdp/Corridors-v0'
    """
    asked = Asked() if asked is None else asked
    if isinstance(source, TransitionBatch):
        if asked.columns is not None:
            raise ConfigError("columns are for files and data frames; a TransitionBatch has its.")
        return _sized(Log(source))
    if isinstance(source, EnvSpec):
        return find_spec(source)
    if isinstance(source, str) and not _is_path(source):
        return _named(source)
    if isinstance(source, str | os.PathLike):
        return _logged(source, [source], asked)
    if isinstance(source, Sequence) and source and all(_is_pathlike(one) for one in source):
        return _logged(source if len(source) > 1 else source[0], source, asked)
    if is_frame(source):
        return _logged(source, (), asked)
    if isinstance(source, gymnasium.Env | gymnasium.vector.VectorEnv):
        raise ConfigError(
            "an environment is given by its id, or by its EnvSpec, since many of it are made; got "
            f"{source}. Register a function that makes it (docs/environment.md)."
        )
    raise DataError(
        "source must be a TransitionBatch, a data frame, the path of a log, or an environment; "
        f"got {type(source).__name__}."
    )


def _named(name: str) -> Source:
    """The environment of a name, or else the Minari dataset.

    Raises:
        ConfigError: if there is none, with the nearest name.
    """
    try:
        return find_spec(name)
    except ConfigError as error:
        if local_minari(name) is not None:
            return _sized(Log(TransitionBatch.from_minari(name)))
        if not Path(name).suffix:
            raise
        raise ConfigError(f"{error} Nor is it a file that exists.") from error


def _logged(source: Any, paths: Sequence[AnyPath], asked: Asked) -> Log | LargeLog:
    """The log in a data frame or in some files.

    Raises:
        DataError: if one holds no transitions.
        StoreError: if one does not exist.
    """
    files = tuple(map(os.path.abspath, given_paths(paths) or ()))
    size = log_size(source) if paths else None
    if size is not None and size[0] > LARGE:
        return LargeLog(files, files, size[0])
    found: EncodedLog = load_log(
        source, asked.columns, missing=asked.missing, unseen=asked.unseen, seed=asked.seed
    )
    return _sized(Log(found.batch, files, found.encoder))


def _sized(log: Log) -> Log | LargeLog:
    """The same log, to be put in chunks if it is large."""
    return log if len(log.batch) <= LARGE else LargeLog(log, log.files, len(log.batch))


def _is_pathlike(value: Any) -> bool:
    return isinstance(value, str | os.PathLike)


def _is_path(text: str) -> bool:
    """Whether a text names a file or a folder rather than an environment."""
    return text.lower().endswith(SUFFIXES) or glob.has_magic(text) or os.path.exists(text)


def _fit(source: Source, asked: Asked, shelf: Shelf, on_progress: OnProgress) -> Fitted:
    with engaged(asked.engine, asked.workers), alone():
        return _fit_source(source, asked, shelf, on_progress)


def _fit_source(source: Source, asked: Asked, shelf: Shelf, on_progress: OnProgress) -> Fitted:
    notes: Iterable[str]
    if isinstance(source, EnvSpec):
        source, gamma = bounded(source, asked.gamma)
        terms = asked.terms(gamma)
        source, notes = paced(source, 60 * terms.minutes, shelf)
        tell = by_time(on_progress, shelf, 60 * terms.minutes)
        fitted = _limited(fit_env(source, asked.episodes, terms, shelf, tell), asked)
    elif isinstance(source, LargeLog):
        assert asked.gamma is not None
        terms = asked.terms(asked.gamma)
        tell = by_time(on_progress, shelf, 60 * terms.minutes, begin=_STORED)
        with _in_chunks(source, asked, shelf, tell) as (log, encoder):
            fitted = _limited(fit_stored(log, terms, shelf, tell), asked)
            some = log.first(max(1, _SOME_NUMBERS // log.state_size))
            notes = tuple(cautions(some, some, asked.gamma, terms.cost_gamma))
            if encoder is not None:
                fitted, notes = _encoded(fitted, encoder), (*notes, *encoder.notes)
    else:
        assert asked.gamma is not None
        terms = asked.terms(asked.gamma)
        tell = by_time(on_progress, shelf, 60 * terms.minutes, begin=_LEARNED)
        whole = completed(source.batch)
        notes = cautions(source.batch, whole, asked.gamma, terms.cost_gamma)
        if asked.episode_limit is not None:
            notes, whole = list(notes), cost_so_far(whole, asked.episode_limit)
        fitted = _limited(fit_log(whole, terms, shelf, tell), asked)
        if source.encoder is not None:
            fitted = _encoded(fitted, source.encoder)
            notes = (*notes, *source.encoder.notes)
    told = f"{fitted.summary}{_budgets_are(terms)}"
    return replace(fitted, notes=tuple(dict.fromkeys((*fitted.notes, *notes))), summary=told)


def _budgets_are(terms: Terms) -> str:
    """Quantity that budgets are about, where it is not discounted as rewards are."""
    if terms.episode_limit is not None:
        return f" A budget is the chance that an episode costs more than {terms.episode_limit:g}."
    if terms.cost_gamma is None:
        return ""
    return (
        f" Budgets are about costs discounted by {terms.cost_gamma:g}, and rewards are discounted "
        f"by {terms.gamma:g}."
    )


def _limited(fitted: Fitted, asked: Asked) -> Fitted:
    """The same fit, with policies that add up costs, if there is a limit on an episode."""
    if asked.episode_limit is None:
        return fitted
    limit = asked.episode_limit
    candidates = tuple(
        replace(one, policy=EpisodeLimitPolicy(one.policy, limit)) for one in fitted.candidates
    )
    policy = EpisodeLimitPolicy(fitted.policy, limit)
    return replace(fitted, policy=policy, candidates=candidates)


@contextmanager
def _in_chunks(
    source: LargeLog, asked: Asked, shelf: Shelf, on_progress: OnProgress
) -> Iterator[tuple[StoredLog, Encoder | None]]:
    """Puts a large log in chunks: in the folder of the run, or in a temporary one."""

    def on_rows(n_done: int, n_all: int) -> None:
        share = n_done / max(n_all, 1)
        on_progress(_STORED + (_LEARNED - _STORED) * share, f"reading the log: {n_done:,} rows")

    def store(place: Path) -> Encoder | None:
        log, limit = source.given, asked.episode_limit
        if isinstance(log, Log):
            batch = log.batch if limit is None else cost_so_far(completed(log.batch), limit)
            StoredLog.write(place, [batch], seed=asked.seed)
            return log.encoder
        how: dict[str, Any] = {"missing": asked.missing, "unseen": asked.unseen, "seed": asked.seed}
        paths = [Path(path) for path in log]
        if limit is None:
            return store_log(paths, place, asked.columns, **how, on_rows=on_rows)[1]
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(".new", ".log.", place.parent) as temporary:
            raw = Path(temporary) / LOG  # chunks of whole episodes
            found, encoder = store_log(paths, raw, asked.columns, **how, on_rows=on_rows)[:2]
            chunks = (cost_so_far(found.chunk(i), limit) for i in range(found.n_chunks))
            StoredLog.write(place, chunks, seed=asked.seed)
        return encoder

    if shelf.folder is None:
        with tempfile.TemporaryDirectory(prefix="bmdp-") as temporary:
            encoder = store(Path(temporary) / LOG)
            yield StoredLog.open(Path(temporary) / LOG), encoder
        return
    place, mark = shelf.folder / LOG, shelf.folder / f"{_IN_CHUNKS}.json"
    if not mark.exists():  # the mark comes last, so that a log that has it has its encoder
        shutil.rmtree(place, ignore_errors=True)
        if source.given is None:
            raise _lost(shelf.folder.parent)
        encoder = store(place)
        if encoder is not None:
            shelf.value(_ENCODER, lambda: encoder)
        shelf.numbers(_IN_CHUNKS, lambda: {"rows": source.n_rows})
    is_encoded = (shelf.folder / _ENCODER).is_dir()
    yield StoredLog.open(place), shelf.value(_ENCODER, dict) if is_encoded else None


def _encoded(fitted: Fitted, encoder: Encoder) -> Fitted:
    """The same fit, with policies that take states as they are in the log."""
    candidates = tuple(
        one if one.policy is None else replace(one, policy=EncodedPolicy(one.policy, encoder))
        for one in fitted.candidates
    )
    return replace(fitted, policy=EncodedPolicy(fitted.policy, encoder), candidates=candidates)


def by_time(
    on_progress: OnProgress, shelf: Shelf, seconds: float, begin: float = 0.0
) -> OnProgress:
    """Returns a function that takes shares of the work, and tells shares of the time.

    What is left takes as long, for its share, as what is done; but no longer than until the end of
    the time that was given, or a tenth of what it took so far. Before anything is done the share is
    0.

    Args:
        on_progress: what is called.
        shelf: whose clock runs.
        seconds: that were given.
        begin: share of the work at which it begins.

    >>> tell = by_time(print, Shelf(None, now=iter([0.0, 30.0, 60.0, 270.0]).__next__), 300.0)
    >>> tell(0.05, "exploring"), tell(0.5, "learning"), tell(0.6, "learning")
    0.1 exploring
    0.5 learning
    0.9 learning
    (None, None, None)
    """
    told = 0.0

    def tell(share: float, text: str) -> None:
        nonlocal told
        share, spent = max(0.0, (share - begin) / (1 - begin)), shelf.seconds
        if share >= 1:
            told = 1.0
        elif share > 0:
            left = min(spent * (1 - share) / share, max(seconds - spent, spent / 10))
            told = max(told, min(0.99, spent / max(spent + left, 1e-9)))
        on_progress(told, text)

    return tell


def paced(spec: EnvSpec, seconds: float, shelf: Shelf) -> tuple[EnvSpec, list[str]]:
    """Returns an environment whose episodes are short enough to play some, and notes of that.

    An episode of many slow steps could take all the time there is, and more.

    Args:
        spec: an environment whose episodes are bounded.
        seconds: that the fit may take.
        shelf: where the pace is kept.

    Raises:
        EnvError: if the environment fails.
    """
    limit = min(spec.max_episode_steps or math.inf, _facts(spec).horizon or math.inf)
    if limit <= _SHORTEST:
        return spec, []
    most_timed = _FOR_TIMING * seconds
    step = shelf.numbers("pace", lambda: {"step": _step_seconds(spec, most_timed, shelf)})["step"]
    most = max(_SHORTEST, int(_FOR_SOME * seconds / (_SOME * max(step, 1e-9))))
    if most >= limit:
        return spec, []
    note = (
        f"episodes may have {most:,} steps at most, of {limit:,}: a step takes {step:.2g} s, and "
        f"there is no time for {_SOME} whole episodes; give more minutes"
    )
    return replace(spec, max_episode_steps=most), [note]


def _step_seconds(spec: EnvSpec, seconds: float, shelf: Shelf) -> float:
    """Seconds of a step of an episode: of a batch, its share of those that are played together.

    Args:
        spec: the environment.
        seconds: after which no further step is made.
        shelf: whose clock runs.
    """
    rng = named_generator(0, "auto/pace")
    with closing(open_slots(spec)) as slots:
        n_slots = _SOME if isinstance(slots, BatchedSlots) else 1
        begin, n_steps, going = 0.0, -1, np.zeros(n_slots, np.bool_)  # the first is not timed
        while n_steps < 1 or (n_steps < _N_TIMED and shelf.seconds - begin < seconds):
            if not going.any():
                slots.reset(range(n_slots))
                going = np.ones(n_slots, np.bool_)
            actions = rng.integers(slots.action_space.n, size=n_slots)
            if slots.available is not None:
                chances = rng.random(slots.available.shape)
                actions = np.where(slots.available, chances, -1.0).argmax(axis=1)
            going = going & ~slots.step(actions, going).ended
            n_steps += 1
            begin = begin if n_steps else shelf.seconds
        return (shelf.seconds - begin) / (n_steps * n_slots)


def bounded(spec: EnvSpec, gamma: float | None) -> tuple[EnvSpec, float]:
    """Returns an environment as it is explored, whose episodes have an end, and the discount.

    Args:
        spec: the environment.
        gamma: that was asked for; None for that of the environment.

    Raises:
        EnvError: if it cannot be made.
    """
    facts = _facts(spec)
    gamma = facts.gamma if gamma is None else gamma
    if facts.horizon is None and spec.max_episode_steps is None:
        spec = replace(spec, max_episode_steps=_most_steps(gamma))
    return spec, gamma


def _facts(spec: EnvSpec) -> Facts:
    """Discount and horizon of an environment, as it says.

    Raises:
        EnvError: if it cannot be made.
    """
    with closing(open_slots(spec)) as slots:
        return slots.facts


def _most_steps(gamma: float) -> int:
    """Steps after which an episode that has no end is cut off: what follows hardly counts."""
    if gamma in (0, 1):
        return _LONGEST
    return min(_LONGEST, max(50, math.ceil(math.log(0.01) / math.log(gamma))))


def _header(source: Source, asked: Asked, command: str, name: str) -> Header:
    """Content of spec.json."""
    told: dict[str, Any]
    of_log: dict[str, Any] = {}
    if isinstance(source, EnvSpec):
        _require_registered(source)
        told = {
            "env": name or source.id,
            "settings": dict(source.kwargs),
            "max_episode_steps": source.max_episode_steps,
        }
        try:
            json.dumps(told)
        except TypeError as error:
            raise ConfigError(
                f"the settings of {source.id} cannot be written down: {error}."
            ) from error
    else:
        of_log = {
            "columns": asked.columns and asked.columns.as_dict(),
            "missing": asked.missing,
            "unseen": asked.unseen,
            "sample": asked.sample,
        }
        log = source.given if isinstance(source, LargeLog) else source
        is_read = isinstance(log, Log)
        told = {
            "files": list(source.files),
            "transitions": len(source.batch) if isinstance(source, Log) else source.n_rows,
            "sha256": arrays_hash(log.batch.to_arrays()) if is_read else files_hash(source.files),
            "in_chunks": isinstance(source, LargeLog),
        }
    return {
        "kind": "fit",
        "command": command,
        "began": datetime.now(UTC).isoformat(timespec="seconds"),
        "source": told,
        "asked": {
            "gamma": asked.gamma,
            "cost_gamma": asked.cost_gamma,
            "episode_limit": asked.episode_limit,
            "budget_range": asked.budget_range and list(asked.budget_range),
            "episodes": asked.episodes,
            "minutes": asked.minutes,
            "support": asked.support,
            **of_log,
        },
        "seed": int(asked.seed),
        "device": asked.device,
        "threads": torch.get_num_threads(),
        "versions": versions(),
        "machine": machine(),
    }


def _require_registered(spec: EnvSpec) -> None:
    """Checks that an environment can be made again by its id and settings.

    Raises:
        ConfigError: if it cannot.
    """
    known = gymnasium.registry.get(spec.id)
    if known is None or known.entry_point != spec.entry_point or spec.additional_wrappers:
        raise ConfigError(
            f"a run needs an environment that can be made again by its id; {spec.id} is not "
            "registered, or not as it is given, or has wrappers. Register it as it is to be "
            "played, or leave out the folder."
        )


def _go_on(
    run: RunFolder,
    source: Source | None,
    asked: Asked,
    on_progress: OnProgress,
) -> Fitted:
    """Does what is still to do in the folder of a run."""
    shelf = Shelf(run.path / STEPS)
    with run.locked():
        sweep(run.path, within=True)
        if source is None or isinstance(source, Log):
            source = _kept(source, run.path, shelf)
        fitted = _fit(source, asked, shelf, on_progress)
        told = sealed(fitted.as_dict(), FITTED_FORMAT)
        write_text(run.path / FITTED, json.dumps(told, indent=1))
        run.finish(fitted.policy)
    return fitted


def _kept(given: Log | None, path: Path, shelf: Shelf) -> Log:
    """The log of a run; its encoder is kept first, so that a log that is kept has one."""
    encoder = None if given is None else given.encoder
    if encoder is not None or (path / STEPS / _ENCODER).is_dir():
        encoder = shelf.value(_ENCODER, lambda: encoder)
    return Log(shelf.batch("log", lambda: _given(given, path)), (), encoder)


def _given(log: Log | None, path: Path) -> TransitionBatch:
    if log is None:
        raise _lost(path)
    return log.batch


def _lost(path: Path) -> StoreError:
    return StoreError(f"{path} does not hold the log that the run began with: begin anew.")


@checked
def resume(
    folder: AnyPath,
    *,
    workers: int = 1,
    engine: Engine = "local",
    device: str | None = None,
    on_record: OnRunRecord = lambda record: None,
    on_progress: OnProgress = lambda share, text: None,
) -> Any:
    """Resumes an interrupted run. A finished run gives its policy at once.

    Args:
        folder: of a run of `fit`, `train` or `train_from_data`.
        workers: processes that play.
        engine: as for `fit`.
        device: of the learner; that of the run, if not given.
        on_record: called, in a run with settings, after each collection and each iteration.
        on_progress: called, in a run of `fit`, as there.

    Raises:
        StoreError: if there is no run, or it is damaged, of a newer schema, or being worked on.

    >>> import tempfile
    >>> hurry, zeros = [0, 1] * 50, [0] * 100
    >>> log = TransitionBatch(zeros, hurry, hurry, hurry, zeros, [True] * 100)
    >>> with tempfile.TemporaryDirectory() as place:
    ...     fitted = fit(log, gamma=1.0, out=f"{place}/run")
    ...     resume(f"{place}/run").budget_range
    (0.0, 1.0)
    """
    require_count("workers", workers, 1)
    run = RunFolder(folder)
    if run.header.get("kind") != "fit":
        return runs.resume(folder, workers=workers, device=device, on_record=on_record)
    how: dict[str, Any] = {"workers": workers, "engine": engine, "device": device}
    return resume_fit(run, **how, on_progress=on_progress).policy


def resume_fit(
    run: RunFolder, *, workers: int, engine: Engine, device: str | None, on_progress: OnProgress
) -> Fitted:
    """Goes on with a fit that was interrupted; one that is finished is read.

    Raises:
        StoreError: if the folder is damaged, or being worked on.
    """
    if run.is_done:
        return read_fitted(run)
    header = run.header
    try:
        told, given = header["source"], header["asked"]
        ends = given["budget_range"] and tuple(given["budget_range"])
        asked = Asked(
            given["gamma"],
            header["seed"],
            ends,
            given["episodes"],
            given["minutes"],
            workers,
            device or header["device"],
            given.get("support"),
            Columns.from_dict(given["columns"]) if given.get("columns") else None,
            given.get("missing", "error"),
            given.get("unseen", "error"),
            given.get("sample"),
            engine,
            given.get("cost_gamma"),
            given.get("episode_limit"),
        )
        source: Source | None = None
        if told.get("in_chunks"):
            files = tuple(told["files"])
            source = LargeLog(files or None, files, int(told["transitions"]))
        if "env" in told:
            spec = find_spec(told["env"])
            limit = told.get("max_episode_steps", spec.max_episode_steps)
            source = replace(spec, kwargs=told["settings"], max_episode_steps=limit)
    except (KeyError, TypeError, ConfigError, DataError) as error:
        raise StoreError(f"{run.path} does not make sense: {error}.") from error
    return _go_on(run, source, asked, on_progress)


def seconds_before(run: RunFolder) -> float:
    """Returns the seconds that a run of `fit` has taken so far; 0 for other runs.

    Raises:
        StoreError: if what was written of them is damaged.
    """
    return Shelf(run.path / STEPS).seconds if (run.path / STEPS).is_dir() else 0.0


def read_fitted(run: RunFolder) -> Fitted:
    """Returns what a finished fit handed over.

    Raises:
        StoreError: if its files are damaged.
    """
    try:
        found = read_sealed(run.path / FITTED, FITTED_FORMAT)
        return Fitted.from_dict(found, run.final_policy())
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(
            f"{run.path / FITTED} is damaged: {one_line(error)}. Delete {run.path / 'done'}, and "
            "resume."
        ) from error
