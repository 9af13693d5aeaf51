import json
import re
import time

import pytest
import typer

import bmdp
import commands
from bmdp.cli import progress as module
from bmdp.cli.main import app
from bmdp.cli.progress import Progress
from bmdp.policies import RandomBudgetedPolicy
from small_logs import grid


class Clock:
    """A clock that is set by hand."""

    def __init__(self):
        self.time = 0.0

    def __call__(self):
        return self.time


@pytest.fixture
def clock(monkeypatch):
    """Nobody else looks at it."""
    monkeypatch.setattr(module, "BEAT", 3600.0)
    return Clock()


@pytest.fixture
def terminal(monkeypatch):
    console = module.Console
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(module, "Console", lambda **k: console(**k, force_terminal=True))


def lines(capsys):
    return capsys.readouterr().err.splitlines()


def plain(text):
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)


def shown(clock, seconds, rate=1.0):
    """Work that does so much a second, all of it in so many seconds, is shown."""
    with Progress("working", now=clock) as progress:
        for second in range(1, seconds + 1):
            clock.time = float(second)
            progress.update(rate * second, rate * seconds)


@pytest.mark.parametrize("where", ["terminal", "clock"])
def test_work_of_less_than_two_seconds_is_silent(clock, capsys, request, where):
    request.getfixturevalue(where)
    with Progress("evaluating", now=clock) as progress:
        for clock.time in (0.0, 1.0, 1.9):
            progress.update(clock.time, 2.0)
    assert capsys.readouterr().err == ""


def test_a_line_has_counts_share_and_the_time_left(clock, capsys):
    with Progress("evaluating", unit="episodes", now=clock) as progress:
        clock.time = 30.0
        progress.update(5_000, 20_000, text="budget 0.1")
        clock.time = 120.0
    assert lines(capsys) == [
        "evaluating: 5,000 of 20,000 episodes, 25 %, 0:30 gone, about 1:30 left, budget 0.1",
        "evaluating: done in 2:00",
    ]


def test_once_all_is_done_nothing_is_said_to_be_left(clock):
    with Progress("report of lake", unit="episodes", now=clock) as progress:
        clock.time = 9.0
        progress.update(20, 20, text="finding the optimum")
        assert progress.line().endswith("100 %, 0:09 gone, finding the optimum")


def test_what_was_done_before_a_resume_took_no_time(clock, capsys):
    with Progress("fitting", before=0.8, now=clock) as progress:
        clock.time = 10.0
        progress.update(0.9, 1.0)
    assert "90 %, 0:10 gone, about 0:10 left" in lines(capsys)[0]


def test_seconds_before_a_resume_count_where_they_are_known(clock, capsys):
    with Progress("fitting", gone=60.0, now=clock) as progress:
        clock.time = 20.0
        progress.update(0.8, 1.0)
        assert progress.line() == "fitting: 80 %, 1:20 gone, about 0:20 left"


def test_nothing_is_estimated_before_something_is_done(clock, capsys):
    with Progress("fitting", before=0.5, now=clock) as progress:
        clock.time = 10.0
        progress.update(0.5, 1.0)
    assert lines(capsys)[0] == "fitting: 50 %, 0:10 gone"


@pytest.mark.parametrize(("hours", "most"), [(1, 30), (5, 60)])
def test_lines_become_ever_rarer(clock, capsys, hours, most):
    shown(clock, 3600 * hours)
    told = lines(capsys)
    gone = [re.search(r"([\d:]+) gone", line)[1] for line in told[:-1]]
    assert gone[:4] == ["0:02", "0:03", "0:05", "0:08"]
    assert 10 < len(told) <= most


def test_the_estimate_of_steady_work_is_right_at_every_line(clock, capsys):
    shown(clock, 3600)
    for line in lines(capsys)[:-1]:
        share = int(re.search(r"(\d+) %", line)[1])
        left = [int(part) for part in re.search(r"about ([\d:]+) left", line)[1].split(":")]
        seconds = sum(60**i * part for i, part in enumerate(reversed(left)))
        assert seconds == pytest.approx(3600 * (1 - share / 100), abs=37)


def test_between_two_updates_the_time_left_runs_down(clock):
    with Progress("working", now=clock) as progress:
        clock.time = 10.0
        progress.update(1, 4)
        for clock.time, left in ((10.0, "0:30"), (19.0, "0:21"), (99.0, "0:00")):
            assert progress.line().endswith(f"about {left} left")


