"""A policy that was exported decides in onnxruntime as it does here.

Tables, linear models and forests have the same values to the last bit, or nearly always; of kernels
and networks they are rounded otherwise, and a tie between points may fall on the other one. Such a
point must be as good: it lies on the frontier that the library finds.
"""

import json
from dataclasses import replace
from functools import cache

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import helper

import bmdp
from bmdp import BFTQ, FTQ, BFTQConfig, FTQConfig, LagrangianFTQ, MissingDependency
from bmdp.data.encoder import EncodedPolicy, Encoder, StateColumn
from bmdp.deployment import onnx as exporting
from bmdp.deployment.frontiers import mixture_values
from bmdp.deployment.graph import Graph, info
from bmdp.deployment.q_graphs import _keys
from bmdp.envs.slots import find_spec
from bmdp.errors import PolicyError, StoreError
from bmdp.exact import allocate_budgets
from bmdp.exact.price_dial import price_dial
from bmdp.exact.textbook import branches
from bmdp.frontier import best_mixtures, hull_mixture, upper_frontier
from bmdp.learn import Backward, Iterations
from bmdp.learn.collect import collect
from bmdp.learn.learners import LagrangianConfig
from bmdp.models import ActorModel, LearnedQ, Sizes, Support
from bmdp.models.regressor import Bounded, MeanQ
from bmdp.models.table import keys_of
from bmdp.policies import (
    HullPolicy,
    HullRule,
    MultiplierPolicy,
    Portfolio,
    PriceDial,
    PricedPolicy,
    RandomBudgetedPolicy,
    TabularQ,
)
from bmdp.randomness import EpisodeStreams
from regressors import ALL, FREE, dice

onnxruntime.set_default_logger_severity(3)
EXACT = ("table", "linear", "quadratic", "forest")
KINDS = [name for name in ALL if name != "own"]
N = 2_000


def session(policy):
    return opened(exporting.onnx_bytes(policy))


def opened(content):
    return onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])


def run(model, **given):
    known = [one.name for one in model.get_inputs()]
    found = model.run(None, {name: np.asarray(given[name]) for name in known})
    return dict(zip([one.name for one in model.get_outputs()], found, strict=True))


def drawn(policy, n=N, seed=0, spread=1.2):
    """Budgets, up to above the range, some of them of a grid, and uniform numbers."""
    rng = np.random.default_rng(seed)
    low, high = policy.budget_range
    budgets = low + (high - low) * spread * rng.random(n)
    budgets[::5] = np.linspace(low, high, 21)[rng.integers(21, size=len(budgets[::5]))]
    return budgets, rng.random((n, policy.n_draws))


def differences(policy, states, *, step=0, seed=0):
    """Rows that onnxruntime decides otherwise, and both decisions."""
    one = policy.at_step(step)
    budgets, uniforms = drawn(one, len(states), seed)
    wanted = one.decide_from(states, budgets, uniforms)
    given = {"states": states, "budgets": budgets, "uniforms": uniforms, "step": step}
    found = run(session(policy), **given)
    off = np.abs(found["next_budgets"] - wanted.next_budget) > 1e-6
    off |= (found["actions"] != wanted.action) | (found["statuses"] != wanted.status)
    return np.flatnonzero(off), wanted, found


def assert_same(policy, states, **how):
    rows, wanted, found = differences(policy, states, **how)
    assert len(rows) == 0, (len(rows), wanted.action[rows[:3]], found["actions"][rows[:3]])


def states_of(name, n=N, seed=3):
    """States of the walk, and for those that are not a table, of between its places."""
    rng = np.random.default_rng(seed)
    states = rng.integers(-1, 7, size=(n, 2)).astype(float)
    return states if name == "table" else states + (rng.random((n, 1)) < 0.5) * rng.random((n, 2))


def log(scale=0.2):
    batch = dice(n_episodes=100)
    return replace(batch, cost=batch.cost * scale)


@cache
def fitted(name, **how):
    config = BFTQConfig(gamma=0.9, model=ALL[name], ensemble=2, n_budgets=21, **how)
    return BFTQ(config).fit(log(), seed=0)


# The frontier


