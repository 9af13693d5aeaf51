"""The contest of candidates: from a log, or from an environment that is explored first.

1. The *nature* of the data is read off them (`bmdp.learn.natures`).
2. *Candidates* are learned from the same transitions (`bmdp.learn.candidates`). Where there is a
   simulator and states are numbers, or many, the best one *practises* in it
   (`bmdp.learn.practice`).
3. *Evidence* from episodes that had no part in that says what each of them costs and earns, and
   the best one is taken (`bmdp.learn.evidence`).
4. Its members are measured once more, the dial is set by that, and a forecast is made.

Each step is kept once it is done (`bmdp.learn.shelf`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from gymnasium.envs.registration import EnvSpec
from scipy.special import stdtrit

from bmdp.arrays import BoolArray, FloatArray, IntArray
from bmdp.cluster import Engine
from bmdp.data import StoredLog, TransitionBatch
from bmdp.errors import DataError
from bmdp.learn import evidence
from bmdp.learn.candidates import (
    AllRows,
    Dial,
    Lesson,
    Recipe,
    averaged,
    budgeted,
    learned,
    placed_prices,
    recipes,
    with_highest,
)
from bmdp.learn.evidence import Curve, Judge, Player, Spread
from bmdp.learn.expedition import Expedition, explored
from bmdp.learn.fit import Backward, Iterations, torch_device
from bmdp.learn.fitted import Candidate, Fitted, Forecast
from bmdp.learn.learners import Sums
from bmdp.learn.natures import Nature, extremes_to_go, nature_of, some_episodes
from bmdp.learn.passes import Passes
from bmdp.learn.practice import Practice, practised
from bmdp.learn.race import Race, Runner
from bmdp.learn.shelf import Shelf
from bmdp.models.actor import ActorModel
from bmdp.models.forest import ForestModel
from bmdp.models.regressor import LearnedQ, Regressor
from bmdp.models.table import TableModel
from bmdp.policies.prices import MultiplierPolicy, PriceDial
from bmdp.randomness import named_generator

MINUTES = 5.0
"""Time of a fit, unless told otherwise."""

SUPPORT = 5.0
"""Episodes of a log that make an action known near a state, unless told otherwise."""

SAMPLE = 100_000
"""Rows of a large log from which trees and centres come, unless told otherwise."""

N_FORECAST = 11  # budgets of a forecast
_HELD_OUT = 4  # one of so many episodes is held out
_LEAST = 20  # episodes from which on some are held out
_MOST_STEPS = 2_000_000  # that are played for evidence
_FEW = 10  # episodes of a budget, below which their deviation is not known
_LEAST_LOOK = 8  # episodes by which a candidate is judged
_FORECAST = 0.05  # share of all episodes of evidence that a forecast has, if there are few
_N_LOOKS = 8  # first looks, for which all episodes of the choice would do
_FOR_EVIDENCE = 0.2  # share of the time that evidence takes, at most
_MOST_ITERATED = 40_000  # rows that are iterated over, where states are many
_FOR_EXPLORING = 0.25  # share of the time that exploring may take
_FOR_PRICES = 0.05  # share of the time that placing prices may take
_FOR_EACH = 0.08  # share of the time that a candidate may take
_MANY = 1_000  # states from which on what is learned of one should tell of others
_FOR_PRACTICE, _FOR_LONG = 0.12, 0.2  # shares of the time that practice may take
_FOR_JUDGING = 0.05  # share of the time that an evaluation may take
_CHEAPER = 0.05  # share of the range of costs by which another candidate is cheaper
_FOR_PROOF = 0.25  # share of the last episodes that show whether it is
_SURE = 1.45  # 95 % intervals so much wider: eleven budgets at once are rarely off by chance
_SEEN = 1.0  # episodes that make an action known to an evaluation
_STRANGE = 0.05  # share of episodes that do what a log does not know, from which on that is noted
_FAR = 0.05  # share of the largest cost by which a forecast contradicts the dial
_FOR_ALL = 0.1  # share of the time that learning from all rows of a large log may take
_N_FINALISTS = 2  # candidates that are learned from all rows
_CONTEST, _FEW_HELD = 30_000, 15_000  # rows of a large log that candidates compete on
_HELD_ROWS = 50_000  # rows of a large log that set the dial
_MOST_NUMBERS = 4_000_000  # of states that are held in memory
_LATEST = 0.35  # share of the time after which no further candidate is begun

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
    support: float = SUPPORT  # of a log
    sample: int = SAMPLE  # rows of a large log that structure comes from
    engine: Engine = "local"
    cost_gamma: float | None = None  # discount of costs, if it is another one
    episode_limit: float | None = None  # of an environment; the states of a log show costs so far

    @property
    def sums(self) -> Sums:
        """Makes what adds up sums over a large log."""
        if self.engine == "local":
            return Passes
        from bmdp.learn.cluster_sums import RaySums

        return partial(RaySums, workers=self.workers)


def fit_log(batch: TransitionBatch, terms: Terms, shelf: Shelf, on_progress: OnProgress) -> Fitted:
    """Returns what a log teaches, whose episodes and steps are `completed`."""
    work = _Work(terms, shelf, on_progress)
    nature = nature_of(batch, terms.gamma, cost_gamma=terms.cost_gamma)
    batch = nature.ended(batch)
    n_episodes = _n_episodes(batch)
    learned_from, held_out = batch, batch
    if n_episodes >= _LEAST:
        lesson = Lesson(batch, nature, terms.gamma, terms.seed)
        rng = lesson.generator("auto/held-out")
        out = batch.folds(_HELD_OUT, rng) == 0
        learned_from, held_out = batch.take(~out), batch.take(out)
    else:
        work.note(
            f"the log has {n_episodes} episodes: too few to hold some out, so costs and rewards "
            "are what the models themselves expect"
        )
    how = (terms.gamma, terms.seed, terms.device, terms.support, terms.cost_gamma)
    lesson = Lesson(learned_from, nature, *how)
    evidence_of = _LogEvidence(work, lesson, batch, held_out)
    tried = _sorted(work.tried(lesson, evidence_of.judged))
    return evidence_of.fitted(tried, (len(batch), n_episodes))


def fit_stored(log: StoredLog, terms: Terms, shelf: Shelf, on_progress: OnProgress) -> Fitted:
    """Returns what a log on disk teaches, which may be larger than memory.

    Candidates compete on a small sample. The best of them are learned anew: their trees and centres
    come from a larger sample, and their means from all rows. The last chunks are held out.
    """
    most = _MOST_NUMBERS // log.state_size
    some_rows = log.first(min(most, terms.sample))
    nature = nature_of(some_rows, terms.gamma, log.n_steps, terms.cost_gamma)
    if nature.n_states is not None and len(log) <= most:  # equal rows are one row
        return fit_log(log.first(len(log)), terms, shelf, on_progress)
    work = _Work(terms, shelf, on_progress)
    structure, half = min(most, terms.sample), max(1, most // 2)  # judges hold several copies
    some, held = min(half, _CONTEST), min(half, _HELD_ROWS)
    if nature.n_states is not None:
        some = structure = most
    held_out = nature.ended(log.last(held))
    sample = nature.ended(log.first(structure))
    seen = LogView(log, nature, n_held_out=len(held_out))
    rng = named_generator(terms.seed, "auto/contest")
    how = (nature, terms.gamma, terms.seed, terms.device, terms.support, terms.cost_gamma)
    small = some_episodes(sample, some, rng)
    few = some_episodes(held_out, min(held // 2, _FEW_HELD), rng)
    lesson = Lesson(small, *how)
    first = _LogEvidence(work, lesson, TransitionBatch.concatenate([small, few]), few)
    tried = _sorted(work.tried(lesson, first.judged, is_sample=True))
    del first  # and the trees of its judge
    lesson = Lesson(sample, *how)
    last = _LogEvidence(work, lesson, held_out, held_out)
    found = work.from_all(tried, lesson, seen, last.judged)
    return last.fitted(_sorted(found), (len(log), log.n_episodes))


class LogView:
    """Chunks of a log on disk that are learned from, as models see them.

    Args:
        log: all of it.
        nature: that says how episodes end, and whether models are shown the step.
        n_held_out: rows of the last chunks that are held out; so are all other rows of those.
    """

    def __init__(self, log: StoredLog, nature: Nature, n_held_out: int) -> None:
        self._log, self._nature = log, nature
        sizes = log.sizes()
        from_end = np.cumsum(sizes[::-1])
        n_out = int(np.searchsorted(from_end, n_held_out)) + 1
        self.n_chunks = max(1, log.n_chunks - n_out)
        self._n_rows = int(sizes[: self.n_chunks].sum())
        self.largest, self.counts, self.least_cost = log.largest, log.counts, log.least_cost

    def __len__(self) -> int:
        return self._n_rows

    def chunk(self, number: int) -> TransitionBatch:
        """Returns the transitions of a chunk."""
        return self._nature.shown(self._nature.ended(self._log.chunk(number)))


def _n_episodes(batch: TransitionBatch) -> int:
    return len(batch) if batch.episode is None else len(np.unique(batch.episode))


class _LogEvidence:
    """Evidence of candidates by episodes of a log.

    Args:
        work: that keeps it.
        lesson: of the candidates.
        batch: all episodes.
        held_out: those that candidates are not learned from.
    """

    def __init__(
        self, work: _Work, lesson: Lesson, batch: TransitionBatch, held_out: TransitionBatch
    ) -> None:
        terms = work.terms
        self._work, self._lesson, self._batch = work, lesson, batch
        self._judge = Judge(judge_of(lesson.nature), _FOR_JUDGING * 60 * terms.minutes, _SEEN)
        self._parts = {"held-out": _within(held_out, lesson)}
        if held_out is not batch:
            self._parts["all"] = _within(batch, lesson)
        self._found: dict[str, Curve] = {}

    def judged(self, dial: Dial) -> Curve:
        """Returns the curve of a dial."""
        # A policy is lucky in the episodes that it was learned from, and its evaluation by few
        # others lacks much of what it meets: the truth is between the two.
        curves = []
        for part, rows in self._parts.items():
            name = f"candidates/{dial.recipe.name}/{part}"
            make = partial(evidence.evaluated_curve, dial, rows, self._lesson, self._judge)
            self._found[name] = self._work.curve(name, make)
            curves.append(self._found[name])
        mean = evidence.between(*curves) if len(curves) > 1 else curves[0]
        return _paid(mean, self._batch)

    def fitted(self, tried: Sequence[_Tried], sizes: tuple[int, int]) -> Fitted:
        """Sets the dial of the first candidate, and returns all that was found."""
        work, lesson, batch, best = self._work, self._lesson, self._batch, tried[0]
        work.tell(0.8, "setting the dial")
        cheap = work.cheaper(tried, best.curve)
        policy = work.handed_over(best, best.curve, lesson.nature, cheap)
        told, says = best.curve, self._tells(best)
        if cheap is not None:
            first = np.array([cheap.curve.first()])
            told = cheap.curve.take(first).joined(told)
            says = self._tells(cheap).take(first).joined(says)
        from_0 = bool(batch.cost.min() >= 0)
        n_held = len(self._parts["held-out"].starts())
        forecast, strange = _of_log(policy, told, says, n_held, from_0)
        work.check_log(forecast, strange, batch)
        return work.fitted(policy, forecast, tried, best.curve, lesson.nature, (*sizes, 0))

    def _tells(self, one: _Tried) -> _Told:
        work, lesson, rows, judge = self._work, self._lesson, self._parts["held-out"], self._judge
        held = self._found[f"candidates/{one.dial.recipe.name}/held-out"]
        strange = work.strange(one, rows, lesson, judge)
        ends = {"worst": held, "best": held}
        if strange.any():
            found = extremes_to_go(self._batch, lesson.gamma, lesson.cost_gamma)
            extremes = zip(ends, found, strict=True)
            ends = {
                name: work.supposed(one, rows, lesson, replace(judge, outside=outside), name)
                for name, outside in extremes
            }
        repeats = work.repeats(one, rows, lesson, judge)
        return _Told(held, ends["worst"], ends["best"], repeats, strange)


def fit_env(
    spec: EnvSpec, episodes: int | None, terms: Terms, shelf: Shelf, on_progress: OnProgress
) -> Fitted:
    """Returns what exploring an environment teaches."""
    work = _Work(terms, shelf, on_progress)
    how_played = (terms.workers, terms.engine, terms.cost_gamma, terms.episode_limit)
    player = Player(spec, terms.gamma, terms.seed, *how_played)
    plan = EpisodePlan.of(episodes)
    how = Expedition(player, plan.explore, _FOR_EXPLORING * 60 * terms.minutes, terms.device)
    found = explored(how, shelf, lambda share, text: work.tell(0.4 * share, text), work.note)
    nature = nature_of(found.batch, terms.gamma, cost_gamma=terms.cost_gamma)
    batch = nature.ended(found.batch)
    n_explored = len(batch.starts())
    plan = work.sized(plan, len(batch) / n_explored, found.pace)
    discounts: Any = {"gamma": terms.gamma, "cost_gamma": terms.cost_gamma}
    lesson = Lesson(batch, nature, seed=terms.seed, device=terms.device, **discounts)
    spread = Spread.of(player.returns(batch))
    race = Race(player, lesson, spread, shelf, plan.explore)
    runners: dict[str, Runner] = {}

    def judged(dial: Dial) -> Curve:
        runner = race.enter(dial, plan.look)
        runners[runner.name] = runner
        return _paid(runner.curve(spread), batch)

    is_long = isinstance(nature.schedule, Iterations)
    seconds = (_FOR_LONG if is_long else _FOR_PRACTICE) * 60 * terms.minutes
    first, step = plan.explore + plan.evidence, found.pace / found.length
    alone = replace(
        player, workers=1, engine="local"
    )  # to start processes takes longer than a round
    practice = Practice(alone, first, plan.practise, seconds, step)
    tried = work.tried(lesson, judged, practice)
    work.tell(0.76, "playing candidates that are close")
    seconds = _FOR_EVIDENCE / 2 * 60 * terms.minutes
    most = plan.choose - race.n_played
    ran = race.run([runners[one.dial.recipe.name] for one in tried], plan.look, most, seconds)
    is_priced = np.array([one.dial.recipe.dial == "prices" for one in tried])
    may_be = is_priced & race.in_doubt(ran)
    raced = [
        replace(one, curve=_paid(runner.curve(spread), batch))
        for one, runner in zip(tried, ran, strict=True)
    ]
    tried = _sorted(raced, is_priced if may_be.any() else None)
    best = tried[0]
    work.tell(0.8, "measuring the dial")
    most = plan.measure + max(0, plan.choose - race.n_played)  # the choice may need fewer
    last, known = race.n_played + most, {one.name: one for one in ran}
    is_cheapest = evidence.cheapest([one.curve for one in tried]) == 0
    for_best = most if is_cheapest else most - int(_FOR_PROOF * most)
    runner = race.measure(known[best.dial.recipe.name], for_best, seconds)
    both = _paid(runner.curve(spread), batch)

    def proven(one: _Tried, cheaper: float) -> _Tried | None:
        name = one.dial.recipe.name
        now = race.prove(known[name], cheaper, last - race.n_played, _FOR_PROOF * seconds)
        if now is None or now is known[name]:
            return None if now is None else one
        known[name] = now
        return replace(one, curve=_paid(now.curve(spread), batch))

    policy = work.handed_over(best, both, nature, work.cheaper(tried, both, proven))
    work.tell(0.9, "playing the dial")
    forecast = work.played(player, policy, plan.forecast, race.next)
    if batch.cost.min() >= 0:
        forecast = replace(forecast, cost_low=np.maximum(forecast.cost_low, 0.0))
    work.check_played(forecast, batch)
    n_more = work.n_practised + race.n_played + forecast.n_episodes
    return work.fitted(policy, forecast, tried, both, nature, (len(batch), n_explored, n_more))


@dataclass(frozen=True)
class EpisodePlan:
    """Numbers of episodes, at most."""

    explore: int
    practise: int
    look: int  # first look at each candidate
    choose: int  # of all candidates together
    measure: int  # of the best one
    forecast: int

    @classmethod
    def of(cls, episodes: int | None) -> EpisodePlan:
        """Shares of a number of episodes; without one, ten thousand and more for evidence.

        >>> EpisodePlan.of(1000)
        EpisodePlan(explore=450, practise=150, look=30, choose=200, measure=100, forecast=100)
        """
        if episodes is None:
            return cls(10_000, 200_000, 1_000, 60_000, 150_000, 4_400)
        return cls(*(int(share * episodes) for share in (0.45, 0.15, 0.03, 0.2, 0.1, 0.1)))

    @property
    def evidence(self) -> int:
        """Episodes of evidence in all."""
        return self.choose + self.measure + self.forecast


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
        self.n_practised = 0  # episodes
        self.seconds_each = 0.0  # of a candidate

    def note(self, text: str) -> None:
        """Adds a note, once."""
        if text not in self.notes:
            self.notes.append(text)

    def is_late(self) -> bool:
        """Whether it is too late to begin another candidate."""
        return self.shelf.seconds > _LATEST * 60 * self.terms.minutes

    def sized(self, plan: EpisodePlan, length: float, pace: float) -> EpisodePlan:
        """Returns a plan whose evidence takes neither too many steps nor too much time.

        Args:
            plan: numbers of episodes.
            length: steps of an episode, on average.
            pace: seconds of an episode.
        """
        share = min(
            1.0,
            _MOST_STEPS / (plan.evidence * length),
            _FOR_EVIDENCE * 60 * self.terms.minutes / (plan.evidence * max(pace, 1e-9)),
        )
        kept = self.shelf.numbers("plan", lambda: {"share": share})["share"]
        choose = max(int(kept * plan.choose), 5 * _LEAST_LOOK)
        look = min(plan.look, choose // _N_LOOKS)  # few episodes tell little, and promises too much
        told = min(plan.forecast, int(_FORECAST * kept * plan.evidence))
        numbers = (plan.look, plan.choose, plan.measure, plan.forecast)
        least = (max(look, _LEAST_LOOK), 5 * _LEAST_LOOK, 0, max(told, 2 * N_FORECAST))
        return EpisodePlan(
            plan.explore,
            plan.practise,
            *(max(int(kept * n), low) for n, low in zip(numbers, least, strict=True)),
        )

    def curve(self, name: str, make: Callable[[], Curve]) -> Curve:
        """Returns a curve that is kept."""
        return Curve(**self.shelf.numbers(name, lambda: vars(make())))

    def tried(
        self,
        lesson: Lesson,
        judged: Callable[[Dial], Curve],
        practice: Practice | None = None,
        *,
        is_sample: bool = False,
    ) -> list[_Tried]:
        """Learns candidates, and returns them with their evidence, those to prefer first.

        Args:
            lesson: that they are learned from.
            judged: evidence of a dial.
            practice: of the best one, if there is a simulator.
            is_sample: whether the best are learned anew, each by itself, so that no mean is tried.
        """
        self.tell(0.4, "placing prices")
        seconds = _FOR_PRICES * 60 * self.terms.minutes
        lesson = replace(lesson, batch=_within(lesson.batch, lesson))
        prices = self.shelf.numbers(
            "prices",
            lambda: {"found": with_highest(placed_prices(lesson, seconds=seconds), lesson)},
        )["found"]
        nature, n_numbers = lesson.nature, lesson.batch.state_size
        practises = practice is not None and practice.rows(lesson.batch) is not None
        on_gpu = torch_device(self.terms.device).type == "cuda"
        planned = list(recipes(nature, n_numbers, practises=practises, on_gpu=on_gpu))
        is_long = isinstance(nature.schedule, Iterations)
        self.seconds_each = (
            _FOR_EACH * 60 * self.terms.minutes / (2 if practises and is_long else 1)
        )
        found: list[_Tried] = []
        failure: DataError | None = None
        for number, recipe in enumerate(planned):
            if found and self.is_late():
                names = ", ".join(other.name for other in planned[number:])
                self.note(f"time ran out before these candidates were tried: {names}")
                break
            self.tell(0.45 + 0.3 * number / len(planned), f"learning: {recipe.name}")
            try:
                found = _valued([*found, self._try(recipe, lesson, prices, judged)])
            except DataError as error:
                failure = error
                self.note(f"{recipe.name} could not be learned: {error}")
        if not found:
            assert failure is not None
            raise failure
        two = sorted(found, key=lambda one: -one.value)[:2]
        if len(two) > 1 and not is_sample and not two[0].curve.is_like(two[1].curve):
            self.tell(0.72, "trying the mean of two")
            mean = averaged(two[0].dial, two[1].dial)
            found = _valued([_Tried(mean, judged(mean), np.nan), *found])
        is_large = nature.n_states is None or (n_numbers > 1 and nature.n_states > _MANY)
        if practice is not None and practises and is_large and len(prices) > 1:
            best = max(found, key=lambda one: one.value)
            found = _valued([*found, self._practise(best.dial, lesson, practice, judged)])
        if len(prices) > 1 and not self.is_late():
            best = max(found, key=lambda one: one.value)
            alone = max(
                (one for one in found if one.dial.recipe in planned), key=lambda one: one.value
            )
            recipe, grid = budgeted(alone.dial.recipe, best.curve.rising())
            self.tell(0.75, f"learning: {recipe.name}")
            found = _valued([*found, self._try(recipe, lesson, grid, judged)])
        return found

    def _try(
        self,
        recipe: Recipe,
        lesson: Lesson,
        inner: FloatArray,
        judged: Callable[[Dial], Curve],
        rows: AllRows | None = None,
    ) -> _Tried:
        name = f"candidates/{recipe.name}"
        seconds = {"seconds": 0.0, "settled": 1.0}

        def learn() -> Any:
            dial = learned(recipe, lesson, inner, self.seconds_each, rows)
            seconds["seconds"] = dial.seconds
            seconds["settled"] = float(dial.has_settled)
            self.shelf.numbers(f"{name}/seconds", lambda: seconds)  # before the policy is kept
            return dial.policy

        policy = self.shelf.policy(f"{name}/policy", learn)
        took = self.shelf.numbers(f"{name}/seconds", lambda: seconds)
        members = np.arange(len(inner), dtype=np.float64) if recipe.dial == "prices" else inner
        dial = Dial(recipe, policy, members, float(took["seconds"]), bool(took["settled"]))
        return _Tried(dial, judged(dial), np.nan)

    def from_all(
        self,
        tried: Sequence[_Tried],
        lesson: Lesson,
        log: LogView,
        judged: Callable[[Dial], Curve],
    ) -> list[_Tried]:
        """Learns the best candidates anew, from all rows of a log, as many as there is time for.

        Args:
            tried: candidates that were learned from a sample, the best one first.
            lesson: the sample from which structure comes.
            log: all rows.
            judged: evidence of a dial.
        """
        allowed, spent = _FOR_ALL * 60 * self.terms.minutes, 0.0
        found: list[_Tried] = []
        alone = [one for one in tried if _is_alone(one.dial)]
        ratio = len(log) / len(lesson.batch)
        for number, one in enumerate(alone[:_N_FINALISTS]):
            recipe = replace(one.dial.recipe, name=f"{one.dial.recipe.name}, all rows")
            about = ratio * one.dial.seconds
            if found and spent + about > allowed:
                minutes = math.ceil((spent + about) / _FOR_ALL / 60)
                self.note(
                    f"{recipe.name}: left out, as it would take about {about:.0f} s; with "
                    f"minutes={minutes} it is tried"
                )
                continue
            self.tell(0.75 + 0.02 * number, f"learning: {recipe.name}")
            inner = one.dial.members
            if isinstance(one.dial.policy, PriceDial):
                inner = one.dial.policy.prices
            rows = AllRows(log, self.terms.sums)
            self.seconds_each = allowed - spent
            found.append(self._try(recipe, lesson, inner, judged, rows))
            spent += found[-1].dial.seconds
        two = [one for one in found if one.dial.recipe.dial == "prices"]
        if len(two) > 1 and not two[0].curve.is_like(two[1].curve):
            mean = averaged(two[0].dial, two[1].dial)
            found = [*found, _Tried(mean, judged(mean), np.nan)]  # of ties, the quicker is taken
        return found

    def _practise(
        self, dial: Dial, lesson: Lesson, how: Practice, judged: Callable[[Dial], Curve]
    ) -> _Tried:
        """Has a dial practise."""

        def tell(number: int, n_rounds: int) -> None:
            share = 0.6 + 0.15 * number / n_rounds
            self.tell(share, f"practising: {dial.recipe.name}, round {number + 1} of {n_rounds}")

        name, kept = f"candidates/{dial.recipe.name}, practised", {"seconds": 0.0, "episodes": 0}
        recipe = Recipe(f"{dial.recipe.name}, practised", ActorModel())

        def learn() -> Any:
            made, n_episodes = practised(dial, lesson, how, self.shelf, tell)
            kept.update(seconds=made.seconds, episodes=n_episodes)
            self.shelf.numbers(f"{name}/seconds", lambda: kept)  # before the policy is kept
            return made.policy

        policy = self.shelf.policy(f"{name}/policy", learn)
        told = self.shelf.numbers(f"{name}/seconds", lambda: kept)
        self.n_practised = int(told["episodes"])
        members = np.arange(len(policy.prices), dtype=np.float64)
        found = Dial(recipe, policy, members, float(told["seconds"]), has_settled=True)
        return _Tried(found, judged(found), np.nan)

    def strange(
        self, one: _Tried, rows: TransitionBatch, lesson: Lesson, judge: Judge
    ) -> FloatArray:
        """Shares of episodes in which members do what a log does not know, which are kept."""
        make = partial(evidence.outside_share, one.dial, rows, lesson, judge)
        name = f"candidates/{one.dial.recipe.name}/strange"
        found: FloatArray = self.shelf.numbers(name, lambda: {"found": make()})["found"]
        return found

    def supposed(
        self, one: _Tried, rows: TransitionBatch, lesson: Lesson, judge: Judge, name: str
    ) -> Curve:
        """The curve of a candidate if what is not known turns out in some way, which is kept."""
        make = partial(evidence.evaluated_curve, one.dial, rows, lesson, judge)
        return self.curve(f"candidates/{one.dial.recipe.name}/{name}", make)

    def repeats(
        self, one: _Tried, rows: TransitionBatch, lesson: Lesson, judge: Judge
    ) -> FloatArray:
        """Costs and rewards of a candidate with groups of episodes left out, which are kept."""
        make = partial(evidence.left_out, one.dial, rows, lesson, judge)
        name = f"candidates/{one.dial.recipe.name}/left-out"
        found: FloatArray = self.shelf.numbers(name, lambda: {"found": make()})["found"]
        return found

    def cheaper(
        self,
        tried: Sequence[_Tried],
        curve: Curve,
        proven: Callable[[_Tried, float], _Tried | None] = lambda one, _: one,
    ) -> _Tried | None:
        """Returns another candidate that is much cheaper, at its least, than the first one is.

        Args:
            tried: candidates; the first one is taken.
            curve: of the first one.
            proven: returns a candidate, that is thought to be cheaper by so much, with more
                evidence; itself if there is enough already, and None if there will not be.
        """
        best, others = tried[0], list(tried[1:])
        costs = curve.rising()[curve.first() :]
        while others:
            place = evidence.cheapest([one.curve for one in others])
            other = others[place]
            least = float(other.curve.rising()[other.curve.first()])
            gap = float(costs[0]) - least
            if gap <= _CHEAPER * (costs[-1] - least):
                return None
            told = proven(other, gap)
            others[place : place + 1] = [] if told is None else [told]
            if told is other:
                self.note(
                    f"below {costs[0]:.4g}, the least cost of {best.dial.recipe.name}, there is a "
                    f"coin with {other.dial.recipe.name}, which costs {least:.4g}"
                )
                return other
        return None

    def handed_over(
        self, best: _Tried, curve: Curve, nature: Nature, cheap: _Tried | None = None
    ) -> Any:
        """Returns the policy, within the budgets that were asked for."""
        below = None if cheap is None else (cheap.dial, cheap.curve)
        policy = evidence.handed_over(best.dial, curve, nature, below)
        if self.terms.budget_range is not None:
            low, high = self.terms.budget_range
            least, most = policy.budget_range
            cheapest = curve.rising()[curve.first()]
            if high < cheapest:
                self.note(
                    f"budget_range, {low:g} to {high:g}, is below the least cost that is known, "
                    f"{cheapest:.4g}: every budget plays what is cheapest"
                )
            elif low >= most:
                self.note(
                    f"budget_range, {low:g} to {high:g}, is above the largest cost that pays, "
                    f"{most:.4g}: every budget buys the same"
                )
            if isinstance(policy, MultiplierPolicy):
                return replace(policy, low=min(low, least), high=high)
        return policy

    def played(self, player: Player, policy: Any, n_episodes: int, first: int) -> Forecast:
        """Returns a forecast by playing the policy."""
        low, high = policy.budget_range
        budgets = np.linspace(low, high, N_FORECAST)
        which = np.arange(max(n_episodes, 2 * N_FORECAST)) % N_FORECAST
        curve = self.curve(
            "forecast",
            lambda: evidence.curve_of(
                player.returns(player.play(policy, budgets[which], first)), which, N_FORECAST
            ),
        )
        n_free = curve.counts - 1
        if n_free.min() < _FEW:
            curve, n_free = curve.pooled(), np.full(N_FORECAST, n_free.sum())
        half = stdtrit(np.maximum(n_free, 1), 0.975)
        return _forecast(budgets, curve, half, int(curve.counts.sum()), is_played=True)

    def check_log(self, forecast: Forecast, strange: FloatArray, batch: TransitionBatch) -> None:
        """Notes what the evidence says against the dial."""
        self._check_data(batch)
        self._check_forecast(forecast)
        worst = int(np.argmax(strange))
        if strange[worst] > _STRANGE:
            self.note(
                f"at budget {forecast.budgets[worst]:.4g}, {strange[worst]:.0%} of the episodes "
                "come to a decision that no episode of the log took near there: what follows is "
                "not known, and intervals allow for the worst and the best that was seen"
            )

    def check_played(self, forecast: Forecast, batch: TransitionBatch) -> None:
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
        low = forecast.cost - _SURE * (forecast.cost - forecast.cost_low)
        over = low - reached
        worst = int(np.argmax(over))
        far = forecast.cost[worst] - reached[worst] > _FAR * np.abs(forecast.cost).max()
        if over[worst] > 0 and far:
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
        told: Curve,
        nature: Nature,
        sizes: tuple[int, int, int],
    ) -> Fitted:
        """Puts it all together.

        Args:
            policy: that is handed over.
            forecast: of it.
            tried: candidates, that one first.
            told: what its dial goes by.
            nature: of the data.
            sizes: rows and episodes that candidates were learned from, and episodes that were
                played beside them.
        """
        n_rows, n_episodes, n_more = sizes
        more = f", with {n_more:,} more for practice and evidence," if n_more else ""
        candidates = tuple(_candidates(tried, nature))
        best = tried[0]
        if not best.dial.has_settled:
            self.note("time ran out before the values of the dial had settled: give more minutes")
        low, high = told.rising()[[told.first(), -1]]
        seconds = self.shelf.seconds
        text = (
            f"Learned from {n_rows:,} transitions of {n_episodes:,} episodes{more} "
            f"in {seconds:.0f} s. "
            f"States: {nature.states}. Horizon: {nature.horizon}. Budgets from {low:.4g} to "
            f"{high:.4g} mean something. Taken: {best.dial.recipe.name}, of "
            f"{len(tried)} candidates."
        )
        self.tell(1.0, "done")
        return Fitted(policy, forecast, candidates, tuple(self.notes), text)


def _paid(curve: Curve, batch: TransitionBatch) -> Curve:
    """A curve without costs below 0, where no row has one."""
    return replace(curve, cost=np.maximum(curve.cost, 0.0)) if batch.cost.min() >= 0 else curve


def _is_alone(dial: Dial) -> bool:
    """Whether a dial is of one regressor that was learned, and not of the mean of two."""
    return isinstance(getattr(dial.policy, "q_function", None), LearnedQ)


def _within(batch: TransitionBatch, lesson: Lesson) -> TransitionBatch:
    """The transitions, or as many whole episodes as can be iterated over some hundred times."""
    if lesson.nature.n_states is not None or isinstance(lesson.nature.schedule, Backward):
        return batch
    return some_episodes(batch, _MOST_ITERATED, lesson.generator("auto/rows"))


def judge_of(nature: Nature) -> Regressor:
    """The regressor of evaluations: a table where states are few, else a forest."""
    return TableModel() if nature.n_states is not None else ForestModel()


def _sorted(tried: Sequence[_Tried], among: BoolArray | None = None) -> list[_Tried]:
    """Candidates with their values, the one to take first, and then from the best one on."""
    valued = _valued(tried)
    taken = evidence.chosen([one.curve for one in valued], among)
    first = valued.pop(taken)
    return [first, *sorted(valued, key=lambda one: -one.value)]


def _valued(tried: Sequence[_Tried]) -> list[_Tried]:
    values = evidence.choice_values([one.curve for one in tried])
    return [replace(one, value=float(v)) for one, v in zip(tried, values, strict=True)]


def _candidates(tried: Sequence[_Tried], nature: Nature) -> Iterator[Candidate]:
    best, nothing = tried[0], evidence.little([one.curve for one in tried])
    for one in tried:
        costs, is_taken = one.curve.rising(), one is best
        less = best.value - one.value
        why = "the most reward over all budgets"
        if not is_taken:
            why = f"{less:.3g} less reward over all budgets" if less > nothing else "no better"
        yield Candidate(
            name=one.dial.recipe.name,
            value=one.value,
            least_cost=float(costs[one.curve.first()]),
            most_cost=float(costs[-1]),
            seconds=one.dial.seconds,
            is_taken=is_taken,
            why=why,
            policy=evidence.handed_over(one.dial, one.curve, nature),
        )


@dataclass(frozen=True, eq=False)
class _Told:
    """Members of a dial by held-out episodes of a log."""

    held: Curve  # what is not known being what models make of it
    worst: Curve  # and being taken for the worst that was seen
    best: Curve  # and for the best
    repeats: FloatArray  # [K, M, 2], costs and rewards with groups of episodes left out
    strange: FloatArray  # [M], shares of episodes that do what is not known

    def take(self, members: IntArray) -> _Told:
        """Returns some of the members."""
        held, worst, best = (one.take(members) for one in (self.held, self.worst, self.best))
        return _Told(held, worst, best, self.repeats[:, members], self.strange[members])

    def joined(self, other: _Told) -> _Told:
        """Returns these members, and then those of another one."""
        return _Told(
            self.held.joined(other.held),
            self.worst.joined(other.worst),
            self.best.joined(other.best),
            np.append(self.repeats, other.repeats, axis=1),
            np.append(self.strange, other.strange),
        )


def _of_log(
    policy: Any, told: Curve, says: _Told, n_episodes: int, costs_from_0: bool
) -> tuple[Forecast, FloatArray]:
    """Forecast of a policy that was set by a curve, and shares of what is not known `[B]`.

    Intervals are wider by what becomes of it if what the log does not know is the worst, and the
    best, that was seen.
    """
    low, high = policy.budget_range
    budgets = np.linspace(low, high, N_FORECAST)
    shares = evidence.shares_at(told, np.minimum(budgets, told.rising()[-1]))
    errors = evidence.jackknife_error(shares @ says.repeats)  # [B, 2]
    cost_error, reward_error = errors.T
    none, held = np.zeros(N_FORECAST), says.held
    curve = Curve(shares @ held.cost, shares @ held.reward, cost_error, reward_error, none)
    half = np.full(N_FORECAST, stdtrit(len(says.repeats) - 1, 0.975))
    found = _forecast(budgets, curve, half, n_episodes, is_played=False)

    def beyond(more: FloatArray) -> FloatArray:
        return np.maximum(shares @ more, 0.0)

    lowest = 0.0 if costs_from_0 else -np.inf
    found = replace(
        found,
        cost_low=np.maximum(found.cost_low - beyond(held.cost - says.best.cost), lowest),
        cost_high=found.cost_high + beyond(says.worst.cost - held.cost),
        reward_low=found.reward_low - beyond(held.reward - says.worst.reward),
        reward_high=found.reward_high + beyond(says.best.reward - held.reward),
    )
    return found, shares @ says.strange


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
