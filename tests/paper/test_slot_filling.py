from dataclasses import replace

import gymnasium
import numpy as np
import pytest

import bmdp
from bmdp import TransitionBatch
from bmdp.envs import slot_filling
from bmdp.envs.episodes import environment_seeds
from bmdp.evaluation import measure_portfolio
from bmdp.evaluation.rollouts import Plan, play_plans
from bmdp.learn import FTQConfig, Iterations
from bmdp.learn.runs import RunFolder
from bmdp.paper import slot_filling as experiment
from bmdp.paper.measuring import other_seed
from bmdp.paper.pricing import PriceLearning, found_prices
from bmdp.paper.runner import Work
from pieces import (
    check_evaluation,
    piece,
    place,
)

SMOKE = experiment.SETTINGS["smoke"]
TESTING, ENV = SMOKE.testing, SMOKE.budgeted.env
LAMBDAS = [0, 15, 20, 25, 30, 35, 40, 60]  # of the paper


@pytest.fixture(scope="session")
def folder(smoke):
    return smoke("slot-filling")


@pytest.fixture(scope="session")
def prices(folder):
    """Those that were found, rising."""
    return piece(place(folder, "ftq"), "found")["prices"][::-1]


@pytest.fixture(scope="session")
def explored(folder):
    """The episodes that prices are learned from."""
    return rounds(place(folder, "ftq") / "exploring")


def rounds(folder):
    run = RunFolder(folder)
    return TransitionBatch.concatenate([run.batch(0), run.batch(1)])


def dialogues(folder):
    found = piece(place(folder, ""), "executions")
    pairs = zip(found["budgets"], found["episodes"], strict=True)
    return [(budget, k, one) for budget, several in pairs for k, one in enumerate(several)]


