import gymnasium
import numpy as np
import pytest

from bmdp import ConfigError, DataError
from bmdp.envs.scripted import RULES
from bmdp.envs.slot_filling import SUMMARISE, SlotFilling, SlotFillingVectorEnv
from playing import agrees, returns

SURE, NEVER = 0.0, 0.999  # uniform numbers: below any probability, above any


def played(task, *turns):
    """One dialogue: each turn is an action and two uniform numbers. Returns the last outcome."""
    state, outcome = task.start(np.zeros((1, 2))), None
    for action, *uniforms in turns:
        outcome = task.step(state, np.array([action]), np.array([uniforms]))
        state = outcome.state
    return outcome


def test_the_key_pad_makes_a_slot_right_unless_the_user_hangs_up():
    task = SlotFilling()
    fine = played(task, (4, NEVER, 0.5))
    assert fine.state.right.tolist() == [[True, False, False]]
    assert (fine.state.score[0, 0], fine.costs[0], fine.ended[0]) == (1.0, 0.0, False)
    hung_up = played(task, (4, SURE, 0.5))
    assert (hung_up.rewards[0], hung_up.costs[0], hung_up.ended[0]) == (0.0, 1.0, True)


def test_a_voice_answer_overwrites_even_a_right_value():
    outcome = played(SlotFilling(), (4, NEVER, 0.5), (1, SURE, 0.5))
    assert outcome.state.right.tolist() == [[False, False, False]]
    assert outcome.state.score[0, 0] == pytest.approx(1 / (1 + np.exp(0.25)))


def test_success_pays_once_all_slots_are_right():
    pads = [(4, NEVER, 0.5), (5, NEVER, 0.5), (6, NEVER, 0.5)]
    outcome = played(SlotFilling(), *pads, (SUMMARISE, 0.5, 0.5))
    assert (outcome.rewards[0], outcome.costs[0], outcome.ended[0]) == (100.0, 0.0, True)
    early = played(SlotFilling(), *pads[:2], (SUMMARISE, 0.5, 0.5))
    assert (early.rewards[0], early.costs[0], early.ended[0]) == (0.0, 0.0, False)


def test_on_the_last_turn_a_hang_up_is_free_and_a_success_counts():
    task = SlotFilling(horizon=4)
    pads = [(4, NEVER, 0.5), (5, NEVER, 0.5), (6, NEVER, 0.5)]
    assert played(task, *pads, (SUMMARISE, 0.5, 0.5)).rewards[0] == 100
    hung_up = played(task, *pads, (4, SURE, 0.5))
    assert (hung_up.costs[0], hung_up.ended[0]) == (0.0, True)
    assert played(task, *pads, (1, 0.5, 0.5)).ended[0]


def test_the_features_are_the_26_of_the_paper():
    task = SlotFilling()
    assert task.observation_space.shape == (26,)
    first = task.observe(task.start(np.zeros((1, 2))))[0]
    assert np.flatnonzero(first).tolist() == [0, 6]  # slot 0 is lowest, turn 0
    outcome = played(task, (1, NEVER, 0.5), (SUMMARISE, 0.5, 0.5))
    seen = task.observe(outcome.state)[0]
    assert seen[:3].tolist() == [0, 1, 0]  # slot 1 was never asked: score 0
    assert seen[3] == pytest.approx(1 / (1 + np.exp(-0.25)))
    assert np.flatnonzero(seen[6:16]).tolist() == [2]
    assert np.flatnonzero(seen[16:19]).tolist() == [2]  # denied
    assert np.flatnonzero(seen[19:]).tolist() == [SUMMARISE]


def test_the_turn_may_be_a_fraction():
    task = SlotFilling(features="fraction")
    assert task.observation_space.shape == (17,)
    assert task.observe(played(task, (1, NEVER, 0.5)).state)[0, 6] == pytest.approx(0.1)


