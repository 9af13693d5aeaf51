"""Budgeted fitted Q-iteration on problems whose answer is known."""

import numpy as np
import pytest

import bmdp
from bmdp import BFTQ, FTQ, BFTQConfig, ConfigError, FTQConfig, TransitionBatch
from bmdp.models import EncoderNet, FrontierNet, Regression
from bmdp.policies.crossed import CrossedPolicy
from bmdp.policies.hull import HullPolicy

SMALL = Regression(steps=150, learning_rate=0.01)
NETWORKS = {"encoder": EncoderNet((32, 16), (4,)), "frontier": FrontierNet((32,), "monotone")}


def bandit(n=400, seed=0):
    """One step: action 0 earns 0 for nothing, action 1 earns 1 for cost 1."""
    rng = np.random.default_rng(seed)
    state, action = rng.normal(size=(n, 2)), rng.integers(2, size=n)
    paid = action.astype(float)
    return TransitionBatch(
        state=state,
        action=action,
        reward=paid,
        cost=paid,
        next_state=state,
        terminal=np.ones(n, bool),
        episode=np.arange(n),
        step=np.zeros(n, int),
        budget=rng.random(n),
    )


def chain(n=600, seed=0):
    """Two steps: the first leads on and pays nothing, the second is the bandit."""
    rng = np.random.default_rng(seed)
    first = np.column_stack([np.zeros(n), rng.normal(size=n)])
    second = np.column_stack([np.ones(n), rng.normal(size=n)])
    last = bandit(n, seed)
    start = TransitionBatch(
        state=first,
        action=rng.integers(2, size=n),
        reward=np.zeros(n),
        cost=np.zeros(n),
        next_state=second,
        terminal=np.zeros(n, bool),
        episode=np.arange(n),
        step=np.zeros(n, int),
        budget=rng.random(n),
    )
    end = TransitionBatch(
        state=second,
        action=last.action,
        reward=last.reward,
        cost=last.cost,
        next_state=second,
        terminal=last.terminal,
        episode=np.arange(n),
        step=np.ones(n, int),
        budget=rng.random(n),
    )
    arrays = {k: np.concatenate([v, end.to_arrays()[k]]) for k, v in start.to_arrays().items()}
    return TransitionBatch.from_arrays(arrays)


def config(**changes):
    settings = {
        "gamma": 1.0,
        "n_budgets": 11,
        "model": NETWORKS["encoder"],
        "regression": SMALL,
        "iterations": 3,
    }
    return BFTQConfig(**(settings | changes))


@pytest.mark.parametrize("model", NETWORKS.values(), ids=NETWORKS.keys())
@pytest.mark.parametrize("valuation", ["self", "crossed"])
def test_the_policy_mixes_so_that_it_spends_the_budget(model, valuation):
    policy = BFTQ(config(model=model, valuation=valuation)).fit(bandit(), seed=0, device="cpu")
    states = np.random.default_rng(5).normal(size=(2000, 2))
    for budget in (0.1, 0.5, 0.9):
        decision = policy.decide(states, budget, np.random.default_rng(1))
        assert decision.action.mean() == pytest.approx(budget, abs=0.12)
    frontier = policy.frontier(states[0])
    assert frontier.reward_at(0.5) == pytest.approx(0.5, abs=0.15)


@pytest.mark.parametrize("model", NETWORKS.values(), ids=NETWORKS.keys())
def test_budgets_are_handed_on_through_a_chain(model):
    batch = chain()
    policy = BFTQ(config(model=model)).fit(batch, seed=0, device="cpu")
    starts = batch.state[batch.starts()]
    first = policy.decide(starts, 0.4, np.random.default_rng(0))
    second = policy.decide(
        batch.next_state[batch.starts()], first.next_budget, np.random.default_rng(1)
    )
    assert second.action.mean() == pytest.approx(0.4, abs=0.15)


@pytest.mark.parametrize("valuation", ["self", "crossed"])
def test_stage_by_stage_budgets_are_handed_on_through_a_chain(valuation, tmp_path):
    batch, records = chain(), []
    learner = BFTQ(config(model=NETWORKS["frontier"], valuation=valuation, stagewise=True))
    policy = learner.fit(batch, seed=0, device="cpu", on_record=records.append)
    assert [r["step"] for r in records] == [1, 0]
    starts, seconds = batch.state[batch.starts()], batch.next_state[batch.starts()]
    policy.save(tmp_path / "p")
    for played in (policy, bmdp.load_policy(tmp_path / "p")):
        tracker = played.start(starts, 0.4, np.random.default_rng(0))
        tracker.decide(starts)
        tracker.observe(np.zeros(len(starts)), seconds, np.zeros(len(starts), bool))
        assert tracker.decide(seconds).action.mean() == pytest.approx(0.4, abs=0.15)
    memory = Memory(kill_at=1)
    with pytest.raises(KeyboardInterrupt):
        learner.fit(batch, seed=0, device="cpu", keeper=memory)
    again = learner.fit(batch, seed=0, device="cpu", keeper=memory)
    assert again.stages[0].frontier(starts[0]).rewards.tolist() == pytest.approx(
        policy.stages[0].frontier(starts[0]).rewards.tolist(), abs=0
    )


