"""Logs that are read from disk: the same policy from any form of them, whatever happens."""

import numpy as np
import pytest
import torch
from orchard import Orchard

import bmdp
from bmdp import ConfigError, StoreError, TransitionBatch
from bmdp.data import Columns, Encoder, store
from bmdp.learn import auto, contest, resume
from bmdp.learn.shelf import Shelf
from training import Killed, content

TASK = Orchard(n_numbers=3, n_actions=3, n_steps=4)
SIZES = {"_CONTEST": 1_200, "_FEW_HELD": 600, "_HELD_ROWS": 2_400}
HOW = {"gamma": 1.0, "sample": 2_000, "device": "cpu"}


@pytest.fixture(autouse=True, scope="module")
def small():
    """Sizes from which on a log is large, and of its parts, for tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(auto, "LARGE", 2_500)
        patch.setattr(store, "CHUNK_ROWS", 512)
        for name, size in SIZES.items():
            patch.setattr(contest, name, size)
        # Fewer candidates than a fit has, as these are tested elsewhere.
        recipes = contest.recipes
        patch.setattr(contest, "recipes", lambda *args, **how: recipes(*args, **how)[:2])
        yield


@pytest.fixture(scope="module")
def log():
    return TASK.log(9_000, seed=0)


@pytest.fixture(scope="module")
def file(log, tmp_path_factory):
    path = tmp_path_factory.mktemp("log") / "log.parquet"
    log.to_parquet(path)
    return path


@pytest.fixture(scope="module")
def run(file, tmp_path_factory):
    """A fit in a folder that nothing interrupts."""
    folder = tmp_path_factory.mktemp("run") / "run"
    bmdp.fit(file, **HOW, out=folder)
    return folder


def policy_of(folder):
    return content(folder / "policy")


def test_the_dial_is_near_the_truth(run):
    policy, truth = bmdp.load_policy(run), TASK.truth()
    budgets = np.linspace(0.3, truth.costs[-1], 4)
    paid, earned = [], []
    for budget in budgets:
        reward, cost = TASK.play(policy, np.full(20_000, budget), seed=1)
        paid.append(cost.mean())
        earned.append(reward.mean())
    best = truth.reward_at(np.clip(paid, truth.costs[0], truth.costs[-1]))
    # Three standard errors of the 600 episodes that set the dial.
    assert np.array(paid) - budgets == pytest.approx(0, abs=0.11)
    assert (np.array(earned) / best).min() > 0.9


def test_the_page_says_what_was_learned_from(run, log):
    from bmdp.learn.auto import read_fitted
    from bmdp.learn.runs import RunFolder

    found = read_fitted(RunFolder(run))
    assert f"{len(log):,} transitions of {len(log.starts()):,} episodes" in str(found)
    assert all("all rows" in candidate.name for candidate in found.candidates)


@pytest.mark.slow
def test_a_log_in_memory_teaches_the_same_as_in_a_file(run, log, tmp_path):
    bmdp.fit(log, **HOW).policy.save(tmp_path / "policy")
    assert policy_of(tmp_path) == policy_of(run)


def test_the_number_of_threads_changes_no_bit(run, file, tmp_path):
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        bmdp.fit(file, **HOW).policy.save(tmp_path / "policy")
    finally:
        torch.set_num_threads(before)
    assert policy_of(tmp_path) == policy_of(run)


def killed_after(name, file, folder):
    """A fit whose process is killed once it has kept a thing of that name."""
    keep = Shelf._kept

    def kept(shelf, own, make, save, load):
        found = keep(shelf, own, make, save, load)
        if own == name:
            raise Killed
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Shelf, "_kept", kept)
        with pytest.raises(Killed):
            bmdp.fit(file, **HOW, out=folder)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("in-chunks.json", marks=pytest.mark.slow),
        "candidates/forest, all rows/policy",
    ],
)
def test_a_fit_that_is_killed_goes_on_to_the_same_policy(name, run, file, tmp_path):
    killed_after(name, file, tmp_path / "run")
    resume(tmp_path / "run")
    assert policy_of(tmp_path / "run") == policy_of(run)


def killed_while_it_is_stored(source, folder):
    """A fit whose process is killed before the log is in chunks."""

    def die(*args):
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "_write_chunks", die)
        with pytest.raises(Killed):
            bmdp.fit(source, **HOW, out=folder)


@pytest.mark.slow
def test_a_log_that_was_not_written_to_its_end_is_written_again(run, file, tmp_path):
    killed_while_it_is_stored(file, tmp_path / "run")
    resume(tmp_path / "run")
    assert policy_of(tmp_path / "run") == policy_of(run)


def test_a_log_from_memory_that_was_lost_is_said_to_be(log, tmp_path):
    killed_while_it_is_stored(log, tmp_path / "run")
    with pytest.raises(StoreError, match="begin anew"):
        resume(tmp_path / "run")


def test_text_of_a_large_log_is_encoded_and_the_policy_takes_it(log, tmp_path):
    pandas = pytest.importorskip("pandas")
    levels = np.array(["new", "used", "worn", "old", "broken"])
    frame = pandas.DataFrame(
        {
            "wear": levels[np.rint(4 * log.state[:, 0]).astype(int)],
            "price": log.state[:, 1],
            "action": log.action,
            "reward": log.reward,
            "cost": log.cost,
            "terminal": log.terminal,
            "episode": log.episode,
        }
    )
    frame.to_parquet(tmp_path / "log.parquet")
    columns = Columns(state=("wear", "price"))
    fitted = bmdp.fit(f"{tmp_path}/*.parquet", **HOW, columns=columns, out=tmp_path / "run")
    assert isinstance(fitted.policy.encoder, Encoder)
    policy = bmdp.load_policy(tmp_path / "run")
    states = [{"wear": "old", "price": 0.1}]
    decision = policy.start(states, 0.0, np.random.default_rng(0)).decide(states)
    assert decision.action.tolist() == [0]


def test_few_states_are_a_table_of_all_rows():
    rng = np.random.default_rng(0)
    hurry, zeros = rng.integers(2, size=4_000), np.zeros(4_000)
    cost = hurry * (rng.random(4_000) < 0.25)
    fitted = bmdp.fit(
        TransitionBatch(zeros, hurry, 2.0 * hurry, cost, zeros, zeros == 0), gamma=1.0
    )
    assert fitted.candidates[0].name == "table"
    assert fitted.policy.budget_range[1] == pytest.approx(cost[hurry == 1].mean(), rel=0.1)


def test_wrong_sources_and_settings_are_one_clear_line(tmp_path, log):
    with pytest.raises(StoreError, match="matches no file"):
        bmdp.fit(f"{tmp_path}/*.parquet", gamma=1.0)
    with pytest.raises(ConfigError, match="sample must be a whole number from 1000 on"):
        bmdp.fit(log, gamma=1.0, sample=10)
    with pytest.raises(ConfigError, match="engine must be one of"):
        bmdp.fit(log, gamma=1.0, engine="spark")
    with pytest.raises(ConfigError, match="sample is for a log"):
        bmdp.fit("corridors", sample=5_000)