def mixtures_by_graph(costs, rewards, budgets):
    graph = Graph()
    given = {"x": costs, "y": rewards, "beta": budgets[:, None]}
    found = mixture_values(*(graph.input(name, array.dtype) for name, array in given.items()))
    outputs = [
        info(graph.renamed(value, name), value.dtype, None)
        for name, value in found._asdict().items()
    ]
    inputs = [info(name, array.dtype, ["N", None]) for name, array in given.items()]
    opsets = [helper.make_opsetid("", 18)]
    whole = graph.whole("frontier", inputs, outputs)
    model = opened(helper.make_model(whole, opset_imports=opsets, ir_version=9).SerializeToString())
    return [column[:, 0] for column in model.run(None, given)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n_points", [1, 2, 7, 60])
def test_the_graph_of_a_frontier_agrees_with_exact_geometry_at_ties(n_points, dtype):
    rng = np.random.default_rng(n_points)
    shape = 400, n_points  # whole numbers: equal points, and points on a line
    costs, rewards = (rng.integers(top, size=shape).astype(dtype) for top in (9, 12))
    budgets = rng.integers(-2, 22, size=400) / 2
    lower, upper, p_upper, status = mixtures_by_graph(costs, rewards, budgets)
    for i in range(400):
        frontier = upper_frontier(costs[i], rewards[i])
        wanted = hull_mixture(frontier, budgets[i])
        own = frontier.index[[wanted.lower, wanted.upper]]
        assert (lower[i], upper[i], status[i]) == (*own, wanted.status), i
        assert p_upper[i] == pytest.approx(wanted.p_upper, abs=1e-7)


def test_of_points_on_an_edge_that_is_parallel_to_the_chord_the_ends_are_played():
    points = np.array([[0, 0], [4, 7], [3, 6], [5, 8], [10, 10]], float)  # 4, 7 is on an edge
    budgets = np.array([3.5, 4.0, 4.5])
    costs, rewards = (np.tile(column, (3, 1)) for column in points.T)
    lower, upper, p_upper, _ = mixtures_by_graph(costs, rewards, budgets)
    assert (lower.tolist(), upper.tolist()) == ([2, 2, 2], [3, 3, 3])
    assert p_upper.tolist() == [0.25, 0.5, 0.75]


def test_the_graph_of_a_frontier_agrees_with_the_kernel_on_smooth_curves():
    rng = np.random.default_rng(0)  # where nearly every point is a vertex
    x = np.sort(rng.random((500, 105)), axis=1).astype(np.float32)
    y = (np.sqrt(x) + 1e-3 * rng.random(x.shape)).astype(np.float32)
    budgets = rng.random(500)
    found = mixtures_by_graph(x, y, budgets)
    wanted = best_mixtures(x, y, budgets)
    for column, own in zip(found, (*wanted[:3], wanted.status), strict=True):
        np.testing.assert_array_equal(column, own)


# Hull policies


@pytest.mark.parametrize(
    "rule",
    [
        HullRule(),
        HullRule(costs_from_zero=True, cost_cap=0.7),
        HullRule(slope=[3.0], slack=[0.1]),
        HullRule(True, [0.0, 8.0], [0.3, 0.2]),
    ],
    ids=["plain", "clipped", "capped", "by step"],
)
@pytest.mark.parametrize("n_steps", [1, 3])
def test_tables_are_played_as_they_are_here(rule, n_steps):
    rng = np.random.default_rng(5)
    shape = (n_steps, 20, 4, 11)[n_steps == 1 :]
    q_c = rng.integers(-1, 9, size=shape) / 8 * rng.integers(1, 3, size=shape)
    q = TabularQ(rng.integers(9, size=shape) / 2, q_c)
    policy = HullPolicy(q, np.linspace(0, 1, 11), rule)
    states = rng.integers(20, size=N)
    for step in (0, 1, 2, 7)[: 2 * n_steps]:
        assert_same(policy, states, step=step)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("last_step", ["shared", "own"])
def test_learned_policies_are_played_as_they_are_here(name, last_step):
    policy = fitted(name, schedule=Backward(last_step=last_step), caution=0.5 * (name != "text"))
    assert policy.n_steps > 1
    states = states_of(name)
    for step in (0, policy.n_steps - 1):
        rows, _, found = differences(policy, states, step=step)
        assert len(rows) <= (0 if name in EXACT else 0.05 * N)
        grid, here = policy.beta_grid, policy.at_step(step)
        for row in rows[:20]:
            frontier = here.frontier(states[row])
            place = int(np.abs(grid - found["next_budgets"][row]).argmin())
            point = found["actions"][row] * len(grid) + place
            points = here.points(states[row][None])
            cost, reward = points.costs[0, point], points.rewards[0, point]
            assert frontier.reward_at(float(cost) + 1e-5) - reward < 1e-3


def test_decisions_of_all_statuses_are_compared():
    states = states_of("forest")
    budgets, uniforms = drawn(fitted("forest").at_step(0))
    status = fitted("forest").at_step(0).decide_from(states, budgets, uniforms).status
    assert (np.bincount(status, minlength=3) > N / 20).all()


def learned(name, **changes):
    policy = fitted(name)
    return replace(policy, q_function=replace(policy.q_function, **changes))


def test_a_clock_caution_hidden_numbers_and_untaken_actions_are_kept():
    rng = np.random.default_rng(0)
    q = fitted("forest", schedule=Iterations(2)).q_function
    shown = np.array([True, False, True, False])
    clocked = replace(q, shown=np.array([True, False, True]), clock=6)
    policy = replace(fitted("forest"), q_function=clocked)
    states = 6 * rng.random((N, 2))
    for step in (0, 3, 6, 9):
        assert_same(policy, states, step=step)
    few = replace(q, shown=shown, taken=np.array([True, False, True]), caution=1.0)
    policy = replace(fitted("forest"), q_function=few)
    assert_same(policy, 6 * rng.random((N, 4)))
    _, wanted, _ = differences(policy, 6 * rng.random((N, 4)))
    assert set(wanted.action) == {0, 2}


@pytest.mark.parametrize("is_table", [True, False])
def test_only_what_the_log_knows_is_played(is_table):
    batch = log()
    rare = (batch.action == 1) & (batch.state[:, 0] > 2)
    rows = ~rare
    support = Support.of(
        batch.state[rows], batch.action[rows], batch.episode[rows], 3, least=4, is_table=is_table
    )
    policy = learned("linear", support=support)
    states = states_of("table" if is_table else "forest").clip(0, 5)
    assert_same(policy, states)
    _, _, found = differences(policy, states)
    assert not (found["actions"][states[:, 0] > 4] == 1).any()
    assert (found["actions"] == 1).any()


def test_a_mean_of_several_models_is_played():
    both = MeanQ((fitted("forest").q_function, fitted("linear").q_function))
    policy = replace(fitted("forest"), q_function=both, rule=HullRule())
    assert_same(policy, states_of("forest"))


def test_values_within_bounds_are_played():
    q = fitted("linear").q_function
    model = Bounded(q.model)
    model.get_buffer("least")[:], model.get_buffer("most")[:] = 0.1, 0.6
    assert_same(learned("linear", model=model), states_of("linear"))


def test_an_actor_is_played():
    sizes = Sizes(1, 1, n_actions=4, n_numbers=2, heads=tuple(map(float, range(5))))
    model = ActorModel(width=16, knots=3).empty(sizes)
    model.start(torch.Generator().manual_seed(0))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=torch.Generator()))
    q = LearnedQ(model, np.ones(2, bool), np.ones(4, bool), 2.0, 3.0)
    rows, wanted, _ = differences(PriceDial(q, [8.0, 4.0, 2.0, 1.0, 0.0]), states_of("actor"))
    assert len(rows) <= 2  # of probabilities that are equal up to rounding
    assert len(set(wanted.action)) > 2


