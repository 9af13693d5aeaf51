"""Practice: a dial that was learned from a batch gets better by playing.

Values of a batch blur what matters little at each step and much in the end: which way to push a
pole that is about to fall. Policy gradients need no such values. An actor for all prices
(`bmdp.models.actor`) first imitates the dial. Then it plays, round after round, actions drawn by
its own probabilities, and makes those likelier that earned more, less the price of what they cost,
than the critic had expected:

    maximise  mean of min(ratio * advantage, clip(ratio, 0.8, 1.2) * advantage),
    advantage = A_r - price * A_c,   ratio = pi_new(a | s) / pi_old(a | s)

(proximal policy optimisation: Schulman and others, 2017; advantages by generalised estimation,
2016). Advantages are divided by their deviation at each price, so that no unit matters. Prices are
placed anew in between, by what the actor pays at them. What comes back plays the likeliest action.

Nothing here supposes that a state holds all that matters, as values of the next state do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

from bmdp.arrays import BoolArray, FloatArray, IntArray, rows_at
from bmdp.data import TransitionBatch, weighed
from bmdp.learn.candidates import Dial, Lesson, Recipe, played
from bmdp.learn.collect import threads
from bmdp.learn.evidence import Player
from bmdp.learn.natures import refined_prices
from bmdp.learn.shelf import Shelf
from bmdp.models.actor import ActorModel, SampledActor
from bmdp.models.regressor import LearnedQ, Scaling, Sizes, with_clock
from bmdp.policies.prices import PriceDial

_N_ROUNDS, _MOST_ROUNDS = 60, 150  # as planned, and at most
_COUNTED = (2, 10, 25)  # rounds after which it is seen how many there is time for
_MOST_ROWS, _LEAST_ROWS = 20_000, 2_000  # of a round
_LEAST_EPISODES = 4  # of a round
_PER_ROW = 3e-5  # seconds of learning from a row
_N_IMITATED, _N_IMITATIONS, _PART = 20_000, 400, 512  # states, gradient steps, batch size
_IMITATION_RATE, _RATE = 3e-3, 1e-3  # learning rates
_DOUBT = 0.1  # label smoothing of imitated actions
_EPOCHS, _BATCH = 4, 1024  # passes over a round, and batch size
_CLIP, _FARTHEST, _STEEPEST = 0.2, 5.0, 0.5  # bounds of ratios, advantages, gradient norms
_TRACE = 0.95  # lambda of generalised advantage estimation
_FALL = 2.0  # the learning rate falls after the first half of the rounds
_ENTROPY = 0.01  # weight of the entropy bonus in the first round; it falls to 0
_RECENT = 0.8  # decay of means over rounds
_PLACED_ANEW = (0.08, 0.25, 0.5)  # shares of the rounds after which prices are placed anew


@dataclass(frozen=True)
class Practice:
    """Where to practise, and how much."""

    player: Player
    first: int  # number of the first episode
    n_episodes: int  # at most
    seconds: float  # about
    pace: float  # seconds of playing a step

    def rows(self, batch: TransitionBatch) -> int | None:
        """Rows of a round; None if there are too few episodes or is too little time for practice.

        Args:
            batch: that was explored; episodes are thought to be as long as its last ones.
        """
        in_time = self.seconds / (self.pace + _PER_ROW)
        in_all = self.n_episodes * _late_length(batch)
        rows = int(min(_MOST_ROWS, min(in_time, in_all) / _N_ROUNDS))
        return rows if rows >= _LEAST_ROWS else None


def practised(
    dial: Dial,
    lesson: Lesson,
    how: Practice,
    shelf: Shelf,
    on_round: Callable[[int, int], None] = lambda number, n_rounds: None,
) -> tuple[Dial, int]:
    """Returns a dial that imitates another one and then got better by playing, and its episodes.

    Args:
        dial: of prices, that is imitated.
        lesson: transitions that were explored.
        how: where, and how much.
        shelf: where the number of rounds is kept.
        on_round: called with the number of a round, and of all.
    """
    assert isinstance(dial.policy, PriceDial)
    rows, begin = how.rows(lesson.batch), shelf.seconds
    assert rows is not None
    number, n_rounds = 0, _MOST_ROUNDS
    with threads(1):
        course = _Course(dial, lesson, how, rows)
        course.imitate(dial)
        while number < n_rounds:
            on_round(number, n_rounds)
            at = shelf.seconds
            course.play(number / n_rounds)
            number += 1
            if number in _COUNTED:
                left = course.rounds_left(how.seconds - (shelf.seconds - begin), shelf.seconds - at)
                n = number + left
                name = f"candidates/{dial.recipe.name}, practised/rounds-{number}"
                n_rounds = int(shelf.numbers(name, partial(dict, n=n))["n"])
    recipe = Recipe(f"{dial.recipe.name}, practised", ActorModel())
    members = np.arange(len(course.prices), dtype=np.float64)
    found = Dial(recipe, course.dial(), members, shelf.seconds - begin, has_settled=True)
    return found, course.n_played


@njit(cache=True)
def advantages(paid, worth, following, ended, gamma, trace):  # type: ignore[no-untyped-def]
    """Generalised advantages `[N, K]` of rows, episode by episode, the last row of each ended.

        A_i = paid_i + gamma V(s'_i) - V(s_i) + gamma trace A_i+1

    Args:
        paid: `[N, K]`, reward and cost.
        worth: `[N, K]`, of states.
        following: `[N, K]`, of next states; 0 after a terminal row.
        ended: `[N]`, last rows of their episodes.
        gamma: discount.
        trace: 0 believes in the worth of the next state, 1 in the episode alone.

    >>> paid, worth = np.array([[1.0], [2.0]]), np.array([[0.5], [0.5]])
    >>> advantages(paid, worth, np.array([[0.5], [0.0]]), np.array([False, True]), 1.0, 1.0)
    array([[2.5],
           [1.5]])
    """
    found = np.zeros(paid.shape)
    for i in range(len(paid) - 1, -1, -1):
        for k in range(paid.shape[1]):
            found[i, k] = paid[i, k] + gamma * following[i, k] - worth[i, k]
            if not ended[i]:
                found[i, k] += gamma * trace * found[i + 1, k]
    return found


def clipped_gain(ratio: Tensor, advantage: Tensor) -> Tensor:
    """Gain of a policy over the one that played, `[n]`: none for going far from it.

    >>> clipped_gain(torch.tensor([1.1, 2.0, 2.0]), torch.tensor([1.0, 1.0, -1.0])).tolist()
    [1.100000023841858, 1.2000000476837158, -2.0]
    """
    return torch.minimum(ratio * advantage, ratio.clamp(1 - _CLIP, 1 + _CLIP) * advantage)


class _Played(NamedTuple):
    """A round as it is learned from."""

    states: Tensor  # [n, D], embedded
    heads: Tensor  # [n]
    actions: Tensor  # [n]
    logs: Tensor  # [n], of the probabilities of these actions when they were played
    advantages: Tensor  # [n], scaled
    worth: Tensor  # [n, 2], scaled, that the critic is to expect
    available: Tensor | None  # [n, A], actions that could be played, if not all


class _Course:
    """An actor that practises."""

    def __init__(self, dial: Dial, lesson: Lesson, how: Practice, rows: int) -> None:
        assert isinstance(dial.policy, PriceDial)
        batch, self.nature = lesson.batch, lesson.nature
        self.lesson, self.how = lesson, how
        self.clock = self.nature.clock or self.nature.n_steps or 0
        # With two discounts the critic sees rewards as they count at the start, and one discount.
        self.gamma = lesson.gamma if lesson.cost_gamma is None else lesson.cost_gamma
        self.prices, self._first_prices = dial.policy.prices, dial.policy.prices
        states = self._shown(batch.state, batch.step)
        heads = tuple(map(float, range(len(self.prices))))
        sizes = Sizes(1, 1, batch.n_actions, states.shape[1], heads)
        self.model = ActorModel().empty(sizes)
        by = Scaling.of(states)
        self.model.centre[:] = torch.from_numpy(by.centre)
        self.model.scale[:] = torch.from_numpy(by.scale)
        self.model.start(torch.Generator().manual_seed(self._seed("weights")))
        self.units: FloatArray = np.ones(2)
        self.rng = lesson.generator("auto/practice")
        self._rows = rows
        self._length = _late_length(batch)
        self._next = how.first
        self._squares, self._counts = np.zeros((2, len(self.prices)))  # of advantages, and rows
        self._paid, self._n_paid = np.zeros((2, len(self.prices)))
        self._n_placed = 0
        self._optimiser = torch.optim.Adam(self.model.parameters(), lr=_RATE)

    def _seed(self, name: str) -> int:
        return int(self.lesson.generator(f"auto/practice/{name}").integers(2**62))

    def _shown(self, states: NDArray[Any], steps: IntArray | None) -> FloatArray:
        """States as the actor sees them: with the step, where there is a last one."""
        rows = np.asarray(states, np.float64).reshape(len(states), -1)
        if not self.clock:
            return rows
        assert steps is not None
        return with_clock(rows, steps, self.clock)

    @property
    def n_episodes(self) -> int:
        """Episodes of the next round."""
        return max(_LEAST_EPISODES, round(self._rows / self._length))

    @property
    def n_played(self) -> int:
        """Episodes that were played."""
        return self._next - self.how.first

    def rounds_left(self, seconds: float, took: float) -> int:
        """Rounds that there is time for, and episodes, if the last one took so many seconds."""
        by_episodes = (self.how.n_episodes - self.n_played) / self.n_episodes
        n = min(by_episodes, seconds / max(took, 1e-9), _MOST_ROUNDS)
        return int(max(n, 0))

    def dial(self) -> PriceDial:
        """The dial as it is now; `played` has it count the steps that all models are shown."""
        clock = 0 if self.nature.clock else self.clock
        return PriceDial(replace(self._q_function(), clock=clock), self.prices)

    def _q_function(self) -> LearnedQ:
        shown: BoolArray = np.ones(self.model.sizes.n_numbers, np.bool_)
        taken: BoolArray = np.ones(self.model.sizes.n_actions, np.bool_)
        reward_unit, cost_unit = map(float, self.units)
        return LearnedQ(self.model.select([0]), shown, taken, reward_unit, cost_unit)

    def imitate(self, dial: Dial) -> None:
        """Fits the actor to what a dial does, and the critic to what it expects."""
        batch = self.lesson.batch
        rows = np.sort(self.rng.permutation(len(batch))[:_N_IMITATED])
        steps = np.zeros(len(rows), np.int64) if batch.step is None else batch.step[rows]
        policy = played(dial, self.nature)
        assert isinstance(policy, PriceDial)
        actions = np.zeros((len(rows), len(self.prices)), np.int64)
        worth = np.zeros((len(rows), 2, len(self.prices)))
        at = np.minimum(steps, policy.n_steps - 1)
        for step in np.unique(at):
            own = at == step
            masks = rows_at(batch.available, rows[own])
            now = policy.at_step(int(step))
            points = now.points(batch.state[rows[own]], masks)
            actions[own] = points.actions
            worth[own] = np.stack((points.rewards / now.raised, points.costs), axis=1)
        deviation, largest = worth.std(axis=(0, 2)), np.abs(worth).max(axis=(0, 2))
        self.units = np.where(deviation > 1e-6 * largest, deviation, np.where(largest, largest, 1))
        scaled = torch.from_numpy(worth / self.units[:, None]).float()
        with torch.no_grad():
            self.model.critic.bias[:] = scaled.mean(dim=(0, 2))[:, None]
        states = self.model.embed(torch.from_numpy(self._shown(batch.state[rows], steps)))
        chosen, available = torch.from_numpy(actions), _tensor(rows_at(batch.available, rows))
        optimiser = torch.optim.Adam(self.model.parameters(), lr=_IMITATION_RATE)
        for _ in range(_N_IMITATIONS):
            part = torch.from_numpy(self.rng.integers(len(rows), size=_PART))
            some = rows_at(available, part)
            logs = self.model.chances(states[part], available=some)
            likely = logs.gather(1, chosen[part][:, None]).mean()
            error = (self.model.worth(states[part]) - scaled[part]).square().mean()
            _descend(optimiser, error - (1 - _DOUBT) * likely - _DOUBT * _mean(logs, some))

    def play(self, share: float) -> None:
        """Plays a round and learns from it, after a share of all rounds."""
        n_heads = len(self.prices)
        heads = (self.n_played + np.arange(self.n_episodes)) % n_heads
        actor = SampledActor(replace(self._q_function(), clock=self.clock))
        batch = self.how.player.play(actor, heads.astype(np.float64), self._next)
        batch = self.nature.ended(batch)
        self._next += len(heads)
        self._length = len(batch) / len(heads)
        self._learn(self._told(weighed(batch, self.lesson.gamma, self.gamma)), share)
        found = self.how.player.returns(batch)
        self._paid = _RECENT * self._paid + np.bincount(heads, found[:, 1], n_heads)
        self._n_paid = _RECENT * self._n_paid + np.bincount(heads, minlength=n_heads)
        if self._n_placed < len(_PLACED_ANEW) and share >= _PLACED_ANEW[self._n_placed]:
            self._place_anew()

    def _told(self, batch: TransitionBatch) -> _Played:
        """A round as it is learned from: how much better each action was than expected."""
        assert batch.budget is not None
        assert batch.truncated is not None
        heads = np.rint(batch.budget).astype(np.int64)
        at = torch.from_numpy(heads)
        after = None if batch.step is None else batch.step + 1
        states, following = (
            self.model.embed(torch.from_numpy(self._shown(rows, steps)))
            for rows, steps in ((batch.state, batch.step), (batch.next_state, after))
        )
        actions = torch.from_numpy(batch.action.astype(np.int64))
        available = _tensor(batch.available)
        with torch.no_grad():
            logs = self.model.chances(states, at, available).gather(1, actions[:, None])[:, 0]
            worth, then = (self.model.worth(s, at).double().numpy() for s in (states, following))
        then[batch.terminal] = 0.0
        paid = np.column_stack((batch.reward, batch.cost)) / self.units
        ended = batch.terminal | batch.truncated
        found = advantages(paid, worth, then, ended, self.gamma, _TRACE)
        prices = self.prices[heads] * self.units[1] / self.units[0]
        gain = found[:, 0] - prices * found[:, 1]
        n_heads = len(self.prices)
        self._squares = _RECENT * self._squares + np.bincount(heads, gain**2, n_heads)
        self._counts = _RECENT * self._counts + np.bincount(heads, minlength=n_heads)
        gain = gain / np.sqrt(np.maximum(self._squares / np.maximum(self._counts, 1), 1e-24))[heads]
        gain = np.clip(gain - gain.mean(), -_FARTHEST, _FARTHEST)
        targets = torch.from_numpy(found + worth).float()
        gains = torch.from_numpy(gain).float()
        return _Played(states, at, actions, logs, gains, targets, available)

    def _learn(self, told: _Played, share: float) -> None:
        """Makes actions likelier that were better than expected."""
        for group in self._optimiser.param_groups:
            group["lr"] = _RATE * min(1.0, _FALL * (1 - share))
        entropy = _ENTROPY * (1 - share)
        for _ in range(_EPOCHS):
            order = torch.from_numpy(self.rng.permutation(len(told.heads)))
            for part in torch.split(order, _BATCH):
                states, heads, actions, old, gain, worth, available = (
                    rows_at(column, part) for column in told
                )
                logs = self.model.chances(states, heads, available)
                ratio = (logs.gather(1, actions[:, None])[:, 0] - old).exp()
                better = clipped_gain(ratio, gain).mean()
                open_minded = -(logs.exp() * logs).sum(1).mean()
                error = (self.model.worth(states, heads) - worth).square().mean()
                _descend(self._optimiser, error / 2 - better - entropy * open_minded, _STEEPEST)

    def _place_anew(self) -> None:
        """Places prices anew, by what they cost; each begins with the policy of its place."""
        self._n_placed += 1
        costs = self._paid / np.maximum(self._n_paid, 1e-9)
        prices = refined_prices(self.prices, costs, max(3, len(self._first_prices) - 1))
        dearer = self.prices[self.prices > prices[0]]
        prices = np.append(dearer[-1:], prices)  # what saves a little more is kept
        places = np.interp(-_logs(prices, self._first_prices), *self._map())
        before = self.model.places.numpy()
        squares = self._squares / np.maximum(self._counts, 1e-9)
        self._squares, self._counts = np.interp(places, before, squares), np.ones(len(places))
        self.prices = prices
        heads = tuple(map(float, range(len(prices))))
        self.model.sizes = self.model.sizes._replace(heads=heads)
        self.model.places = torch.from_numpy(places).float()
        self._paid, self._n_paid = np.zeros((2, len(prices)))

    def _map(self) -> tuple[FloatArray, FloatArray]:
        """Logarithms of the first prices, with their sign changed, and their places."""
        first = self._first_prices
        return -_logs(first, first), np.linspace(-1.0, 1.0, len(first))


def _tensor(mask: BoolArray | None) -> Tensor | None:
    """A mask as a tensor, if there is one."""
    return None if mask is None else torch.tensor(mask)


def _mean(logs: Tensor, available: Tensor | None) -> Tensor:
    """Mean of logarithms `[n, A, H]` over actions, of those that are available `[n, A]`."""
    if available is None:
        return logs.mean()
    return logs[available].mean()


def _descend(optimiser: torch.optim.Optimizer, loss: Tensor, steepest: float = np.inf) -> None:
    """Makes a step of descent; the norm of the gradient is at most `steepest`."""
    optimiser.zero_grad()
    torch.autograd.backward(loss)
    torch.nn.utils.clip_grad_norm_(optimiser.param_groups[0]["params"], steepest)
    optimiser.step()


def _logs(prices: FloatArray, of: FloatArray) -> FloatArray:
    """Logarithms of prices; that of 0 is one below the least other one."""
    least = of[of > 0].min(initial=np.inf) if (of > 0).any() else 1.0
    found: FloatArray = np.log(np.maximum(prices, least / 10))
    return found


def _late_length(batch: TransitionBatch) -> float:
    """Steps of the episodes that were explored last, on average."""
    assert batch.episode is not None
    _, lengths = np.unique(batch.episode, return_counts=True)
    return float(lengths[-max(1, len(lengths) // 4) :].mean())