def test_a_dialogue_is_said_by_turns_and_adds_up(folder):
    for budget, _, found in dialogues(folder):
        *turns, end = found["lines"]
        assert [line["who"] for line in turns] == ["system", "user"] * (len(turns) // 2)
        assert end["who"] == "end"
        assert turns[0]["budget"] == budget
        for name in ("reward", "cost"):
            assert found[name] == sum(line[name] for line in found["lines"])
        ends = {"success": (100.0, 0.0), "out_of_turns": (0.0, 0.0), "hang_up": (0.0, 1.0)}
        late = end["act"] == "hang_up" and len(turns) == 20
        assert (found["reward"], found["cost"]) == ((0, 0) if late else ends[end["act"]])
        assert all(line["text"] for line in found["lines"])


def acts(lines):
    """What the system did, as the environment names it, from what is written."""
    names = {"summarise": "summarise", "ask_oral": "voice", "ask_num_pad": "key pad"}
    for line in lines:
        if line["who"] == "system":
            slot = [word.strip(".") for word in line["text"].split() if word.strip(".").isdigit()]
            yield " ".join([names[line["act"]], *slot])


def test_a_dialogue_is_what_the_environment_has_for_the_same_acts(folder):
    seeds = environment_seeds(3, range(TESTING.n_shown))
    env = gymnasium.make(ENV.spec(), render_mode="ansi", disable_env_checker=True)
    names = env.unwrapped.metadata["action_names"]
    for _, k, found in dialogues(folder):
        env.reset(seed=seeds[k])
        paid = [env.step(names.index(act)) for act in acts(found["lines"])]
        assert [step[2] for step in paid] == [False] * (len(paid) - 1) + [True]
        said = [line for line in found["lines"] if line["who"] == "user"]
        assert [step[1] for step in paid] == [line["reward"] for line in said]
        assert [step[4]["cost"] for step in paid] == [line["cost"] for line in said]
        for line, turn in zip(said, env.render().splitlines(), strict=True):
            word = {"inform": "informs", "deny": "denies", "hang_up": "hangs up"}
            assert f"user: {word.get(line['act'], 'confirms')}" in turn
            if "score" in line["text"]:
                assert line["text"].split("score ")[1].strip(".") in turn
    env.close()


def test_prices_are_found_from_the_episodes(folder, prices, explored):
    assert SMOKE.priced.prices == "found"
    assert prices[::-1] == list(found_prices(explored, 1.0, seed=3, device="cpu"))
    assert prices[0] == 0
    assert 5 <= len(prices) <= 23
    assert np.diff(prices).min() > 0


def test_found_prices_are_where_they_make_a_difference():
    """One decision: 10 for a cost of 1 at a slope of 10, and 12 for 2, at a slope of 2."""
    n = 300
    action = np.arange(n) % 3
    columns = {"reward": np.array([0.0, 10.0, 12.0])[action], "cost": 1.0 * action}
    zeros, episode = np.zeros((n, 1)), np.arange(n)
    rest = {"next_state": zeros, "terminal": np.ones(n, bool), "step": np.zeros(n, int)}
    batch = TransitionBatch(zeros, action, **columns, **rest, episode=episode)
    found = np.array(found_prices(batch, 1.0, seed=0, device="cpu"))
    for low, high in ((0, 2), (2, 10), (10, np.inf)):
        assert ((low <= found) & (found < high)).any()
    assert found[-1] == 0


def test_each_price_is_measured_by_itself(folder, prices):
    found = piece(place(folder, "ftq"), "prices")
    assert set(found) == {
        *(f"{what}_{end}" for what in ("reward", "cost") for end in ("mean", "low", "high")),
        *("prices", "cost_deviation", "n_episodes", "n_more", "gamma"),
    }
    assert found["prices"] == prices
    assert (found["n_episodes"], found["gamma"]) == (TESTING.n_episodes, 1.0)
    assert found["n_more"] == len(prices) * TESTING.n_episodes
    portfolio = bmdp.load_policy(place(folder, "ftq") / "learning" / "policy")
    seed = other_seed(3, "prices")
    measured = measure_portfolio(portfolio, ENV.spec(), n_episodes=TESTING.n_episodes, seed=seed)
    assert portfolio.policies[0].at_step(0).prices.tolist() == prices[::-1]
    assert found["cost_mean"] == measured.costs[::-1].tolist()
    assert found["reward_mean"] == measured.rewards[::-1].tolist()
    shares = np.array(found["cost_mean"])  # of hang-ups: costs are 0 or 1
    deviations = np.sqrt(shares * (1 - shares) * found["n_episodes"] / (found["n_episodes"] - 1))
    assert found["cost_deviation"] == pytest.approx(deviations)


def test_prices_are_learned_from_the_episodes_of_budgets(folder, prices, explored):
    assert np.array_equal(explored.state, rounds(place(folder, "")).state)
    learner = replace(SMOKE.priced.learner, prices=tuple(prices))
    learned = bmdp.LagrangianFTQ(learner).fit(explored, seed=3, device="cpu").dial
    kept = bmdp.load_policy(place(folder, "ftq") / "learning" / "policy").policies[0]
    ours, theirs = (dial.at_step(2).points(explored.state[:99]) for dial in (kept, learned))
    assert all(np.array_equal(*pair) for pair in zip(ours, theirs, strict=True))


def test_the_mixture_goes_by_what_was_measured(folder):
    mixture, found = (
        bmdp.load_policy(place(folder, "ftq") / "policy"),
        piece(place(folder, "ftq"), "prices"),
    )
    assert mixture.costs.tolist() == found["cost_mean"][::-1]
    assert mixture.rewards.tolist() == found["reward_mean"][::-1]
    evaluated = piece(place(folder, "ftq"), "evaluation")
    check_evaluation(evaluated, mixture, ENV, TESTING.budgets, TESTING.n_episodes, 3)


def test_the_truth_is_the_true_frontier(folder):
    found = piece(folder / "truth", "truth")
    expected = slot_filling.true_frontier()
    assert found["costs"] == expected.frontier.costs.tolist()
    assert found["rewards"] == expected.frontier.rewards.tolist()
    assert found["reward_error"] == expected.reward_error
    assert found["settings"] == {"n_bins": 16}


# Presets


def test_the_papers_preset_is_its_tables():
    paper = experiment.SETTINGS["paper"]
    assert paper.n_seeds == 6
    assert paper.budgeted == bmdp.preset("paper-slot-filling")
    assert paper.priced.exploring == bmdp.preset("paper-slot-filling-ftq")
    assert paper.priced.learner == paper.priced.exploring.learner
    assert paper.priced.prices == tuple(LAMBDAS)
    assert paper.testing.n_episodes == 1000
    printed = [*np.linspace(0, 0.5, 11), 0.6, 0.7, 0.8, 0.9, 1]
    assert paper.testing.budgets == pytest.approx(printed)


def test_our_best_preset_has_as_many_episodes_as_the_papers():
    best = experiment.SETTINGS["best"]
    assert best.budgeted == bmdp.preset("slot-filling")
    assert (best.n_seeds, best.testing.n_episodes) == (10, 10_000)
    explored = best.budgeted.exploration, best.priced.exploring.exploration
    assert [how.rounds * how.episodes for how in explored] == [5000, 5000]


def test_in_the_papers_way_each_price_is_ftq_on_what_ftq_without_price_explored(tmp_path):
    model = SMOKE.budgeted.learner.model
    learner = FTQConfig(gamma=1.0, model=model, schedule=Iterations(3, settled=0.0), ensemble=1)
    exploring = replace(SMOKE.budgeted, learner=learner)
    settings = replace(SMOKE, priced=PriceLearning(exploring, learner, (0.0, 40.0)))
    experiment.run(settings, Work(tmp_path / "seed-3", 3, "cpu", "ftq"))
    assert RunFolder(tmp_path / "seed-3" / "exploring").final_policy().price == 0
    found, batch = piece(tmp_path / "seed-3", "prices"), rounds(tmp_path / "seed-3" / "exploring")
    for k, price in enumerate((0.0, 40.0)):
        alone = bmdp.FTQ(replace(learner, price=price)).fit(batch, seed=3, device="cpu")
        costs = played_alone(alone, f"portfolio/{1 - k}")
        assert found["cost_mean"][k] == pytest.approx(costs.mean(), abs=1e-12)
        assert found["cost_deviation"][k] == pytest.approx(costs.std(ddof=1), abs=1e-12)


def played_alone(policy, stream):
    """What dialogues with a policy cost."""
    plans = [Plan(0, TESTING.n_episodes, 0.0, stream)]
    played, _ = play_plans(policy, ENV.spec(), plans, seed=other_seed(3, "prices"))
    return played[0].discounted_cost