# Prices


@cache
def dial_of(name):
    prices = (np.inf, 20.0, 5.0, 1.0, 0.0)
    config = LagrangianConfig(gamma=0.9, prices=prices, model=FREE[name], ensemble=2)
    return LagrangianFTQ(config).fit(log(), seed=0).dial


@pytest.mark.parametrize("name", [name for name in FREE if name != "own"])
def test_prices_are_played_as_they_are_here(name):
    rows, wanted, found = differences(dial_of(name), states_of(name), step=1)
    assert len(rows) <= (0 if name in EXACT else 2)
    np.testing.assert_array_equal(found["next_budgets"], wanted.next_budget)


@pytest.mark.parametrize("name", ["forest", "table"])
def test_prices_that_grow_from_step_to_step_are_played(name):
    terms = {"gamma": 0.5, "cost_gamma": 1.0, "model": FREE[name], "ensemble": 2}
    config = LagrangianConfig(prices=(np.inf, 5.0, 1.0, 0.2, 0.0), schedule=Backward(), **terms)
    dial = LagrangianFTQ(config).fit(log(), seed=0).dial
    assert dial.growth == 2.0
    assert dial.n_steps > 2
    for step in (0, 2, dial.n_steps):
        assert_same(dial, states_of(name), step=step)
    assert_episodes_agree(MultiplierPolicy(dial, 0.0, 1.0), walks(name))
    terms["schedule"] = Backward()
    assert_same(FTQ(FTQConfig(price=1.0, **terms)).fit(log(), seed=0), states_of(name), step=2)


