"""A fit from a log as people have it: the same as from numbers, and the policy takes raw rows."""

import json

import numpy as np
import pandas as pd
import pytest

import bmdp
from bmdp import Columns, ConfigError, TransitionBatch
from bmdp.data import EncodedPolicy, load_log
from bmdp.learn.auto import resume
from logs import assert_same

NAMES = Columns(
    state=("weather", "crossing"), action="hurry", reward="fare", cost="damage", episode="day"
)


@pytest.fixture(scope="module")
def frame():
    """Crossings of a ferry: hurry pays, and does more damage in a storm."""
    rng, n = np.random.default_rng(0), 900
    crossing, hurry = np.arange(n) % 3, rng.integers(2, size=n)
    weather = rng.choice(["calm", "storm"], n)
    risk = np.where(weather == "storm", 0.4, 0.1)
    return pd.DataFrame(
        {
            "weather": weather,
            "crossing": crossing,
            "hurry": np.array(["no", "yes"])[hurry],
            "fare": 1.0 + 2 * hurry,
            "damage": 1.0 * hurry * (rng.random(n) < risk),
            "done": crossing == 2,
            "day": np.arange(n) // 3,
        }
    )


@pytest.fixture(scope="module")
def fitted(frame, tmp_path_factory):
    """A fit of the log as a CSV file, and the folder of its run."""
    place = tmp_path_factory.mktemp("ferry")
    frame.to_csv(place / "ferry.csv", index=False)
    run = place / "run"
    return bmdp.fit(place / "ferry.csv", gamma=1.0, columns=NAMES, out=run, minutes=30), run


def by_hand(frame):
    """The same log, encoded by hand."""
    state = np.column_stack(
        [frame["weather"] == "calm", frame["weather"] == "storm", frame["crossing"]]
    ).astype(float)
    following = np.where(frame["done"].to_numpy()[:, None], state, np.roll(state, -1, axis=0))
    return TransitionBatch(
        state,
        frame["hurry"] == "yes",
        frame["fare"],
        frame["damage"],
        following,
        frame["done"],
        episode=frame["day"],
        step=frame["crossing"],
        state_names=("weather=calm", "weather=storm", "crossing"),
    )


def test_a_log_of_text_is_fitted_as_one_of_numbers(frame, fitted, tmp_path):
    assert_same(load_log(frame, NAMES).batch, by_hand(frame))
    wanted = bmdp.fit(by_hand(frame), gamma=1.0, minutes=30, out=tmp_path / "run")
    found, _ = fitted
    for name in ("budgets", "cost", "reward", "cost_high"):
        np.testing.assert_array_equal(
            getattr(found.forecast, name), getattr(wanted.forecast, name), err_msg=name
        )
    assert isinstance(found.policy, EncodedPolicy)
    assert not isinstance(wanted.policy, EncodedPolicy)


def decided(policy, states):
    low, high = policy.budget_range
    tracker = policy.start(states, (low + high) / 2, np.random.default_rng(1))
    return tracker.decide(states).action.tolist()


def test_the_policy_of_a_run_takes_rows_as_they_are_in_the_log(frame, fitted):
    found, run = fitted
    loaded, rows = bmdp.load_policy(run), frame.head(20)
    wanted = decided(found.policy, rows)
    assert decided(loaded, rows) == decided(loaded, rows.to_dict("records")) == wanted
    numbers = by_hand(frame).state[:20]
    assert decided(loaded, numbers) == decided(loaded.policy, numbers) == wanted
    assert loaded.action_names == ("no", "yes")


def test_text_that_was_never_seen_is_an_error_when_a_decision_is_due(fitted):
    with pytest.raises(bmdp.DataError, match="weather must be one of calm, storm; got 'fog'"):
        decided(fitted[0].policy, [{"weather": "fog", "crossing": 0}])


def test_a_run_remembers_columns_and_encoder(fitted):
    found, run = fitted
    asked = json.loads((run / "spec.json").read_text())["asked"]
    assert Columns.from_dict(asked["columns"]) == NAMES
    assert (asked["missing"], asked["unseen"]) == ("error", "error")
    (run / "done").unlink()  # as if it had been killed at the end
    (run / "fitted.json").unlink()
    policy = resume(run)
    assert policy.encoder == found.policy.encoder


def test_numbers_of_actions_are_binned_aloud():
    rng, n = np.random.default_rng(0), 400
    dose = rng.permutation((np.arange(n) + 0.5) / n)
    frame = pd.DataFrame(
        {"state": rng.integers(2, size=n), "dose": dose, "reward": 1.0 * (dose > 0.5)}
    )
    frame = frame.assign(cost=dose > 0.5, done=True)
    found = bmdp.fit(frame, gamma=1.0, columns=Columns(action="dose"), minutes=30)
    (note,) = [note for note in found.notes if "dose" in note]
    assert note.startswith("action dose was a number: binned into 2 by quantiles, at 0.2")
    assert found.policy.action_name(1) == note.split(", ")[-1]


def test_columns_are_for_logs():
    with pytest.raises(ConfigError, match="columns are for a log"):
        bmdp.fit("corridors", columns=Columns(cost="damage"))
    log = TransitionBatch([0], [0], [0], [0], [0], [True])
    with pytest.raises(ConfigError, match="columns are for files and data frames"):
        bmdp.fit(log, gamma=1.0, columns=Columns(cost="damage"))
    with pytest.raises(ConfigError, match="columns must be a Columns or None; got"):
        bmdp.fit(log, gamma=1.0, columns={"cost": "damage"})
    with pytest.raises(ConfigError, match="missing must be one of error, impute; got 'drop'"):
        bmdp.fit(log, gamma=1.0, missing="drop")


def test_a_log_of_text_may_say_which_actions_were_available():
    """Where it rains there is no swimming, which pays most."""
    rng = np.random.default_rng(0)
    n = 400
    rains = rng.random(n) < 0.5
    swims = ~rains & (rng.random(n) < 0.5)
    frame = pd.DataFrame(
        {
            "weather": np.where(rains, "rain", "sun"),
            "action": np.where(swims, "swim", "rest"),
            "reward": 1.0 * swims,
            "cost": 0.5 * swims,
            "done": 1,
            "available_0": 1,
            "available_1": 1 * ~rains,
        }
    )
    fitted = bmdp.fit(frame, gamma=1.0, columns=bmdp.Columns(state="weather"), minutes=0.2)
    now = [{"weather": "sun"}, {"weather": "sun"}]
    tracker = fitted.policy.start(now, 1.0, np.random.default_rng(0))
    found = tracker.decide(now, available=[[1, 0], [1, 1]]).action
    assert [fitted.policy.action_name(action) for action in found] == ["rest", "swim"]
