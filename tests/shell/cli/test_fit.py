import json
import shlex
from dataclasses import replace
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import bmdp
import commands
from bmdp.cli import progress
from bmdp.cli.progress import Progress
from bmdp.envs.slots import find_spec
from bmdp.learn import Iterations, collect, preset, train, train_from_data
from bmdp.learn.runs import RunFolder, spec_of
from bmdp.policies import RandomBudgetedPolicy
from training import LEARNER, OPTIONS, SPEC, Killed, content, kill_after, told


def run(*arguments):
    return commands.run("fit", *arguments, columns=200)


def lines(text):
    return [line for line in text.splitlines() if line]


def assert_is_user_error(result, *words):
    commands.assert_is_user_error(result, *words, after_notes=True)


def assert_is_bad_usage(result, *words):
    assert result.exit_code == 2
    assert result.stdout == ""
    told_words = " ".join(result.stderr.replace("│", " ").split())
    for word in words:
        assert word in told_words


def random_log():
    budgets = np.linspace(0, 1, 60)
    policy = RandomBudgetedPolicy(5, 0.0, 1.0)
    return collect(policy, SPEC.env.spec(), range(60), budgets=budgets, seed=0)


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    path = tmp_path_factory.mktemp("logs") / "log.parquet"
    random_log().to_parquet(path)
    return path


FAST = OPTIONS[4:]  # of a learner


# From an environment


def test_an_environment_is_trained_in_as_by_the_library(tmp_path):
    result = run("corridors", *OPTIONS, "--seed", 7, "--out", tmp_path / "run")
    assert result.exit_code == 0, result.stderr
    assert result.stdout == f"policy: {tmp_path / 'run' / 'policy'}\n"
    *_, unsettled, unpredicted = lines(result.stderr)
    assert unsettled.startswith("note: values have not settled after 2 iterations")
    assert unpredicted.startswith("note: no episodes were held out")
    assert "--set held_out=0.2 holds some out" in unpredicted
    train(spec_of(RunFolder(tmp_path / "run")), tmp_path / "other", seed=7)
    assert content(tmp_path / "run" / "policy") == content(tmp_path / "other" / "policy")


@pytest.mark.parametrize("verb", ["fit", "train"])
def test_train_is_the_same_verb_and_the_run_knows_its_command(tmp_path, verb):
    out = tmp_path / "a run"
    assert commands.run(verb, "corridors", *OPTIONS, "--out", out).exit_code == 0
    assert bmdp.load_policy(out)
    words = ["bmdp", verb, "corridors", *OPTIONS, "--out", str(out)]
    assert shlex.split(RunFolder(out).header["command"]) == words
    assert "The same as bmdp fit." in commands.run("--help").stdout


def test_settings_come_from_the_preset_of_the_name_and_the_options(tmp_path):
    options = (*OPTIONS, "--gamma", 0.5, "--budget-range", "0:2", "--set", "env.height=5")
    assert run("bmdp/Corridors-v0", *options, "--out", tmp_path / "run").exit_code == 0
    spec, ours = spec_of(RunFolder(tmp_path / "run")), preset("corridors")
    assert spec.env.settings == {"observe_time": True, "height": 5}
    assert (spec.learner.gamma, spec.learner.budget_range) == (0.5, (0.0, 2.0))
    assert spec.learner.slope_cap == ours.learner.slope_cap
    assert (spec.exploration.rounds, spec.exploration.episodes) == (2, 20)
    assert spec.exploration.hold == ours.exploration.hold


def test_settings_of_the_environment_alone_leave_the_rest_to_the_evidence(tmp_path):
    options = ("--set", "env.height=3", "--set=env.observe_time=true", "--episodes=60")
    result = run("corridors", *options, "--minutes=0.05", "--out", tmp_path / "run")
    assert result.exit_code == 0, result.stderr
    header = RunFolder(tmp_path / "run").header
    assert header["kind"] == "fit"
    assert header["source"]["settings"] == {"height": 3, "observe_time": True}
    assert "asked" in result.stdout  # a forecast
    assert_is_user_error(run("corridors", "--set=env.hight=3", "--out", tmp_path / "no"), "height")


def test_another_preset_can_be_named(tmp_path):
    options = ("--episodes=4", "--set=exploration.rounds=2", "--set=learner.schedule=Iterations")
    options = (*options, "--set=learner.schedule.n=1", "--set=learner.model.regression.steps=1")
    asked = ("corridors", *options, "--preset", "paper-corridors-ftq", "--out", tmp_path / "run")
    result = run(*asked)
    assert result.exit_code == 0, result.stderr
    model = spec_of(RunFolder(tmp_path / "run")).learner.model
    ours = preset("paper-corridors-ftq").learner.model
    assert model == replace(ours, regression=replace(ours.regression, steps=1))