def test_one_price_is_played_and_needs_no_random_numbers():
    config = FTQConfig(gamma=0.9, price=3.0, model=ALL["forest"], ensemble=2)
    policy = FTQ(config).fit(log(), seed=0)
    assert isinstance(policy, PricedPolicy)
    assert_same(policy, states_of("forest"))
    assert "uniforms" not in [one.name for one in session(policy).get_inputs()]


# What is carried through an episode


def play(policy, states, budgets, *, moves=(), seed=0):
    """Plays states `[T, N, ...]` here and in onnxruntime, by the same numbers.

    Yields for each step both decisions and which decisions the dial was moved before.
    """
    n = len(budgets)
    streams = EpisodeStreams.named(seed, "play", range(n))
    tracker = policy.start(states[0], budgets, streams)
    model = session(policy)
    n_carried = model.get_inputs()[-1].shape[1]
    carried, held = np.full((n, n_carried), -1.0), np.array(budgets)
    for step, rows in enumerate(states):
        if step in moves:
            held = held[::-1].copy()
            tracker.set_budget(held)
            carried = np.full((n, n_carried), -2.0)
        uniforms = numbers_of(policy, streams, step, carried, held)
        wanted = tracker.decide(rows)
        found = run(model, states=rows, budgets=held, uniforms=uniforms, step=step, carried=carried)
        carried = found["next_carried"]
        yield wanted, found
        if step + 1 < len(states):
            tracker.observe(np.zeros(n), states[step + 1], np.zeros(n, bool))


def numbers_of(policy, streams, step, carried, held):
    """The uniform numbers of a step, as the trackers draw them."""
    if isinstance(policy, MultiplierPolicy):
        return streams.uniforms(step, 1)
    n, first = len(streams), streams.child("coin").uniforms(step, 1)
    found = policy.mixtures(held)
    tossed = np.where(first[:, 0] < found.p_upper, found.upper, found.lower)
    is_new = carried[:, 0] < 0
    numbers_of.member = np.where(is_new, tossed, carried[:, 0]).astype(int)
    if is_new.any():
        numbers_of.since = step
    second = np.empty((n, 1))
    for i, member in enumerate(numbers_of.member):
        own = streams.child(f"member {member}/{numbers_of.since}").take([i])
        second[i] = own.uniforms(step, 1)
    return np.column_stack((first, second))[:, : 1 + max_draws(policy)]


def max_draws(portfolio):
    return max(1 if isinstance(p, MultiplierPolicy) else p.n_draws for p in portfolio.policies)


def assert_episodes_agree(policy, states, *, moves=(2,)):
    low, high = policy.budget_range
    budgets = np.linspace(low, 1.1 * high, states.shape[1])
    seen = set()
    for wanted, found in play(policy, states, budgets, moves=moves):
        np.testing.assert_array_equal(found["actions"], wanted.action)
        np.testing.assert_array_equal(found["statuses"], wanted.status)
        np.testing.assert_allclose(found["next_budgets"], wanted.next_budget, atol=1e-6)
        seen |= set(wanted.status.tolist())
    return seen


def walks(name, n=60, n_steps=4):
    return states_of(name, n * n_steps).reshape(n_steps, n, 2)


@pytest.mark.parametrize("is_measured", [True, False])
@pytest.mark.parametrize("name", ["forest", "kernel", "table"])
def test_a_carried_price_is_chosen_kept_and_chosen_anew(name, is_measured):
    costs, rewards = [0.1, 0.15, 0.3, 0.5, 0.9], [0.0, 1.0, 2.0, 2.5, 2.8]
    told = {"costs": costs, "rewards": rewards} if is_measured else {}
    policy = MultiplierPolicy(dial_of(name), 0.0, 0.8, **told)
    assert assert_episodes_agree(policy, walks(name)) == {0, 1, 2}


