"""Text, dates, gaps and numbers of actions: what stands for them, and that it is remembered."""

import datetime

import numpy as np
import pandas as pd
import pytest

import bmdp
from bmdp import ConfigError, DataError, PolicyError
from bmdp.data import (
    ActionBins,
    Columns,
    EncodedPolicy,
    Encoder,
    StateColumn,
    TransitionBatch,
    load_log,
)
from bmdp.data.bins import learned_bins
from bmdp.data.encoder import raw_column, without_encoder
from bmdp.models import TableModel
from bmdp.policies import HullPolicy, Portfolio, RandomBudgetedPolicy
from bmdp.storage import load_value, save_value
from contracts.policy import Case, contract_tests
from logs import assert_same

NAMES = Columns(state=("weather", "crossing"), action="hurry", reward="fare", cost="damage")


def ferry(n_days=40, **changes):
    """Crossings of a ferry, three a day: text, numbers, truth values and dates."""
    rng, n = np.random.default_rng(0), 3 * n_days
    crossing, hurry = np.arange(n) % 3, rng.choice(["no", "yes"], n)
    return pd.DataFrame(
        {
            "weather": rng.choice(["calm", "storm", "wind"], n),
            "crossing": crossing,
            "full": rng.random(n) < 0.5,
            "when": pd.Timestamp("1969-12-31 12:00") + pd.to_timedelta(np.arange(n), unit="h"),
            "hurry": hurry,
            "fare": 1.0 + 2 * (hurry == "yes"),
            "damage": (hurry == "yes") * (rng.random(n) < 0.2) * 1.0,
            "done": crossing == 2,
            "episode": np.arange(n) // 3,
        }
        | changes
    )


def named(*state, **others):
    return Columns(
        **{"state": state, "action": "hurry", "reward": "fare", "cost": "damage"} | others
    )


def encoder(**settings):
    columns = StateColumn("weather", "text", ("calm", "storm")), StateColumn("crossing", "numbers")
    return Encoder(columns, **settings)


# States


def test_text_is_one_hot_as_pandas_has_it():
    frame = ferry()
    log = load_log(frame, NAMES)
    wanted = pd.get_dummies(frame[["weather", "crossing"]], columns=["weather"], prefix_sep="=")
    assert sorted(log.batch.state_names) == sorted(wanted.columns)
    np.testing.assert_array_equal(
        log.batch.state, wanted[list(log.batch.state_names)].astype(float)
    )


@pytest.mark.parametrize(
    "values", [["b", "a", "b"], pd.Categorical(["b", "a", "b"], ["b", "c", "a"])]
)
def test_values_of_text_are_sorted_and_those_that_never_occur_left_out(values):
    frame = ferry(1, weather=values)
    assert load_log(frame, NAMES).batch.state_names[:2] == ("weather=a", "weather=b")


def test_numbers_that_are_said_to_be_categories_are_text():
    frame = ferry(1, weather=pd.Categorical([10, 2, 10]))
    log = load_log(frame, NAMES)
    assert log.encoder.columns[0].values == ("10", "2")
    assert log.encoder.encode([{"weather": 2, "crossing": 0}]).tolist() == [[0, 1, 0]]


def test_truth_values_are_0_and_1():
    frame = ferry()
    state = load_log(frame, named("full", "crossing")).batch.state
    np.testing.assert_array_equal(state[:, 0], frame["full"].astype(float))


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
def test_dates_are_seconds_since_1970_before_it_too(zone):
    when = ferry()["when"].dt.tz_localize("UTC")
    frame = ferry(when=when.dt.tz_localize(None) if zone is None else when.dt.tz_convert(zone))
    log = load_log(frame, named("when", "crossing"))
    seconds = [moment.timestamp() for moment in when]
    assert seconds[0] == -43_200
    np.testing.assert_allclose(log.batch.state[:, 0], seconds)
    assert log.notes == ("when is a date: it became seconds since 1970-01-01 (UTC)",)