def test_a_foreign_environment_has_plain_settings_and_its_own_discount(tmp_path, monkeypatch):
    spec = replace(find_spec("corridors"), id="Mine-v0")
    monkeypatch.setitem(gymnasium.registry, "Mine-v0", spec)
    assert run("Mine-v0", *OPTIONS[:3], *FAST, "--out", tmp_path / "run").exit_code == 0
    found = spec_of(RunFolder(tmp_path / "run"))
    assert (found.env.id, found.env.settings, found.learner.gamma) == ("Mine-v0", {}, 1.0)
    assert found.learner.slope_cap == LEARNER.slope_cap


def test_episodes_that_rounds_do_not_divide_are_rounded_up_and_it_is_said(tmp_path):
    result = run("corridors", *OPTIONS, "--episodes", 41, "--out", tmp_path / "run")
    assert lines(result.stderr)[0] == "note: 2 rounds of 21 episodes, 42 in all"


def test_the_result_is_there_as_json(tmp_path):
    result = run("corridors", *OPTIONS, "--out", tmp_path / "run", "--json")
    found = json.loads(result.stdout)
    assert found["policy"] == str(tmp_path / "run" / "policy")
    assert (found["rounds"], found["iterations"], found["device"]) == (2, 4, "cpu")
    assert found["prediction"] is None
    assert Path(found["policy"]).is_dir()


# What to expect

HELD_OUT = ("--set=held_out=0.3", "--set=learner.model=LinearModel")


def test_what_to_expect_is_told_if_episodes_are_held_out(tmp_path):
    result = run("corridors", *OPTIONS, *HELD_OUT, "--out", tmp_path / "run")
    assert result.exit_code == 0, result.stderr
    predicted = RunFolder(tmp_path / "run").prediction()
    rows = [line.split("│")[1:4] for line in lines(result.stdout) if "│" in line]
    assert [float(row[0]) for row in rows] == pytest.approx(predicted["budgets"])
    assert [float(row[1]) for row in rows] == pytest.approx(predicted["cost"], abs=5e-4)
    assert [float(row[2]) for row in rows] == pytest.approx(predicted["reward"], rel=1e-3)
    assert lines(result.stdout)[-1] == "predicted from 12 episodes that were not learned from"
    found = json.loads(run("--resume", tmp_path / "run", "--json").stdout)
    assert found["prediction"] == predicted
    assert found["last"]["kind"] == "iteration"


def test_episodes_of_a_log_can_be_held_out(tmp_path, log):
    options = ("--gamma", 1, *FAST, *HELD_OUT, "--out", tmp_path / "run")
    result = run("--data", log, *options)
    assert result.exit_code == 0, result.stderr
    assert "predicted from 18 episodes that were not learned from" in result.stdout
    assert spec_of(RunFolder(tmp_path / "run")).held_out == 0.3


# Progress


def test_the_share_that_is_done_is_told_record_by_record(tmp_path, updates):
    assert run("corridors", *OPTIONS, "--out", tmp_path / "run").exit_code == 0
    assert [6 * done for done, *_ in updates] == pytest.approx([0, 1, 2, 2, 4, 6])
    assert "round 2" in updates[4][2]
    assert "iteration 1" in updates[4][2]


def test_what_was_done_before_a_resume_is_known(tmp_path, monkeypatch, updates):
    seen, begin = [], Progress.__init__
    monkeypatch.setattr(
        Progress, "__init__", lambda self, *a, **k: (seen.append(k), begin(self, *a, **k))[1]
    )
    with pytest.raises(Killed):
        train(SPEC, tmp_path / "run", seed=0, on_record=kill_after(5))
    assert run("--resume", tmp_path / "run").exit_code == 0
    assert 6 * seen[-1]["before"] == pytest.approx(4)
    assert [6 * done for done, *_ in updates][-1] == pytest.approx(6)


@pytest.fixture
def updates(monkeypatch):
    """Calls of `Progress.update`."""
    seen, update = [], Progress.update

    def watched(self, done, total, text="", name=""):
        seen.append((done, total, text))
        update(self, done, total, text, name)

    monkeypatch.setattr(Progress, "update", watched)
    return seen