def test_a_carried_price_of_an_exact_model_is_played():
    policy = MultiplierPolicy(price_dial(branches().model, prices=(np.inf, 5.0, 0.0)))
    states = np.random.default_rng(0).integers(3, size=(4, 50))
    assert_episodes_agree(policy, states)


def portfolio(policies, **how):
    k = len(policies)
    costs, rewards = np.linspace(0.1, 1.0, 4), np.sqrt(np.linspace(0.1, 1.0, 4))
    which, budgets = np.arange(4) % k, np.linspace(0.2, 0.8, 4)
    return Portfolio(tuple(policies), which, budgets, costs, rewards, **how)


@pytest.mark.parametrize("mixes", [True, False])
def test_a_portfolio_follows_the_member_that_its_coin_chose(mixes):
    hull = fitted("forest")
    assert {1, 2} <= assert_episodes_agree(portfolio([hull], mixes=mixes), walks("forest"))


def test_a_portfolio_of_different_policies_is_played():
    hull, carried = fitted("linear"), MultiplierPolicy(dial_of("linear"), 0.0, 1.0)
    of_prices = Portfolio(
        (hull, dial_of("linear"), carried),
        [0, 1, 2, 1],
        [0.3, 2.0, 0.4, 4.0],
        [0.1, 0.4, 0.6, 1.0],
        [0.0, 2.0, 2.7, 3.0],
    )
    assert_episodes_agree(of_prices, walks("linear"))


# Rows that are refused


def test_rows_that_cannot_be_decided_are_marked_and_do_no_harm():
    policy = fitted("forest")
    states = states_of("forest", 4)
    states[1, 0], states[2, 1] = np.nan, np.inf
    budgets, uniforms = np.array([0.5, 0.5, 0.5, -0.1]), np.full((4, 1), 0.3)
    model = session(policy)
    found = run(model, states=states, budgets=budgets, uniforms=uniforms, step=0)
    assert found["actions"][1:].tolist() == found["statuses"][1:].tolist() == [-1] * 3
    assert np.isnan(found["next_budgets"][1:]).all()
    wanted = policy.at_step(0).decide_from(states[:1], budgets[:1], uniforms[:1])
    assert found["actions"][0] == wanted.action[0]
    nothing = {"states": np.empty((0, 2)), "budgets": np.empty(0), "uniforms": np.empty((0, 1))}
    assert len(run(model, **nothing, step=0)["actions"]) == 0


def test_states_that_are_no_states_of_a_table_are_marked():
    policy = HullPolicy(TabularQ(np.zeros((3, 2, 2)), np.ones((3, 2, 2))), [0.0, 2.0])
    given = {"budgets": np.ones(4), "uniforms": np.zeros((4, 1))}
    found = run(session(policy), states=np.array([-1, 0, 2, 3]), **given)
    assert found["statuses"].tolist() == [-1, 2, 2, -1]


def test_states_of_a_table_are_found_by_the_same_keys():
    rng = np.random.default_rng(0)
    odd = [0.0, -0.0, 0.1, -0.1, 1e-40, -3e-45, 3e38, 2.0**53 - 1, -(2.0**52), 1.5, 7.0, 2.0**-126]
    numbers = np.concatenate((odd, rng.normal(size=500), 2.0 ** np.arange(-140, 50)))
    rows = rng.choice(numbers, size=(3000, 3))
    graph = Graph()
    keys = _keys(graph.input("x", np.float64), 3)
    told = [info(graph.renamed(keys, "keys"), np.int64, ["N"])]
    whole = graph.whole("keys", [info("x", np.float64, ["N", 3])], told)
    opsets = [helper.make_opsetid("", 18)]
    model = opened(helper.make_model(whole, opset_imports=opsets, ir_version=9).SerializeToString())
    np.testing.assert_array_equal(run(model, x=rows)["keys"], keys_of(torch.tensor(rows)).numpy())


# The file