def test_stages_are_in_one_unit_whatever_each_of_them_earns():
    """Both steps pay, the second one fifty times as much as the first."""
    arrays = chain().to_arrays()
    arrays["reward"] = np.where(arrays["step"] == 0, 1.0, 50.0 * arrays["reward"])
    batch = TransitionBatch.from_arrays(arrays)
    learner = BFTQ(config(model=NETWORKS["frontier"], stagewise=True))
    policy = learner.fit(batch, seed=0, device="cpu")
    top = policy.stages[0].frontier(batch.state[batch.starts()[0]])
    assert top.rewards[-1] == pytest.approx(51, rel=0.2)
    assert top.costs[-1] == pytest.approx(1, abs=0.2)


def test_stages_need_steps_and_both_halves_at_each():
    arrays = bandit().to_arrays()
    del arrays["step"]
    with pytest.raises(bmdp.DataError, match="stagewise needs a batch with steps"):
        BFTQ(config(stagewise=True)).fit(TransitionBatch.from_arrays(arrays), seed=0, device="cpu")
    few = bandit(4).take([0, 1, 2, 3]).to_arrays()
    few["step"] = np.array([0, 0, 0, 1])
    with pytest.raises(bmdp.DataError, match="step 1 has 1 transitions"):
        BFTQ(config(stagewise=True)).fit(TransitionBatch.from_arrays(few), seed=0, device="cpu")


def test_fits_are_repeatable_and_seeds_matter():
    fits = [
        BFTQ(config(model=NETWORKS["encoder"])).fit(bandit(), seed=seed, device="cpu")
        for seed in (3, 3, 4)
    ]
    states = np.random.default_rng(5).normal(size=(10, 2))
    values = [policy.q_function(states)[0] for policy in fits]
    assert (values[0] == values[1]).all()
    assert (values[0] != values[2]).any()


class Memory:
    """Keeps what a fit needs in memory, and kills the fit at an iteration."""

    def __init__(self, kill_at):
        self.kept, self.kill_at = None, kill_at

    def load(self):
        return self.kept

    def save(self, n_done, arrays):
        self.kept = (n_done, {name: array.copy() for name, array in arrays.items()})
        if n_done == self.kill_at:
            raise KeyboardInterrupt


@pytest.mark.parametrize("start", ["warm", "restart"])
@pytest.mark.parametrize("model", NETWORKS.values(), ids=NETWORKS.keys())
def test_a_fit_that_was_killed_goes_on_as_if_nothing_had_been(model, start):
    regression = Regression(steps=20, start=start, batch_size=64)
    learner = BFTQ(config(model=model, regression=regression, iterations=4))
    whole = learner.fit(bandit(), seed=1, device="cpu")
    memory = Memory(kill_at=2)
    with pytest.raises(KeyboardInterrupt):
        learner.fit(bandit(), seed=1, device="cpu", keeper=memory)
    again = learner.fit(bandit(), seed=1, device="cpu", keeper=memory)
    states = np.random.default_rng(5).normal(size=(10, 2))
    for one, other in zip(whole.q_function(states), again.q_function(states), strict=True):
        assert (one == other).all()


def test_every_iteration_is_recorded():
    records = []
    BFTQ(config(iterations=3)).fit(bandit(100), seed=0, device="cpu", on_record=records.append)
    assert [r["iteration"] for r in records] == [0, 1, 2]
    assert [r["is_last"] for r in records] == [False, False, True]
    for key in ("delta", "last_loss", "share_infeasible", "start_reward_high", "start_cost_low"):
        assert all(np.isfinite(r[key]) for r in records)
    assert all(
        r["seconds"] >= r["seconds_forward"] + r["seconds_frontier"] + r["seconds_regression"]
        for r in records
    )


def test_it_stops_when_targets_no_longer_change():
    records = []
    learner = BFTQ(config(iterations=9, stop_delta=0.5, model=NETWORKS["frontier"]))
    learner.fit(bandit(), seed=0, device="cpu", on_record=records.append)
    assert len(records) == 2
    assert records[-1]["is_last"]


