"""Examples and benchmarks are run, the latter at their smallest size."""

import json
import re

import numpy as np
import pytest

import bmdp
from bmdp.envs.two_way import KNOWN_CURVES, known_curve
from bmdp.evaluation import measure_dial
from bmdp.paper.results import evaluation_of
from scripts import script


@pytest.mark.slow
def test_the_theory_study_writes_its_records_and_figures(tmp_path, capsys):
    script("examples/theory.py").main(
        ["--models", "2", "--budgets", "31", "--out", str(tmp_path / "theory")]
    )
    record = json.loads((tmp_path / "theory" / "theory.json").read_text())
    assert record["two_branches"] == pytest.approx(
        {"operator": 2.75, "allocation": 5.0, "linear_program": 5.0}
    )
    for kind in ("random", "deterministic"):
        assert record["summary"][kind]["allocation_error"] < 1e-6
        assert record["summary"][kind]["largest_excess"] < 1e-6
        assert 0.5 < record["summary"][kind]["share_least"] <= 1.0001
    assert [row["steep"] * row["size"] for row in record["expansion"]] == pytest.approx([1.0] * 6)
    assert {p.suffix for p in (tmp_path / "theory").iterdir()} == {".json", ".png"}
    assert "two branches at budget 0.5" in capsys.readouterr().out


@pytest.mark.slow
def test_on_fifty_random_models_of_each_kind_all_ways_to_the_optimum_agree(tmp_path):
    study = script("examples/theory.py")
    study.main(["--models", "50", "--out", str(tmp_path)])
    found = json.loads((tmp_path / "theory.json").read_text())["summary"]
    for kind in ("random", "deterministic"):
        assert found[kind]["models"] == 50
        assert found[kind]["allocation_error"] < 1e-6
        assert found[kind]["largest_excess"] < 1e-6
    assert 0.9 < found["random"]["share_mean"] < 0.98
    assert found["deterministic"]["share_least"] > 0.99


def test_the_environments_are_drawn_and_their_frontiers_recorded(tmp_path):
    script("examples/environments.py").main(["--quick", "--out", str(tmp_path)])
    record = json.loads((tmp_path / "frontiers.json").read_text())
    (corridors,) = record["corridors"]
    assert corridors["dear"]["reward"] > corridors["cheap"]["reward"]
    few, more = record["slot_filling"]
    assert few["below"]["reward_at_0.3"] < more["below"]["reward_at_0.3"]
    assert few["above"]["reward_at_0.3"] > more["above"]["reward_at_0.3"]
    for row in (few, more):
        for end in ("cheap", "dear"):
            gap = abs(row[end]["reward"] - row[end]["tree_reward"])
            assert gap < 5 * row[end]["reward_error"]
    for row in record["scripted"]:  # each fails on at least one measure
        assert row["least_score"] < 0.9 or row["overshoot"] > 0.1 or row["dial_error"] > 0.1
    assert "system: voice 0" in (tmp_path / "dialogue.txt").read_text()
    assert (tmp_path / "corridors.png").read_bytes().startswith(b"\x89PNG")


def test_the_two_way_road_is_compared_measured_and_drawn(tmp_path):
    script("examples/two_way.py").main(["--quick", "--out", str(tmp_path)])
    record = json.loads((tmp_path / "driving.json").read_text())
    assert [row["n_disagreements"] for row in record["equality"]] == [0] * 6
    for row in record["scripts"]:  # the same episodes in both simulations
        same, other = row["batched_same"], row["highway_env"]
        assert same["reward"] == pytest.approx(other["reward"], abs=1e-6)
        assert same["cost"] == pytest.approx(other["cost"], abs=1e-6)
    assert record["reference"]["smallest_cost"] < 0.2
    assert [row["curve"] for row in record["curves"]] == list(KNOWN_CURVES)
    for row in record["curves"]:
        assert row["reward_at_0.1"] < row["reward_at_0.2"] < row["largest_reward"]
        assert 0 < row["reward_at_0.1_error"] < 0.1
    for name in ("careful", "bold"):
        assert "<animateTransform" in (tmp_path / f"{name}.svg").read_text()
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_the_curves_of_the_road_are_made_as_the_package_has_them(tmp_path):
    example = script("examples/two_way.py")
    example.main(["--quick", "--curves", "--out", str(tmp_path)])
    made = json.loads((tmp_path / "curves.json").read_text())
    for name in KNOWN_CURVES:
        kept, shipped = made["curves"][name], known_curve(name)
        assert bmdp.Frontier(np.array(kept.pop("costs")), np.array(kept.pop("rewards")))
        assert {*kept, "curve", "task", "command"} == set(shipped.settings)
        assert made["command"] == example.COMMAND == shipped.settings["command"]
        assert made["task"] == shipped.settings["task"]


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("envs", lambda r: [row["ratio"] for row in r["rows"]]),
        ("driving", lambda r: [r["row"]["batch_ratio"], r["row"]["single_ratio"]]),
        ("exact", lambda r: [r["row"]["ratio_to_parts"]]),
        pytest.param(
            "export",
            lambda r: [row["one_onnx_seconds"] for row in r["rows"]],
            marks=pytest.mark.slow,
        ),
        ("learning", lambda r: [r["decisions_per_second"], r["act_milliseconds"]]),
        ("serving", lambda r: [row["threads"]["same"] for row in r["rows"]]),
        pytest.param(
            "workers",
            lambda r: [s for row in r["target_step"] for s in row["seconds"]],
            marks=pytest.mark.slow,
        ),
    ],
)
def test_benchmarks_of_speed_note_what_they_measure(tmp_path, name, read):
    out = tmp_path / "record.json"
    script(f"benchmarks/{name}.py").main(["--quick", "--out", str(out)])
    measured = read(json.loads(out.read_text()))
    assert measured
    assert all(number > 0 for number in measured)