@pytest.mark.parametrize("slots", [1, 2, 3])
def test_the_belief_is_the_frequency_of_what_it_predicts(slots):
    """Among dialogues with about the same belief that a combination is right, so many are."""
    task = SlotFilling(slots=slots, features="belief")
    rng = np.random.default_rng(slots)
    n = 60_000
    state, going = task.start(np.zeros((n, 2))), np.ones(n, bool)
    for _ in range(6):
        outcome = task.step(state, rng.integers(0, 1 + 2 * slots, n), rng.random((n, 2)))
        state, going = outcome.state, going & ~outcome.ended
    assert state.belief.sum(axis=1) == pytest.approx(np.ones(n))
    actual = (state.right * 2 ** np.arange(slots)).sum(axis=1)
    for combination in range(2**slots):
        believed, happened = state.belief[going, combination], actual[going] == combination
        for low in np.arange(0, 1, 0.1):
            group = (believed > low) & (believed <= low + 0.1)
            if group.sum() > 200:
                error = 4 * np.sqrt(0.25 / group.sum())
                assert happened[group].mean() == pytest.approx(believed[group].mean(), abs=error)


def test_a_denial_rules_out_that_all_are_right():
    task = SlotFilling(features="belief")
    outcome = played(task, (4, NEVER, 0.5), (5, NEVER, 0.5), (3, SURE, 0.5), (0, 0.5, 0.5))
    belief = task.observe(outcome.state)[0, :8]
    assert belief.tolist() == [0, 0, 0, 1, 0, 0, 0, 0]  # slots 0 and 1 are right, 2 is not


def test_the_key_pad_script_earns_its_exact_value():
    rewards, costs, _ = returns(SlotFillingVectorEnv(40_000), RULES["slot-filling/key-pad"], seed=1)
    assert agrees(rewards, 100 * 0.75**3, 0.0, 1)
    assert agrees(costs, 1 - 0.75**3, 0.0, 1)


@pytest.mark.parametrize(
    ("rule", "reward", "cost", "n"),
    [
        ("voice-again", 25.4, 0.0, 20_000),
        ("voice-until-sure", 26.1, 0.0, 6_000),
        ("key-pad-again", 56.0, 0.4405, 6_000),
    ],
)
def test_the_scripts_earn_their_reference_values(rule, reward, cost, n):
    rewards, costs, _ = returns(SlotFillingVectorEnv(40_000), RULES[f"slot-filling/{rule}"], seed=2)
    assert agrees(rewards, reward, rewards.std(), n)
    assert agrees(costs, cost, costs.std(), n) or cost == costs.mean() == 0


def test_a_rule_for_26_features_refuses_others():
    task = SlotFilling(features="belief")
    with pytest.raises(DataError, match="26 features"):
        RULES["slot-filling/key-pad"](task.observe(task.start(np.zeros((1, 2)))))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"slots": 0}, "slots must be a whole number from 1 to 8; got 0"),
        ({"slots": 2.0}, "slots must be a whole number"),
        ({"horizon": 0}, "horizon must be a whole number from 1"),
        ({"error_rate": 1.1}, "error_rate must be from 0 to 1; got 1.1"),
        ({"hang_up": -0.1}, "hang_up must be from 0 to 1; got -0.1"),
        ({"hang_up": np.nan}, "hang_up must be from 0 to 1"),
        ({"std": 0.0}, "std must be above 0; got 0.0"),
        ({"mean_right": np.inf}, "mean_wrong and mean_right must be finite"),
        ({"features": "all"}, "features must be one of"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        SlotFilling(**settings)


@pytest.mark.parametrize("error_rate", [0.0, 1.0])
def test_a_recogniser_that_is_always_right_or_wrong_is_believed(error_rate):
    task = SlotFilling(slots=1, error_rate=error_rate, features="belief")
    outcome = played(task, (1, 0.5, 0.3))
    assert outcome.state.belief[0].tolist() == [error_rate, 1 - error_rate]


def test_the_transcript_tells_the_dialogue():
    env = gymnasium.make("bmdp/SlotFilling-v0", render_mode="ansi", hang_up=0.0)
    env.reset(seed=0)
    for action in (4, SUMMARISE, 5, 6, SUMMARISE):
        env.step(action)
    lines = env.render().splitlines()
    assert "system: key pad 0  user: informs" in lines[0]
    assert "system: summarise  user: denies" in lines[1]
    assert lines[4].endswith("user: confirms  scores: 1.00 1.00 1.00  reward 100  cost 0")
    env.reset()
    assert env.render() == ""