@pytest.mark.parametrize(
    ("values", "kind", "wanted"),
    [
        ([datetime.date(1970, 1, 2)], "dates", 86_400),
        ([datetime.datetime(1969, 12, 31, 23, 59)], "dates", -60),
        ([datetime.datetime(1970, 1, 1, 1, tzinfo=datetime.UTC)], "dates", 3_600),
        ([datetime.time(1, 0, 2, 500_000)], "times of a day", 3_602.5),
        ([datetime.timedelta(minutes=2)], "durations", 120),
        (np.array([90], "m8[s]"), "durations", 90),
        (np.array(["1960-01-01"], "M8[D]"), "dates", -315_619_200),
        ([True], "truth values", 1),
        ([np.float32(0.5)], "numbers", 0.5),
    ],
)
def test_a_value_becomes_the_number_that_it_says(values, kind, wanted):
    column = raw_column("x", values)
    assert (column.kind, column.values.tolist()) == (kind, [wanted])


def test_a_column_of_all_gaps_has_no_kind():
    assert raw_column("x", [None, float("nan")]).kind is None


@pytest.mark.parametrize("values", [["a", 1.0], [True, "a"], [1, None, "a"]])
def test_values_of_different_kinds_are_refused(values):
    with pytest.raises(
        DataError, match=r"x must be .* in all rows, as \[0\] is; 1 of . rows is no"
    ):
        raw_column("x", values)


def test_values_of_no_known_kind_are_refused():
    with pytest.raises(DataError, match=r"x must be numbers, text, .*; got dict at \[0\]"):
        raw_column("x", [{}, {}])


def test_too_many_texts_are_refused():
    frame = ferry(weather=[f"w{i}" for i in range(120)])
    message = r"weather must have at most 50 different texts; got 120, .* or group its values"
    with pytest.raises(DataError, match=message):
        load_log(frame, NAMES)


def test_text_that_is_mostly_numbers_is_told():
    frame = ferry(1, weather=["1", "2", "unknown"])
    assert "weather is text, since 'unknown' is no number" in load_log(frame, NAMES).notes[0]


def test_a_log_of_numbers_has_no_encoder():
    frame = ferry(hurry=np.arange(120) % 2)
    log = load_log(frame, named("crossing"))
    assert log.encoder is None
    assert_same(log.batch, TransitionBatch.from_pandas(frame, columns=named("crossing")))


def test_next_states_are_encoded_as_states_are():
    frame = ferry()
    after = frame[["weather", "crossing"]].shift(-1)
    after[frame["done"]] = None  # nothing follows
    frame = frame.assign(next_weather=after["weather"], next_crossing=after["crossing"])
    given = load_log(
        frame, named("weather", "crossing", next_state=("next_weather", "next_crossing"))
    )
    assert_same(given.batch, load_log(frame.drop(columns=["next_weather"]), NAMES).batch)


@pytest.mark.parametrize(
    ("after", "message"),
    [
        (("crossing", "weather"), "crossing must be text, as weather is; got numbers"),
        (("weather",), "next_state must have as many columns as state, 2; got 1"),
    ],
)
def test_next_states_of_another_kind_are_refused(after, message):
    with pytest.raises(DataError, match=message):
        load_log(ferry(), named("weather", "crossing", next_state=after))