def test_work_that_says_nothing_is_told_of_all_the_same(monkeypatch, capsys):
    monkeypatch.setattr(module, "SILENCE", 0.02)
    monkeypatch.setattr(module, "BEAT", 0.01)
    with Progress("finding the optimum"):
        time.sleep(0.3)
    told = lines(capsys)
    assert told[0] == "finding the optimum: 0:00 gone"
    assert told[-1].startswith("finding the optimum: done in 0:")


def test_work_that_fails_is_not_said_to_be_done(clock, capsys):
    def fail():
        with Progress("working", now=clock) as progress:
            clock.time = 5.0
            progress.update(1, 2)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert len(lines(capsys)) == 1


def test_a_name_is_timed_from_its_first_update_on(clock, capsys):
    with Progress("running", now=clock) as progress:
        progress.update(0.0, 1.0, name="seed-0")
        clock.time = 1.0
        progress.update(0.5, 1.0, name="seed-1")  # of which half was done before
        clock.time = 11.0
        progress.update(0.75, 1.0, name="seed-1")
    assert lines(capsys)[0] == "running seed-1: 75 %, 0:10 gone, about 0:10 left"


def test_of_several_names_lines_tell_of_the_whole_if_it_is_known(clock, capsys):
    with Progress("running", unit="tasks", now=clock) as progress:
        progress.update(1, 4)
        clock.time = 10.0
        progress.update(0.5, 1.0, name="seed-1")
    assert lines(capsys)[0].startswith("running: 1 of 4 tasks, 25 %")


def test_a_terminal_has_a_bar_for_each_name_until_it_is_done(clock, terminal, capsys):
    with Progress("running", now=clock) as progress:
        clock.time = 5.0
        progress.update(0.25, 1.0, name="seed-0", text="round 1")
        clock.time = 6.0
        progress.update(0.5, 1.0, name="seed-0", text="round 2")
        progress.update(1.0, 1.0, name="seed-1", text="round 9")
        time.sleep(0.3)  # rich draws ten times a second
    told = plain(capsys.readouterr().err)
    assert re.search(r"seed-0 .* 50 %, 0:01 gone, about 0:02 left, round 2", told)
    assert "round 9" not in told
    assert "done in" not in told


def test_a_note_is_printed_at_once_and_as_it_is(clock, capsys):
    with Progress("fitting", now=clock) as progress:
        progress.note("note: [bold] 3 episodes")
    assert lines(capsys) == ["note: [bold] 3 episodes"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a run, a log, and decisions of it."""
    folder = tmp_path_factory.mktemp("made")
    log = grid(120)
    log.to_npz(folder / "log.npz")
    grid(120, seed=1).to_npz(folder / "later.npz")
    bmdp.fit(log, gamma=0.9, out=folder / "run", device="cpu")
    RandomBudgetedPolicy(5, 0.0, 1.0).save(folder / "coin")
    line = {"episode": "a", "step": 0, "budget": 0.5, "state": [0.0, 0.0], "action": 0}
    line |= {"status": "TIGHT", "cost": 0.0, "ended": True, "time": 0.0}
    (folder / "decisions.jsonl").write_text(json.dumps(line) + "\n")
    return folder


VERBS = {
    "fit": ("fit", "--data", "log.npz", "--gamma", "0.9", "--out", "fitted"),
    "evaluate": ("evaluate", "coin", "--env", "corridors", "--episodes", "50"),
    "play": ("play", "coin", "--env", "corridors", "--budget", "0.5"),
    "calibrate": ("calibrate", "run", "--data", "later.npz", "--out", "certified"),
    "report": ("report", "run", "--no-play", "--out", "page"),
    "export": ("export", "run", "--out", "policy.onnx"),
    "solve": ("solve", "--textbook", "branches", "--method", "lp"),
    "watch": ("watch", "decisions.jsonl", "--policy", "run"),
}


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_that_may_take_long_says_how_far_it_is(made, verb, monkeypatch):
    """`run` has a test of its own; `envs` and `serve` have no work that lasts."""
    monkeypatch.chdir(made)
    monkeypatch.setattr(module, "SILENCE", -1.0)
    begun, enter = [], Progress.__enter__

    def entered(progress):
        begun.append(progress.title)
        enter(progress).update(0)  # which shows a line at once
        return progress

    monkeypatch.setattr(Progress, "__enter__", entered)
    result = commands.run(*VERBS[verb])
    assert result.exit_code == 0, result.stderr
    assert begun
    assert all(f"{title}: " in result.stderr for title in begun)


def test_all_verbs_are_thought_of():
    quick = {"envs", "serve", "run", "train"}  # train is fit
    assert set(VERBS) | quick == set(typer.main.get_command(app).commands)
