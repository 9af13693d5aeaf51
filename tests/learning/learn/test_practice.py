"""Practice, against closed forms: what an actor is, its advantages, and what it learns."""

from contextlib import suppress

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

import bmdp
from bmdp.envs.slots import find_spec
from bmdp.learn import practice, resume
from bmdp.learn.candidates import Dial, Lesson, Recipe
from bmdp.learn.collect import collect
from bmdp.learn.evidence import Player
from bmdp.learn.natures import nature_of
from bmdp.learn.practice import Practice, advantages, practised
from bmdp.learn.shelf import Shelf
from bmdp.models import ForestModel
from bmdp.models.actor import ActorModel, SampledActor
from bmdp.models.regressor import LearnedQ, Sizes
from bmdp.policies import PriceDial, UniformPolicy
from bmdp.policies.prices import best_actions
from training import Killed, content

ENV = "tests/Lottery-v0"
LOGGED = {"budgets": np.zeros(50), "seed": 0}
PRICES = np.array([4.0, 2.0, 1.5, 1.0, 0.5, 0.0])


class Lottery(gymnasium.Env):
    """Two draws of x from 0 to 1: to pass (0) is free, to play (1) earns x and costs 1 - x.

    At a price p it is best to play wherever x > p (1 - x), at both draws.
    """

    metadata = {"render_modes": [], "gamma": 1.0, "horizon": 2}  # noqa: RUF012
    observation_space = spaces.Box(0.0, 1.0, (1,), np.float64)
    action_space = spaces.Discrete(2)

    def __init__(self, reward_unit=1.0, cost_unit=1.0, state_unit=1.0):
        self.units = reward_unit, cost_unit, state_unit
        self.observation_space = spaces.Box(0.0, state_unit, (1,), np.float64)

    def _seen(self):
        self.x = self.np_random.random()
        return np.array([self.x * self.units[2]])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.draws = 0
        return self._seen(), {"cost": 0.0}

    def step(self, action):
        reward, cost = (self.x, 1 - self.x) if action == 1 else (0.0, 0.0)
        self.draws += 1
        info = {"cost": cost * self.units[1]}
        return self._seen(), reward * self.units[0], self.draws == 2, False, info


class Wrong:
    """Values by which it is always best to do one thing."""

    n_steps = 1

    def __init__(self, action, units=(1.0, 1.0)):
        self.action, self.units = action, units

    def __call__(self, states, step=0):
        q_r = np.zeros((len(states), 2, len(PRICES)))
        q_r[:, self.action] = 1.0 * self.units[0]
        return q_r, np.full_like(q_r, 0.5 * self.units[1])


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    if ENV not in gymnasium.registry:
        gymnasium.register(ENV, Lottery)
    monkeypatch.setattr(practice, "_MOST_ROWS", 2_000)
    monkeypatch.setattr(practice, "_MOST_ROUNDS", 25)
    monkeypatch.setattr(practice, "_COUNTED", ())


def practise(action=0, *, seed=0, workers=1, shelf=None, **units):
    """A dial that does one thing alone, after practice in the lottery."""
    spec = find_spec(ENV)
    spec.kwargs = units
    scale = units.get("reward_unit", 1.0), units.get("cost_unit", 1.0)
    uniform = UniformPolicy(2, 0.0, 1.0)
    batch = collect(uniform, spec, range(500), budgets=np.zeros(500), seed=1)
    lesson = Lesson(batch, nature_of(batch, 1.0), 1.0, seed)
    prices = PRICES * scale[0] / scale[1]
    dial = Dial(
        Recipe("wrong", ForestModel()), PriceDial(Wrong(action, scale), prices), PRICES, 0.0, True
    )
    how = Practice(Player(spec, 1.0, 2, workers), 1_000, 10**9, 1e9, 1e-6)
    return practised(dial, lesson, how, shelf or Shelf(None))[0]


def plays(found, state_unit=1.0):
    """Where each price plays, at both draws: `[S, N, M]`, and places `[N]`."""
    x = np.linspace(0.01, 0.99, 99)
    steps = [found.policy.at_step(s).points(x[:, None] * state_unit).actions == 1 for s in (0, 1)]
    return np.stack(steps), x


def agreement(found, cost_per_reward=1.0, state_unit=1.0):
    """Share of decisions that are best at their price."""
    done, x = plays(found, state_unit)
    prices = found.policy.prices * cost_per_reward
    return (done == (x[:, None] > prices * (1 - x[:, None]))).mean()