def test_long_work_is_told_of_on_stderr(tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "SILENCE", 0.0)
    result = run("corridors", *OPTIONS, "--out", tmp_path / "run")
    told = [line for line in lines(result.stderr) if line.startswith("fitting: ")]
    assert "%" in told[0]
    assert told[-1].startswith("fitting: done in ")


# Whether values have settled


def forever(tmp_path):
    """A log of one state that never ends, in which action 1 costs 0.01 a step."""
    rng, n = np.random.default_rng(0), 300
    action = rng.integers(2, size=n)
    log = bmdp.TransitionBatch(
        *(np.zeros(n), action, 1.0 * action, 0.01 * action, np.zeros(n), np.zeros(n, bool)),
        episode=np.arange(n) // 30,
    )
    log.to_npz(tmp_path / "log.npz")
    return tmp_path / "log.npz"


def test_values_that_have_not_settled_are_told_of_in_one_line(tmp_path):
    asked = ("--data", forever(tmp_path), "--gamma", 0.99, "--set=learner.model=TableModel")
    asked = (*asked, "--set=learner.schedule=Iterations")
    result = run(*asked, "--set=learner.schedule.n=10", "--out", tmp_path / "few")
    assert (result.exit_code, result.stdout) == (0, f"policy: {tmp_path / 'few' / 'policy'}\n")
    (note,) = [line for line in lines(result.stderr) if "settled" in line]
    begin, hint = note.split(": give more by ")
    assert begin.startswith("note: values have not settled after 10 iterations; they may still ")
    assert 500 < float(begin.split(" by ")[1].removesuffix(" %").replace(",", "")) < 2000
    assert hint == "--set learner.schedule=Iterations --set learner.schedule.n=40"
    result = run(*asked, "--out", tmp_path / "many")
    assert result.exit_code == 0
    assert "settled" not in result.stderr
    assert spec_of(RunFolder(tmp_path / "many")).learner.schedule == Iterations()


# Resuming


def test_control_c_is_told_in_one_line_with_the_command(tmp_path, monkeypatch):
    seen = []

    def interrupted(self, *given, **others):
        seen.append(given)
        if len(seen) == 4:
            raise KeyboardInterrupt

    folder = tmp_path / "run"
    with monkeypatch.context() as patched:
        patched.setattr(Progress, "update", interrupted)
        result = run("corridors", *OPTIONS, "--out", folder)
    assert result.exit_code == 130
    assert result.stdout == ""
    assert lines(result.stderr) == [f"stopped; go on with: bmdp fit --resume {folder}"]
    result = run("--resume", folder)
    assert result.exit_code == 0
    assert result.stdout == f"policy: {folder / 'policy'}\n"
    run("corridors", *OPTIONS, "--out", tmp_path / "whole")
    assert content(folder / "policy") == content(tmp_path / "whole" / "policy")
    assert told(RunFolder(folder).records()) == told(RunFolder(tmp_path / "whole").records())
    result = run("--resume", folder)
    assert (result.exit_code, lines(result.stderr)[0]) == (0, f"{folder} is finished.")


def test_a_folder_is_overwritten_only_by_force_and_only_if_it_is_a_run(tmp_path):
    train(replace(SPEC, learner=replace(LEARNER, gamma=0.5)), tmp_path / "run", seed=0)
    asked = ("corridors", *OPTIONS, "--out", tmp_path / "run")
    assert_is_user_error(run(*asked), "exists already", "or resume the run in it")
    assert run(*asked, "--force").exit_code == 0
    assert spec_of(RunFolder(tmp_path / "run")).learner.gamma == 1.0
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("")
    asked = ("corridors", *OPTIONS, "--out", tmp_path / "mine", "--force")
    assert_is_user_error(run(*asked), "is no training run, and is not overwritten")


def test_a_mistake_does_not_cost_the_run_that_is_there(tmp_path):
    train(SPEC, tmp_path / "run", seed=0)
    before = content(tmp_path / "run" / "policy")
    path = changed_log(tmp_path, episode=0)
    asked = ("--data", path, "--gamma", 1, "--set=learner.ensemble=3")
    result = run(*asked, "--out", tmp_path / "run", "--force")
    assert_is_user_error(result, "at least 3 episodes", "Use learner.ensemble=1.")
    result = run("corridors", "--set=learner.gama=1", "--out", tmp_path / "run", "--force")
    assert_is_user_error(result, "Did you mean 'gamma'?")
    assert content(tmp_path / "run" / "policy") == before
    result = run("corridors", *OPTIONS, "--device", "abacus", "--out", tmp_path / "run", "--force")
    assert_is_user_error(result, "device must be")
    assert content(tmp_path / "run" / "policy") == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["log.npz", "run"]