@pytest.mark.slow
def test_the_frontier_benchmark_agrees_with_its_references(tmp_path):
    out = tmp_path / "frontier.json"
    script("benchmarks/frontier.py").main(["--quick", "--out", str(out)])
    rows = json.loads(out.read_text())["rows"]
    assert len(rows) == 12
    for row in rows:
        for reference in ("convex_hull", "graham_scan", "monotone_chain"):
            difference = row[f"{reference}_difference"]
            assert difference is None or difference < 1e-6


@pytest.fixture
def dial(monkeypatch):
    """The studies of dials, and one that takes a moment."""
    found = script("benchmarks/dial.py")
    tiny = (
        "exploration.rounds=2",
        "exploration.episodes=60",
        "learner.n_budgets=3",
        "learner.model.centres=10",
    )
    variants = (
        found.Variant("plain"),
        found.Variant("self", ("learner.ensemble=1", "learner.slope_cap=0")),
    )
    studies = {
        "tiny": found.Study("corridors", variants[:1], tiny, moved_at=2),
        "tiny batch": found.Study("slot-filling", variants, tiny, same_batch=True),
    }
    monkeypatch.setattr(found, "STUDIES", found.STUDIES | studies)
    return found


def test_every_study_of_dials_has_settings_that_exist(dial):
    for study in dial.STUDIES.values():
        for variant in study.variants:
            assert dial._spec(study, variant).exploration.rounds > 0


@pytest.mark.slow
def test_studies_of_dials_note_what_each_variant_and_seed_earns_and_pays(dial, tmp_path, capsys):
    for study, names in (("tiny", ("plain",)), ("tiny batch", ("plain", "self"))):
        dial.do(dial.Job(study, 0, names, 40, "cpu", str(tmp_path)))
    rows = dial.rows_of(tmp_path)
    assert [(row["study"], row["name"]) for row in rows] == [
        ("tiny", "plain"),
        ("tiny batch", "plain"),
        ("tiny batch", "self"),
    ]
    found = [evaluation_of(row["evaluation"]) for row in rows]
    assert all(len(one.budgets) == 11 and one.n_episodes == 40 for one in found)
    moves = rows[0]["moved"]
    assert [move["from"] for move in moves] == [0.0, 0.5, 1.0]
    for move in moves:  # None if no episode went on so far
        assert (move["cost"] is None) == (move["ideal"] is None) == (move["going"] == 0)
        assert move["cost"] is None or len(move["cost"]) == len(move["ideal"]) == 6
    np.save(tmp_path / "optimum-corridors-0.npy", [[0.0, 1.0], [100.0, 200.0]])
    np.save(tmp_path / "optimum-slot-filling-0.npy", [[0.0, 0.4], [20.0, 50.0]])
    capsys.readouterr()
    dial.main(["--out", str(tmp_path), "--table"])
    table = capsys.readouterr().out.splitlines()
    assert len(table) == 2 + 3
    optimum = bmdp.Frontier(np.array([0.0, 1.0]), np.array([100.0, 200.0]))
    report = measure_dial(found[0], optimum)
    assert f"**{report.mean_score:.3f}**" in table[2]
    assert f"| {report.worst_overshoot:.3f} (mean" in table[2]
    assert f"| {report.mean_dial_error:.4f} |" in table[2]


def test_the_offline_benchmark_measures_both_methods_on_both_kinds_of_problems(tmp_path):
    out = tmp_path / "offline.json"
    script("benchmarks/offline.py").main(["--quick", "--out", str(out)])
    rows = json.loads(out.read_text())["rows"]
    assert [(row["case"], row["method"]) for row in rows] == [
        ("finite 0, 3 steps", "fitted"),
        ("finite 0, 3 steps", "importance"),
        ("finite 0, 3 steps", "importance"),
        ("finite 0, 5 steps", "importance"),
        ("corridors", "fitted"),
        ("corridors", "importance"),
    ]
    for row in rows:
        assert set(row["coverage"]) == {"student", "percentile", "basic"}
        assert all(0 <= share <= 1 for share in row["coverage"].values())
        assert np.shape(row["width"]) == np.shape(row["truth"]) == (2, len(row["budgets"]))


