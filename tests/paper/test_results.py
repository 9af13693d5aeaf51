import json

import pytest

import folders
from bmdp.errors import StoreError
from bmdp.paper.results import (
    curve_of,
    evaluation_of,
    executions_of,
    experiment_section,
    exploration_of,
    hull_of,
    is_experiment,
    prices_of,
    read_results,
    truth_of,
)

READERS = {
    "evaluation": evaluation_of,
    "executions": executions_of,
    "exploration": exploration_of,
    "hull": hull_of,
}


@pytest.fixture
def folder(tmp_path):
    folders.corridors(tmp_path / "here")
    return tmp_path / "here"


def test_all_that_a_folder_has_is_read(folder):
    found = read_results(folder)
    assert (found.experiment, found.preset, found.seeds) == (
        "corridors-exploration",
        "smoke",
        (0, 1),
    )
    assert found.notes == []
    assert found.each("evaluation", evaluation_of)[1].cost_mean.tolist() == [0.1, 0.6, 1.1]
    assert found.each("evaluation", evaluation_of, "risk-neutral")[0].reward_mean[2] == 3
    assert found.common("truth", truth_of).frontier.rewards.tolist() == [10, 20]
    assert found.each("executions", executions_of)[0].cost.tolist() == [0.1, 0.35, 0.6]
    assert found.each("exploration", exploration_of)[0]["rounds"][1]["reward"] == 2
    assert found.each("hull", hull_of)[0].mixture.p_upper == 0.25
    assert found.seconds == 5 * 1.5


def test_results_of_the_version_before_are_read(folder):
    now = read_results(folder)
    header = json.loads((folder / "spec.json").read_text())
    (folder / "spec.json").write_text(json.dumps(header | {"schema": 1}))
    before = read_results(folder)
    assert before.notes == []
    assert [(one.part, one.seed, set(one.pieces)) for one in before.parts] == [
        (one.part, one.seed, set(one.pieces)) for one in now.parts
    ]


def test_prices_are_read_in_rising_order(tmp_path):
    folders.slot_filling(tmp_path)
    piece = folders.prices([0.1, 0.2, 0.3], [1.0, 2.0, 3.0], listed=[20.0, 0.0, 10.0])
    folders.write(tmp_path / "ftq/seed-0/prices.json", piece)
    found = read_results(tmp_path).each("prices", prices_of, "ftq")[0]
    assert found.settings.tolist() == [0, 10, 20]
    assert found.cost.mean.tolist() == [0.2, 0.3, 0.1]


def test_what_is_not_finished_is_told_for_each_part(folder):
    (folder / "seed-1/finished.json").unlink()
    for seed in (0, 1):
        (folder / f"risk-neutral/seed-{seed}/finished.json").unlink()
    (folder / "truth/finished.json").unlink()
    assert read_results(folder).notes == [
        "truth is not finished.",
        "seed 1 is not finished.",
        "risk-neutral, seeds 0, 1 are not finished.",
    ]


def test_a_folder_that_was_only_begun_has_nothing_but_notes(tmp_path):
    folders.spec(tmp_path, "corridors-exploration")
    found = read_results(tmp_path)
    assert found.parts == ()
    assert len(found.notes) == 3


def test_seeds_that_were_not_asked_for_are_not_read(folder):
    folders.write(folder / "seed-7/evaluation.json", folders.evaluation([9] * 3, [9] * 3))
    assert set(read_results(folder).each("evaluation", evaluation_of)) == {0, 1}


@pytest.mark.parametrize(
    ("name", "change", "told"),
    [
        ("evaluation", lambda p: p.pop("cost_mean"), "cost_mean"),
        ("executions", lambda p: p["episodes"].pop(), "episodes must have 3 entries"),
        ("executions", lambda p: p.update(env="chess"), "got 'chess'"),
        ("executions", lambda p: p["episodes"][0][0].pop("x"), "no 'x'"),
        ("executions", lambda p: p["layout"].pop("rows"), "no 'rows'"),
        ("exploration", lambda p: p["rounds"][0].pop("cost"), "no 'cost'"),
        ("hull", lambda p: p["mixture"].update(status="LOOSE"), "LOOSE"),
        ("hull", lambda p: p.update(costs=[1.0]), "same length"),
    ],
)
def test_a_damaged_piece_is_left_out_and_told_of(folder, name, change, told):
    path = folder / f"seed-1/{name}.json"
    piece = json.loads(path.read_text())
    change(piece)
    path.write_text(json.dumps(piece))
    found = read_results(folder)
    assert set(found.each(name, READERS[name])) == {0}
    found.each(name, READERS[name])
    (note,) = found.notes  # told once
    assert note.startswith(f"seed 1: {name}.json is damaged: ")
    assert told in note
    assert note.endswith("It is left out.")


