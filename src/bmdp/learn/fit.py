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
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

from bmdp.arrays import BoolArray, FloatArray, IntArray, narrowed, rows_at
from bmdp.checks import require_choice, require_count, require_from_0
from bmdp.data import TransitionBatch
from bmdp.errors import DataError
from bmdp.models.regressor import (
    Bounded,
    LearnedQ,
    Problem,
    QModel,
    Regressor,
    RowSet,
    Sizes,
    barred,
    combined,
    cover,
)
from bmdp.models.support import Support
from bmdp.models.table import TableModel
from bmdp.randomness import named_generator

_CHUNK = 16_384  # next states that are valued at a time
_N_SAMPLE = 500  # states by which slopes are measured and values compared
_N_STARTS = 250  # first states at which promises are made
_N_COLUMNS = 8  # after which rows are looked at whether many are equal
_MOST_STEPS = 10_000  # of an episode, that can have models of their own


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


class Values(NamedTuple):
    """Values of next states, and how many of their budgets were infeasible."""

    values: Tensor  # [n, L, 2], of (V_r, V_c), in scaled units
    n_infeasible: int = 0  # of n * L
    actions: Tensor | None = None  # [n, L], the best ones, where one action is played


class Source(NamedTuple):
    """Where next values come from: the models of a step, and the states that are valued."""

    step: int
    states: NDArray[Any]  # [n, D], all numbers of the next states
    sample: Tensor  # [E, m, 2, A, H], values at some of them
    known: Tensor  # [m, A], actions that may be played there
    units: tuple[float, float]  # of rewards and of costs
    available: BoolArray | None = None  # [n, A], actions that there are at the states, if not all


class Worth(Protocol):
    """Values next states, given what models say of them."""

    def __call__(self, values: Tensor, known: Tensor, asked: Tensor, part: slice) -> Values:
        """Returns values of the states of a part.

        Args:
            values: `[E, n, 2, A, H]`.
            known: `[n, A]`, actions that may be played.
            asked: heads `[H]`, or labels `[n, L]`.
            part: of the states.
        """


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


