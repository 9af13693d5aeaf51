"""The watch over a log: promises put together from lines, verdicts, and what is wrong told."""

import json
import re

import numpy as np
import pytest

from bmdp.deployment import DecisionLog, Watch, watch_log
from bmdp.deployment.decisions import Promises
from bmdp.deployment.sequences import Capital
from bmdp.errors import ConfigError, DataError, StoreError


def line(episode="a", step=0, budget=0.5, cost=0.0, ended=False, **more):
    ends = {"cost": cost, "ended": ended, "state": [float(step)], "action": 0}
    return {"episode": episode, "step": step, "budget": budget, **ends, **more}


def written(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def simple(costs, budgets=0.5):
    """Episodes of one line."""
    pairs = zip(np.broadcast_to(budgets, len(costs)), costs, strict=True)
    return [line(str(i), 0, float(b), float(c), True) for i, (b, c) in enumerate(pairs)]


def coins(n, share, seed=0):
    return (np.random.default_rng(seed).random(n) < share).astype(float)


# Promises


def test_episodes_that_are_mixed_are_put_together_in_the_order_of_their_beginnings():
    promises = Promises(gamma=0.5)
    rows = [line("a"), line("b", cost=3.0, ended=True), line("a", 1, cost=2.0, ended=True)]
    promises.add(1, rows[:2])
    assert len(promises.done().paid) == 0  # b is over, but a began before
    assert promises.pending().paid.tolist() == [0.0, 3.0]
    promises.add(3, rows[2:])
    assert promises.done().paid.tolist() == [1.0, 3.0]


def test_a_dial_that_is_moved_makes_two_promises_each_discounted_from_its_beginning():
    promises = Promises(gamma=0.5)
    rows = [line(cost=1.0), line(step=1, cost=1.0), line(step=2, budget=0.1, cost=1.0)]
    promises.add(1, [*rows, line(step=3, budget=0.1, cost=1.0, ended=True)])
    done = promises.done()
    assert done.asked.tolist() == [0.5, 0.1]
    assert done.paid.tolist() == [1.5, 1.5]
    assert done.is_cut.tolist() == [True, False]


def test_a_dial_that_is_moved_to_where_it_was_makes_two_promises():
    promises = Promises(gamma=1.0)
    rows = [
        line(cost=1.0, moved=True),
        line(step=1, cost=1.0, moved=True),
        line(step=2, moved=False),
    ]
    promises.add(1, [*rows, line(step=3, cost=1.0, ended=True)])
    done = promises.done()
    assert done.paid.tolist() == [1.0, 2.0]
    assert done.is_cut.tolist() == [True, False]
    assert promises.n_moved == 1


def test_a_limit_on_episodes_counts_an_episode_once_where_its_sum_first_exceeds_it():
    promises = Promises(gamma=1.0, episode_limit=2.0)
    over = [line("a", i, cost=1.5, ended=i == 3) for i in range(4)]
    within = [line("b", cost=1.5), line("b", 1, cost=0.5, ended=True)]
    moved = [line("c", cost=1.5), line("c", 1, budget=0.1, cost=1.0, ended=True)]
    late = [line("d", cost=3.0), line("d", 1, budget=0.1, cost=1.0, ended=True)]
    promises.add(1, [*over, *within, *moved, *late])
    done = promises.done()
    assert done.paid.tolist() == [1.0, 0.0, 0.0, 1.0, 1.0, 0.0]  # c and d are two promises each


def test_shares_over_a_limit_are_watched_as_costs_of_one():
    rows = [line(str(i), 0, 0.2, 2.5 if i % 10 == 0 else 1.0, True) for i in range(1_500)]
    watch = Watch((0.0, 1.0), gamma=0.5, episode_limit=2.0)
    watch.add(1, rows)
    found = watch.report()
    assert (found.whole.verdict, found.whole.paid) == ("kept", pytest.approx(0.1))
    assert (found.gamma, found.most_cost) == (1.0, 1.0)


def test_an_episode_that_never_ends_is_waited_for_no_longer_than_said():
    promises = Promises(gamma=1.0, patience=3)
    promises.add(1, [line("stuck", cost=0.2), *simple(np.ones(3))])
    done = promises.done()
    assert done.paid.tolist() == [0.2, 1.0, 1.0, 1.0]
    assert done.is_cut.tolist() == [True, False, False, False]
    promises.add(5, [line("stuck", 1)])
    assert promises.n_headless == 1


def test_lines_that_are_missing_make_a_cost_one_that_is_known_in_part():
    promises = Promises(gamma=1.0)
    promises.add(1, [line("a", cost=1.0), line("a", 2, ended=True), line("b", 5)])
    assert promises.done().is_cut.tolist() == [True]
    assert promises.n_headless == 1


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"cost": -1.0}, "cost must be a number from 0 to 1e+50; got -1.0"),
        ({"cost": float("nan")}, "cost must be a number from 0 to 1e+50; got nan"),
        ({"cost": None}, "cost must be a number from 0 to 1e+50; got None"),
        ({"budget": "0.5"}, "budget must be a number from 0 to 1e+50; got '0.5'"),
        ({"step": 1.5}, "step must be a whole number from 0 on; got 1.5"),
        ({"ended": 1}, "ended must be true or false; got 1"),
        ({"episode": 7}, "episode must be a text; got 7"),
        ({"cost": 10**400}, "cost must be a number from 0 to 1e+50; got 1000"),
        ({"budget": 1e308}, "budget must be a number from 0 to 1e+50; got 1e+308"),
        ({"status": []}, "status must be a word or a number; got []"),
    ],
)
def test_a_wrong_value_is_told_with_its_line(change, told):
    with pytest.raises(DataError, match="line 12: ") as error:
        Promises(gamma=1.0, name="log.jsonl").add(11, [line(), {**line("b"), **change}])
    assert told in str(error.value)


