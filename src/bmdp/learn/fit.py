"""Fitted Q-iteration, from top to bottom.

Every iteration values the next states, adds what was earned and paid on the way there, and fits a
regressor to that:

    Q(s, a, head)  <-  (r, c) + gamma * V(s', head)

BFTQ, FTQ(lambda), all prices at once and the evaluation of a given policy are this one loop. They
differ in what the next state is worth (`bmdp.learn.next_values`), and a *head* is a budget handed
on, or a price of cost. The head changes no transition, so a row is a sample for every head.

Two schedules. `Iterations` fits one model again and again, until values settle (the paper's).
`Backward` is for known steps: a model for each step, from the last to the first, each fitted to all
transitions, as what an action leads to depends on what is seen and not on the step. Nothing has to
settle then. Numbers of the state that the step determines, such as a clock, are left out: the
policy counts steps itself.

Paper: Algorithm 2; Algorithm 5 is its frontier, built once for each state.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

from bmdp.arrays import BoolArray, FloatArray, IntArray, narrowed, rows_at
from bmdp.checks import require_choice, require_count, require_from_0
from bmdp.data import TransitionBatch
from bmdp.errors import ConfigError, DataError, StoreError
from bmdp.kinds import checked
from bmdp.learn.rows import (
    Log,
    Look,
    NextStates,
    Portion,
    Rows,
    SetRows,
    Values,
    Worth,
    on_device,
    valued,
)
from bmdp.models.regressor import (
    Averager,
    Bounded,
    LearnedQ,
    Loss,
    Problem,
    QModel,
    Regressor,
    Sizes,
    barred,
    combined,
    unscaled,
)
from bmdp.models.support import Support
from bmdp.models.table import TableModel
from bmdp.randomness import named_generator

_N_SAMPLE = 500  # states by which slopes are measured and values compared
_N_STARTS = 250  # first states at which promises are made
_UNITS = 1e-15, 1e17  # of rewards and costs: models and frontiers have single precision
_ROOM = 4.0  # times the largest target of a sample: targets beyond it are cut off
_MANY_MORE = 2  # times the rows of a sample, from which on it is worth while to begin with it
_MOST_STEPS = 10_000  # of an episode, that can have models of their own
_EXPECTED = (0.1, 0.3, 0.6)  # places among heads, whose values tell what is expected to follow


@checked
@dataclass(frozen=True)
class Iterations:
    """One model for all steps, fitted again and again.

    Args:
        n: iterations at most. If not given, as many as discounting asks for, or 100.
        settled: stops when values will change by less than this share of their mean.
        stop_loss: stops when the squared error of the old model on the new targets is at most this
            (the paper's rule); 0 for never.
        traces: whether a target follows its episode for as long as the log does what the values
            call best (Watkins, 1989), and takes the model's value from there on. Then a reward
            reaches many steps back in one iteration, and steps that are followed are not blurred
            by the regressor. It needs whole episodes, all heads as prices, and one choice for all
            models; where these are missing every target is of one step.

    >>> Iterations().most(gamma=0.99), Iterations().most(gamma=1.0), Iterations(12).most(1.0)
    (528, 100, 12)
    """

    n: int | None = None
    settled: float = 0.01
    stop_loss: float = 0.0
    traces: bool = False

    def __post_init__(self) -> None:
        if self.n is not None:
            require_count("n", self.n, 1)
        require_from_0("settled", self.settled)
        require_from_0("stop_loss", self.stop_loss)

    def most(self, gamma: float) -> int:
        """Number of iterations, at most."""
        if self.n is not None:
            return self.n
        return 100 if gamma in (0, 1) else math.ceil(math.log(0.005) / math.log(gamma))


@checked
@dataclass(frozen=True)
class Backward:
    """A model for each step of an episode, fitted from the last to the first.

    Args:
        last_step: "own": the model of the last step is fitted to the rows of that step, which may
            have rules of its own. "shared": to all rows, as if no step were the last.

    >>> Backward().last_step
    'own'
    """

    last_step: Literal["own", "shared"] = "own"

    def __post_init__(self) -> None:
        require_choice("last_step", self.last_step, ("own", "shared"))


Schedule = Iterations | Backward


@dataclass(frozen=True)
class Ensemble:
    """Models that are fitted to different episodes, and check each other.

    Args:
        n: number of models; 1 for the paper's.
        pooled: whether one more model, fitted to all episodes, acts. It has no say in targets.
        caution: deviations over models by which the mean is moved, for all of them together; at 0
            each values what the mean of the others chooses (cross-fitting).
    """

    n: int = 1
    pooled: bool = False
    caution: float = 0.0


class Heads(NamedTuple):
    """The last axis of values: budgets handed on, or numbers of prices."""

    values: FloatArray  # [H], rising
    are_budgets: bool  # then they are in the unit of costs


class Source(NamedTuple):
    """Where next values come from: the models of a step, and the states that are valued."""

    step: int
    states: NDArray[Any]  # [n, D], all numbers of the next states
    sample: Tensor  # [E, m, 2, A, H], values at some of them
    known: Tensor  # [m, A], actions that may be played there
    units: tuple[float, float]  # of rewards and of costs
    available: BoolArray | None = None  # [n, A], actions that there are at the states, if not all


class NextValues(Protocol):
    """Values of the next state: the one thing in which learners differ."""

    def __call__(self, source: Source) -> Worth:
        """Returns how next states are valued by the models of a step."""


@dataclass(frozen=True)
class Record:
    """Losses, values and seconds of an iteration."""

    kind: ClassVar[str] = "iteration"

    iteration: int  # from 0 on
    step: int | None  # whose models were fitted, if steps have models of their own
    delta: float  # squared error of the models before on the new targets
    share_infeasible: float  # of next budgets
    first_loss: float | None  # None where nothing was fitted
    last_loss: float | None
    n_steps: int  # of gradient descent
    start_reward_low: float  # promised at the first states on the first head
    start_cost_low: float
    start_reward_high: float  # and on the last
    start_cost_high: float
    change: float | None  # share of their mean by which values will still change, as far as is seen
    seconds_forward: float  # of the regressor's values at next states
    seconds_frontier: float  # of what next states are worth
    seconds_regression: float
    seconds: float
    is_last: bool
    has_settled: bool | None  # of the last iteration: whether values have settled

    def as_dict(self) -> dict[str, Any]:
        """The fields by name, for a file."""
        return asdict(self)


class Order(NamedTuple):
    """The request of a pass."""

    iteration: int
    bound: float  # beyond which targets are cut off
    scale: float  # of the sums


class Adder(Protocol):
    """Adds up sums over all chunks: in this process, or by several."""

    def grams(self, fit: Fit, step: int, name: str, scale: float) -> list[Tensor]:
        """Sums of each member that depend on the rows of a set alone."""

    def moments(self, fit: Fit, order: Order) -> list[Tensor]:
        """Sums of targets of each member, at an iteration."""


class Keeper(Protocol):
    """Keeps what a fit needs to go on after it was killed."""

    def load(self) -> tuple[int, float | None, dict[int, dict[str, Tensor]]]:
        """Iterations done (all of them, if it stopped early), last change, arrays of steps."""

    def save(
        self, n_done: int, change: float | None, step: int, tensors: dict[str, Tensor]
    ) -> None:
        """Keeps what was fitted at a step."""


class Regression(Protocol):
    """Fits models to more rows than the batch has."""

    def __call__(self, iteration: int, targets: Tensor) -> Loss:
        """Fits the models of an iteration, given the targets of the batch."""


@runtime_checkable
class Trainer(Protocol):
    """Fits models that are not fitted from sums to all rows of a log."""

    def regression(self, fit: Fit) -> Regression:
        """Returns what fits the models of a fit."""


class Iteration(NamedTuple):
    """An iteration that was done, and what has been learned so far."""

    record: Record | None  # None if it was done before a kill
    fit: Fit


def bootstrap_targets(paid: Tensor, going: Tensor, worth: Tensor | None, gamma: Tensor) -> Tensor:
    """Sampled Bellman operator: (r, c) + gamma V(s'), and nothing after a terminal row.

    Args:
        paid: `[n, L, 2]`, reward and cost of each row.
        going: `[m]`, rows that are not terminal.
        worth: `[m, L, 2]`, of their next states; None for a last step.
        gamma: `[2]`, discounts of rewards and of costs.

    Paper: the operator T-hat of Section 3.1.
    """
    targets = paid.clone()
    if worth is not None:
        targets[going] += gamma * worth
    return targets


def traced_targets(targets: Tensor, worth: Tensor, kept: Tensor, gamma: Tensor) -> Tensor:
    """Targets that follow their episodes for as long as these do what is best.

        y_i  <-  y_i + gamma * (y_i+1 - V(s'_i))   where row i + 1 is kept, the last row first.

    Args:
        targets: `[n, L, 2]`, of one step.
        worth: `[n, L, 2]`, V(s') in them.
        kept: `[n, L]`, whether the next row goes on from s' and does what is best there.
        gamma: `[2]`, discounts of rewards and of costs.

    >>> targets, worth = torch.tensor([[[1.0, 0.0]], [[4.0, 2.0]]]), torch.zeros((2, 1, 2))
    >>> kept = torch.tensor([[True], [False]])
    >>> traced_targets(targets, worth, kept, torch.tensor([0.5, 0.5])).tolist()
    [[[3.0, 1.0]], [[4.0, 2.0]]]
    """
    found = targets.cpu().numpy().copy()
    discounts = gamma.cpu().numpy()
    _follow(found, worth.cpu().numpy(), kept.cpu().numpy(), discounts)
    return torch.from_numpy(found).to(targets.device)


def followed(
    targets: Tensor,
    worth: Values,
    going: Tensor,
    rows_after: tuple[Tensor | None, Tensor],
    gamma: Tensor,
) -> Tensor:
    """Targets `[n, L, 2]` that follow episodes, where these are known and one action is best.

    Args:
        targets: of one step.
        worth: values of next states, of rows that go on.
        going: `[m]`, those rows.
        rows_after: whether the next row goes on from each, `[n]`, and its action `[n]`.
        gamma: `[2]`, discounts of rewards and of costs.
    """
    follows, actions = rows_after
    if follows is None or worth.actions is None:
        return targets
    values = torch.zeros_like(targets)
    values[going] = worth.values
    best = torch.full(targets.shape[:2], -1, device=targets.device)
    best[going] = worth.actions.long()
    kept = follows[:, None] & (best == actions[:, None])
    return traced_targets(targets, values, kept, gamma)


@njit(cache=True)
def _follow(targets, worth, kept, gamma):  # type: ignore[no-untyped-def]
    for i in range(len(targets) - 2, -1, -1):
        for head in range(targets.shape[1]):
            if kept[i, head]:
                for k in range(2):
                    more = targets[i + 1, head, k] - worth[i, head, k]
                    targets[i, head, k] += gamma[k] * more


def fit_q(  # noqa: PLR0913
    batch: TransitionBatch,
    regressor: Regressor,
    next_values: NextValues,
    *,
    heads: Heads,
    gammas: tuple[float, float],
    schedule: Schedule,
    ensemble: Ensemble,
    seed: int,
    device: str = "auto",
    bounded: bool = False,
    support: float = 0.0,
    keeper: Keeper | None = None,
    until: Callable[[], bool] | None = None,
    log: Log | None = None,
    adder: Adder | Trainer | None = None,
) -> Iterator[Iteration]:
    """Fits (Q_r, Q_c) to the batch, and yields after every iteration.

    Args:
        batch: transitions.
        regressor: what is fitted.
        next_values: what next states are worth.
        heads: budgets handed on, in cost, or numbers of prices.
        gammas: discounts of rewards and of costs.
        schedule: one model again and again, or one for each step.
        ensemble: how many models.
        seed: of all that is random.
        device: "cpu", "cuda", or "auto" for the GPU if there is one.
        bounded: whether no value is believed beyond its targets.
        support: episodes that make an action known at a state (`bmdp.models.support`); others are
            not played. At 0 all actions are known that a regressor knows.
        keeper: of what is needed to go on after a kill.
        until: a deadline, asked after every iteration: where it is true, that was the last one, and
            values have not settled. Steps are all fitted, whatever it says: without its first steps
            a policy cannot begin.
        log: transitions to fit to, of which the batch is a sample that gives the structure; the
            batch, if not given.
        adder: that adds up sums over the log, or trains a regressor that is not fitted from sums.

    Raises:
        ConfigError: if there is a log, and the regressor cannot be fitted to it, or iterations over
            it are to be kept.

    Paper: Algorithm 2.
    """
    make = partial(
        Fit,
        batch,
        regressor,
        heads,
        gammas,
        schedule,
        ensemble,
        seed,
        torch_device(device),
        bounded,
        support,
        log,
    )
    fit = make()
    if getattr(regressor, "regrown", False):
        *_, _ = iterated(fit, next_values, until=until)
        fit = make(expected=fit.expected(next_values))
    regress: Regression | None = None
    if log is not None and adder is not None:
        regress = adder.regression(fit) if isinstance(adder, Trainer) else FromSums(fit, log, adder)
    first = 0
    if regress is not None and fit.is_iterated:
        if keeper is not None:
            raise ConfigError("iterations over a log in chunks cannot be kept: leave out keeper.")
        if log is not None and len(log) > _MANY_MORE * len(batch):
            # Values settle on the sample first, so few passes over all rows are left to do.
            *_, _ = iterated(fit, next_values, until=until)
            first = 1
    how: dict[str, Any] = {"keeper": keeper, "until": until, "regress": regress}
    yield from iterated(fit, next_values, **how, first=first)


def iterated(
    fit: Fit,
    next_values: NextValues,
    *,
    keeper: Keeper | None = None,
    until: Callable[[], bool] | None = None,
    regress: Regression | None = None,
    first: int = 0,
) -> Iterator[Iteration]:
    """Does all iterations of a fit, and yields after each; arguments as for `fit_q`.

    A fit may be iterated again with other next values: its structure is kept, and nothing else.

    Args:
        fit: that is iterated.
        next_values: what next states are worth.
        keeper: of what is needed to go on after a kill.
        until: a deadline.
        regress: fits models to more than the batch; they are fitted to the batch, if not given.
        first: number of the first iteration; from 1 on it goes on from the values that there are.
    """
    q, n_all = fit.q, first + fit.n_iterations
    change: float | None = None
    n_done = first
    if keeper is not None:
        n_done, change, kept = keeper.load()
        fitted = {fit.plan(k)[0] for k in range(first, min(n_done, n_all))}
        if n_done > n_all or kept.keys() != fitted:
            raise StoreError(
                "what was kept of a fit is damaged: files of its steps are missing. Delete the "
                "folder fit/ of its round and resume: the iterations of its round are then done "
                "again."
            )
        for step, tensors in kept.items():
            q.set_step(step, tensors)
    if n_done >= n_all:  # it was killed after its last iteration
        yield Iteration(None, fit)
    for k in range(n_done, n_all):
        begin = time.perf_counter()
        step, source, name = fit.plan(k)
        own = fit.whole.rows(name)
        rows = own.rows
        fit.whole.require_members(name)
        labels = q.labels(k, fit.device)  # beta_a: the budgets at which rows are fitted
        # T-hat Q_k of Section 3.1.
        targets, n_infeasible, clock = fit.targets(next_values, source, own, labels)
        # Algorithm 2: Q_k+1 is their regression on (s, a, beta_a), until convergence.
        delta = q.error(step, rows, labels, targets)
        is_fitted = k > first and fit.n_steps == 1 and delta <= fit.stop_loss
        loss, left, has_settled, at = None, None, False, time.perf_counter()
        if not is_fitted:
            before = fit.acting_at_sample(step) if fit.n_steps == 1 else None
            if regress is None:
                loss = q.fit(step, rows, labels, targets, f"iteration-{k}")
            else:
                loss = regress(k, targets)
            change, left, has_settled = fit.settled(before, change)
        regression = time.perf_counter() - at
        is_late = until is not None and fit.is_iterated and until()
        is_last = is_fitted or has_settled or is_late or k + 1 == n_all
        record = Record(
            iteration=k,
            step=step if fit.n_steps > 1 else None,
            delta=delta,
            share_infeasible=n_infeasible / targets[..., 0].numel(),
            first_loss=None if loss is None else delta if loss.first is None else loss.first,
            last_loss=None if loss is None else loss.last,
            n_steps=0 if loss is None else loss.n_steps,
            **fit.promised(next_values, step),
            change=left,
            seconds_forward=clock[0],
            seconds_frontier=clock[1],
            seconds_regression=regression,
            seconds=time.perf_counter() - begin,
            is_last=is_last,
            has_settled=(not fit.is_iterated or is_fitted or has_settled) if is_last else None,
        )
        yield Iteration(record, fit)
        if keeper is not None:  # after it was told of: an iteration that is kept has its record
            keeper.save(n_all if is_last else k + 1, change, step, q.step_tensors(step))
        if is_last:
            return


class Fit:
    """A regressor in training on a batch, and what stays the same from iteration to iteration."""

    def __init__(  # noqa: PLR0913
        self,
        batch: TransitionBatch,
        regressor: Regressor,
        heads: Heads,
        gammas: tuple[float, float],
        schedule: Schedule,
        ensemble: Ensemble,
        seed: int,
        device: torch.device,
        bounded: bool,
        support: float,
        log: Log | None = None,
        expected: FloatArray | None = None,
    ) -> None:
        """Makes models that know nothing."""
        self.batch, self.schedule, self.ensemble, self.device = batch, schedule, ensemble, device
        largest = log.largest if log else (np.abs(batch.reward).max(), np.abs(batch.cost).max())
        reward_unit, cost_unit = _unit("rewards", largest[0]), _unit("costs", largest[1])
        cost_unit = 1.0 if getattr(regressor, "keeps_costs", False) else cost_unit
        self.gammas, self.units = gammas, (reward_unit, cost_unit)
        head_unit = self.units[1] if heads.are_budgets else 1.0
        self.n_steps = 1 if isinstance(schedule, Iterations) else _n_steps(batch)
        told = told_by_step(batch.state, batch.step) if self.n_steps > 1 else None
        every = np.arange(batch.state_size)
        self.columns: IntArray = every if told is None else every[~told]
        counts = np.bincount(batch.action, minlength=batch.n_actions)
        self.taken: BoolArray = (log.counts if log else counts) > 0
        self.support = None if support == 0 else self._supported(support, regressor, seed)
        self._head_unit = head_unit
        rows = self._scaled(batch, _members(batch, ensemble, seed))
        sizes = Sizes(
            n_members=len(rows.members),
            n_steps=self.n_steps,
            n_actions=batch.n_actions,
            n_numbers=len(self.columns),
            heads=tuple((np.asarray(heads.values, np.float64) / head_unit).tolist()),
        )
        q = regressor.empty(sizes)
        rows = rows.merged(self.columns) if q.weighs_rows else rows
        self.q: QModel = (Bounded(q) if bounded else q).to(device)
        has_own_last = self.n_steps > 1 and getattr(schedule, "last_step", "") == "own"
        self.q.prepare(
            Problem(
                states=rows.states,
                actions=rows.actions,
                members=rows.members,
                outcomes=rows.outcomes(self.columns),
                sizes=sizes,
                seed=seed,
                budgets=rows.budgets,
                is_last=rows.is_last if has_own_last else None,
                weights=rows.weights,
                expected=expected,
            )
        )
        self.discounts = torch.tensor(gammas, dtype=torch.float32, device=device)
        self.n_choosing = ensemble.n
        self.whole = self.portion(batch, rows)
        starts = batch.starts()
        starts = starts if len(starts) else np.arange(len(batch))
        starts, some = starts[:_N_STARTS], slice(None, None, max(1, len(batch) // _N_SAMPLE))
        self.starts, self._sample = (
            self.look(batch.state[rows], rows_at(batch.available, rows)) for rows in (starts, some)
        )
        self.stop_loss = schedule.stop_loss if isinstance(schedule, Iterations) else 0.0

    @property
    def is_iterated(self) -> bool:
        """Whether values have to settle; steps are each fitted once."""
        return isinstance(self.schedule, Iterations)

    @cached_property
    def n_iterations(self) -> int:
        """Number of iterations at most, or of steps."""
        if isinstance(self.schedule, Iterations):
            return self.schedule.most(max(self.gammas))
        return self.n_steps

    @cached_property
    def set_names(self) -> tuple[str, ...]:
        """Names of the sets of rows that models are fitted to."""
        return tuple(dict.fromkeys(self.plan(k)[2] for k in range(self.n_iterations)))

    def _scaled(self, batch: TransitionBatch, members: BoolArray, *, is_wide: bool = True) -> Rows:
        """Rows of some transitions, in the units of the fit; states are float64 if wide."""
        is_last: BoolArray | None = None
        if isinstance(self.schedule, Backward):
            is_last = np.asarray(batch.step) == self.n_steps - 1
        states: NDArray[Any] = self._shown(batch.state)
        if is_wide:  # a copy of its own, as columns lie one after the other
            states = np.asarray(batch.state, np.float64)[:, self.columns]
        return Rows(
            states=states,
            actions=batch.action,
            rewards=batch.reward / self.units[0],
            costs=batch.cost / self.units[1],
            next_states=batch.next_state,
            terminal=batch.terminal,
            is_last=is_last,
            members=members,
            budgets=None if batch.budget is None else batch.budget / self._head_unit,
            next_available=batch.next_available,
        )

    def portion(self, batch: TransitionBatch, rows: Rows) -> Portion:
        """Returns transitions as the fit reads them."""
        traces = isinstance(self.schedule, Iterations) and self.schedule.traces
        return Portion(self, batch, rows, traces=traces)

    def part(self, batches: Sequence[TransitionBatch]) -> Portion:
        """Returns transitions of some chunks as the fit reads them.

        Equal rows are one row if those of the batch are.
        """
        members = np.hstack([_chunk_members(batch, self.ensemble) for batch in batches])
        batch = batches[0] if len(batches) == 1 else TransitionBatch.concatenate(batches)
        merges = self.whole.is_merged
        rows = self._scaled(batch, members, is_wide=merges)
        return self.portion(batch, rows.merged(self.columns, is_part=True) if merges else rows)

    def plan(self, k: int) -> tuple[int, int | None, str]:
        """The step that iteration k fits, the one that its next values come from, and its rows."""
        if isinstance(self.schedule, Iterations):
            return 0, None if k == 0 else 0, "all"
        step = self.n_steps - 1 - k
        if k > 0:
            return step, step + 1, "others"
        return step, None, "all" if self.schedule.last_step == "shared" else "last"

    def targets(
        self, next_values: NextValues, source: int | None, own: SetRows, labels: Tensor
    ) -> tuple[Tensor, int, tuple[float, float]]:
        """T-hat Q_k of Section 3.1 at rows of the batch, infeasible budgets, and seconds.

        Algorithm 5: Q(S', A, B) in one pass, and what every next state is worth by its frontier.
        """
        paid = own.paid.expand(-1, labels.shape[-1], -1)
        states = None if source is None else self.whole.next_states(own, one_each=labels.ndim > 1)
        if source is None or states is None or len(states.states) == 0:
            return bootstrap_targets(paid, own.going, None, self.discounts), 0, (0.0, 0.0)
        asked = labels
        if labels.ndim > 1:
            positions = torch.from_numpy(own.rows.positions).to(self.device)
            asked = labels[positions[own.going]]
        value = next_values(self.source(source, states))
        worth, clock = valued(self, source, states, value, asked)
        targets = bootstrap_targets(paid, own.going, worth.values, self.discounts)
        follows, after = self.whole.follows, self.whole.next_actions
        targets = followed(targets, worth, own.going, (follows, after), self.discounts)
        return targets, worth.n_infeasible, clock

    def expected(self, next_values: NextValues) -> FloatArray:
        """Targets of some heads at an early step, for all rows, `[N, K]`.

        A row without them, as its step is the last, has their mean.
        """
        _, source, name = self.plan(self.n_iterations - 1 - self.n_steps // 3)
        own, labels = self.whole.rows(name), self.q.labels(0, self.device)
        targets, _, _ = self.targets(next_values, source or 0, own, labels)
        which = np.rint(np.array(_EXPECTED) * (len(labels) - 1)).astype(np.int64)
        some = targets[:, torch.from_numpy(which).to(self.device)].flatten(1).double().cpu().numpy()
        found = np.tile(some.mean(axis=0), (len(self.whole.held.actions), 1))
        found[own.rows.positions] = some
        return found

    def source(self, step: int, states: NextStates) -> Source:
        """The models of a step, and what they say at a sample of states."""
        every = max(1, len(states.states) // _N_SAMPLE)
        sample = self.q.read(states.embedded[::every], step, slice(self.ensemble.n))
        known = states.known[::every]
        return Source(step, states.states, sample, known, self.units, states.available)

    def look(self, states: NDArray[Any], available: BoolArray | None) -> Look:
        """States as the regressor reads them, and actions that may be played there."""
        embedded = self.embedded(states)
        return Look(embedded, self.known(states, embedded, available))

    def embedded(self, states: NDArray[Any]) -> Tensor:
        """States `[n, D]` as the regressor reads them, without a clock."""
        return self.q.embed(on_device(self._shown(states), self.device))

    def _shown(self, states: NDArray[Any]) -> NDArray[Any]:
        """Numbers of states `[n, D]` that the regressor sees, as they are."""
        return states if len(self.columns) == states.shape[1] else states[:, self.columns]

    def known(
        self, states: NDArray[Any], embedded: Tensor, available: BoolArray | None = None
    ) -> Tensor:
        """Actions that may be played at states, `[n, A]`: those that the data know.

        Only those that are available, `[n, A]`, may be; if the data know none of them, all of them.
        """
        mask = torch.from_numpy(self.taken).to(self.device).expand(len(embedded), -1)
        if available is not None:
            mask = narrowed(torch.tensor(available).to(self.device), mask)
        known = self.q.known(embedded)
        if self.support is not None:
            seen = np.asarray(states, np.float64)[:, self.columns]
            known = torch.from_numpy(self.support.known(seen, available)).to(self.device)
        return mask if known is None else narrowed(mask, known)

    def _supported(self, least: float, regressor: Regressor, seed: int) -> Support:
        """Support of actions by the batch."""
        batch = self.batch
        episodes = np.arange(len(batch)) if batch.episode is None else batch.episode
        states = np.asarray(batch.state, np.float64)[:, self.columns]
        is_table = isinstance(regressor, TableModel)
        how: dict[str, Any] = {"least": least, "is_table": is_table, "seed": seed}
        return Support.of(states, batch.action, episodes, batch.n_actions, **how)

    def acting(self, embedded: Tensor, step: int) -> Tensor:
        """Values that the policy acts on at embedded states, `[1, n, 2, A, H]`."""
        if self.ensemble.pooled and self.ensemble.n > 1:
            return self.q.read(embedded, step, slice(-1, None))
        return combined(self.q.read(embedded, step), self.ensemble.caution)[None]

    def at_states(self, step: int) -> Tensor:
        """Values to act on at a sample of states, `[n, 2, A, H]`, unknown actions barred."""
        return barred(self.acting_at_sample(step), self._sample.known)

    def acting_at_sample(self, step: int) -> Tensor:
        """The same, as it is."""
        return self.acting(self._sample.embedded, step)[0]

    def settled(
        self, before: Tensor | None, change: float | None
    ) -> tuple[float | None, float | None, bool]:
        """Shares of their mean by which values have changed and will change; if that is little.

        Changes shrink by the discount at least, or as they have shrunk last.

        Args:
            before: values at the sample before the last fit; None where steps have their own.
            change: share of the iteration before.
        """
        if before is None or not isinstance(self.schedule, Iterations):
            return None, None, False
        after = self.acting_at_sample(0)
        moved = (after - before).abs().mean((0, 2)).amax(-1)  # [2]
        size = after.abs().mean((0, 2)).amax(-1)
        shares = torch.where(moved > 0, moved / size.clamp(min=1e-30), 0.0)
        now = float(shares.max())
        gamma = max(self.gammas)
        slowest = max(0.99, gamma) if gamma < 1 else 0.99
        fastest = gamma if gamma < 1 and self.whole.follows is None else 0.9
        rate = min(slowest, max(fastest, now / change if change else 0.0))
        left = now * rate / (1 - rate)
        return now, left, left <= self.schedule.settled

    def promised(self, next_values: NextValues, step: int) -> dict[str, Any]:
        """Promises of the policy at the first states, on the first and on the last head."""
        values, known = self.acting(self.starts.embedded, step), self.starts.known
        value = next_values(Source(step, self.batch.state[:0], values, known, self.units))
        heads = torch.tensor(self.q.sizes.heads, dtype=torch.float32, device=self.device)
        asked = heads[[0, -1]] if len(heads) > 1 else heads
        found = value(values, known, asked, slice(0, 0)).values.mean(dim=0)
        (low_r, low_c), (high_r, high_c) = found[0].tolist(), found[-1].tolist()
        return {
            "start_reward_low": low_r * self.units[0],
            "start_cost_low": low_c * self.units[1],
            "start_reward_high": high_r * self.units[0],
            "start_cost_high": high_c * self.units[1],
        }

    def q_function(self) -> LearnedQ:
        """Returns what a policy acts on: the model, the mean of several, or the pooled one."""
        n, pooled = self.ensemble.n, self.ensemble.pooled and self.ensemble.n > 1
        model = self.q.select([n] if pooled else list(range(n)))
        caution = 0.0 if pooled else self.ensemble.caution
        shown = np.isin(np.arange(self.batch.state_size), self.columns)
        return LearnedQ(model, shown, self.taken, *self.units, caution, support=self.support)


def averager_of(fit: Fit) -> Averager:
    """Returns the model of a fit that is fitted from sums.

    Raises:
        ConfigError: if it is not.
    """
    if not isinstance(fit.q, Averager) or not fit.q.is_summed:
        kind = type(fit.q.settings).__name__
        raise ConfigError(
            f"a log in chunks needs a regressor that is fitted from sums; got {kind}."
        )
    return fit.q


class FromSums:
    """Fits averagers to all rows of a log, given the targets of a sample.

    Args:
        fit: on the sample.
        log: all transitions.
        adder: that adds up.
    """

    def __init__(self, fit: Fit, log: Log, adder: Adder) -> None:
        """Has no sums yet."""
        self._fit, self._weight, self._adder = fit, float(len(log)), adder
        self._grams: dict[Any, list[Tensor]] = {}

    def __call__(self, iteration: int, targets: Tensor) -> Loss:
        """Fits the models of an iteration; the loss is on the sample, whose targets are given."""
        q, fit = averager_of(self._fit), self._fit
        step, _, name = fit.plan(iteration)
        rows, values = fit.whole.rows(name).rows, targets.transpose(1, 2)
        if not fit.is_iterated or iteration == 0:
            # Later targets are values of these models, whose lengths must stay as they are.
            q.choose(step, rows, values)
        bound = _ROOM * (1.0 + float(values.abs().max()))
        of_rows, of_targets = q.scales(bound, self._weight)
        members = range(q.sizes.n_members)
        key = name, *(q.gram_key(step, member) for member in members)
        if key not in self._grams:
            grams = self._adder.grams(fit, step, name, of_rows)
            self._grams[key] = [unscaled(found, of_rows) for found in grams]
        moments = self._adder.moments(fit, Order(iteration, bound, of_targets))
        found = [unscaled(sums, of_targets) for sums in moments]
        q.solve(step, list(zip(self._grams[key], found, strict=True)))
        return Loss(q.loss(step, rows, values))


def torch_device(name: str) -> torch.device:
    """Returns the device of a name; "auto" is the GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.device(name)
    except RuntimeError:
        raise ConfigError(f'device must be "cpu", "cuda" or "auto"; got {name!r}.') from None


def told_by_step(states: NDArray[Any], steps: IntArray | None) -> BoolArray:
    """Which numbers of states `[N, D]` the step determines, `[D]`: a clock, but not all of them.

    >>> told_by_step(np.array([[0.0, 1.0], [0.0, 2.0], [0.5, 1.0]]), np.array([0, 0, 1])).tolist()
    [True, False]
    """
    assert steps is not None
    order = np.argsort(steps, kind="stable")
    begins = np.flatnonzero(np.diff(steps[order], prepend=steps[order[0]] - 1))
    told = np.empty(states.shape[1], np.bool_)
    for k, column in enumerate(states.T):
        sorted_by_step = column[order]
        least, most = (f.reduceat(sorted_by_step, begins) for f in (np.minimum, np.maximum))
        told[k] = (least == most).all()
    return told & ~told.all()


def require_steps(step: IntArray) -> None:
    """Checks that steps `[N]` are those of episodes, and no times or row numbers.

    Raises:
        DataError: naming the row of the largest, if most steps before it have no row.

    >>> require_steps(np.array([0, 1, 1_000_000]))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    bmdp.errors.DataError: step must be 0, 1, 2 and so on; got 1000000 at [2], and 999998 steps ...
    """
    n_steps = int(step.max()) + 1
    n_empty = n_steps - len(np.unique(step))
    if 2 * n_empty > n_steps:
        raise DataError(
            f"step must be 0, 1, 2 and so on; got {n_steps - 1} at [{int(step.argmax())}], and "
            f"{n_empty} steps before it have no row. Count them anew in each episode."
        )


def _n_steps(batch: TransitionBatch) -> int:
    if batch.step is None:
        raise DataError(
            "a schedule by steps needs a batch with steps; this one has none. Give step, or use "
            "schedule=Iterations()."
        )
    n_steps, row = int(batch.step.max()) + 1, int(batch.step.argmax())
    if n_steps > _MOST_STEPS:
        raise DataError(
            f"step must be below {_MOST_STEPS} for a model of each step; got {n_steps - 1} at "
            f"[{row}]."
        )
    require_steps(batch.step)
    return n_steps


def _members(batch: TransitionBatch, ensemble: Ensemble, seed: int) -> BoolArray:
    """Rows of each model, `[E, N]`; the pooled one comes last."""
    n_episodes = len(batch) if batch.episode is None else len(np.unique(batch.episode))
    if n_episodes < ensemble.n:
        raise DataError(
            f"an ensemble of {ensemble.n} needs as many episodes, as each model is fitted to its "
            f"own; got {n_episodes}. Use ensemble=1."
        )
    folds = batch.folds(ensemble.n, named_generator(seed, "fit/folds"))
    members: BoolArray = folds == np.arange(ensemble.n)[:, None]
    if ensemble.pooled and ensemble.n > 1:
        members = np.vstack((members, np.ones_like(members[:1])))
    return members


def _chunk_members(batch: TransitionBatch, ensemble: Ensemble) -> BoolArray:
    """Rows of a chunk of each model, `[E, N]`: its episodes in turn."""
    if ensemble.n == 1:
        return np.ones((1, len(batch)), np.bool_)
    episode = np.arange(len(batch)) if batch.episode is None else batch.episode
    number = np.unique(episode, return_inverse=True)[1] % ensemble.n
    members: BoolArray = number == np.arange(ensemble.n)[:, None]
    if ensemble.pooled and ensemble.n > 1:
        members = np.vstack((members, np.ones_like(members[:1])))
    return members


def _unit(name: str, largest: float) -> float:
    """The largest magnitude of the data, or 1.

    Raises:
        DataError: if values in that unit are none that models hold, in single precision.
    """
    low, high = _UNITS
    if largest > 0 and not low <= largest <= high:
        raise DataError(
            f"{name} must be 0, or the largest from {low:g} to {high:g} in magnitude, to learn "
            f"from them; got {largest:g}. Give them in another unit."
        )
    return float(largest) if largest > 0 else 1.0