def test_a_run_that_is_worked_on_is_not_overwritten(tmp_path):
    train(SPEC, tmp_path / "run", seed=0)
    with RunFolder(tmp_path / "run").locked():
        result = run("corridors", *OPTIONS, "--out", tmp_path / "run", "--force")
    assert_is_user_error(result, "in use")
    assert bmdp.load_policy(tmp_path / "run")


@pytest.mark.parametrize(
    ("name", "damage", "words"),
    [
        ("spec.json", b"{", ("spec.json is not JSON",)),
        (
            "round-000/fit/step-0000.safetensors",
            b"x",
            ("step-0000.safetensors is damaged", "Delete the folder"),
        ),
    ],
)
def test_damage_is_told_in_one_line(tmp_path, name, damage, words):
    train_from_data(random_log(), LEARNER, tmp_path / "run", seed=0)
    for left in ("done", "policy", "round-000/policy"):
        (tmp_path / "run" / left).rename(tmp_path / left.replace("/", "-"))
    (tmp_path / "run" / name).parent.mkdir(exist_ok=True)
    (tmp_path / "run" / name).write_bytes(damage)
    assert_is_user_error(run("--resume", tmp_path / "run"), *words)


# From a log


def test_a_log_is_learned_from(tmp_path, log):
    options = ("--gamma", 1, "--budget-range", "0:1", *FAST)
    result = run("--data", log, *options, "--out", tmp_path / "run")
    assert result.exit_code == 0, result.stderr
    assert result.stdout == f"policy: {tmp_path / 'run' / 'policy'}\n"
    policy = bmdp.load_policy(tmp_path / "run")
    assert policy.act([3.5, 0.5, 0.0], 0.5, np.random.default_rng(0)).action in range(5)
    assert RunFolder(tmp_path / "run").header["data"]["files"] == [str(log)]


def test_several_logs_are_learned_from_as_a_shell_lists_them(tmp_path, log):
    random_log().to_npz(tmp_path / "more.npz")
    options = ("--gamma", 1, *FAST, "--out", tmp_path / "run")
    assert run("--data", log, tmp_path / "more.npz", *options).exit_code == 0
    data = RunFolder(tmp_path / "run").header["data"]
    assert data["files"] == [str(log), str(tmp_path / "more.npz")]
    assert data["transitions"] == 2 * len(random_log())


def test_a_log_is_learned_from_by_the_settings_of_a_preset(tmp_path, log):
    options = ("--preset", "two-way", *FAST, "--out", tmp_path / "run")
    assert run("--data", log, *options).exit_code == 0
    assert spec_of(RunFolder(tmp_path / "run")).learner.gamma == preset("two-way").learner.gamma


def test_learning_from_a_log_is_resumed(tmp_path, log):
    options = ("--gamma", 1, *FAST, "--out", tmp_path / "run")
    assert run("--data", log, *options).exit_code == 0
    for left in ("done", "policy", "round-000/policy"):
        (tmp_path / "run" / left).rename(tmp_path / left.replace("/", "-"))
    assert run("--resume", tmp_path / "run").exit_code == 0
    assert content(tmp_path / "run" / "policy") == content(tmp_path / "policy")


def changed_log(tmp_path, **changes):
    batch = random_log()
    columns = {name: np.full_like(getattr(batch, name), v) for name, v in changes.items()}
    arrays = {**batch.to_arrays(), **columns, "n_actions": np.array(batch.n_actions)}
    np.savez(tmp_path / "log.npz", **arrays)
    return tmp_path / "log.npz"


@pytest.mark.parametrize(
    ("changes", "options", "note"),
    [
        ({"cost": 0.0}, (), "note: all costs are 0: every budget is the same"),
        ({"action": 2}, (), "note: only action 2 was ever taken: there is nothing to choose from"),
        ({}, ("--budget-range", "7:9"), "note: budget_range, 7 to 9, is above what any episode"),
    ],
)
def test_what_to_beware_of_is_noted_on_stderr(tmp_path, changes, options, note):
    path = changed_log(tmp_path, **changes)
    result = run("--data", path, "--gamma", 1, *options, *FAST, "--out", tmp_path / "run")
    assert result.exit_code == 0
    assert [line for line in lines(result.stderr) if line.startswith(note)]
    assert result.stdout.startswith("policy: ")