def test_a_file_says_what_it_is_and_is_not_overwritten_unasked(tmp_path):
    path, policy = tmp_path / "policy.onnx", fitted("linear")
    policy.export_onnx(path)
    told = {prop.key: json.loads(prop.value) for prop in onnx.load(path).metadata_props}
    assert (told["policy"], told["n_draws"], told["carried"]) == ("HullPolicy", 1, [])
    assert (told["budget_range"], told["n_steps"]) == ([0.0, 1.0], policy.n_steps)
    about = exporting.metadata_of(path)
    assert about["inputs"][0] == "states [N, 2] float64"
    assert about["outputs"][0] == "actions [N] int64"
    before = path.read_bytes()
    with pytest.raises(StoreError, match="exists already"):
        policy.export_onnx(path)
    policy.export_onnx(path, overwrite=True)
    assert path.read_bytes() == before
    with pytest.raises(PolicyError):
        RandomBudgetedPolicy(2, 0.0, 1.0).export_onnx(path, overwrite=True)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["policy.onnx"]


def test_a_policy_of_a_log_with_words_names_its_numbers():
    columns = (StateColumn("day", "text", ("Mon", "Tue")),)
    policy = EncodedPolicy(fitted("linear"), Encoder(columns, actions=("go", "wait", "stop")))
    states, budgets, uniforms = np.eye(2), np.full(2, 0.5), np.full((2, 1), 0.4)
    content = exporting.onnx_bytes(policy)
    found = run(opened(content), states=states, budgets=budgets, uniforms=uniforms, step=0)
    wanted = fitted("linear").at_step(0).decide_from(states, budgets, uniforms)
    np.testing.assert_array_equal(found["actions"], wanted.action)
    about = opened(content).get_modelmeta().custom_metadata_map
    assert json.loads(about["action_names"]) == ["go", "wait", "stop"]
    assert len(json.loads(about["state_names"])) == 2


def of_function(states):
    return np.zeros((len(states), 2, 2)), np.ones((len(states), 2, 2))


def of_table():
    return HullPolicy(TabularQ(np.zeros((3, 2, 2)), np.ones((3, 2, 2))), [0.0, 2.0])


def of_own_regressor():
    config = BFTQConfig(gamma=0.9, model=ALL["own"], ensemble=1, schedule=Iterations(1))
    return BFTQ(config).fit(log(), seed=0)


class OwnSupport:
    """Knows every action."""

    def known(self, states, available=None):
        return np.ones((len(states), 3), bool)


REFUSED = {
    "function": (lambda: HullPolicy(of_function, [0.0, 1.0]), "of_function"),
    "own regressor": (of_own_regressor, "NeighboursQ"),
    "own support": (lambda: learned("linear", support=OwnSupport()), "OwnSupport"),
    "random": (lambda: RandomBudgetedPolicy(2, 0.0, 1.0), "RandomBudgetedPolicy"),
    "allocation": (lambda: allocate_budgets(branches().model).policy(), "AllocationPolicy"),
    "random member": (lambda: portfolio([RandomBudgetedPolicy(2, 0, 1)]), "RandomBudgetedPolicy"),
    "different states": (lambda: portfolio([of_table(), fitted("linear")]), "Portfolio"),
}


@pytest.mark.parametrize(("make", "told"), REFUSED.values(), ids=REFUSED.keys())
def test_other_policies_are_refused_in_one_line(make, told):
    with pytest.raises(PolicyError, match=f"^{told} cannot be written as ONNX") as caught:
        exporting.onnx_bytes(make())
    assert "\n" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("env", ["corridors", "slot-filling"])
def test_what_fit_hands_over_is_played_through_whole_episodes(env):
    policy = bmdp.fit(env, episodes=150, minutes=0.3, seed=0).policy
    batch = collect(
        RandomBudgetedPolicy(5 if env == "corridors" else 7, 0.0, 1.0),
        find_spec(env),
        range(60),
        budgets=np.full(60, 0.5),
        seed=1,
    )
    rows = np.random.default_rng(0).integers(len(batch), size=(6, 400))
    assert_episodes_agree(policy, batch.state[rows].astype(np.float64))


def test_what_does_not_fit_into_one_file_is_refused(monkeypatch):
    monkeypatch.setattr(exporting, "_MOST_BYTES", 1000)
    with pytest.raises(PolicyError, match="do not fit into one file"):
        exporting.onnx_bytes(fitted("linear"))


def test_it_says_how_to_install_onnx(monkeypatch, tmp_path):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingDependency, match=r"pip install 'bmdp\[onnx\]'"):
        fitted("linear").export_onnx(tmp_path / "x.onnx")