@pytest.mark.parametrize(
    ("name", "path", "change"),
    [
        ("theory", "seed-0/gaps.json", lambda p: p["kind"]["random"][0].pop("share")),
        ("theory", "counter-examples/expansion.json", lambda p: p.update(rows=[])),
        ("theory", "counter-examples/branches.json", lambda p: p["rewards"].pop("operator")),
        ("theory", "counter-examples/pairs.json", lambda p: p["pairs"][0].pop("first")),
        ("calibration", "seed-0/rules.json", lambda p: p["rules"]["mean"].update(cost=[1.0])),
        ("calibration", "seed-0/dial.json", lambda p: p["after"].pop("cost_mean")),
        (
            "calibration",
            "certificates/seed-0/certificates.json",
            lambda p: p["kinds"]["means"]["rows"][0].pop("exact"),
        ),
        ("comparison", "corridors/seed-0/method-bftq.json", lambda p: p.pop("moved")),
        ("driving", "scripts/scripts.json", lambda p: p["names"].pop()),
    ],
)
def test_a_damaged_piece_of_a_study_is_told_of(tmp_path, name, path, change):
    folders.WRITERS[name](tmp_path)
    piece = json.loads((tmp_path / path).read_text())
    change(piece)
    (tmp_path / path).write_text(json.dumps(piece))
    section = experiment_section(tmp_path, "x")
    (note,) = section.notes
    assert f"{path.split('/')[-1]} is damaged" in note


def test_a_piece_that_is_not_json_is_left_out_and_told_of(folder):
    (folder / "seed-0/evaluation.json").write_text("{")
    (note,) = read_results(folder).notes
    assert note.startswith("seed 0: evaluation.json is not JSON")
    assert str(folder) not in note


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"schema": 1, "kind": "other"}', "is not of an experiment"),
        ('{"schema": 1, "kind": "experiment", "experiment": "theory"}', "'seeds'"),
        ('{"schema": 1, "kind": "experiment", "experiment": 3, "seeds": [0]}', "'experiment'"),
        ('{"schema": 1, "kind": "experiment", "experiment": "theory", "seeds": ["0"]}', "'seeds'"),
    ],
)
def test_a_folder_that_is_no_experiment_says_what_it_is(tmp_path, text, told):
    (tmp_path / "spec.json").write_text(text)
    with pytest.raises(StoreError, match=told):
        read_results(tmp_path)


def test_prices_of_seeds_become_one_curve():
    pieces = [folders.prices([c, 0.4, 0.0], [15.0, 12.0, 5.0]) for c in (0.5, 0.7, 0.9)]
    curve = curve_of("FTQ", [prices_of(piece) for piece in pieces])
    assert curve.settings.tolist() == [0, 10, 20]
    assert curve.cost.mean == pytest.approx([0.7, 0.4, 0.0])
    assert curve.cost.high[0] - 0.7 == pytest.approx(folders.student_half([0.5, 0.7, 0.9]))
    assert (curve.over, curve.n_seeds) == ("seeds", 3)
    alone = curve_of("FTQ", [prices_of(pieces[0])])
    assert alone.cost.high == pytest.approx([0.52, 0.42, 0.02])
    assert alone.over == "episodes"


def test_an_experiment_is_told_from_other_folders(tmp_path):
    folders.corridors(tmp_path / "here")
    assert is_experiment(tmp_path / "here")
    for text in ("{", "[]", '{"schema": 1, "kind": "exploration"}'):
        (tmp_path / "spec.json").write_text(text)
        assert not is_experiment(tmp_path)
    assert not is_experiment(tmp_path / "nothing")