def test_finite_problems_are_compared(tmp_path):
    out = tmp_path / "finite.json"
    script("benchmarks/finite.py").main(["--quick", "--out", str(out)])
    rows = json.loads(out.read_text())["rows"]
    for row in rows.values():
        best = row["linear program"]
        assert row["price carried"] == pytest.approx(best, abs=1e-6)
        assert row["budgets by next state"] == pytest.approx(best, abs=1e-6)
        assert row["coin"] - 1e-6 <= row["operator T"] <= best + 1e-9
    assert rows["branches"]["operator T"] == pytest.approx(2.75)
    assert rows["branches"]["coin"] == pytest.approx(2.75)


def test_the_first_picture_plays_a_policy_its_certificate_and_four_rules(tmp_path, capsys):
    picture = tmp_path / "front.png"
    words = ["--out", str(picture), "--customers", "300", "--played", "3000"]
    script("examples/shop_front.py").main(words)
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["asked", "learned:", "cost,", "reward", "certified:", "cost,", "reward"]
    asked, cost, reward, safe_cost, _ = np.array([line.split() for line in lines[:11]], float).T
    assert (asked[0], cost[0]) == (0.0, 0.0)
    assert (np.diff(reward)[:5] > 0).all()
    assert (safe_cost <= cost + 0.05).all()
    rules = {
        name: float(told.split()[1][:-1]) for name, told in (li.split(": ") for li in lines[11:])
    }
    assert list(rules) == ["the log (random)", "always nothing", "always mail", "always call"]
    assert rules["always nothing"] == 0.0 < rules["always mail"] < rules["always call"]
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_treatments_go_from_parquet_to_a_certificate_and_a_page(tmp_path, capsys):
    words = ["--out", str(tmp_path), "--patients", "300", "--minutes", "0.05", "--whole"]
    script("examples/treatments.py").main(words)
    told = capsys.readouterr().out
    assert "Learned from 1,500 transitions of 300 episodes" in told
    assert "Promised with confidence 0.95, from a log" in told
    assert any(f"of 80 gets: {name}" in told for name in ("tablets", "wait"))  # no infusion
    page = (tmp_path / "pages" / "index.html").read_text()
    assert "Promised with confidence 0.95, from a log" in page
    assert "effective episodes" in page
    assert "Forecast, from the episodes by which it was calibrated" in page
    promised = json.loads(told.splitlines()[-1])
    assert promised["smallest"] == min(promised["high"]) > 0


def test_a_dial_goes_from_a_log_to_a_service_whose_watch_sees_that_customers_change(
    tmp_path, capsys
):
    words = ["--out", str(tmp_path / "story"), "--logged", "400", "--served", "250"]
    words += ["--anger", "8", "--minutes", "2"]  # more minutes than it takes
    script("examples/in_production.py").main(words)
    told = capsys.readouterr().out
    assert "the watch ended with 0, and with 1 after customers had changed" in told
    (since,) = re.findall(r"all budgets: broken since episode (\d+)", told)
    assert 250 < int(since) <= 500
    story = tmp_path / "story"
    lines = [json.loads(line) for line in (story / "served.jsonl").read_text().splitlines()]
    assert len(lines) == 2 * 250 * 4
    assert sum(line["ended"] for line in lines) == 500
    for page in ("run/report", "watch", "watch-after"):
        assert (story / page / "index.html").exists()


def test_certificates_are_counted_as_they_hold(tmp_path):
    words = ["--quick", "--parts", str(tmp_path / "parts"), "--out", str(tmp_path / "found.json")]
    script("benchmarks/certificates.py").main([*words, "--cases", "finite"])
    rows = json.loads((tmp_path / "found.json").read_text())["rows"]
    assert [(row["case"], row["log"], row["repetitions"]) for row in rows] == [
        ("finite", "wide", 1),
        ("finite", "narrow", 1),
    ]
    wide = rows[0]
    assert (wide["refused"], wide["held"], wide["left"]) == (0, 1, wide["members"])
    assert wide["above"] > 0


@pytest.mark.slow
def test_rules_of_support_are_compared_on_finite_problems(tmp_path):
    script("benchmarks/support.py").main(["--quick", "--out", str(tmp_path / "found.json")])
    rows = json.loads((tmp_path / "found.json").read_text())["rows"]
    assert {row["rule"] for row in rows} >= {"none", "episodes", "ratio", "both", "cql 1"}
    assert all(0 <= row["share"] <= 1 + 1e-9 and row["lie"] >= 0 for row in rows)
