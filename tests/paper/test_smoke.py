"""Experiments at their smallest size: their dials, their sections, and kills in the middle."""

import pytest

import bmdp
from bmdp import StoreError
from bmdp.paper import CATALOG, experiment, measuring
from bmdp.paper.results import experiment_section
from bmdp.paper.runner import Work
from bmdp.paper.scenes import first_state, task_of
from bmdp.policies import MultiplierPolicy
from folders import PICTURES
from pieces import (
    check_evaluation,
    check_executions,
    check_hull,
    check_killed,
    piece,
    pieces,
    place,
    work,
)

DIALS = {"corridors-exploration": "sensitive", "slot-filling": "budgeted", "driving": "budgeted"}
"""Settings of training of experiments whose main part is shown."""
MORE = {  # of records of training, and of tasks that are not in folders written by hand
    "slot-filling": ["rounds"],
    "driving": ["rounds"],
    "comparison": ["slot-filling-scores", "slot-filling-trade-off"],
}
KILLS = [
    *(("corridors-exploration", "", n) for n in (17, 62)),
    *(("corridors-exploration", "risk-neutral", n) for n in (34, 80)),
    *(("slot-filling", "ftq", n) for n in (9, 84)),
    ("driving", "", 60),
    ("calibration", "dial", 40),
]
MORE_KILLS = [
    *(("corridors-exploration", "", n) for n in (4, 26)),
    *(("corridors-exploration", "risk-neutral", n) for n in (10, 67)),
    *(("slot-filling", "ftq", n) for n in (45, 90)),
]


@pytest.fixture(params=DIALS)
def dial(request, smoke):
    """Folder of the main part, its policy, environment and tests."""
    settings = experiment(request.param).SETTINGS["smoke"]
    folder = place(smoke(request.param), "")
    env = getattr(settings, DIALS[request.param]).env
    return folder, bmdp.load_policy(folder), env, settings.testing


def test_the_evaluation_is_that_of_the_policy_of_the_run(dial):
    folder, policy, env, testing = dial
    found = piece(folder, "evaluation")
    check_evaluation(found, policy, env, testing.budgets, testing.n_episodes, 3)


def test_executions_have_all_that_a_dial_needs(dial):
    folder, policy, env, testing = dial
    found = piece(folder, "executions")
    check_executions(found, policy, env, testing, 3)
    assert found["gamma"] == (0.9 if env.id == "two-way" else 1.0)
    assert found["episodes"][0] != found["episodes"][-1]


def test_what_was_measured_at_the_budgets_of_the_dial_is_not_measured_again(dial, monkeypatch):
    folder, policy, env, testing = dial
    measured = measuring.evaluation_piece(policy, env, testing.dial, testing.n_episodes, 3)
    monkeypatch.setattr(measuring, "evaluation_piece", None)
    found = measuring.executions_piece(policy, env, testing, 3, measured)
    assert found == piece(folder, "executions")


def test_the_hull_is_that_of_the_first_state(dial):
    folder, policy, env, _ = dial
    task, hull = task_of(env.spec()), piece(folder, "hull")
    check_hull(hull, policy, first_state(task, 3), len(task.action_names))
    assert piece(folder, "executions")["frontier"]["labels"] == [
        f"{hull['action_names'][hull['action'][i]]}, handing on {round(hull['handed_on'][i], 3):g}"
        for i in hull["frontier"]["index"]
    ]


@pytest.mark.parametrize("name", ["slot-filling", "driving"])
def test_a_carried_price_is_played_by_the_dial_that_was_learned(smoke, name):
    settings, ftq = experiment(name).SETTINGS["smoke"], place(smoke(name), "ftq")
    carried = MultiplierPolicy(bmdp.load_policy(ftq / "learning" / "policy").policies[0])
    asked = settings.testing.budgets, settings.testing.n_episodes, 3
    check_evaluation(piece(ftq, "evaluation-carried"), carried, settings.budgeted.env, *asked)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name == "comparison")) for name in CATALOG],
)
def test_a_smoke_run_has_all_its_pictures_and_nothing_damaged(smoke, name):
    section = experiment_section(smoke(name), name)
    assert section.notes == ()
    wanted = [*PICTURES[name], *MORE.get(name, [])]
    assert [picture.name for picture in section.pictures] == [f"{name}-{w}" for w in wanted]
    for animation in section.animations:
        assert 10_000 < len(animation.make()) < 1_500_000


@pytest.mark.parametrize(
    ("name", "part", "n_writes"),
    [*KILLS, *(pytest.param(*kill, marks=pytest.mark.slow) for kill in MORE_KILLS)],
)
def test_a_part_that_was_killed_leaves_the_same(smoke, tmp_path, monkeypatch, name, part, n_writes):
    check_killed(experiment(name), part, smoke(name), tmp_path, monkeypatch, n_writes)


@pytest.mark.parametrize(
    ("name", "part", "lost"),
    [
        ("corridors-exploration", "risk-neutral", "evaluation"),
        ("calibration", "", "rules"),
        ("theory", "", "gaps"),
    ],
)
def test_a_piece_that_is_lost_is_made_again_and_nothing_else(smoke, name, part, lost):
    again = work(smoke(name), part)
    before = pieces(again.folder)
    (again.folder / f"{lost}.json").unlink()
    times = {path: path.stat().st_mtime_ns for path in again.folder.rglob("*.json")}
    experiment(name).run(experiment(name).SETTINGS["smoke"], again)
    assert pieces(again.folder) == before
    assert times == {path: path.stat().st_mtime_ns for path in times}


def test_a_run_of_another_seed_is_refused(smoke):
    name = "corridors-exploration"
    wrong = Work(place(smoke(name), ""), 4, "cpu", "")
    with pytest.raises(StoreError, match="holds a run of other settings"):
        experiment(name).run(experiment(name).SETTINGS["smoke"], wrong)


def test_a_part_may_begin_in_an_empty_folder(smoke, tmp_path):
    known = experiment("corridors-exploration")
    known.run(known.SETTINGS["smoke"], Work(tmp_path, 3, "cpu", ""))
    assert pieces(tmp_path) == pieces(place(smoke("corridors-exploration"), ""))