def test_two_models_act_by_their_mean_or_crossed():
    for acting, kind in (("average", HullPolicy), ("crossed", CrossedPolicy)):
        policy = BFTQ(config(acting=acting, iterations=1)).fit(bandit(100), seed=0, device="cpu")
        assert type(policy) is kind


def test_stored_budgets_may_be_the_labels():
    policy = BFTQ(config(labels="stored", iterations=2)).fit(bandit(), seed=0, device="cpu")
    assert policy.decide(np.zeros((4, 2)), 0.5, np.random.default_rng(0)).action.shape == (4,)
    batch = bandit().to_arrays()
    del batch["budget"]
    with pytest.raises(bmdp.DataError, match="labels='stored' needs a batch with budgets"):
        BFTQ(config(labels="stored")).fit(TransitionBatch.from_arrays(batch), seed=0, device="cpu")


def test_costs_may_have_a_discount_of_their_own():
    batch = chain()
    policy = BFTQ(config(gamma=1.0, cost_gamma=0.5)).fit(batch, seed=0, device="cpu")
    top = policy.frontier(batch.state[batch.starts()[0]])
    assert top.rewards[-1] == pytest.approx(1, abs=0.25)
    assert top.costs[-1] == pytest.approx(0.5, abs=0.2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"gamma": 1.5}, "gamma must be from 0 to 1; got 1.5"),
        ({"cost_gamma": -0.1}, "cost_gamma must be from 0 to 1"),
        ({"budget_range": (1.0, 0.0)}, "budget_range must be two rising numbers"),
        ({"n_budgets": 1}, "n_budgets must be from 2 on"),
        ({"iterations": 0}, "iterations must be from 1 on"),
        ({"slope_cap": -1.0}, "slope_cap must be from 0 on"),
        ({"reward_scale": 0.0}, "reward_scale must be above 0"),
        ({"valuation": "double"}, "valuation must be one of crossed, self; got 'double'"),
        ({"acting": "vote"}, "acting must be one of average, crossed"),
        ({"labels": "none"}, "labels must be one of uniform, stored"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        config(**settings)


@pytest.mark.parametrize(("price", "best"), [(0.0, 1), (0.5, 1), (2.0, 0)])
def test_fitted_q_iteration_takes_what_is_worth_its_price(price, best):
    model = FrontierNet((32,), "free")
    learner = FTQ(FTQConfig(gamma=1.0, price=price, model=model, regression=SMALL, iterations=3))
    batch = chain()
    policy = learner.fit(batch, seed=0, device="cpu")
    assert (
        policy.decide(batch.next_state[batch.starts()], 0.0, np.random.default_rng(0)).action
        == best
    ).mean() > 0.97
    q_r, q_c = policy.q_function(batch.state[batch.starts()])
    assert q_r.max(axis=1).mean() == pytest.approx(best, abs=0.15)
    assert q_c[..., 0].mean() == pytest.approx(best, abs=0.2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"gamma": 2.0}, "gamma must be from 0 to 1"),
        ({"price": np.inf}, "price must be finite"),
        ({"iterations": 0}, "iterations must be from 1 on"),
        ({"budget_range": (1.0, 1.0)}, "budget_range must be two rising numbers"),
    ],
)
def test_settings_of_fitted_q_iteration_are_checked(settings, message):
    with pytest.raises(ConfigError, match=message):
        FTQConfig(**({"gamma": 1.0} | settings))


def test_costs_may_count_now_alone():
    assert config(cost_gamma=0.0).discount_of_costs == 0
    assert config(gamma=0.5).discount_of_costs == 0.5


def test_fitted_q_iteration_stops_resumes_and_is_stored(tmp_path):
    learner = FTQ(FTQConfig(gamma=1.0, regression=SMALL, iterations=9, stop_delta=0.5))
    records = []
    learner.fit(bandit(), seed=0, device="cpu", on_record=records.append)
    assert len(records) == 2
    short = FTQ(FTQConfig(gamma=1.0, regression=Regression(steps=20), iterations=4))
    whole = short.fit(chain(100), seed=0, device="cpu")
    memory = Memory(kill_at=2)
    with pytest.raises(KeyboardInterrupt):
        short.fit(chain(100), seed=0, device="cpu", keeper=memory)
    again = short.fit(chain(100), seed=0, device="cpu", keeper=memory)
    states = np.zeros((3, 2))
    assert (whole.q_function(states)[0] == again.q_function(states)[0]).all()
    whole.save(tmp_path / "p")
    loaded = bmdp.load_policy(tmp_path / "p")
    assert (loaded.q_function(states)[0] == whole.q_function(states)[0]).all()