def test_episodes_may_be_dates():
    days = pd.to_datetime("2024-01-01") + pd.to_timedelta(np.arange(120) // 3, unit="D")
    assert_same(load_log(ferry(episode=days), NAMES).batch, load_log(ferry(), NAMES).batch)


def test_values_of_all_files_are_known(tmp_path):
    ferry(1, weather=["a"] * 3).to_csv(tmp_path / "1.csv")
    ferry(1, weather=["b"] * 3).to_csv(tmp_path / "2.csv")
    log = load_log([tmp_path / "1.csv", tmp_path / "2.csv"], NAMES)
    assert log.encoder.columns[0].values == ("a", "b")
    assert log.batch.episode.tolist() == [0, 0, 0, 1, 1, 1]


def test_another_log_is_read_with_the_same_numbers():
    first = load_log(ferry(), NAMES)
    again = load_log(ferry(1, weather=["wind"] * 3), NAMES, encoder=first.encoder)
    assert again.batch.state_names == first.batch.state_names
    assert again.batch.state[0].tolist() == [0, 0, 1, 0]
    with pytest.raises(DataError, match="states of frame must be in columns weather, crossing"):
        load_log(ferry(), named("crossing", "weather"), encoder=first.encoder)


# Gaps


def with_gaps(name, rows=(4, 7)):
    frame = ferry().astype({name: object})
    frame.loc[list(rows), name] = None
    return frame


@pytest.mark.parametrize("name", ["weather", "crossing", "full", "when"])
def test_a_missing_value_is_an_error_that_names_it(name):
    message = rf"{name} must be there; 2 of 120 rows are missing, the first is \[4\].*impute"
    with pytest.raises(DataError, match=message):
        load_log(with_gaps(name), named("weather", "crossing", "full", "when"))


def test_missing_numbers_become_the_median_and_a_number_says_so():
    frame = with_gaps("crossing")
    log = load_log(frame, NAMES, missing="impute")
    is_gap = frame["crossing"].isna().to_numpy()
    assert log.batch.state_names[-2:] == ("crossing", "crossing is missing")
    assert log.batch.state[is_gap, 3].tolist() == [frame["crossing"].dropna().median()] * 2
    np.testing.assert_array_equal(log.batch.state[:, 4], is_gap)
    assert "crossing is missing in some rows: there it is 1" in log.notes[0]


def test_missing_text_is_a_value_of_its_own():
    log = load_log(with_gaps("weather"), NAMES, missing="impute")
    assert log.batch.state_names[3] == "weather is missing"
    assert log.batch.state[4].tolist() == [0, 0, 0, 1, 1]
    assert log.encoder.encode([{"weather": None, "crossing": None}]).tolist() == [[0, 0, 0, 1, 1]]


def test_imputing_changes_nothing_where_nothing_is_missing():
    frame = ferry(hurry=np.arange(120) % 2)
    assert load_log(frame, named("crossing"), missing="impute").encoder is None


def test_a_column_without_values_is_refused():
    with pytest.raises(DataError, match="weather must have values; all 120 rows are missing"):
        load_log(ferry(weather=[None] * 120), NAMES, missing="impute")


@pytest.mark.parametrize("settings", [{"missing": "guess"}, {"unseen": "guess"}])
def test_unknown_settings_list_the_known_ones(settings):
    (name,) = settings
    with pytest.raises(ConfigError, match=f"{name} must be one of error, .*; got 'guess'"):
        load_log(ferry(), NAMES, **settings)


# States when a decision is due


ROWS = [{"weather": "storm", "crossing": 2, "remark": "x"}, {"weather": "calm", "crossing": 0}]
WANTED = [[0.0, 1.0, 2.0], [1.0, 0.0, 0.0]]


@pytest.mark.parametrize(
    "states",
    [
        ROWS,
        pd.DataFrame(ROWS),
        np.array([["storm", 2], ["calm", 0]], object),
        [["storm", 2], ["calm", 0]],
        WANTED,
        np.array(WANTED, np.float32),
    ],
)
def test_states_are_taken_in_any_form(states):
    assert np.asarray(encoder().encode(states)).tolist() == WANTED


def test_data_frames_of_polars_are_taken():
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"weather": ["storm", "calm"], "crossing": [2, 0]})
    assert encoder().encode(frame).tolist() == WANTED


@pytest.mark.parametrize(
    ("states", "message"),
    [
        (
            [{"weather": "fog", "crossing": 1}],
            r"weather must be one of calm, storm; got 'fog' at \[0\]. With unseen='other'",
        ),
        ([{"weather": None, "crossing": 1}], r"weather must be there; 1 of 1 .* first is \[0\]"),
        ([{"weather": "calm", "crossing": np.inf}], r"crossing must be finite; 1 of 1 rows"),
        ([{"weather": "calm", "crossing": "two"}], r"crossing must be numbers; got text, 'two'"),
        ([{"weather": True, "crossing": 1}], r"weather must be text; got truth values"),
        ([{"weather": "calm"}], r"states must have 'crossing' in each row; \[0\] has weather"),
        ({"weather": "calm", "crossing": 1}, "states must be several rows; got one"),
        (pd.DataFrame({"weather": ["calm"]}), "must have a column 'crossing'; found are weather"),
        (np.zeros((2, 5)), r"must have 2 columns, weather, crossing, or be 3 numbers; .*\[2, 5\]"),
    ],
)
def test_a_state_that_is_wrong_is_named(states, message):
    with pytest.raises(DataError, match=message):
        encoder().encode(states)