class Keeper(Protocol):
    """Keeps what a fit needs to go on after it was killed."""

    def load(self) -> tuple[int, float | None, dict[int, dict[str, Tensor]]]:
        """Iterations done (all of them, if it stopped early), last change, arrays of steps."""

    def save(
        self, n_done: int, change: float | None, step: int, tensors: dict[str, Tensor]
    ) -> None:
        """Keeps what was fitted at a step."""


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

    Paper: Algorithm 2.
    """
    fit = Fit(
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
    )
    q, n_all = fit.q, fit.n_iterations
    n_done, change = 0, None
    if keeper is not None:
        n_done, change, kept = keeper.load()
        for step, tensors in kept.items():
            q.set_step(step, tensors)
    if n_done >= n_all:  # it was killed after its last iteration
        yield Iteration(None, fit)
    for k in range(n_done, n_all):
        begin = time.perf_counter()
        step, source, own = fit.plan(k)
        rows = own.rows
        labels = q.labels(k, fit.device)  # beta_a: the budgets at which rows are fitted
        # Algorithm 5: Q(S', A, B) in one pass, and what every next state is worth by its frontier.
        worth, clock = fit.worth(next_values, source, own, labels)
        # T-hat Q_k of Section 3.1.
        paid = own.paid.expand(-1, labels.shape[-1], -1)
        following = None if worth is None else worth.values
        targets = bootstrap_targets(paid, own.going, following, fit.discounts)
        targets = fit.traced(targets, own, worth)
        # Algorithm 2: Q_k+1 is their regression on (s, a, beta_a), until convergence.
        delta = q.error(step, rows, labels, targets)
        is_fitted = k > 0 and fit.n_steps == 1 and delta <= fit.stop_loss
        loss, left, has_settled, at = None, None, False, time.perf_counter()
        if not is_fitted:
            before = fit.acting_at_sample(step) if fit.n_steps == 1 else None
            loss = q.fit(step, rows, labels, targets, f"iteration-{k}")
            change, left, has_settled = fit.settled(before, change)
        regression = time.perf_counter() - at
        is_late = until is not None and isinstance(schedule, Iterations) and until()
        is_last = is_fitted or has_settled or is_late or k + 1 == n_all
        record = Record(
            iteration=k,
            step=step if fit.n_steps > 1 else None,
            delta=delta,
            share_infeasible=worth.n_infeasible / targets[..., 0].numel() if worth else 0.0,
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


@dataclass(frozen=True, eq=False)
class Rows:
    """Transitions as models are fitted to them; equal ones are one row that weighs their number."""

    states: FloatArray  # [N, D], as the model sees them
    actions: IntArray  # [N]
    rewards: FloatArray  # [N], scaled; means of equal rows
    costs: FloatArray  # [N]
    next_states: NDArray[Any]  # [N, D], all their numbers
    terminal: BoolArray  # [N]
    is_last: BoolArray | None  # [N], of the last step, where steps have models of their own
    members: BoolArray  # [E, N]
    budgets: FloatArray | None = None  # [N], held in the log
    weights: FloatArray | None = None  # [N]
    next_available: BoolArray | None = None  # [N, A], actions at next states, if not all

    def merged(self, columns: IntArray) -> Rows:
        """Returns the same with equal rows as one, where that halves their number.

        Args:
            columns: numbers of a next state that matter.
        """
        going = ~self.terminal
        flags = self.terminal if self.is_last is None else self.terminal + 2 * self.is_last
        following = [np.where(going, self.next_states[:, c], 0) for c in columns]
        following += _columns(self.next_available)
        keys = (self.actions, flags, *self.members, *self.states.T, *following)
        found = equal_rows(keys)
        if found is None:
            return self
        first, which = found
        counts = np.bincount(which)
        # A log that was copied several times over is that log.
        weights = (counts // np.gcd.reduce(counts)).astype(np.float64)
        rewards, costs = (np.bincount(which, c) / counts for c in (self.rewards, self.costs))
        return Rows(
            states=np.asfortranarray(self.states[first]),  # as it was: sums are rounded alike
            actions=self.actions[first],
            rewards=rewards,
            costs=costs,
            next_states=self.next_states[first],
            terminal=self.terminal[first],
            is_last=None if self.is_last is None else self.is_last[first],
            members=self.members[:, first],
            weights=None if (weights == 1).all() else weights,
            next_available=rows_at(self.next_available, first),
        )

    def outcomes(self, columns: IntArray) -> FloatArray:
        """Outcomes `[N, 3 + D]`: reward, cost, whether it was the end, change of the state.

        The last of a known number of steps is no end that a state could tell of. After an end there
        is no state, and the change is the mean of all.
        """
        is_end = self.terminal if self.is_last is None else self.terminal & ~self.is_last
        change = self.next_states[:, columns] - self.states
        going = ~self.terminal
        if not going.all():
            weights = None if self.weights is None else self.weights[going]
            some = change[going]
            change[~going] = np.average(some, axis=0, weights=weights) if len(some) else 0.0
        return np.column_stack((self.rewards, self.costs, is_end, change))


class Look(NamedTuple):
    """Some states, as the regressor reads them."""

    embedded: Tensor
    known: Tensor  # [n, A], actions that may be played there


class SetRows(NamedTuple):
    """A set of rows, with all that every iteration needs of it."""

    rows: RowSet
    paid: Tensor  # [n, 1, 2], rewards and costs
    going: Tensor  # [m], rows that are not terminal


class NextStates(NamedTuple):
    """Next states of the rows of a set that go on, each once where many are the same."""

    states: NDArray[Any]  # [n, D], all numbers
    embedded: Tensor  # as the regressor reads them
    known: Tensor  # [n, A], actions that may be played there
    which: Tensor | None  # [m], which of them follows each row; None if each has its own
    available: BoolArray | None = None  # [n, A], actions that there are, if not all


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
    ) -> None:
        """Makes models that know nothing."""
        self.batch, self.schedule, self.ensemble, self.device = batch, schedule, ensemble, device
        cost_unit = 1.0 if getattr(regressor, "keeps_costs", False) else _unit(batch.cost)
        self.gammas, self.units = gammas, (_unit(batch.reward), cost_unit)
        head_unit = self.units[1] if heads.are_budgets else 1.0
        self.n_steps = 1 if isinstance(schedule, Iterations) else _n_steps(batch)
        told = told_by_step(batch.state, batch.step) if self.n_steps > 1 else None
        every = np.arange(batch.state_size)
        self.columns: IntArray = every if told is None else every[~told]
        self.taken: BoolArray = np.bincount(batch.action, minlength=batch.n_actions) > 0
        self.support = None if support == 0 else self._supported(support, regressor, seed)
        is_last: BoolArray | None = None
        if isinstance(schedule, Backward):
            is_last = np.asarray(batch.step) == self.n_steps - 1
        rows = Rows(
            states=np.asarray(batch.state, np.float64)[:, self.columns],
            actions=batch.action,
            rewards=batch.reward / self.units[0],
            costs=batch.cost / self.units[1],
            next_states=batch.next_state,
            terminal=batch.terminal,
            is_last=is_last,
            members=_members(batch, ensemble, seed),
            budgets=None if batch.budget is None else batch.budget / head_unit,
            next_available=batch.next_available,
        )
        sizes = Sizes(
            n_members=len(rows.members),
            n_steps=self.n_steps,
            n_actions=batch.n_actions,
            n_numbers=len(self.columns),
            heads=tuple((np.asarray(heads.values, np.float64) / head_unit).tolist()),
        )
        q = regressor.empty(sizes)
        self._rows = rows.merged(self.columns) if q.weighs_rows else rows
        self.q: QModel = (Bounded(q) if bounded else q).to(device)
        has_own_last = self.n_steps > 1 and getattr(schedule, "last_step", "") == "own"
        self.q.prepare(
            Problem(
                states=self._rows.states,
                actions=self._rows.actions,
                members=self._rows.members,
                outcomes=self._rows.outcomes(self.columns),
                sizes=sizes,
                seed=seed,
                budgets=self._rows.budgets,
                is_last=self._rows.is_last if has_own_last else None,
                weights=self._rows.weights,
            )
        )
        self.discounts = torch.tensor(gammas, dtype=torch.float32, device=device)
        self._follows = self._followed()
        self._next_actions = torch.tensor(np.roll(self._rows.actions, -1), device=device)
        self._sets: dict[str, SetRows] = {}
        self._next: dict[str, NextStates] = {}
        starts = batch.starts()
        starts = starts if len(starts) else np.arange(len(batch))
        starts, some = starts[:_N_STARTS], slice(None, None, max(1, len(batch) // _N_SAMPLE))
        self.starts, self._sample = (
            self._look(batch.state[rows], rows_at(batch.available, rows)) for rows in (starts, some)
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

    def plan(self, k: int) -> tuple[int, int | None, SetRows]:
        """The step that iteration k fits, the one that its next values come from, and its rows."""
        if isinstance(self.schedule, Iterations):
            return 0, None if k == 0 else 0, self.rows("all")
        step = self.n_steps - 1 - k
        if k > 0:
            return step, step + 1, self.rows("others")
        return step, None, self.rows("all" if self.schedule.last_step == "shared" else "last")

    def rows(self, name: str) -> SetRows:
        """A set of rows: "all", "last" of the last step, "others" of those before."""
        if name not in self._sets:
            self._sets[name] = self._set_rows(name)
        return self._sets[name]

    def _set_rows(self, name: str) -> SetRows:
        positions = np.arange(len(self._rows.actions))
        if name != "all":
            assert self._rows.is_last is not None
            positions = positions[self._rows.is_last == (name == "last")]
            if not all(mask[positions].any() for mask in self._rows.members):
                raise DataError(
                    f"every model of the ensemble needs rows; the {name} step"
                    f"{'' if name == 'last' else 's'} have {len(positions)} transitions."
                )
        paid = np.stack((self._rows.rewards[positions], self._rows.costs[positions]), axis=-1)
        going = np.flatnonzero(~self._rows.terminal[positions])
        return SetRows(
            RowSet(name, positions),
            torch.tensor(paid[:, None], dtype=torch.float32, device=self.device),
            torch.from_numpy(going).to(self.device),
        )

    def worth(
        self, next_values: NextValues, source: int | None, own: SetRows, labels: Tensor
    ) -> tuple[Values | None, tuple[float, float]]:
        """Values of the next states of rows that go on, and seconds of its two parts."""
        if source is None:
            return None, (0.0, 0.0)
        states = self._next_states(own, one_each=labels.ndim > 1)
        if len(states.states) == 0:
            return None, (0.0, 0.0)
        value = next_values(self._source(source, states))
        found, chosen, n_infeasible, forward, frontier = [], [], 0, 0.0, 0.0
        asked = labels
        if labels.ndim > 1:
            positions = torch.from_numpy(own.rows.positions).to(self.device)
            asked = labels[positions[own.going]]
        for part in cover(len(states.states), _CHUNK):
            at = time.perf_counter()
            values = self.q.read(states.embedded[part], source, slice(self.ensemble.n))
            self._wait()
            forward, at = forward + time.perf_counter() - at, time.perf_counter()
            of_part = asked if asked.ndim == 1 else asked[part]
            valued = value(values, states.known[part], of_part, part)
            found.append(valued.values)
            if valued.actions is not None:
                chosen.append(valued.actions)
            n_infeasible += valued.n_infeasible
            self._wait()
            frontier += time.perf_counter() - at
        joined = torch.cat(found) if len(found) > 1 else found[0]
        actions = torch.cat(chosen) if chosen else None
        if states.which is not None:
            n_infeasible = n_infeasible * len(states.which) // len(joined)
            joined = joined[states.which]
            actions = None if actions is None else actions[states.which]
        return Values(joined, n_infeasible, actions), (forward, frontier)

    def traced(self, targets: Tensor, own: SetRows, worth: Values | None) -> Tensor:
        """Targets `[n, L, 2]` that follow episodes, if that is asked for and they are known."""
        if self._follows is None or worth is None or worth.actions is None:
            return targets
        values = torch.zeros_like(targets)
        values[own.going] = worth.values
        best = torch.full(targets.shape[:2], -1, device=self.device)
        best[own.going] = worth.actions.long()
        kept = self._follows[:, None] & (best == self._next_actions[:, None])
        return traced_targets(targets, values, kept, self.discounts)

    def _followed(self) -> Tensor | None:
        """Whether the next row of the batch goes on from each row, `[N]`."""
        batch, has_traces = self.batch, getattr(self.schedule, "traces", False)
        is_merged = len(self._rows.actions) < len(batch)
        if not has_traces or is_merged or batch.episode is None or batch.step is None:
            return None
        follows = np.zeros(len(batch), np.bool_)
        follows[:-1] = (
            (batch.episode[1:] == batch.episode[:-1])
            & (batch.step[1:] == batch.step[:-1] + 1)
            & ~batch.terminal[:-1]
            & (batch.next_state[:-1] == batch.state[1:]).all(axis=1)
        )
        return torch.from_numpy(follows).to(self.device)

    def _source(self, step: int, states: NextStates) -> Source:
        """The models of a step, and what they say at a sample of states."""
        every = max(1, len(states.states) // _N_SAMPLE)
        sample = self.q.read(states.embedded[::every], step, slice(self.ensemble.n))
        known = states.known[::every]
        return Source(step, states.states, sample, known, self.units, states.available)

    def _next_states(self, own: SetRows, *, one_each: bool) -> NextStates:
        name, positions = own.rows
        if name not in self._next:
            going = positions[own.going.cpu().numpy()]
            states, which = self._rows.next_states[going], None
            available = rows_at(self._rows.next_available, going)
            # A row that stands for several has one of their clocks.
            seen = states if len(self._rows.actions) == len(self.batch) else states[:, self.columns]
            found = None if one_each else equal_rows([*seen.T, *_columns(available)])
            if found is not None:
                states, which = states[found[0]], torch.from_numpy(found[1]).to(self.device)
                available = rows_at(available, found[0])
            look = self._look(states, available)
            self._next[name] = NextStates(states, *look, which, available)
        return self._next[name]

    def _look(self, states: NDArray[Any], available: BoolArray | None) -> Look:
        embedded = self.embedded(states)
        return Look(embedded, self.known(states, embedded, available))

    def embedded(self, states: NDArray[Any]) -> Tensor:
        """States `[n, D]` as the regressor reads them, without a clock."""
        seen = np.asarray(states, np.float64)[:, self.columns]
        return self.q.embed(torch.from_numpy(np.ascontiguousarray(seen)).to(self.device))

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
        fastest = gamma if gamma < 1 and self._follows is None else 0.9
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

    def _wait(self) -> None:
        """Waits for the GPU, so that seconds are told apart."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def torch_device(name: str) -> torch.device:
    """Returns the device of a name; "auto" is the GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(name)


def told_by_step(states: NDArray[Any], steps: IntArray | None) -> BoolArray:
    """Which numbers of states `[N, D]` the step determines, `[D]`: a clock, but not all of them.

    >>> told_by_step(np.array([[0.0, 1.0], [0.0, 2.0], [0.5, 1.0]]), np.array([0, 0, 1])).tolist()
    [True, False]
    """
    told = np.ones(states.shape[1], np.bool_)
    assert steps is not None
    for step in np.unique(steps):
        told &= np.ptp(states[steps == step], axis=0) == 0
    return told & ~told.all()


def _n_steps(batch: TransitionBatch) -> int:
    if batch.step is None:
        raise DataError(
            "a schedule by steps needs a batch with steps; this one has none. Give step, or use "
            "schedule=Iterations()."
        )
    n_steps = int(batch.step.max()) + 1
    if n_steps > _MOST_STEPS:
        raise DataError(
            f"step must be below {_MOST_STEPS} for a model of each step; got {n_steps - 1}."
        )
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


def _columns(mask: BoolArray | None) -> list[BoolArray]:
    """Columns of a mask, if there is one."""
    return [] if mask is None else list(mask.T)


def _unit(values: FloatArray) -> float:
    """The largest magnitude of the data, or 1."""
    largest = float(np.abs(values).max())
    return largest if largest > 0 else 1.0


def equal_rows(columns: Sequence[NDArray[Any]]) -> tuple[IntArray, IntArray] | None:
    """Finds equal rows of columns `[N]`: the first of each kind, and the kind of each row.

    Rows are compared by sums of 64 bits over their numbers, and then by the numbers themselves. It
    looks at few columns where these tell that most rows differ.

    Returns:
        Positions of the first rows of their kind, rising, and kinds `[N]`; None where there are
        more kinds than half the rows, or no columns.

    >>> [array.tolist() for array in equal_rows([np.array([5, 3, 5, 3])])]
    [[0, 1], [0, 1, 0, 1]]
    >>> equal_rows([np.array([5, 3, 5])])
    """
    if not columns:
        return None
    n, sums = len(columns[0]), np.zeros(len(columns[0]), np.uint64)
    for number, column in enumerate(columns):
        bits = (np.asarray(column, np.float64) + 0.0).view(np.uint64)  # -0 becomes 0
        sums = (sums ^ bits) * np.uint64(0x9E3779B97F4A7C15)
        sums ^= sums >> np.uint64(29)
        is_look = number % _N_COLUMNS == _N_COLUMNS - 1 and number + 1 < len(columns)
        if is_look and 2 * len(np.unique(sums)) > n:
            return None
    _, first, which = np.unique(sums, return_index=True, return_inverse=True)
    if 2 * len(first) > n:
        return None
    order = np.argsort(first)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    first, which = first[order], place[which.ravel()]
    if not all(np.array_equal(column[first][which], column) for column in columns):
        return None  # two different rows have the same sum
    return first, which