def test_a_value_that_lacks_and_a_step_that_does_not_rise_are_told_with_their_line():
    with pytest.raises(DataError, match="line 2: ended must be true or false; it has none"):
        Promises(gamma=1.0).add(1, [line(), {k: v for k, v in line().items() if k != "ended"}])
    told = "line 2: steps of an episode must rise; got 0 after 0 .* Was /observe sent twice"
    with pytest.raises(DataError, match=told):
        Promises(gamma=1.0).add(1, [line(), line()])


# The file


def test_a_last_line_that_is_cut_is_waited_for(tmp_path):
    path = written(tmp_path / "log.jsonl", simple([1.0, 0.0]))
    text = path.read_text()
    path.write_text(text[:-9])
    log = DecisionLog(path)
    assert [len(rows) for _, rows in log.new()] == [1]
    assert log.last() == (2, [])
    with path.open("a") as file:
        file.write(text[-9:])
    assert [(first, len(rows)) for first, rows in log.new()] == [(2, 1)]


def test_a_broken_line_elsewhere_is_told_with_its_number(tmp_path):
    path = tmp_path / "log.jsonl"
    good = json.dumps(line())
    for broken, told in ((good[:-3], "line 2, is no JSON"), ("[1]", "line 2, must be a JSON obj")):
        path.write_text(f"{good}\n{broken}\n{good}\n")
        with pytest.raises(DataError, match=told):
            list(DecisionLog(path).new())


def test_a_last_line_without_its_end_counts_if_it_is_whole(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in simple([1.0, 0.0])) + "\n\n")
    assert watch_log(path, (0.0, 1.0)).whole.n == 2
    path.write_text(path.read_text().rstrip())
    assert watch_log(path, (0.0, 1.0)).whole.n == 2


def test_a_file_that_is_cut_while_it_is_watched_and_one_that_is_not_there_are_told(tmp_path):
    path = written(tmp_path / "log.jsonl", simple([1.0, 0.0]))
    log = DecisionLog(path)
    list(log.new())
    path.write_text("")
    with pytest.raises(DataError, match="shorter than it was"):
        list(log.new())
    with pytest.raises(StoreError, match="is not there"):
        DecisionLog(tmp_path / "none.jsonl")


def test_parquet_says_the_same_as_lines(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = simple(coins(300, 0.7))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "log.parquet")
    lines = watch_log(written(tmp_path / "log.jsonl", rows), (0.0, 1.0), most_cost=1.0)
    table = watch_log(tmp_path / "log.parquet", (0.0, 1.0), most_cost=1.0)
    assert table.whole == lines.whole


# Verdicts


def watched(rows, parts=1, **settings):
    watch = Watch((0.0, 1.0), **settings)
    for part in np.array_split(np.arange(len(rows)), parts):
        watch.add(int(part[0]) + 1, [rows[i] for i in part])
    return watch.report()


@pytest.mark.parametrize(
    ("share", "verdict"), [(0.3, "kept"), (0.5, "not known yet"), (0.8, "broken")]
)
def test_verdicts_are_as_costs_are(share, verdict):
    report = watched(simple(coins(1_500, share)), most_cost=1.0)
    assert report.whole.verdict == verdict
    assert report.is_broken == (verdict == "broken")


def test_nothing_is_kept_without_a_bound_of_costs_but_it_can_be_broken():
    assert watched(simple(coins(1_500, 0.1))).whole.verdict == "not known yet"
    assert watched(simple(coins(1_500, 0.8))).whole.verdict == "broken"


def test_the_alarm_is_when_half_of_the_capital_and_the_mean_of_the_ranges_reach_20():
    asked = np.tile([0.3, 0.3, 0.9], 300)
    paid = coins(900, np.tile([0.4, 0.4, 0.9], 300), seed=6)
    _, whole = Capital.start().after(asked, paid)
    shares = np.full((5, 900), 1.0)  # capital of each range, where it is 1 before the first
    for i, budget in ((1, 0.3), (4, 0.9)):
        mine = asked == budget
        _, path = Capital.start().after(asked[mine], paid[mine])
        shares[i] = np.append(1.0, np.exp(path))[mine.cumsum()]
    both = np.exp(whole) / 2 + shares.mean(axis=0) / 2
    assert (both >= 20).any()
    report = watched(simple(paid, asked), parts=9)
    assert report.whole.since == 1 + (both >= 20).argmax()
    assert report.whole.alarm_at == pytest.approx(np.log(20))
    assert report.ranges[1].alarm_at == pytest.approx(np.log(2 * 5 * 20))


