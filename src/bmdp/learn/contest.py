"""The contest of candidates: from a log, or from an environment that is explored first.

1. The *nature* of the data is read off them (`bmdp.learn.natures`).
2. *Candidates* are learned from the same transitions (`bmdp.learn.candidates`).
3. *Evidence* from episodes that had no part in that says what each of them costs and earns, and
   the best one is taken (`bmdp.learn.evidence`).
4. Its members are measured once more, the dial is set by that, and a forecast is made.

Each step is kept once it is done (`bmdp.learn.shelf`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from gymnasium.envs.registration import EnvSpec
from scipy.special import stdtrit

from bmdp.arrays import FloatArray
from bmdp.data import TransitionBatch
from bmdp.learn import evidence
from bmdp.learn.candidates import Dial, Lesson, Recipe, budgeted, learned, placed_prices, recipes
from bmdp.learn.evidence import Curve, Player, Spread
from bmdp.learn.expedition import Expedition, explored
from bmdp.learn.fitted import Candidate, Fitted, Forecast
from bmdp.learn.natures import Nature, completed, nature_of, returns
from bmdp.learn.shelf import Shelf
from bmdp.models.forest import ForestModel
from bmdp.models.regressor import Regressor
from bmdp.models.table import TableModel

MINUTES = 5.0
"""Time of a fit, unless told otherwise."""

EPISODES = 5_000
"""Episodes that are played in an environment, unless told otherwise."""

N_FORECAST = 11  # budgets of a forecast
_HELD_OUT = 4  # one of so many episodes is held out
_LEAST = 20  # episodes from which on some are held out
_SHARES = (0.6, 0.1, 0.2, 0.1)  # of episodes: exploring, choosing, measuring, forecasting
_LATEST = 0.5  # share of the time after which no further candidate is begun
_DOUBT = {TableModel: 0.02, ForestModel: 0.1}  # of what a judge says

OnProgress = Callable[[float, str], None]
"""Called with the share that is done, and with what goes on."""


@dataclass(frozen=True)
class Terms:
    """Settings of a contest."""

    gamma: float
    seed: int
    budget_range: tuple[float, float] | None
    minutes: float
    workers: int
    device: str


def fit_log(batch: TransitionBatch, terms: Terms, shelf: Shelf, on_progress: OnProgress) -> Fitted:
    """Returns what a log teaches."""
    work = _Work(terms, shelf, on_progress)
    batch = completed(batch)
    nature = nature_of(batch, terms.gamma)
    batch = nature.ended(batch)
    n_episodes = len(batch.starts())
    learned_from, held_out = batch, batch
    if n_episodes >= _LEAST:
        rng = np.random.default_rng()
        lesson = Lesson(batch, nature, terms.gamma, terms.seed, terms.device)
        rng = lesson.generator("auto/held-out")
        out = batch.folds(_HELD_OUT, rng) == 0
        learned_from, held_out = batch.take(~out), batch.take(out)
    else:
        work.note(
            f"the log has {n_episodes} episodes: too few to hold some out, so costs and rewards "
            "are what the models themselves expect"
        )
    lesson = Lesson(learned_from, nature, terms.gamma, terms.seed, terms.device)
    judge = judge_of(nature)
    tried = work.tried(lesson, lambda dial: evidence.evaluated_curve(dial, held_out, lesson, judge))
    best = tried[0]
    work.tell(0.8, "setting the dial")
    whole = work.curve("all", lambda: evidence.evaluated_curve(best.dial, batch, lesson, judge))
    # A policy is lucky in the episodes that it was learned from, and its evaluation by few others
    # lacks much of what it meets: the truth is between the two.
    both = replace(whole, cost=(whole.cost + best.curve.cost) / 2)
    policy = work.handed_over(best.dial, both, lesson)
    repeats = work.shelf.numbers(
        "left-out", lambda: {"found": evidence.left_out(best.dial, held_out, lesson, judge)}
    )["found"]
    forecast = _of_log(policy, both, best.curve, repeats, len(held_out.starts()))
    work.check_log(best, both, forecast, lesson, batch)
    return work.fitted(policy, forecast, tried, nature, len(batch), n_episodes)


def fit_env(
    spec: EnvSpec, episodes: int | None, terms: Terms, shelf: Shelf, on_progress: OnProgress
) -> Fitted:
    """Returns what exploring an environment teaches."""
    work = _Work(terms, shelf, on_progress)
    n_all = EPISODES if episodes is None else episodes
    n_explore, n_choose, n_measure, n_forecast = (int(share * n_all) for share in _SHARES)
    player = Player(spec, terms.gamma, terms.seed, terms.workers)
    how = Expedition(player, n_explore, 0.4 * 60 * terms.minutes, terms.device)
    batch = explored(how, shelf, lambda share, text: work.tell(0.4 * share, text), work.note)
    first = n_explore
    nature = nature_of(batch, terms.gamma)
    batch = nature.ended(batch)
    lesson = Lesson(batch, nature, terms.gamma, terms.seed, terms.device)
    judge, spread = judge_of(nature), Spread.of(returns(batch, terms.gamma))
    doubt = _DOUBT[type(judge)]
    models: dict[str, Curve] = {}

    def judged(dial: Dial) -> Curve:
        model = evidence.evaluated_curve(dial, batch, lesson, judge)
        models[dial.recipe.name] = model
        measured = player.curve(dial, lesson, model, n_choose // 6, first)
        return evidence.blended(model, measured, spread, doubt)

    tried = work.tried(lesson, judged)
    best = tried[0]
    work.tell(0.8, "measuring the dial")
    model = work.curve("all", lambda: evidence.evaluated_curve(best.dial, batch, lesson, judge))
    halves = work.shelf.numbers(
        "halves", lambda: {"found": evidence.left_out(best.dial, batch, lesson, judge, 2)}
    )["found"]
    cost_error, reward_error = evidence.jackknife_error(halves).T
    model = replace(model, cost_error=cost_error, reward_error=reward_error)
    measured = work.curve(
        "measured", lambda: player.curve(best.dial, lesson, model, n_measure, first + n_choose)
    )
    both = evidence.blended(model, measured, spread, doubt)
    policy = work.handed_over(best.dial, both, lesson)
    work.tell(0.9, "playing the dial")
    forecast = work.played(player, policy, n_forecast, first + n_choose + n_measure)
    work.check_played(best, measured, model, forecast, batch)
    return work.fitted(policy, forecast, tried, nature, len(batch), n_all)


@dataclass(frozen=True, eq=False)
class _Tried:
    """A dial, and the evidence of it."""

    dial: Dial
    curve: Curve
    value: float


class _Work:
    """A fit at work: what it keeps, tells and notes."""

    def __init__(self, terms: Terms, shelf: Shelf, on_progress: OnProgress) -> None:
        self.terms, self.shelf, self.tell = terms, shelf, on_progress
        self.notes: list[str] = []
        self._begin = time.monotonic()

    def note(self, text: str) -> None:
        """Adds a note, once."""
        if text not in self.notes:
            self.notes.append(text)

    def is_late(self) -> bool:
        """Whether it is too late to begin another candidate."""
        return time.monotonic() - self._begin > _LATEST * 60 * self.terms.minutes

    def curve(self, name: str, make: Callable[[], Curve]) -> Curve:
        """Returns a curve that is kept."""
        return Curve(**self.shelf.numbers(name, lambda: vars(make())))

    def tried(self, lesson: Lesson, judged: Callable[[Dial], Curve]) -> list[_Tried]:
        """Learns candidates, and returns them with their evidence, the best one first."""
        self.tell(0.4, "placing prices")
        prices = self.shelf.numbers("prices", lambda: {"found": placed_prices(lesson)})["found"]
        planned = list(recipes(lesson.nature, lesson.batch.state_size))
        found: list[_Tried] = []
        for number, recipe in enumerate(planned):
            if found and self.is_late():
                names = ", ".join(other.name for other in planned[number:])
                self.note(f"time ran out before these candidates were tried: {names}")
                break
            self.tell(0.45 + 0.3 * number / len(planned), f"learning: {recipe.name}")
            found.append(self._try(recipe, lesson, prices, judged))
            found = _valued(found)
        if len(prices) > 1 and not self.is_late():
            best = max(found, key=lambda one: one.value)
            recipe, grid = budgeted(best.dial.recipe, best.curve.rising())
            self.tell(0.75, f"learning: {recipe.name}")
            found = _valued([*found, self._try(recipe, lesson, grid, judged)])
        return sorted(found, key=lambda one: -one.value)

    def _try(
        self,
        recipe: Recipe,
        lesson: Lesson,
        inner: FloatArray,
        judged: Callable[[Dial], Curve],
    ) -> _Tried:
        name = f"candidates/{recipe.name}"
        seconds = {"seconds": 0.0}

        def learn() -> Any:
            dial = learned(recipe, lesson, inner)
            seconds["seconds"] = dial.seconds
            return dial.policy

        policy = self.shelf.policy(f"{name}/policy", learn)
        took = self.shelf.numbers(f"{name}/seconds", lambda: seconds)["seconds"]
        members = np.arange(len(inner), dtype=np.float64) if recipe.dial == "prices" else inner
        dial = Dial(recipe, policy, members, float(took))
        return _Tried(dial, self.curve(f"{name}/curve", lambda: judged(dial)), np.nan)

    def handed_over(self, dial: Dial, curve: Curve, lesson: Lesson) -> Any:
        """Returns the policy, within the budgets that were asked for."""
        policy = evidence.handed_over(dial, curve, lesson)
        if self.terms.budget_range is not None:
            low, high = self.terms.budget_range
            least, most = policy.budget_range
            if high < curve.rising()[0]:
                self.note(
                    f"budget_range, {low:g} to {high:g}, is below the least cost that is known, "
                    f"{curve.rising()[0]:.4g}: every budget plays what is cheapest"
                )
            elif low >= most:
                self.note(
                    f"budget_range, {low:g} to {high:g}, is above the largest cost that pays, "
                    f"{most:.4g}: every budget buys the same"
                )
            if hasattr(policy, "low"):
                policy = replace(policy, low=min(low, least), high=high)
        return policy

    def played(self, player: Player, policy: Any, n_episodes: int, first: int) -> Forecast:
        """Returns a forecast by playing the policy."""
        low, high = policy.budget_range
        budgets = np.linspace(low, high, N_FORECAST)
        which = np.arange(max(n_episodes, 2 * N_FORECAST)) % N_FORECAST
        curve = self.curve(
            "forecast",
            lambda: evidence.curve_of(
                returns(player.play(policy, budgets[which], first), player.gamma), which, N_FORECAST
            ),
        )
        half = stdtrit(np.maximum(curve.counts - 1, 1), 0.975)
        return _forecast(budgets, curve, half, int(curve.counts.sum()), is_played=True)

    def check_log(
        self, best: _Tried, curve: Curve, forecast: Forecast, lesson: Lesson, batch: TransitionBatch
    ) -> None:
        """Notes what the evidence says against the dial."""
        self._check_data(batch)
        self._check_forecast(forecast)
        member = len(best.dial.members) - 1
        share = evidence.foreign_share(best.dial, batch, lesson, member)
        if share > 0.05:
            self.note(
                f"at {share:.0%} of the states the policy takes, at its largest budget, an action "
                "that none of the 50 nearest rows of the log took: what follows there is not known"
            )

    def check_played(
        self,
        best: _Tried,
        measured: Curve,
        model: Curve,
        forecast: Forecast,
        batch: TransitionBatch,
    ) -> None:
        """Notes what the evidence says against the dial."""
        self._check_data(batch)
        if not batch.reward.any():
            self.note(
                f"no reward was ever found in {len(batch.starts()):,} episodes of exploring: the "
                "policy knows nothing that pays"
            )
        self._check_forecast(forecast)

    def _check_data(self, batch: TransitionBatch) -> None:
        for note in batch.summary().notes:
            self.note(note)

    def _check_forecast(self, forecast: Forecast) -> None:
        reached = np.maximum(forecast.budgets, forecast.cost.min())
        over = forecast.cost_low - reached
        worst = int(np.argmax(over))
        if over[worst] > 0.01 * max(1e-12, float(np.abs(forecast.cost).max())):
            self.note(
                f"at budget {forecast.budgets[worst]:.4g} the episodes that were not learned from "
                f"say a cost of {forecast.cost[worst]:.4g} (95 %: {forecast.cost_low[worst]:.4g} "
                f"to {forecast.cost_high[worst]:.4g}): the dial is not to be trusted there"
            )

    def fitted(
        self,
        policy: Any,
        forecast: Forecast,
        tried: Sequence[_Tried],
        nature: Nature,
        n_rows: int,
        n_episodes: int,
    ) -> Fitted:
        """Puts it all together."""
        candidates = tuple(_candidates(tried, nature, self.terms))
        best = tried[0]
        low, high = best.curve.rising()[[0, -1]]
        seconds = time.monotonic() - self._begin
        text = (
            f"Learned from {n_rows:,} transitions of {n_episodes:,} episodes in {seconds:.0f} s. "
            f"States: {nature.states}. Horizon: {nature.horizon}. Budgets from {low:.4g} to "
            f"{high:.4g} mean something. Taken: {best.dial.recipe.name}, of "
            f"{len(tried)} candidates."
        )
        self.tell(1.0, "done")
        return Fitted(policy, forecast, candidates, tuple(self.notes), text)


def judge_of(nature: Nature) -> Regressor:
    """The regressor of evaluations: a table where states are few, else a forest."""
    return TableModel() if nature.n_states is not None else ForestModel()


def _valued(tried: Sequence[_Tried]) -> list[_Tried]:
    values = evidence.choice_values([one.curve for one in tried])
    return [replace(one, value=float(v)) for one, v in zip(tried, values, strict=True)]


def _candidates(tried: Sequence[_Tried], nature: Nature, terms: Terms) -> Iterator[Candidate]:
    best = tried[0]
    for one in tried:
        costs, is_taken = one.curve.rising(), one is best
        why = (
            "the most reward over all budgets"
            if is_taken
            else f"{best.value - one.value:.3g} less reward over all budgets"
        )
        yield Candidate(
            name=one.dial.recipe.name,
            value=one.value,
            least_cost=float(costs[0]),
            most_cost=float(costs[-1]),
            seconds=one.dial.seconds,
            is_taken=is_taken,
            why=why,
            policy=evidence.handed_over(
                one.dial,
                one.curve,
                Lesson(None, nature, terms.gamma, terms.seed),  # type: ignore[arg-type]
            ),
        )


def _of_log(
    policy: Any, told: Curve, found: Curve, repeats: FloatArray, n_episodes: int
) -> Forecast:
    """Forecast of a policy that was set by one curve, by another one and its repeats."""
    budgets = np.linspace(*policy.budget_range, N_FORECAST)
    shares = evidence.shares_at(told, np.minimum(budgets, told.rising()[-1]))
    errors = evidence.jackknife_error(shares @ repeats)  # [B, 2]
    curve = Curve(shares @ found.cost, shares @ found.reward, *errors.T, np.full(N_FORECAST, 0.0))
    half = np.full(N_FORECAST, stdtrit(len(repeats) - 1, 0.975))
    return _forecast(budgets, curve, half, n_episodes, is_played=False)


def _forecast(
    budgets: FloatArray, curve: Curve, half: FloatArray, n_episodes: int, *, is_played: bool
) -> Forecast:
    return Forecast(
        budgets=budgets,
        cost=curve.cost,
        cost_low=curve.cost - half * curve.cost_error,
        cost_high=curve.cost + half * curve.cost_error,
        reward=curve.reward,
        reward_low=curve.reward - half * curve.reward_error,
        reward_high=curve.reward + half * curve.reward_error,
        n_episodes=n_episodes,
        is_played=is_played,
    )