def test_unseen_text_is_none_of_the_values_if_asked():
    states = [{"weather": "fog", "crossing": 1}]
    assert encoder(unseen="other").encode(states).tolist() == [[0, 0, 1]]


def test_dates_may_be_text_when_a_decision_is_due():
    found = Encoder((StateColumn("when", "dates"),))
    assert found.encode([{"when": "1970-01-02"}]).tolist() == [[86_400]]
    with pytest.raises(DataError, match=r"when must be dates; got text, 'soon' at \[0\]"):
        found.encode([{"when": "soon"}])


# Actions


def test_actions_of_text_are_numbered_by_name():
    frame = ferry()
    log = load_log(frame, NAMES)
    assert log.encoder.actions == ("no", "yes")
    np.testing.assert_array_equal(log.batch.action, frame["hurry"] == "yes")
    assert log.encoder.action_name(1) == "yes"
    with pytest.raises(DataError, match="action must be from 0 to 1; got 2"):
        log.encoder.action_name(2)
    with pytest.raises(DataError, match=r"action must be one of no, yes; 1 of 2 rows is not"):
        log.encoder.action_numbers(["yes", "perhaps"])


def test_actions_that_are_whole_numbers_have_no_names():
    log = load_log(ferry(hurry=np.arange(120) % 2), NAMES)
    assert log.encoder.action_names == ()
    assert log.encoder.action_name(1) == "1"
    assert log.batch.action.tolist() == (np.arange(120) % 2).tolist()


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (pd.Timestamp("2024-01-01"), "action must be numbers or text; hurry of frame is dates"),
        ([None, *["no"] * 119], r"action, in column 'hurry', must be there; 1 of 120"),
    ],
)
def test_actions_that_are_none_are_refused(actions, message):
    with pytest.raises(DataError, match=message):
        load_log(ferry(hurry=actions), NAMES)


def doses(n=1_200, n_levels=3, seed=0):
    """Doses of which only the level counts, n_levels of them, evenly."""
    rng = np.random.default_rng(seed)
    dose, state = rng.permutation((np.arange(n) + 0.5) / n), rng.random((n, 1))
    level = np.floor(n_levels * dose)
    ends = {"next_state": state, "terminal": np.ones(n, bool), "episode": np.arange(n)}
    return dose, {"state": state, "reward": level % 2 * 1.0, "cost": level, **ends}


@pytest.mark.parametrize("n_levels", [2, 3, 5])
def test_there_are_as_many_bins_as_make_a_difference(n_levels):
    dose, columns = doses(n_levels=n_levels)
    bins = learned_bins(["dose"], dose[:, None], columns)
    assert len(bins.cells) == n_levels


def test_edges_are_quantiles_and_values_are_medians():
    dose, columns = doses()
    bins = learned_bins(["dose"], dose[:, None], columns)
    edges = np.quantile(dose, [1 / 3, 2 / 3])
    np.testing.assert_allclose(bins.edges[0], edges)
    which = np.digitize(dose, edges)
    np.testing.assert_array_equal(bins.numbers(dose), which)
    medians = [np.median(dose[which == k]) for k in range(3)]
    np.testing.assert_allclose(np.ravel(bins.values), medians)
    assert bins.notes[0].startswith("action dose was a number: binned into 3 by quantiles, at 0.1")


def test_an_action_that_changes_nothing_has_two_bins():
    dose, columns = doses()
    columns |= {"reward": np.zeros(1_200), "cost": np.zeros(1_200)}
    assert len(learned_bins(["dose"], dose[:, None], columns).cells) == 2


def test_bins_are_as_many_as_next_states_need():
    dose, columns = doses(n_levels=5)
    after = {"next_state": columns["state"] + columns["cost"][:, None], "reward": np.zeros(1_200)}
    columns |= after | {"cost": np.zeros(1_200), "terminal": np.zeros(1_200, bool)}
    assert len(learned_bins(["dose"], dose[:, None], columns).cells) == 5


def test_bins_are_the_same_again():
    dose, columns = doses(300)
    assert learned_bins(["x"], dose[:, None], columns) == learned_bins(
        ["x"], dose[:, None], columns
    )


