"""Several seeds at once: the networks of all of them are trained as one stack.

A step of a regression then moves all networks, which on a GPU takes less time than to move one
after the other; on a CPU it does not. Each seed has data, random numbers and targets of its own,
and learns what it learns alone, but for rounding, which counts where two vertices of a frontier are
nearly as good.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from gymnasium.envs.registration import EnvSpec

from bmdp.data import TransitionBatch
from bmdp.errors import ConfigError, DataError
from bmdp.learn.bftq import BudgetedFit
from bmdp.learn.config import TrainingSpec
from bmdp.learn.curiosity import lesson
from bmdp.learn.exploration import (
    ExplorationResult,
    Manner,
    collect_round,
    collection_record,
    of_round,
    round_seed,
)
from bmdp.learn.fit import Fit, LearnedPolicy, Record
from bmdp.learn.fit_config import BFTQConfig, FTQConfig
from bmdp.models.fitting import NetworkFitter, device_of
from bmdp.models.joint import Task, fit_jointly, require_joint

Note = Callable[[Record], None]


def fit_together(
    config: BFTQConfig,
    batches: Sequence[TransitionBatch],
    *,
    seeds: Sequence[int],
    device: str = "auto",
    on_record: Note = lambda record: None,
) -> list[LearnedPolicy]:
    """Returns, for each batch and its seed, the policy that `BFTQ` learns from them.

    Args:
        config: settings, of networks without stages.
        batches: transitions, for each seed.
        seeds: of all that is random, all different.
        device: "cpu", "cuda", or "auto" for the GPU if there is one.
        on_record: called after every iteration, for each seed, with how it went; seconds of
            regressions are those of all seeds.

    Raises:
        ConfigError: if the settings are not of networks without stages; if a setting of the
            regression would let seeds depend on each other; if seeds are none, or repeated, or not
            as many as batches.
        DataError: if states differ in size, or batches in the number of actions.

    >>> from bmdp.models import FrontierNet, Regression
    >>> log = TransitionBatch([0, 0], [0, 1], [0, 10], [0, 1], [0, 0], [True, True])
    >>> networks = {"model": FrontierNet((8,)), "regression": Regression(steps=5)}
    >>> config = BFTQConfig(gamma=0.9, iterations=1, valuation="self", **networks)
    >>> policies = fit_together(config, [log, log], seeds=[0, 1])
    >>> len(policies), [policy.budget_range for policy in policies]
    (2, [(0.0, 1.0), (0.0, 1.0)])
    """
    _check(config, seeds)
    if len(batches) != len(seeds):
        raise ConfigError(
            f"there must be a batch for each seed; got {len(batches)} batches and "
            f"{len(seeds)} seeds."
        )
    on = device_of(config.model, device)
    fits = [
        BudgetedFit(config, batch, seed, on) for batch, seed in zip(batches, seeds, strict=True)
    ]
    return _fit_all(fits, [_of_seed(on_record, seed) for seed in seeds])


def explore_together(
    spec: TrainingSpec,
    *,
    seeds: Sequence[int],
    workers: int = 1,
    device: str = "auto",
    on_record: Note = lambda record: None,
) -> list[ExplorationResult]:
    """Explores an environment with each seed, and learns after every round for all of them.

    Args:
        spec: what to learn, and how.
        seeds: of everything, all different.
        workers: processes that collect episodes; any number collects the same ones.
        device: of the learner.
        on_record: called after each collection and each iteration, for each seed, with how it went.

    Returns:
        For each seed, what `explore` returns; the first round has the same episodes.

    Raises:
        ConfigError: as for `fit_together`.

    >>> from bmdp.learn import EnvConfig, Exploration, explore
    >>> from bmdp.models import FrontierNet, Regression
    >>> networks = {"model": FrontierNet((8,)), "regression": Regression(steps=5)}
    >>> learner = BFTQConfig(gamma=1.0, iterations=1, **networks)
    >>> spec = TrainingSpec(EnvConfig("corridors"), learner, Exploration(rounds=1, episodes=4))
    >>> found = explore_together(spec, seeds=[0, 1])
    >>> [len(of_seed.batch) == len(explore(spec, seed=s).batch) for s, of_seed in enumerate(found)]
    [True, True]
    """
    _check(spec.learner, seeds)
    if spec.held_out > 0:
        raise ConfigError("held_out must be 0 where seeds explore together; explore each alone.")
    runs = [_Run(spec, Manner(seed, workers, device), on_record) for seed in seeds]
    env = spec.env.spec()
    for number in range(spec.exploration.rounds):
        for run in runs:
            run.collect(env)
        policies = _fit_all(
            [run.fit() for run in runs], [of_round(run.note, number) for run in runs]
        )
        for run, policy in zip(runs, policies, strict=True):
            run.policy = policy
    return [
        ExplorationResult(run.batch, policy, tuple(run.records))
        for run, policy in zip(runs, policies, strict=True)
    ]


class _Run:
    """What one seed has played, noted and learned so far."""

    def __init__(self, spec: TrainingSpec, manner: Manner, on_record: Note) -> None:
        self.spec, self.manner, self._on_record = spec, manner, on_record
        self.batches: list[TransitionBatch] = []
        self.policy: LearnedPolicy | None = None
        self.records: list[Record] = []
        self.note = _of_seed(self._note, manner.seed)

    @property
    def batch(self) -> TransitionBatch:
        """All episodes."""
        return TransitionBatch.concatenate(self.batches)

    def collect(self, env: EnvSpec) -> None:
        """Plays a round."""
        begin = time.perf_counter()
        batch = collect_round(self.spec, env, self.policy, self.batches, self.manner)
        self.batches.append(batch)
        self.note(collection_record(self.spec, self.batches, time.perf_counter() - begin))

    def fit(self) -> Fit:
        """Networks that know nothing, for what was played."""
        number = len(self.batches) - 1
        is_last = number + 1 == self.spec.exploration.rounds
        config, rows = lesson(self.spec, self.batch, is_last=is_last)
        assert isinstance(config, BFTQConfig)
        on = device_of(config.model, self.manner.device)
        return BudgetedFit(config, rows, round_seed(self.manner.seed, number), on)

    def _note(self, record: Record) -> None:
        self.records.append(record)
        self._on_record(record)


def _fit_all(fits: Sequence[Fit], notes: Sequence[Note]) -> list[LearnedPolicy]:
    """Does all iterations of all fits, and notes those of each by themselves."""
    shapes = {(fit.batch.state.shape[1], fit.batch.n_actions) for fit in fits}
    if len(shapes) > 1:
        raise DataError(
            "batches that are fitted together must have states of one size and one number of "
            f"actions; got (size, actions) {', '.join(map(str, sorted(shapes)))}."
        )
    going = list(zip(fits, notes, strict=True))
    iteration = 0
    while going:
        records = _iterate([fit for fit, _ in going], iteration)
        for (_, note), record in zip(going, records, strict=True):
            note(record)
        going = [one for one, record in zip(going, records, strict=True) if not record["is_last"]]
        iteration += 1
    return [fit.policy() for fit in fits]


def _iterate(fits: Sequence[Fit], iteration: int) -> list[Record]:
    """One iteration of each fit; those that still need fitting are fitted together."""
    prepared = [fit.prepare(iteration) for fit in fits]
    begin = time.perf_counter()
    tasks: dict[int, Task] = {}
    for i, (fit, found) in enumerate(zip(fits, prepared, strict=True)):
        if not found.is_fitted:
            assert isinstance(fit.models, NetworkFitter)
            tasks[i] = Task(fit.models, found.budgets, found.targets)
    fitted = dict(zip(tasks, fit_jointly(prepared[0].name, list(tasks.values())), strict=True))
    return [
        fit.finish(found, fitted.get(i), begin)
        for i, (fit, found) in enumerate(zip(fits, prepared, strict=True))
    ]


def _of_seed(note: Note, seed: int) -> Note:
    """Notes what happens as that of a seed."""
    return lambda record: note({"seed": seed, **record})


def _check(config: BFTQConfig | FTQConfig, seeds: Sequence[int]) -> None:
    """Checks that several seeds can be trained together with these settings."""
    if isinstance(config, FTQConfig):
        raise ConfigError("seeds are trained together by BFTQ alone; got FTQConfig.")
    require_joint(config.model, config.regression)
    if config.stages != "none":
        raise ConfigError(
            f"stages must be 'none' where seeds are fitted together; got {config.stages!r}. Fit "
            "each seed alone."
        )
    if not seeds or len(set(seeds)) < len(seeds):
        raise ConfigError(f"seeds must be at least one, and all different; got {list(seeds)}.")
