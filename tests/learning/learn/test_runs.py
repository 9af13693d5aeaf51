import dataclasses
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest
import torch

import bmdp
from bmdp import ConfigError, DataError, StoreError, TransitionBatch, settings, storage
from bmdp.learn import (
    Backward,
    EnvConfig,
    Exploration,
    FTQConfig,
    Iterations,
    collect,
    explore,
    resume,
    runs,
    train,
    train_from_data,
)
from bmdp.learn.explore import RoundRecord
from bmdp.learn.fit import Record
from bmdp.learn.runs import (
    FitKeeper,
    RunFolder,
    data_notes,
    discard,
    last_line,
    read_records,
    share_done,
)
from bmdp.models import EncoderNet, ForestModel, FrontierNet, KernelModel, LinearModel, Regression
from bmdp.policies import Portfolio, RandomBudgetedPolicy
from ferries import retold
from training import LEARNER, OPTIONS, SPEC, Killed, content, kill_after, row, told, with_learner

NEXT = storage.SCHEMA + 1
COMMAND = [sys.executable, "-c", "from bmdp.cli.main import main; main()", "train"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nothing interrupted."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    train(SPEC, folder, seed=0)
    return folder


@pytest.fixture(scope="module")
def log():
    random_policy = RandomBudgetedPolicy(5, 0.0, 1.0)
    budgets = np.linspace(0, 1, 60)
    return collect(random_policy, SPEC.env.spec(), range(60), budgets=budgets, seed=0)


def network(**changes):
    return EncoderNet((8,), (4,), regression=Regression(**{"steps": 3} | changes))


def of_one_price(changes):
    """The same with one price, and a network that takes no budget."""
    settings = {"schedule": LEARNER.schedule, "ensemble": 2} | changes
    model = settings.get("model", network())
    if isinstance(model, EncoderNet | FrontierNet):
        settings["model"] = FrontierNet((8,), "free", regression=model.regression)
    return replace(SPEC, learner=FTQConfig(gamma=1.0, **settings))


def without_truth(batch, **changes):
    """A batch with other columns."""
    columns = {**batch.to_arrays(), **changes}
    return TransitionBatch(
        **{name: values for name, values in columns.items() if values is not None},
        n_actions=batch.n_actions,
    )


# What a run leaves


def test_a_run_leaves_what_exploring_gives(whole):
    policy, records = bmdp.load_policy(whole), RunFolder(whole).records()
    expected = explore(SPEC, seed=0)
    states = expected.batch.state[:50]
    np.testing.assert_array_equal(policy.q_function(states), expected.policy.q_function(states))
    assert told(records) == told(expected.records)


def test_the_folder_is_as_the_design_has_it(whole):
    assert sorted(os.listdir(whole)) == [
        *("done", "lock", "policy", "records.jsonl", "round-000", "round-001", "spec.json")
    ]
    assert sorted(os.listdir(whole / "round-001")) == ["batch.npz", "policy"]
    assert content(whole / "policy") == content(whole / "round-001" / "policy")
    batches = [TransitionBatch.from_npz(path) for path in sorted(whole.glob("*/batch.npz"))]
    assert [np.unique(batch.episode).tolist() for batch in batches] == [
        list(range(20)),
        list(range(20, 40)),
    ]
    header = json.loads((whole / "spec.json").read_text())
    assert header["threads"] == torch.get_num_threads()
    assert header["seed"] == 0


def test_records_are_told_as_they_come(tmp_path):
    seen = []
    train(SPEC, tmp_path / "run", seed=0, on_record=seen.append)
    assert [(r.kind, r.round) for r in seen] == [
        *(("collection", 0), ("iteration", 0), ("iteration", 0)),
        *(("collection", 1), ("iteration", 1), ("iteration", 1)),
    ]
    assert RunFolder(tmp_path / "run").records() == [row(record) for record in seen]


def test_a_loss_that_is_no_number_is_null_in_the_records(whole):
    folder = RunFolder(whole)
    before = (whole / "records.jsonl").read_text()
    fields = dict.fromkeys((field.name for field in dataclasses.fields(Record)), 1)
    folder.note(RoundRecord(1, Record(**fields | {"first_loss": float("nan")})))
    assert folder.records()[-1]["first_loss"] is None
    (whole / "records.jsonl").write_text(before)


# Going on after a kill


@pytest.mark.parametrize("n_records", range(1, 7))
def test_a_run_that_is_killed_at_any_record_ends_as_if_it_had_not_been(whole, tmp_path, n_records):
    with pytest.raises(Killed):
        train(SPEC, tmp_path / "run", seed=0, on_record=kill_after(n_records))
    resume(tmp_path / "run")
    assert_as_whole(tmp_path / "run", whole)


def test_a_run_that_is_killed_before_it_drops_a_learner_drops_it_later(
    whole, tmp_path, monkeypatch
):
    def killed(keeper):
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(FitKeeper, "discard", killed)
        with pytest.raises(Killed):
            train(SPEC, tmp_path / "run", seed=0)
    left = sorted(os.listdir(tmp_path / "run" / "round-000"))
    assert left == ["batch.npz", "fit", "policy"]
    resume(tmp_path / "run")
    assert sorted(os.listdir(tmp_path / "run" / "round-000")) == ["batch.npz", "policy"]
    assert content(tmp_path / "run" / "policy") == content(whole / "policy")


@pytest.mark.parametrize("n_writes", range(1, 110, 9))
def test_a_run_that_is_killed_while_it_writes_ends_as_if_it_had_not_been(
    whole, tmp_path, monkeypatch, n_writes
):
    left = [n_writes]

    def to_disk(path):
        left[0] -= 1
        if left[0] == 0:
            raise Killed

    monkeypatch.setattr(storage, "to_disk", to_disk)
    try:
        train(SPEC, tmp_path / "run", seed=0)
    except Killed:
        if not (tmp_path / "run").exists():  # nothing had begun
            train(SPEC, tmp_path / "run", seed=0)
        resume(tmp_path / "run")
    assert_as_whole(tmp_path / "run", whole)


def assert_as_whole(run, whole):
    assert content(run / "policy") == content(whole / "policy")
    assert told(RunFolder(run).records()) == told(RunFolder(whole).records())
    assert not [path for path in run.rglob(".*")]


@pytest.mark.parametrize(
    "changes",
    [
        {"model": network(start="restart", keep_moments=True)},
        {"model": network(start="warm", keep_moments=False)},
        {"model": network(steps=6, batch_size=16)},
        {"model": FrontierNet((8,), regression=Regression(steps=3)), "pooled": True},
        {"model": EncoderNet((8,), (4,), labels="stored", regression=Regression(steps=3))},
        {"model": LinearModel(), "ensemble": 1},
        {"model": KernelModel(5), "schedule": Backward()},
        {"model": ForestModel(3), "schedule": Backward()},
        {"schedule": Backward()},
        {"schedule": Iterations(5, settled=0.0, stop_loss=1e9)},
    ],
    ids=[
        *("restart", "moments", "batches", "frontier", "stored", "linear", "kernel", "forest"),
        *("backward", "early"),
    ],
)
@pytest.mark.parametrize("kind", ["BFTQ", "FTQ"])
def test_every_learner_goes_on_from_its_checkpoint(tmp_path, changes, kind):
    spec = with_learner(**changes) if kind == "BFTQ" else of_one_price(changes)
    train(spec, tmp_path / "whole", seed=4)
    n_records = len(RunFolder(tmp_path / "whole").records())
    with pytest.raises(Killed):  # the first iteration of the second round is noted, not kept
        train(spec, tmp_path / "run", seed=4, on_record=kill_after(n_records // 2 + 2))
    with pytest.raises(Killed):  # the second one is
        resume(tmp_path / "run", on_record=kill_after(2))
    resume(tmp_path / "run")
    assert_as_whole(tmp_path / "run", tmp_path / "whole")


def test_a_learner_that_stopped_early_has_stopped(tmp_path):
    """Killed between the last iteration and the policy, it does not iterate again."""
    spec = with_learner(schedule=Iterations(5, settled=0.0, stop_loss=1e9))
    train(spec, tmp_path / "run", seed=0)
    n_records = len(RunFolder(tmp_path / "run").records())
    for name in ("done", "policy", "round-001/policy"):
        os.rename(tmp_path / "run" / name, tmp_path / name.replace("/", "-"))
    resume(tmp_path / "run")
    assert content(tmp_path / "run" / "policy") == content(tmp_path / "policy")
    assert len(RunFolder(tmp_path / "run").records()) == n_records


def test_threads_are_those_of_the_run_and_then_as_before(tmp_path):
    with pytest.raises(Killed):
        train(SPEC, tmp_path / "run", seed=0, on_record=kill_after(2))
    header = json.loads((tmp_path / "run" / "spec.json").read_text())
    del header["checksum"]
    (tmp_path / "run" / "spec.json").write_text(json.dumps({**header, "threads": 3}))
    before, seen = torch.get_num_threads(), []
    resume(tmp_path / "run", on_record=lambda record: seen.append(torch.get_num_threads()))
    assert set(seen) == {3}
    assert torch.get_num_threads() == before


def start(*arguments):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    return subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_records(process, run, number):
    """Waits until a run has so many records, or is over."""
    path = run / "records.jsonl"
    while process.poll() is None:
        if path.exists() and path.read_bytes().count(b"\n") >= number:
            return
        time.sleep(0.001)


@pytest.mark.slow
def test_a_process_killed_again_and_again_ends_as_if_it_had_not_been(tmp_path):
    chance = random.Random(0)
    options = (*OPTIONS, "--set=learner.model.regression.steps=200", "--seed=5", "--device=cpu")
    process = start("corridors", *options, "--out", tmp_path / "whole")
    process.communicate(timeout=120)
    assert process.returncode == 0
    run, n_killed = tmp_path / "run", 0
    process = start("corridors", *options, "--out", run)
    for number in range(1, 7):
        wait_for_records(process, run, number)
        time.sleep(chance.uniform(0, 0.03))
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=60)
        n_killed += process.returncode == -signal.SIGKILL
        process = start("--resume", run)
    process.communicate(timeout=120)
    assert process.returncode == 0
    assert n_killed >= 4
    assert_as_whole(run, tmp_path / "whole")


@pytest.mark.slow
def test_control_c_leaves_a_run_that_goes_on(tmp_path):
    run = tmp_path / "run"
    process = start(
        "corridors", *OPTIONS, "--set=learner.model.regression.steps=1000", "--out", run
    )
    wait_for_records(process, run, 2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out == ""
    assert err.splitlines()[-1] == f"stopped; go on with: bmdp fit --resume {run}"
    assert "Traceback" not in err
    process = start("--resume", run)
    out, _ = process.communicate(timeout=120)
    assert out == f"policy: {run / 'policy'}\n"


# Folders


def test_a_finished_run_gives_its_policy_at_once(whole):
    before = content(whole)
    policy = resume(whole, on_record=kill_after(1))
    assert policy.budget_range == (0.0, 1.0)
    assert content(whole) == before


def test_an_existing_folder_is_refused(whole, tmp_path, log):
    with pytest.raises(StoreError, match="exists already: choose another folder, or resume"):
        train(SPEC, whole, seed=0)
    with pytest.raises(StoreError, match="exists already: choose another folder, or resume"):
        train_from_data(log, LEARNER, whole, seed=0)
    with pytest.raises(StoreError, match=r"exists already: choose another folder\.$"):
        train(SPEC, tmp_path, seed=0)


def test_wrong_settings_leave_no_folder(tmp_path):
    wrong = replace(SPEC, env=EnvConfig("corridors", {"observe_tme": True}))
    with pytest.raises(ConfigError, match="does not take the settings"):
        train(wrong, tmp_path / "run", seed=0)
    with pytest.raises(ConfigError, match="seed must be a whole number"):
        train(SPEC, tmp_path / "run", seed=-1)
    with pytest.raises(ConfigError, match=r'device must be "cpu", "cuda" or "auto"; got .abacus'):
        train(SPEC, tmp_path / "run", seed=0, device="abacus")
    with pytest.raises(ConfigError, match="device 'cuda:99' is not here"):
        train(SPEC, tmp_path / "run", seed=0, device="cuda:99")
    with pytest.raises(ConfigError, match="workers must be a whole number"):
        train(SPEC, tmp_path / "run", seed=0, workers=0)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_no_run_cannot_be_resumed(tmp_path):
    with pytest.raises(StoreError, match=r"is no training run: there is no spec\.json in it"):
        resume(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", r"spec\.json is not JSON"),
        ("[]", r"spec\.json is not of a training run"),
        (f'{{"schema": {NEXT}}}', f"is of schema {NEXT}, newer than {NEXT - 1}: upgrade bmdp"),
        ('{"schema": 1, "spec": {}}', "was begun by bmdp 0.1.0, which this version does not go on"),
        (
            f'{{"schema": {NEXT - 1}, "spec": {{}}}}',
            r"spec\.json does not make sense: .*must be given",
        ),
    ],
)
def test_a_damaged_specification_is_told_in_one_line(tmp_path, text, message):
    (tmp_path / "spec.json").write_text(text)
    with pytest.raises(StoreError, match=message):
        resume(tmp_path)


@pytest.mark.parametrize("name", ["seed", "device", "threads"])
def test_a_specification_without_its_numbers_is_refused(tmp_path, name):
    with pytest.raises(Killed):
        train(SPEC, tmp_path / "run", seed=0, on_record=kill_after(1))
    path = tmp_path / "run" / "spec.json"
    header = json.loads(path.read_text())
    path.write_text(json.dumps({k: v for k, v in header.items() if k not in (name, "checksum")}))
    with pytest.raises(StoreError, match=rf"spec\.json .*{name} must be given"):
        resume(tmp_path / "run")


@pytest.mark.parametrize("how", ["cut", "flipped", "nothing"])
def test_a_damaged_checkpoint_is_told_with_the_way_out(whole, tmp_path, how):
    with pytest.raises(Killed):
        train(SPEC, tmp_path / "run", seed=0, on_record=kill_after(3))
    path = tmp_path / "run" / "round-000" / "fit" / "step-0000.safetensors"
    found = bytearray(path.read_bytes())
    found[-1] ^= 1
    path.write_bytes({"cut": found[:-10], "flipped": found, "nothing": b""}[how])
    with pytest.raises(StoreError, match=r"step-0000.* is damaged\. Delete the folder .*fit and"):
        resume(tmp_path / "run")
    shutil.rmtree(path.parent)
    resume(tmp_path / "run")
    assert_as_whole(tmp_path / "run", whole)


def test_a_damaged_batch_is_told(tmp_path):
    with pytest.raises(Killed):
        train(SPEC, tmp_path / "run", seed=0, on_record=kill_after(3))
    path = tmp_path / "run" / "round-000" / "batch.npz"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(StoreError, match=r"batch\.npz is not an npz file"):
        resume(tmp_path / "run")


def test_two_processes_cannot_work_in_one_folder(tmp_path):
    with pytest.raises(Killed):
        train(SPEC, tmp_path / "run", seed=0, on_record=kill_after(1))
    with RunFolder(tmp_path / "run").locked():
        with pytest.raises(StoreError, match=f"is in use by process {os.getpid()}"):
            resume(tmp_path / "run")
        with pytest.raises(StoreError, match="is in use"):
            discard(tmp_path / "run")
    resume(tmp_path / "run")  # the file is there still, but nobody holds it


def test_only_runs_are_discarded(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("all I have")
    with pytest.raises(StoreError, match="is no training run, and is not overwritten"):
        discard(tmp_path / "mine")
    (tmp_path / "empty").mkdir()
    discard(tmp_path / "empty")
    discard(tmp_path / "nothing")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_an_unfinished_run_has_no_policy_yet(tmp_path):
    with pytest.raises(Killed):
        train(SPEC, tmp_path / "run", seed=0, on_record=kill_after(5))
    with pytest.raises(StoreError, match="is not finished: bmdp fit --resume"):
        bmdp.load_policy(tmp_path / "run")
    assert bmdp.load_policy(tmp_path / "run" / "round-000" / "policy").budget_range == (0.0, 1.0)


@pytest.mark.slow
def test_any_policy_of_a_run_can_be_loaded_by_a_new_process(whole, tmp_path):
    train(of_one_price({}), tmp_path / "priced", seed=0)
    code = "import sys, bmdp; print(*(type(bmdp.load_policy(f)).__name__ for f in sys.argv[1:]))"
    train(with_learner(schedule=Backward()), tmp_path / "staged", seed=0)
    folders = [whole, tmp_path / "priced", tmp_path / "staged"]
    out = subprocess.run([sys.executable, "-c", code, *folders], check=True, capture_output=True)
    kinds = out.stdout.decode().split()
    assert kinds == ["HullPolicy", "PricedPolicy", "HullPolicy"]


# Learning from data


def test_learning_from_data_is_a_run_as_well(tmp_path, log):
    files = [tmp_path / "log.npz"]
    log.to_npz(files[0])
    expected = bmdp.BFTQ(LEARNER).fit(log, seed=2)
    with pytest.raises(Killed):
        train_from_data(
            log, LEARNER, tmp_path / "run", seed=2, files=files, on_record=kill_after(2)
        )
    policy = resume(tmp_path / "run")
    states = log.state[:50]
    np.testing.assert_array_equal(policy.q_function(states), expected.q_function(states))
    header = json.loads((tmp_path / "run" / "spec.json").read_text())
    assert header["kind"] == "data"
    assert header["data"]["files"] == [str(files[0])]
    assert len(RunFolder(tmp_path / "run").records()) == 2


def test_a_log_that_is_at_hand_is_written_once_and_not_read_back(tmp_path, log, monkeypatch):
    calls = []

    def count(owner, name, where=lambda *given, **named: True):
        function = getattr(owner, name)

        def counted(*given, **named):
            if where(*given, **named):
                calls.append(name)
            return function(*given, **named)

        monkeypatch.setattr(owner, name, counted)

    for name in ("batch", "keep_batch"):
        count(RunFolder, name)
    for owner, name in ((runs, "split_episodes"), (runs, "read_header"), (settings, "read")):
        count(owner, name)
    count(runs, "arrays_hash", lambda arrays, mark="": "next_state" in arrays)
    train_from_data(log, LEARNER, tmp_path / "run", seed=2, held_out=0.2)
    assert sorted(calls) == ["arrays_hash", "keep_batch", "split_episodes"]


def test_a_run_of_a_log_is_not_there_before_its_data_are(tmp_path, log, monkeypatch):
    def killed(*arguments):
        raise Killed

    monkeypatch.setattr(RunFolder, "keep_batch", killed)
    with pytest.raises(Killed):
        train_from_data(log, LEARNER, tmp_path / "run", seed=2)
    assert not list(tmp_path.iterdir())


def test_notes_are_told_before_there_is_anything(tmp_path, log):
    told_before = []

    def on_note(note):
        told_before.append((note, (tmp_path / "run").exists()))

    config = replace(LEARNER, budget_range=(5, 6))
    train_from_data(log, config, tmp_path / "run", seed=0, on_note=on_note)
    ((note, was_there),) = told_before
    assert "5 to 6" in note
    assert not was_there


def test_a_run_says_what_asked_for_it_when_and_on_which_machine(tmp_path, log, whole):
    before = datetime.now(UTC).replace(microsecond=0)
    train_from_data(log, LEARNER, tmp_path / "run", seed=0, command="bmdp train --data log.npz")
    header = RunFolder(tmp_path / "run").header
    assert header["command"] == "bmdp train --data log.npz"
    assert before <= datetime.fromisoformat(header["began"]) <= datetime.now(UTC)
    assert header["machine"] == runs.machine()
    assert header["machine"]["cores"] == os.cpu_count()
    assert RunFolder(whole).header["command"] == ""


def test_a_run_of_an_earlier_version_without_these_is_resumed(whole, tmp_path):
    with pytest.raises(Killed):
        train(SPEC, tmp_path / "run", seed=0, on_record=kill_after(4))
    path, later = tmp_path / "run" / "spec.json", ("command", "began", "machine", "checksum")
    header = json.loads(path.read_text())
    path.write_text(json.dumps({k: v for k, v in header.items() if k not in later}))
    resume(tmp_path / "run")
    assert_as_whole(tmp_path / "run", whole)


def test_other_data_than_the_run_began_with_are_refused(tmp_path, log):
    with pytest.raises(Killed):
        train_from_data(log, LEARNER, tmp_path / "run", seed=2, on_record=kill_after(1))
    path = tmp_path / "run" / "round-000" / "batch.npz"
    without_truth(log, cost=log.cost + 1).to_npz(path, overwrite=True)
    with pytest.raises(StoreError, match="does not hold the data that the run began with"):
        resume(tmp_path / "run")


@pytest.mark.parametrize(
    ("changes", "learner", "message"),
    [
        ({"cost": 0.0}, {}, "all costs are 0: every budget is the same"),
        ({"action": 1}, {}, "only action 1 was ever taken: there is nothing to choose from"),
        ({"terminal": False}, {}, "gamma is 1 and no row is terminal: values grow"),
        ({}, {"budget_range": (5, 6)}, r"budget_range, 5 to 6, is above what any episode cost"),
        ({}, {"budget_range": (-2, -1)}, r"budget_range, -2 to -1, is below what any episode"),
        ({}, {"budget_range": (0, 99)}, "budget_range, 0 to 99, is much wider than the costs"),
    ],
)
def test_what_to_beware_of_is_said_and_learned_from_nevertheless(
    tmp_path, log, changes, learner, message
):
    columns = {name: np.full_like(getattr(log, name), value) for name, value in changes.items()}
    batch, config = without_truth(log, **columns), replace(LEARNER, **learner)
    notes = data_notes(batch, config)
    assert [note for note in notes if message in note], notes
    policy = train_from_data(batch, config, tmp_path / "run", seed=0)
    assert policy.budget_range == config.budget_range


def test_data_that_fit_have_no_notes(log):
    assert data_notes(log, LEARNER) == ()


@pytest.mark.parametrize(
    ("changes", "learner", "message"),
    [
        ({"episode": np.int64(0)}, {}, r"at least 2 episodes for learner\.ensemble.* got 1"),
        (
            {"budget": None, "next_budget": None},
            {"model": EncoderNet(labels="stored")},
            r"budget must be given for learner\.model\.labels 'stored'",
        ),
        ({"step": None}, {"schedule": Backward()}, r"step must be given for learner\.schedule"),
    ],
)
def test_data_that_cannot_be_learned_from_are_refused(tmp_path, log, changes, learner, message):
    columns = {
        name: value if value is None else np.full(len(log), value)
        for name, value in changes.items()
    }
    batch = without_truth(log, **columns)
    with pytest.raises(DataError, match=message):
        train_from_data(batch, replace(LEARNER, **learner), tmp_path / "run", seed=0)
    assert not list(tmp_path.iterdir())


def test_a_kept_policy_that_cannot_explore_is_refused(tmp_path):
    with pytest.raises(Killed):
        train(SPEC, tmp_path / "run", seed=2, on_record=kill_after(4))
    place = tmp_path / "run" / "round-000" / "policy"
    some = RandomBudgetedPolicy(5, 0.0, 1.0)
    Portfolio.coin(some, some, cheap_cost=0.1, dear_cost=0.5).save(place, overwrite=True)
    with pytest.raises(StoreError, match="policy of round 0 is a Portfolio, which does not expl"):
        resume(tmp_path / "run")


def test_the_files_of_a_round_are_opened_once_to_tidy(tmp_path, monkeypatch):
    with pytest.raises(Killed):
        train(SPEC, tmp_path / "run", seed=2, on_record=kill_after(3))
    opened, n_done = [], FitKeeper.n_done
    monkeypatch.setattr(FitKeeper, "n_done", lambda self: opened.append(self.path) or n_done(self))
    run = RunFolder(tmp_path / "run")
    assert len(run.records()) == 3
    run.tidy()
    assert [record["kind"] for record in run.records()] == ["collection", "iteration"]
    assert len(opened) == 1


ROW = {"kind": "collection", "round": 0, "transitions": 5, "reward": 1.5, "cost": None}


@pytest.mark.parametrize(
    "wrong",
    [
        '{"kind": "collection", "round": 1',
        "7",
        '{"round": 1}',
        '{"kind": ["collection"], "round": 1}',
        '{"kind": "iteration", "round": 1}',
        '{"kind": "iteration", "round": 1, "iteration": -1}',
        '{"kind": "iteration", "round": "1", "iteration": 1}',
        '{"kind": "collection", "round": 1, "n_rounds": 0}',
        '{"kind": "collection", "round": 1, "reward": "much"}',
        '{"kind": "prediction", "round": 1, "budgets": [1, 2], "cost": [1]}',
        '{"kind": "prediction", "round": 1, "budgets": [null]}',
    ],
)
def test_records_end_where_one_is_none(tmp_path, wrong):
    path = tmp_path / "records.jsonl"
    assert read_records(path) == []
    path.write_text(f"{json.dumps(ROW)}\n{wrong}\n{json.dumps(ROW)}\n")
    assert read_records(path) == [ROW]
    assert last_line(ROW) == "round 1, 5 transitions, reward 1.5 and cost nan an episode"
    assert 0 <= share_done(tmp_path) <= 1


# How far a run is


def test_the_share_of_a_run_grows_from_0_to_1(tmp_path):
    run = tmp_path / "run"
    shares = [share_done(run)]
    train(SPEC, run, seed=0, on_record=lambda _: shares.append(share_done(run)))
    shares.append(share_done(run))
    # Two rounds of two iterations, of which those of the second count twice.
    assert shares == pytest.approx([0, 0, 1 / 6, 2 / 6, 2 / 6, 4 / 6, 1, 1])


def test_a_learner_that_stops_early_has_done_its_round(tmp_path):
    spec = with_learner(schedule=Iterations(50, settled=0.0, stop_loss=1e9))
    shares, run = [], tmp_path / "run"
    train(spec, run, seed=0, on_record=lambda _: shares.append(share_done(run)))
    assert shares == pytest.approx([0, 1 / 150, 1 / 3, 1 / 3, 1 / 3 + 2 / 150, 1])


def test_a_record_is_told_in_a_line(tmp_path, log):
    lines, run = [], tmp_path / "run"
    train(SPEC, run, seed=0, on_record=lambda record: lines.append(last_line(record)))
    assert lines == [last_line(row) for row in RunFolder(run).records()]
    rows = RunFolder(run).records()
    assert lines[3].startswith(f"round 2 of 2, {rows[3]['transitions']:,} transitions, reward ")
    assert lines[4] == f"round 2 of 2, iteration 1 of 2, loss {rows[4]['last_loss']:.3g}"
    lines.clear()
    asked = {"seed": 0, "held_out": 0.5}
    train_from_data(log, LEARNER, run / "log", **asked, on_record=lambda r: lines.append(r))
    assert [last_line(r).partition(", loss")[0] for r in lines] == [
        *("iteration 1 of 2", "iteration 2 of 2", "prediction from 30 held-out episodes")
    ]


def test_records_of_an_earlier_version_have_a_line_and_a_share(tmp_path):
    row = {"kind": "iteration", "round": 2, "iteration": 3, "delta": 0.5, "last_loss": None}
    assert last_line(row) == "round 3, iteration 4, loss 0.5"
    (tmp_path / "records.jsonl").write_text(json.dumps(row) + "\n")
    assert 0 < share_done(tmp_path) <= 1


# Threads


KERNELS = KernelModel(centres=100, lengths=(0.35, 1.0), ridges=(1e-3, 1e-1))


def with_kernels():
    """Rounds in which matrices are large enough to be cut by threads."""
    learner = {"model": KERNELS, "ensemble": 1, "pooled": True}
    return replace(with_learner(**learner), exploration=Exploration(2, 60, decay=0.05))


@pytest.fixture
def n_threads():
    """Sets the number of torch's threads, for a test."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def test_the_number_of_threads_changes_no_byte_of_a_run(tmp_path, n_threads):
    for number in (1, 2, 3):
        n_threads(number)
        train(with_kernels(), tmp_path / str(number), seed=0, device="cpu")
    one, two, three = (content(tmp_path / str(n) / "policy") for n in (1, 2, 3))
    assert one == two
    assert one == three


def test_a_run_that_goes_on_with_other_threads_comes_to_the_same_bytes(tmp_path, n_threads):
    n_threads(1)
    train(with_kernels(), tmp_path / "whole", seed=0, device="cpu")
    with pytest.raises(Killed):
        train(with_kernels(), tmp_path / "run", seed=0, device="cpu", on_record=kill_after(4))
    retold(tmp_path / "run", threads=2)
    n_threads(2)
    resume(tmp_path / "run")
    assert_as_whole(tmp_path / "run", tmp_path / "whole")


def test_steps_are_counted_to_the_last_one_and_no_further(tmp_path):
    lines = []
    spec = with_learner(schedule=Backward())
    train(spec, tmp_path / "run", seed=0, on_record=lambda record: lines.append(last_line(record)))
    found = [re.search(r"iteration (\d+) of (\d+)", line) for line in lines]
    counts = [tuple(map(int, match.groups())) for match in found if match]
    n_steps = counts[0][1]
    assert n_steps > 2
    assert counts == 2 * [(k, n_steps) for k in range(1, n_steps + 1)]