def test_equal_quantiles_are_one_edge():
    dose, columns = doses()
    dose[: len(dose) * 9 // 10] = 0.0
    bins = learned_bins(["dose"], dose[:, None], columns)
    assert bins.values[0] == (0.0,)
    assert np.bincount(bins.numbers(dose)).min() > 0


def test_a_few_values_are_actions_as_they_are():
    log = load_log(ferry(hurry=np.arange(120) % 3 / 2), NAMES)
    assert log.encoder.action_names == ("0", "0.5", "1")
    assert log.batch.action.tolist() == (np.arange(120) % 3).tolist()
    assert log.notes == ("action hurry was a number: each of its 3 values is an action, 0, 0.5, 1",)


def test_actions_of_several_numbers_are_those_that_occur_together():
    rng = np.random.default_rng(0)
    throttle = rng.random(120)
    frame = ferry(throttle=throttle, brake=1.0 * (throttle < np.median(throttle)))
    log = load_log(frame, named("weather", action=("throttle", "brake")))
    assert log.batch.n_actions == len(log.encoder.action_names) <= 9
    assert log.encoder.action_name(0).startswith("throttle=0.")
    with pytest.raises(DataError, match=r"action must be in bins that were in the log; 1 of 1"):
        log.encoder.action_numbers([[0.99, 1.0]])
    with pytest.raises(DataError, match="action must have 2 numbers, throttle, brake"):
        log.encoder.action_numbers([0.5])


def test_actions_of_too_many_numbers_are_refused():
    rows = np.random.default_rng(0).random((300, 6))
    with pytest.raises(DataError, match="action must have at most 5 numbers to be binned; got 6"):
        learned_bins(list("abcdef"), rows, doses(300)[1])


def test_few_values_of_several_numbers_that_make_too_many_actions_are_binned():
    rows = np.random.default_rng(0).integers(9, size=(600, 2)) / 2
    bins = learned_bins(["a", "b"], rows, doses(600)[1])
    assert len(bins.cells) <= 50
    assert not bins.is_exact


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("action",), "action was a number: binned into 12 by quantiles, at 0, 1, 2"),
        (("dose",), "action dose was a number: binned into 12 by quantiles, at 0, 1, 2"),
        (("a", "b"), "action a and b were numbers: binned into 12 by quantiles, at a=0, b=0; a=1"),
    ],
)
def test_a_note_lists_ten_values_of_many(names, said):
    values = tuple((float(i),) * len(names) for i in range(12))
    edges = (tuple(np.arange(0.5, 11)),) * len(names)
    (note,) = ActionBins(names, edges, cells=tuple(range(12)), values=values).notes
    assert note.startswith(said)
    assert note.endswith("9; ..." if len(names) > 1 else "9, ...")


def test_actions_that_are_lists_are_binned():
    dose, columns = doses(300)
    table = {k: list(v) if v.ndim > 1 else v for k, v in columns.items()}
    log = load_log(pd.DataFrame(table | {"action": list(np.stack([dose, dose], axis=1))}))
    assert log.encoder.bins.names == ("action_0", "action_1")
    assert log.encoder.columns == ()


# Policies


RAW = np.array([["storm", 2], ["calm", 0], ["calm", 1]], object)
RANDOM = RandomBudgetedPolicy(2, 0.0, 1.0)
HALF = Portfolio.coin(RANDOM, RANDOM, 0.2, 1.0)
test_contract, test_saving = contract_tests(
    {
        "rows": Case(EncodedPolicy(RANDOM, encoder()), RAW, 2),
        "numbers": Case(EncodedPolicy(RANDOM, encoder()), np.array(WANTED), 2),
        "an episode": Case(EncodedPolicy(HALF, encoder()), RAW, 2, one_step=False),
    }
)


def test_an_encoder_is_stored(tmp_path):
    frame = with_gaps("crossing").assign(hurry=np.random.default_rng(0).random(120))
    log = load_log(frame, named("weather", "crossing", "full", "when"), missing="impute")
    save_value(log.encoder, tmp_path / "encoder")
    assert load_value(tmp_path / "encoder") == log.encoder
    assert isinstance(log.encoder.bins, ActionBins)