def test_only_the_range_that_is_broken_is_named():
    budgets = np.tile([0.1, 0.9], 2_000)
    report = watched(simple(coins(4_000, np.tile([0.3, 0.5], 2_000)), budgets), most_cost=1.0)
    assert [judged.verdict for _, judged in report.named()] == ["broken", "broken", "kept"]
    assert report.named()[1][0] == "0 to 0.2"


def test_the_report_is_the_same_however_lines_come():
    rows = simple(coins(3_000, 0.56), np.tile([0.1, 0.5, 0.9], 1_000))
    whole, parts = watched(rows, most_cost=1.0), watched(rows, parts=77, most_cost=1.0)
    for one, other in zip((whole.whole, *whole.ranges), (parts.whole, *parts.ranges), strict=True):
        assert one.since == other.since
        assert one.evidence == pytest.approx(other.evidence)
        assert one.excess_low == pytest.approx(other.excess_low)
    assert whole.course.n.tolist() == parts.course.n.tolist()
    assert whole.course.high == pytest.approx(parts.course.high)


def test_a_promise_kept_at_all_budgets_seldom_raises_an_alarm():
    rng, n_runs, n_alarms = np.random.default_rng(0), 300, 0
    for _ in range(n_runs):
        budgets = rng.choice([0.02, 0.3, 0.5, 0.7, 0.95], size=400)
        n_alarms += watched(simple(rng.random(400) < budgets, budgets)).is_broken
    assert n_alarms / n_runs <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / n_runs)


def test_short_dear_episodes_that_end_first_raise_no_alarm():
    """In the order of ends all that is known first are crashes, at a budget that is kept."""
    rng, n = np.random.default_rng(1), 300
    crashed = rng.random(n) < 0.4
    rows = [line(str(i), 0, 0.5, float(crashed[i]), bool(crashed[i])) for i in range(n)]
    ends = [line(str(i), 1, 0.5, 0.0, True) for i in range(n) if not crashed[i]]
    watch = Watch((0.0, 1.0))
    watch.add(1, rows)
    assert not watch.report().is_broken
    watch.add(n + 1, ends)
    assert not watch.report().is_broken
    in_order_of_ends = simple(np.r_[np.ones(int(crashed.sum())), np.zeros(len(ends))])
    assert watched(in_order_of_ends).is_broken


def test_episodes_that_go_on_can_raise_an_alarm():
    watch = Watch((0.0, 1.0))
    watch.add(1, [line(str(i), 0, 0.1, 1.0, False) for i in range(50)])
    report = watch.report()
    assert (report.whole.n, report.n_open, report.is_broken) == (0, 50, True)


def test_budgets_that_cannot_be_kept_are_told_apart():
    hopeless = [{**row, "status": "INFEASIBLE"} for row in simple(np.ones(200), 0.1)]
    report = watched(hopeless + simple(coins(100, 0.4)))
    assert report.infeasible == (200, pytest.approx(0.1), 1.0)
    assert (report.whole.n, report.is_broken) == (100, False)
    assert any("cannot be kept" in note for note in report.notes())


def test_the_number_of_episodes_that_are_needed_is_about_right():
    costs = coins(20_000, 0.45, seed=2)
    first = watched(simple(costs[:500]), most_cost=1.0)
    assert first.whole.verdict == "not known yet"
    n = 500 + first.whole.more
    assert watched(simple(costs[: 3 * n]), most_cost=1.0).whole.verdict == "kept"
    assert watched(simple(costs[: n // 3]), most_cost=1.0).whole.verdict == "not known yet"


def test_a_tolerance_makes_a_little_more_kept():
    rows = simple(coins(4_000, 0.56))
    assert watched(rows, most_cost=1.0).whole.verdict == "broken"
    assert watched(rows, most_cost=1.0, tolerance=0.1).whole.verdict == "kept"


def test_a_cost_above_the_most_and_wrong_settings_are_told():
    with pytest.raises(DataError, match="an episode cost 1, but none can cost more than 0"):
        watched(simple([1.0]), most_cost=0.5)
    with pytest.raises(ConfigError, match="most_cost must be a number above 0"):
        Watch((0.0, 1.0), most_cost=0.0)
    with pytest.raises(ConfigError, match="confidence must be above 0"):
        Watch((0.0, 1.0), confidence=1.0)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"episode_limit": -1.0}, "episode_limit must be a finite number from 0 on; got -1"),
        ({"episode_limit": np.nan}, "episode_limit must be a finite number from 0 on; got nan"),
        ({"budget_range": (1.0, 0.0)}, "budget_range must not fall; got 1 to 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, told):
    with pytest.raises(ConfigError, match=re.escape(told)):
        Watch(**{"budget_range": (0.0, 1.0), **settings})