def random_rounds(rng, n=40):
    """Columns of some episodes: paid, worth, following and ends."""
    ended = rng.random(n) < 0.2
    ended[-1] = True
    terminal = ended & (rng.random(n) < 0.5)
    paid, worth, following = rng.normal(size=(3, n, 2))
    return paid, worth, np.where(terminal[:, None], 0.0, following), ended


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("trace", [0.0, 0.5, 1.0])
def test_advantages_are_sums_of_errors_of_one_step(seed, trace):
    """The definition: sum over k of (gamma trace)^k delta_t+k, until the episode ends."""
    paid, worth, following, ended = random_rounds(np.random.default_rng(seed))
    errors = paid + 0.9 * following - worth
    last = [int(np.flatnonzero(ended[i:])[0]) + i for i in range(len(ended))]
    expected = [
        sum((0.9 * trace) ** (k - i) * errors[k] for k in range(i, last[i] + 1))
        for i in range(len(ended))
    ]
    found = advantages(paid, worth, following, ended, 0.9, trace)
    np.testing.assert_allclose(found, expected, atol=1e-12)


def actor(n_heads=4, knots=3, seed=0):
    """A Q-function by an actor with random weights."""
    sizes = Sizes(1, 1, 3, 2, tuple(map(float, range(n_heads))))
    model = ActorModel(width=8, knots=knots).empty(sizes)
    model.start(torch.Generator().manual_seed(seed))
    with torch.no_grad():
        model.actor.last.mul_(300)
    return LearnedQ(model, np.ones(2, bool), np.ones(3, bool), 7.0, 0.5)


STATES = np.random.default_rng(0).normal(size=(50, 2))


def test_the_greedy_action_of_every_price_is_the_likeliest():
    q = actor()
    q_r, q_c = q(STATES)
    with torch.no_grad():
        likeliest = q.model.chances(q.embedded(STATES, 0)).argmax(1).numpy()
    for price in (0.0, 1.0, 1e6):
        greedy = best_actions(q_r, q_c, np.full(4, price), 0.0)
        np.testing.assert_array_equal(greedy, likeliest)


def test_the_greedy_action_is_worth_what_the_critic_says():
    q = actor()
    points = PriceDial(q, [3.0, 2.0, 1.0, 0.0]).points(STATES)
    with torch.no_grad():
        worth = q.model.worth(q.embedded(STATES, 0)).numpy()
    np.testing.assert_allclose(points.rewards, 7.0 * worth[:, 0], rtol=1e-6)
    np.testing.assert_allclose(points.costs, 0.5 * worth[:, 1], rtol=1e-6)


def test_one_head_for_each_state_is_read_as_all_heads_are():
    q, heads = actor(), torch.arange(50) % 4
    embedded = q.embedded(STATES, 0)
    with torch.no_grad():
        every, some = q.model.worth(embedded), q.model.worth(embedded, heads)
    np.testing.assert_allclose(some, every[torch.arange(50), :, heads], rtol=1e-6)


def test_a_price_between_two_knots_is_worth_their_mean():
    q = actor(n_heads=3, knots=3)
    q.model.places = torch.tensor([-1.0, -0.5, 0.0])  # a knot, between, and the next knot
    with torch.no_grad():
        worth = q.model.worth(q.embedded(STATES, 0))
    np.testing.assert_allclose(worth[..., 1], (worth[..., 0] + worth[..., 2]) / 2, rtol=1e-5)


def test_actions_are_drawn_as_often_as_the_actor_says():
    q, n = actor(), 20_000
    states = np.repeat(STATES[:1], n, axis=0)
    with torch.no_grad():
        chances = q.model.chances(q.embedded(STATES[:1], 0)).exp()[0].numpy()  # [A, H]
    for head in range(4):
        drawn = SampledActor(q).decide(states, head, np.random.default_rng(head)).action
        shares = np.bincount(drawn, minlength=3) / n
        errors = np.sqrt(chances[:, head] * (1 - chances[:, head]) / n)
        assert (np.abs(shares - chances[:, head]) <= 4.5 * errors + 1e-9).all()