def played(policy, states):
    """Actions of two steps, between which the dial is moved."""
    tracker = policy.start(states, 0.5, np.random.default_rng(0))
    first = tracker.decide(states).action.tolist()
    tracker.observe(0.0, states, False)
    tracker.set_budget(0.7)
    return first, tracker.decide(states).action.tolist(), tracker.budgets.tolist()


def test_a_policy_takes_rows_as_it_takes_numbers(tmp_path):
    inner = RandomBudgetedPolicy(2, 0.0, 1.0)
    policy = EncodedPolicy(inner, encoder(actions=("go", "wait")))
    policy.save(tmp_path / "policy")
    loaded = bmdp.load_policy(tmp_path / "policy")
    wanted = played(inner, np.array(WANTED))
    for one in (policy, loaded):
        assert played(one, ROWS) == played(one, pd.DataFrame(ROWS)) == wanted
        assert played(one, WANTED) == wanted
        assert one.action_names == ("go", "wait")
    assert loaded.encoder == policy.encoder
    assert policy.budget_range == inner.budget_range
    assert without_encoder(policy) is inner


def test_the_frontier_of_a_row_as_it_is_in_the_log_is_that_of_its_numbers():
    def values(rows):
        at = np.zeros((len(rows), 2, 2))
        at[:, 1] = 1 + rows[:, -1:]  # the crossing
        return 10 * at, at

    inner = HullPolicy(values, [0.0, 1.0])
    policy = EncodedPolicy(inner, encoder())
    found = policy.frontier({"weather": "storm", "crossing": 2})
    assert found.costs.tolist() == [0.0, 3.0]
    assert found.rewards.tolist() == [0.0, 30.0]
    with pytest.raises(PolicyError, match="RandomBudgetedPolicy has no frontier"):
        EncodedPolicy(RANDOM, encoder()).frontier(RAW[0])


@pytest.mark.parametrize("over", [{}, {"weather": 7, "crossing": "over"}, {"weather": None}])
def test_states_of_ended_episodes_are_not_looked_at(over):
    policy = EncodedPolicy(RandomBudgetedPolicy(2, 0.0, 1.0), encoder())
    tracker = policy.start(ROWS, 0.5, np.random.default_rng(0))
    tracker.decide(ROWS)
    tracker.observe(0.0, [over, ROWS[1]], [True, False])
    assert tracker.decide([over, ROWS[1]]).action[0] == 0
    tracker.observe(0.0, [over, over], True)


def test_ends_that_are_not_those_of_the_tracker_inside_are_refused():
    policy = EncodedPolicy(RandomBudgetedPolicy(2, 0.0, 1.0), encoder())
    state = policy.start(ROWS, 0.5, np.random.default_rng(0)).state()
    assert policy.resume(state).state() == state
    with pytest.raises(PolicyError, match=r'state\["ended"\] must be that of state\["tracker"\]'):
        policy.resume(state | {"ended": [True] * len(ROWS)})


def test_the_one_step_form_takes_rows_too():
    inner = RandomBudgetedPolicy(2, 0.0, 1.0)
    policy = EncodedPolicy(inner, encoder())
    one = policy.act(ROWS[0], 0.5, np.random.default_rng(0))
    assert one == inner.act(WANTED[0], 0.5, np.random.default_rng(0))
    many = policy.decide(ROWS, 0.5, np.random.default_rng(0))
    wanted = inner.decide(WANTED, 0.5, np.random.default_rng(0))
    assert many.action.tolist() == wanted.action.tolist()


def test_an_encoded_policy_is_evaluated_by_its_log():
    log = load_log(ferry(), NAMES)
    config = bmdp.BFTQConfig(gamma=1.0, model=TableModel(), ensemble=1)
    policy = bmdp.BFTQ(config).fit(log.batch, seed=0)
    asked = {"gamma": 1.0, "budgets": [0.3], "model": TableModel(), "seed": 0, "n_bootstrap": 0}
    found = [
        bmdp.evaluate_offline(one, log.batch, **asked).cost.tolist()
        for one in (policy, EncodedPolicy(policy, log.encoder))
    ]
    assert found[0] == found[1]