# Errors


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "give ENV, --data FILE or --resume RUN"),
        (("corridors",), "--out RUN must be given"),
        (("corridors", "slot-filling", "--out", "RUN"), "one ENV at a time"),
        (("--data", "log.npz", "--out", "RUN"), "--data needs --gamma"),
        (("--data", "log.npz", "--gamma", 1, "--episodes", 3, "--out", "RUN"), "is for exploring"),
        (("--data", "log.npz", "--set", "held_out=0.2", "--out", "RUN"), "--data needs --gamma"),
        (("corridors", "--minutes", 1, "--set", "seed=1", "--out", "RUN"), "--minutes is for a"),
        (("--resume", "RUN", "--minutes", 1), "--resume takes everything from the run"),
        (("--resume", "RUN", "--gamma", 1), "--resume takes everything from the run"),
        (("corridors", "--resume", "RUN"), "--resume takes everything from the run"),
        (("corridors", "--episodes", 0, "--out", "RUN"), "--episodes"),
    ],
)
def test_bad_usage(arguments, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert_is_bad_usage(run(*arguments), words)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("corridor",), ("no environment is called 'corridor'", "Did you mean 'corridors'?")),
        (("corridors", "--preset", "corridor"), ("Did you mean 'corridors'?",)),
        (("corridors", "--set", "learner.gama=1"), ("no setting 'gama'", "Did you mean 'gamma'?")),
        (("corridors", "--set", "gamma=1"), ("no setting 'gamma'", "Did you mean learner.gamma?")),
        (("corridors", "--set", "iterations=3"), ("Did you mean learner.schedule=Iterations?",)),
        (("corridors", "--set", "centres=3"), ("Did you mean learner.model.centres?",)),
        (("corridors", "--set", "rounds=3"), ("Did you mean exploration.rounds?",)),
        (("corridors", "--set", "learner.gamma=x"), ("learner.gamma must be a number; got 'x'",)),
        (("corridors", "--set", "env.observe=1"), ("Did you mean 'observe_time'?",)),
        (("corridors", "--budget-range", "1:0"), ("--budget-range low:high must rise",)),
        (("corridors", "--budget-range", "1"), ("--budget-range must be low:high; got '1'",)),
        (("corridors", "--device", "abacus"), ('device must be "cpu", "cuda" or "auto"',)),
        (("--data", "no.npz", "--gamma", 1), ("no.npz does not exist",)),
        (("--data", "no.xlsx", "--gamma", 1), ("must end in one of .parquet",)),
        (("--data", "no.csv", "--gamma", 1), ("no.csv does not exist",)),
        (("--data", "no.npz", "--gamma", 1, "--set", "held_out=0"), ("no.npz does not exist",)),
        (("corridors", "--minutes", 0), ("minutes must be above 0 and finite; got 0.0.",)),
        (("corridors", "--episodes", 20), ("episodes must be a whole number from 50 on; got 20.",)),
        (("corridors", "--gamma", 2), ("gamma must be from 0 to 1; got 2.0.",)),
        (("log.parquet",), ("log.parquet does not exist",)),
    ],
)
def test_errors_of_the_user_are_told_in_one_line(arguments, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert_is_user_error(run(*arguments, "--out", tmp_path / "run"), *words)
    assert not list(tmp_path.iterdir())


def test_what_is_no_run_cannot_be_resumed(tmp_path):
    assert_is_user_error(run("--resume", tmp_path), "is no training run")


# The list of settings


def test_help_lists_all_settings_with_value_type_and_meaning():
    result = run("corridors", "--set", "help")
    assert result.exit_code == 0
    told_of = dict(line.split("=", 1) for line in lines(result.stdout))
    assert told_of["learner.gamma"].startswith("1.0  (number): discount of rewards")
    assert told_of["env.height"] == "6  (int): number of rows, from 3 on"
    assert told_of["exploration.rounds"] == "10  (whole number): number of rounds"
    assert "held_out" in told_of
    assert all("): " in text for name, text in told_of.items() if not name.startswith("env."))


def test_help_lists_the_settings_as_they_were_changed_before():
    changes = ("--set", "learner.schedule=Iterations", "--set", "learner.schedule.n=7")
    result = run("--data", "log.npz", *changes, "--set", "help")
    assert "learner.schedule.n=7  (whole number or null): iterations at most" in result.stdout
    assert "env." not in result.stdout


@pytest.mark.parametrize("name", ["iterations", "learner.iterations"])
def test_a_setting_that_is_elsewhere_is_told_with_its_path(tmp_path, name):
    result = run("corridors", "--set", f"{name}=30", "--out", tmp_path / "run")
    assert_is_user_error(result, "Did you mean learner.schedule=Iterations?")