def test_an_actor_is_saved_and_loaded(tmp_path):
    dial = PriceDial(actor(), [3.0, 2.0, 1.0, 0.0])
    dial.save(tmp_path / "policy")
    loaded = bmdp.load_policy(tmp_path / "policy")
    for ours, theirs in zip(dial.points(STATES), loaded.points(STATES), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    SampledActor(actor()).save(tmp_path / "actor")
    drawn = [
        policy.decide(STATES, 2, np.random.default_rng(0)).action.tolist()
        for policy in (SampledActor(actor()), bmdp.load_policy(tmp_path / "actor"))
    ]
    assert drawn[0] == drawn[1]


def test_an_actor_is_no_regressor():
    model = actor().model
    calls = (
        lambda: model.prepare(None),
        lambda: model.fit(0, None, None, None, ""),
        lambda: model.error(0, None, None, None),
    )
    for call in calls:
        with pytest.raises(bmdp.ConfigError, match="is not fitted to targets: it practises"):
            call()


@pytest.mark.parametrize("action", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_dial_that_does_the_wrong_thing_learns_what_is_best_at_every_price(action):
    assert agreement(practise(action)) > 0.93


@pytest.mark.slow
def test_what_is_promised_after_practice_is_what_is_paid(monkeypatch):
    """Two draws at price p: x > p / (1 + p) =: t plays, and costs (1 - t)^2 / 2 each."""
    monkeypatch.setattr(practice, "_MOST_ROUNDS", 60)
    found = practise()
    starts = np.random.default_rng(0).random((2_000, 1))
    points = found.policy.at_step(0).points(starts)
    t = found.policy.prices / (1 + found.policy.prices)
    np.testing.assert_allclose(points.costs.mean(axis=0), (1 - t) ** 2, atol=0.08)
    np.testing.assert_allclose(points.rewards.mean(axis=0), 1 - t**2, atol=0.08)


@pytest.mark.parametrize(
    "units",
    [
        {"reward_unit": 1e3},
        {"cost_unit": 1e-3},
        pytest.param({"state_unit": 1e4}, marks=pytest.mark.slow),
        pytest.param({"cost_unit": 50.0}, marks=pytest.mark.slow),
    ],
)
def test_units_do_not_matter(units):
    scale = units.get("cost_unit", 1.0) / units.get("reward_unit", 1.0)
    assert agreement(practise(**units), scale, units.get("state_unit", 1.0)) > 0.93


def test_prices_are_placed_anew_and_the_cheapest_stays():
    found = practise()
    prices = found.policy.prices
    assert len(found.members) == len(prices) <= len(PRICES) + 1
    assert (np.diff(prices) < 0).all()
    assert prices[-1] == 0
    assert not set(prices) <= set(PRICES)


@pytest.mark.slow
def test_any_number_of_workers_comes_to_the_same_policy(tmp_path, monkeypatch):
    monkeypatch.setattr(practice, "_MOST_ROUNDS", 3)
    for workers in (1, 2):
        practise(workers=workers).policy.save(tmp_path / str(workers))
    assert content(tmp_path / "1") == content(tmp_path / "2")


def test_a_run_that_is_resumed_has_as_many_rounds(tmp_path, monkeypatch):
    """What is kept says how many, and not the clock."""
    monkeypatch.setattr(practice, "_COUNTED", (2,))
    monkeypatch.setattr(practice._Course, "rounds_left", lambda *args: 3)
    practise(shelf=Shelf(tmp_path)).policy.save(tmp_path / "first")
    monkeypatch.setattr(practice._Course, "rounds_left", lambda *args: 9)
    practise(shelf=Shelf(tmp_path)).policy.save(tmp_path / "second")
    assert content(tmp_path / "first") == content(tmp_path / "second")


@pytest.mark.parametrize(
    ("n_episodes", "seconds", "pace", "rows"),
    [
        (10**9, 1e9, 1e-6, 2_000),  # as many as a round may have
        (10**9, 30.0, 0.1, None),  # a slow simulator
        (1_000, 1e9, 1e-6, None),  # few episodes
    ],
)
def test_practice_needs_time_and_episodes(n_episodes, seconds, pace, rows):
    spec = find_spec(ENV)
    uniform = UniformPolicy(2, 0.0, 1.0)
    batch = collect(uniform, spec, range(100), budgets=np.zeros(100), seed=1)
    how = Practice(Player(spec, 1.0, 0), 0, n_episodes, seconds, pace)
    assert how.rows(batch) == rows


@pytest.fixture
def small(monkeypatch):
    """Rounds that are few and small."""
    for name, value in {"_N_ROUNDS": 4, "_LEAST_ROWS": 100, "_COUNTED": (1,)}.items():
        monkeypatch.setattr(practice, name, value)


def test_the_front_door_practises_where_there_is_a_simulator(small):
    found = bmdp.fit("corridors", episodes=600, seed=3)
    names = [candidate.name for candidate in found.candidates]
    assert sum(name.endswith(", practised") for name in names) == 1
    log = collect(UniformPolicy(5, 0.0, 1.0), find_spec("corridors"), range(50), **LOGGED)
    names = [candidate.name for candidate in bmdp.fit(log, gamma=1.0).candidates]
    assert not any("practised" in name for name in names)


@pytest.mark.slow
def test_a_fit_that_is_killed_in_the_middle_of_practice_comes_to_the_same_policy(small, tmp_path):
    how = {"episodes": 600, "seed": 3, "device": "cpu"}
    bmdp.fit("corridors", **how, out=tmp_path / "whole")
    rounds = next((tmp_path / "whole" / "steps" / "candidates").glob("*practised/rounds-1.json"))
    keep = Shelf._kept

    def kept(shelf, name, make, save, load):
        found = keep(shelf, name, make, save, load)
        if name.endswith(f"{rounds.parent.name}/{rounds.name}"):
            raise Killed
        return found

    with pytest.MonkeyPatch.context() as patch, suppress(Killed):
        patch.setattr(Shelf, "_kept", kept)
        bmdp.fit("corridors", **how, out=tmp_path / "run")
    assert not (tmp_path / "run" / "done").exists()
    resume(tmp_path / "run")
    assert content(tmp_path / "run" / "policy") == content(tmp_path / "whole" / "policy")
