"""Runs from a log that learn many prices: what they leave, after a kill too, and what they say."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import bmdp
from batches import chain
from bmdp import DataError, TransitionBatch
from bmdp.exact.textbook import branches
from bmdp.learn import (
    Backward,
    EnvConfig,
    Exploration,
    Iterations,
    LagrangianConfig,
    LagrangianFTQ,
    TrainingSpec,
    resume,
    train,
    train_from_data,
)
from bmdp.learn.evaluation import HeldOut, split_episodes
from bmdp.learn.runs import RunFolder
from bmdp.learn.spec import data_notes
from bmdp.models import FrontierNet, KernelModel, Regression, TableModel
from bmdp.policies import (
    MultiplierPolicy,
    Portfolio,
    PriceDial,
    TabularQ,
)
from problems import finite_spec
from training import SPEC, Killed, content, kill_after, told

PROBLEM = branches()  # a risk of cost 1 pays 10 in one branch and 1 in the other, by a coin
PRICES = (np.inf, 5.0, 0.0)
TWO = Iterations(2, settled=0.0)
LEARNER = LagrangianConfig(gamma=1.0, model=TableModel(), prices=PRICES, schedule=TWO, ensemble=2)
NETWORK = FrontierNet((8,), "free", regression=Regression(steps=3))


def branches_log(n=400, seed=0):
    """Episodes of two steps, with actions by a coin."""
    rng = np.random.default_rng(seed)
    branch, actions = rng.integers(1, 3, size=n), rng.integers(2, size=(n, 2))
    states = np.column_stack([np.zeros(n, int), branch, np.full(n, 3)])
    places = states[:, :2].ravel(), actions.ravel()
    return TransitionBatch(
        state=states[:, :2].ravel(),
        action=actions.ravel(),
        reward=PROBLEM.model.reward[places],
        cost=PROBLEM.model.cost[places],
        next_state=states[:, 1:].ravel(),
        terminal=np.tile([False, True], n),
        episode=np.repeat(np.arange(n), 2),
        step=np.tile([0, 1], n),
    )


@pytest.fixture(scope="module")
def log():
    return branches_log()


def without(batch, *names):
    columns = {k: v for k, v in batch.to_arrays().items() if k not in names}
    return TransitionBatch.from_arrays(columns, n_actions=batch.n_actions)


# What a run leaves


@pytest.mark.parametrize(
    ("plays", "kind"),
    [("carried", MultiplierPolicy), ("mixture", Portfolio)],
)
def test_a_run_leaves_what_the_learner_gives(tmp_path, log, plays, kind):
    learner, seen = replace(LEARNER, plays=plays), []
    policy = train_from_data(log, learner, tmp_path / "run", seed=2, on_record=seen.append)
    LagrangianFTQ(learner).fit(log, seed=2).save(tmp_path / "same")
    assert isinstance(policy, kind)
    assert content(tmp_path / "run" / "policy") == content(tmp_path / "same")
    assert [(r.kind, r.of.iteration) for r in seen] == [("iteration", 0), ("iteration", 1)]
    assert isinstance(resume(tmp_path / "run"), kind)
    assert not (tmp_path / "run" / "round-000" / "fit").exists()


def test_policies_of_runs_are_loaded_by_a_new_process_that_knows_no_learner(tmp_path, log):
    folders = []
    for model in (TableModel(), KernelModel(5), NETWORK):
        learner = replace(LEARNER, model=model)
        folders.append(tmp_path / type(model).__name__)
        train_from_data(log, learner, folders[-1], seed=0)
    code = "import sys, bmdp; print(*(type(bmdp.load_policy(f)).__name__ for f in sys.argv[1:]))"
    asked = [sys.executable, "-c", code, *folders]
    out = subprocess.run(asked, check=True, capture_output=True, text=True).stdout
    assert out.split() == ["MultiplierPolicy"] * 3


def test_a_carried_price_that_was_learned_earns_what_no_budget_for_all_next_states_can(
    tmp_path, log
):
    """5 at budget 1/2, where budgets that are the same in both branches earn 2.75."""
    policy = train_from_data(log, LEARNER, tmp_path / "run", seed=0)
    asked = {"budgets": [0.25, 0.5], "n_episodes": 4000, "seed": 0}
    found = bmdp.evaluate(policy, finite_spec(PROBLEM), **asked)
    for mean, truth in (("reward", [2.5, 5.0]), ("cost", [0.25, 0.5])):
        error = getattr(found, f"discounted_{mean}_high") - getattr(
            found, f"discounted_{mean}_mean"
        )
        # Four standard errors of playing, and as many of how often the log took a branch.
        off = np.abs(getattr(found, f"discounted_{mean}_mean") - truth)
        assert (off < 4 * error / 1.96 + np.array(truth) * 4 / np.sqrt(400)).all()


# After a kill

LEARNERS = {
    "tables": LEARNER,
    "networks": replace(LEARNER, model=NETWORK),
    "one model": replace(LEARNER, model=KernelModel(5), plays="mixture"),
    "backward": replace(LEARNER, schedule=Backward()),
    "early": replace(LEARNER, schedule=Iterations(5, settled=0.0, stop_loss=1e9)),
}


def assert_as_whole(run, whole):
    assert content(run / "policy") == content(whole / "policy")
    assert told(RunFolder(run).records()) == told(RunFolder(whole).records())
    assert not [path for path in run.rglob(".*")]


@pytest.mark.parametrize("name", LEARNERS)
def test_a_run_that_is_killed_at_any_record_ends_as_if_it_had_not_been(tmp_path, log, name):
    learner = LEARNERS[name]
    train_from_data(log, learner, tmp_path / "whole", seed=4)
    n_records = len(RunFolder(tmp_path / "whole").records())
    for number in range(1, n_records + 1):
        run = tmp_path / f"killed-{number}"
        with pytest.raises(Killed):  # noted, not kept
            train_from_data(log, learner, run, seed=4, on_record=kill_after(number))
        left = []
        resume(run, on_record=left.append)
        assert len(left) == n_records - number + 1  # so one iteration is done again
        assert_as_whole(run, tmp_path / "whole")


@pytest.mark.parametrize("name", ["tables", "backward"])
def test_a_run_that_is_killed_again_and_again_ends_as_if_it_had_not_been(tmp_path, log, name):
    train_from_data(log, LEARNERS[name], tmp_path / "whole", seed=4)
    with pytest.raises(Killed):
        train_from_data(log, LEARNERS[name], tmp_path / "run", seed=4, on_record=kill_after(1))
    n_records = len(RunFolder(tmp_path / "whole").records())
    for _ in range(n_records - 1):
        with pytest.raises(Killed):  # one iteration is kept each time
            resume(tmp_path / "run", on_record=kill_after(2))
    resume(tmp_path / "run")
    assert_as_whole(tmp_path / "run", tmp_path / "whole")


def test_a_run_that_is_killed_after_its_last_iteration_does_none_again(tmp_path, log, monkeypatch):
    train_from_data(log, LEARNER, tmp_path / "whole", seed=4)

    def killed(*arguments):
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(RunFolder, "keep_policy", killed)
        with pytest.raises(Killed):
            train_from_data(log, LEARNER, tmp_path / "run", seed=4)
    resume(tmp_path / "run", on_record=kill_after(1))
    assert_as_whole(tmp_path / "run", tmp_path / "whole")


# Settings that do not fit


def test_columns_that_prices_need_are_asked_for(tmp_path, log):
    wrong = {
        r"at least 3 episodes for learner\.ensemble": (
            log.take(log.episode < 2),
            replace(LEARNER, ensemble=3),
        ),
        r"step must be given for learner\.schedule": (
            without(log, "step"),
            replace(LEARNER, schedule=Backward()),
        ),
    }
    for message, (batch, learner) in wrong.items():
        with pytest.raises(DataError, match=message):
            train_from_data(batch, learner, tmp_path / "run", seed=0)
    assert not list(tmp_path.iterdir())
    assert data_notes(log, LEARNER) == ()
    (note,) = data_notes(log, replace(LEARNER, budget_range=(2.0, 3.0)))
    assert "is above what any episode cost" in note


BY_PRICES = TrainingSpec(
    EnvConfig("corridors", {"height": 3}),
    LagrangianConfig(gamma=1.0, model=KernelModel(5), prices=(1e6, 0.0), schedule=TWO, ensemble=1),
    Exploration(rounds=3, episodes=60, decay=1e3, floor=0.0),
)


@pytest.mark.parametrize("plays", ["carried", "mixture"])
def test_prices_explore_each_episode_by_one_of_them(plays):
    found = bmdp.explore(with_plays(plays), seed=0)
    assert len(found.batch.starts()) == 180
    assert found.batch.budget is None  # numbers of prices are no budgets
    assert isinstance(found.policy, MultiplierPolicy if plays == "carried" else Portfolio)
    late = found.batch.episode >= 120
    paid = np.bincount(found.batch.episode[late] - 120, found.batch.cost[late])
    dear, free = (paid > 0).mean(), (paid == 0).mean()
    assert dear > 0.2
    assert free > 0.2  # some go by the price at which nothing but cost matters


def with_plays(plays):
    return replace(BY_PRICES, learner=replace(BY_PRICES.learner, plays=plays))


def test_a_run_that_explores_by_prices_goes_on_after_a_kill(tmp_path):
    train(BY_PRICES, tmp_path / "whole", seed=0)
    with pytest.raises(Killed):
        train(BY_PRICES, tmp_path / "killed", seed=0, on_record=kill_after(4))
    resume(tmp_path / "killed")
    killed, whole = (content(tmp_path / name) for name in ("killed", "whole"))
    assert killed.keys() == whole.keys()
    differ = {name for name in whole if killed[name] != whole[name]}
    assert differ <= {"spec.json", "records.jsonl"}  # which tell of the time


def test_prices_are_learned_from_the_episodes_of_a_run(tmp_path):
    train(SPEC, tmp_path / "run", seed=0)
    files = sorted((tmp_path / "run").glob("round-*/batch.npz"))
    batch = bmdp.data.load_batches(files)
    learner = LagrangianConfig(gamma=1.0, model=KernelModel(5), prices=PRICES, schedule=TWO)
    policy = train_from_data(batch, learner, tmp_path / "other", seed=0)
    assert isinstance(policy, MultiplierPolicy)


# What held-out episodes say


def dial_that_believes(costs):
    """At states 0 and 1: 0 costs and earns nothing, 1 earns 1 and is believed to cost so much."""
    believed = np.stack([np.zeros_like(costs), costs], axis=1)[..., None].repeat(2, axis=2)
    earned = np.broadcast_to([[0.0], [1.0]], believed.shape)
    table = TabularQ(q_r=earned, q_c=believed)
    return PriceDial(lambda states: table(states[:, 0].astype(int)), prices=[np.inf, 0.0])


def one_step_log():
    """The risk earns 1 and costs 0.8 at either state, each of which is first half the time."""
    state, action = (column.ravel() for column in np.indices((2, 2)))
    return TransitionBatch(
        state=state,
        action=action,
        reward=1.0 * action,
        cost=0.8 * action,
        next_state=state,
        terminal=np.ones(4, bool),
        episode=np.arange(4),
        step=np.zeros(4, int),
    )


@pytest.mark.parametrize("plays", ["carried", "mixture"])
def test_a_policy_that_believes_too_much_is_told_what_it_costs(plays):
    """It believes 0.5 and 0.25, so at budget 0.1 it takes a fifth and two fifths of the risks."""
    dial, learner = dial_that_believes(np.array([0.5, 0.25])), replace(LEARNER, plays=plays)
    coin = Portfolio((dial,), np.zeros(2, int), np.arange(2.0), np.array([0, 0.375]), np.arange(2))
    policy = MultiplierPolicy(dial) if plays == "carried" else coin
    found = HeldOut(one_step_log(), learner, 0, "cpu").prediction(policy, 0)
    shares = {
        "carried": np.mean([np.minimum(1, np.linspace(0, 1, 11) / c) for c in (0.5, 0.25)], axis=0),
        "mixture": np.minimum(1, np.linspace(0, 1, 11) / 0.375),
    }
    assert found.reward == pytest.approx(shares[plays], abs=1e-6)
    assert found.cost == pytest.approx(0.8 * shares[plays], abs=1e-6)


@pytest.mark.parametrize("plays", ["carried", "mixture"])
@pytest.mark.parametrize("schedule", [TWO, Backward()], ids=["iterations", "backward"])
def test_what_held_out_episodes_say_is_what_playing_gives(tmp_path, plays, schedule):
    log, learner = branches_log(4000), replace(LEARNER, plays=plays, schedule=schedule)
    policy = train_from_data(log, learner, tmp_path / "run", seed=0, held_out=0.5)
    said = RunFolder(tmp_path / "run").prediction()
    learned = split_episodes(log, 0.5, seed=0, number=0).learned
    LagrangianFTQ(learner).fit(learned, seed=0).save(tmp_path / "same")
    assert content(tmp_path / "run" / "policy") == content(tmp_path / "same")
    assert (said["n_episodes"], said["n_transitions"]) == (2000, 4000)
    found = bmdp.evaluate(
        policy, finite_spec(PROBLEM), budgets=said["budgets"], n_episodes=4000, seed=1
    )
    for name in ("reward", "cost"):
        mean = getattr(found, f"discounted_{name}_mean")
        error = (getattr(found, f"discounted_{name}_high") - mean) / 1.96
        # Four standard errors of playing, and of how often 2,000 held-out episodes took a branch.
        allowed = 4 * error + mean * 4 / np.sqrt(2000)
        assert (np.abs(said[name] - mean) <= allowed + 1e-9).all()


def test_a_single_price_is_predicted_too(tmp_path, log):
    learner = replace(LEARNER, prices=(5.0,))
    train_from_data(log, learner, tmp_path / "run", seed=0, held_out=0.5)
    said = RunFolder(tmp_path / "run").prediction()
    assert said["cost"] == pytest.approx([0.5] * 11, abs=0.15)
    assert said["reward"] == pytest.approx([5.0] * 11, abs=1.5)


@pytest.mark.parametrize("n_records", [1, 2, 3])
def test_a_run_that_is_killed_predicts_the_same_once(tmp_path, n_records):
    learner = replace(LEARNER, model=KernelModel(10), cost_gamma=0.5)
    asked = {"seed": 2, "held_out": 0.4}
    train_from_data(chain(60), learner, tmp_path / "whole", **asked)
    with pytest.raises(Killed):
        train_from_data(
            chain(60), learner, tmp_path / "run", **asked, on_record=kill_after(n_records)
        )
    resume(tmp_path / "run")
    assert_as_whole(tmp_path / "run", tmp_path / "whole")
    kinds = [record["kind"] for record in RunFolder(tmp_path / "run").records()]
    assert kinds == ["iteration", "iteration", "prediction"]
