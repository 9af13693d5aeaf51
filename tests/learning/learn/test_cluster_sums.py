"""Sums on a Ray cluster of two machines: the same policies as here, whoever is lost on the way."""

import os
import pickle
import shutil
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import small_logs
from bmdp import (
    BmdpError,
    ConfigError,
    MissingDependency,
    PolicyError,
    StoreError,
    calibrate,
    cluster,
    evaluate,
    fit,
)
from bmdp.data import StoredLog
from bmdp.envs import ScriptedPolicy
from bmdp.learn import (
    BFTQ,
    Backward,
    BFTQConfig,
    Iterations,
    LagrangianConfig,
    LagrangianFTQ,
    cluster_sums,
    contest,
    explore,
)
from bmdp.learn.cluster_sums import Crew, RaySums
from bmdp.learn.passes import Passes
from bmdp.models import ForestModel, KernelModel
from logs import assert_same
from training import SPEC, content

ray = pytest.importorskip("ray")
dumps = pytest.importorskip("ray.cloudpickle").dumps


@pytest.fixture(scope="module")
def machines():
    """Two machines of one core each, as far as Ray can tell, which this process has joined."""
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("RAY_USAGE_STATS_ENABLED", "0")
        paths = [str(Path(small_logs.__file__).parent), os.environ.get("PYTHONPATH", "")]
        patched.setenv("PYTHONPATH", os.pathsep.join(paths))
        head = {"num_cpus": 1, "include_dashboard": False}
        found = Cluster(initialize_head=True, head_node_args=head)
        try:
            found.add_node(num_cpus=1)
            ray.init(found.address, log_to_driver=False, logging_level="error")
            yield found
        finally:
            ray.shutdown()
            found.shutdown()


@pytest.fixture(scope="module")
def crew(machines):
    with Crew(2) as found:
        yield found


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """A log of 7 chunks or more."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("bmdp.data.store.CHUNK_ROWS", 400)
        stored = StoredLog.write(tmp_path_factory.mktemp("logs") / "log", [small_logs.plane(800)])
    assert stored.n_chunks > 6
    return stored


FOREST = ForestModel(trees=5)
KERNEL = KernelModel(12)
PRICES = {"prices": (0.0, 1.0, 5.0), "ensemble": 2}
LEARNERS = {
    "forest, backwards": LagrangianFTQ(
        LagrangianConfig(gamma=1.0, model=FOREST, schedule=Backward(), **PRICES)
    ),
    "forest, budgets": BFTQ(
        BFTQConfig(gamma=0.9, model=FOREST, schedule=Iterations(3, 0.0), n_budgets=4, ensemble=1)
    ),
    "kernel, backwards": BFTQ(
        BFTQConfig(gamma=1.0, model=KERNEL, schedule=Backward(), n_budgets=4, ensemble=2)
    ),
    "kernel, traces": LagrangianFTQ(
        LagrangianConfig(
            gamma=0.9, model=KERNEL, schedule=Iterations(3, 0.0, traces=True), **PRICES
        )
    ),
}


def saved(tmp_path, learner, log, sums):
    """Files of the policy that is learned by some sums."""
    policy = learner.fit(log.first(900), seed=0, device="cpu", log=log, sums=sums)
    folder = tmp_path / str(len(list(tmp_path.iterdir())))
    policy.save(folder)
    return content(folder)


def by(crew, lose=lambda number: None, **changes):
    """Makes sums by a crew; something may get lost after each request was sent."""

    class Sums(RaySums):
        n_asked = 0

        def _answer(self, number, ref, asked):
            if number == 0:
                self.n_asked += 1
                lose(self.n_asked)
            return super()._answer(number, ref, asked)

    return lambda log, next_values: Sums(log, next_values, workers=crew, **changes)


QUICK = ("kernel, traces",)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in QUICK else pytest.mark.slow) for n in LEARNERS]
)
def test_a_cluster_learns_the_policy_of_one_process_to_the_last_bit(name, crew, log, tmp_path):
    learner = LEARNERS[name]
    alone = saved(tmp_path, learner, log, Passes)
    assert saved(tmp_path, learner, log, by(crew)) == alone
    without_the_last = saved(tmp_path, learner, log, lambda *given: Passes(*given, range(6)))
    assert without_the_last != alone


@pytest.mark.slow
def test_a_worker_that_is_killed_on_the_way_changes_nothing(crew, log, tmp_path):
    killed = []

    def lose(number):
        if number == 3:
            killed.append(crew.actor(1))
            ray.kill(crew.actor(1))

    learner = LEARNERS["forest, backwards"]
    found = saved(tmp_path, learner, log, by(crew, lose))
    assert found == saved(tmp_path, learner, log, Passes)
    assert killed
    assert crew.actor(1) is not killed[0]


def machine_of(actor):
    return ray.get(actor.__ray_call__.remote(lambda self: ray.get_runtime_context().get_node_id()))


@pytest.mark.slow
def test_a_machine_that_is_lost_on_the_way_changes_nothing(machines, log, tmp_path):
    lost = machines.add_node(num_cpus=2)
    with Crew(4) as crew:

        def lose(number):
            if number == 3:
                machines.remove_node(lost, allow_graceful=False)

        learner, before = LEARNERS["forest, backwards"], list(crew._actors)
        there = [machine_of(actor) == lost.node_id for actor in before]
        found = saved(tmp_path, learner, log, by(crew, lose))
        assert found == saved(tmp_path, learner, log, Passes)
        assert any(there)
        assert [crew.actor(i) is not before[i] for i in range(4)] == there


def test_workers_are_spread_over_machines_by_their_cores(monkeypatch):
    cores = {"a": {"CPU": 4.0}, "b": {"CPU": 2.0}, "head": {}, "gone": {"CPU": 9.0}}
    nodes = [{"NodeID": n, "Resources": r, "Alive": n != "gone"} for n, r in cores.items()]
    monkeypatch.setattr(ray, "nodes", lambda: nodes)
    places = []
    for _ in range(6):
        places.append(cluster_sums._roomiest(places))
    assert places == ["a", "a", "b", "a", "a", "b"]
    assert cluster_sums._roomiest([], "a") == "b"
    nodes[1:] = []
    assert cluster_sums._roomiest([], "a") == "a"


def test_more_workers_than_chunks_keep_little_in_memory(crew, tmp_path):
    small = StoredLog.write(tmp_path / "log", [small_logs.plane(300)])
    assert small.n_chunks == 1
    learner = LEARNERS["forest, budgets"]
    found = saved(tmp_path, learner, small, by(crew, memory=0))
    assert found == saved(tmp_path, learner, small, Passes)


def test_an_error_in_a_worker_is_the_error_here(crew, log, tmp_path):
    shutil.copytree(log.folder, tmp_path / "log")
    copy, learner = StoredLog.open(tmp_path / "log"), LEARNERS["forest, budgets"]
    sample = copy.first(900)
    (copy.folder / "rows.bin").unlink()
    with pytest.raises(StoreError, match=r"rows.bin cannot be read") as found:
        learner.fit(sample, seed=0, device="cpu", log=copy, sums=by(crew))
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("model", [FOREST, KERNEL])
def test_rows_and_values_of_the_batch_stay_here(model, log):
    sizes = []

    class Sums(Passes):
        def moments(self, fit, order):
            sizes.append((len(dumps(cluster_sums._bare(fit))), len(dumps(fit))))
            return super().moments(fit, order)

    learner = LagrangianFTQ(replace(LEARNERS["forest, backwards"].config, model=model))
    learner.fit(log.first(2400), seed=0, device="cpu", log=log, sums=Sums)
    bare, whole = sizes[-1]
    assert bare < min(whole / 5, 300_000)


def test_a_fit_on_a_gpu_is_refused(crew, log):
    fit = SimpleNamespace(device=torch.device("cuda"))
    sums = RaySums(log, None, workers=crew)
    with pytest.raises(ConfigError, match=r"device='cpu'; got 'cuda'"):
        sums.grams(fit, 0, "all", 1.0)


def test_workers_of_closed_sums_forget_them(crew, log, tmp_path):
    held = []

    def sums(log, next_values):
        held.append(RaySums(log, next_values, workers=crew))
        return held[-1]

    saved(tmp_path, LEARNERS["forest, budgets"], log, sums)
    (found,) = held
    key, actor = found._key, crew.actor(0)
    ray.get(actor.sums.remote(key, ray.put(pickle.dumps(({}, "grams", (0, "all", 1.0))))))
    found.close()
    with pytest.raises(KeyError):
        ray.get(actor.sums.remote(key, ray.put(b"")))


def test_what_outlives_its_cluster_does_not_start_another(crew, log, monkeypatch):
    sums, actor = RaySums(log, None, workers=crew), crew.actor(0)
    sums._told = {0: actor}
    with monkeypatch.context() as patched:
        patched.setattr(ray, "is_initialized", lambda: False)
        sums.close()
        cluster_sums._end(actor)
    ray.get(actor.forget.remote(""))  # it was left alone


def test_workers_that_were_started_for_sums_end_with_them(machines, log):
    sums = RaySums(log, None, workers=1)
    crew, actor = sums._crew, sums._crew.actor(0)
    for _ in range(2):
        sums.close()
    assert len(crew) == 0
    with pytest.raises(ray.exceptions.RayActorError):
        ray.get(actor.forget.remote(""))


def test_episodes_of_a_cluster_are_those_of_this_machine(machines):
    here = explore(SPEC, seed=0)
    there = explore(SPEC, seed=0, workers=2, engine="ray")
    assert_same(there.batch, here.batch)
    how = {"budgets": [0.2, 0.8], "n_episodes": 30, "seed": 1, "workers": 2}
    assert same_fields(
        evaluate(there.policy, SPEC.env.spec(), **how, engine="ray"),
        evaluate(here.policy, SPEC.env.spec(), **how),
    )
    bounds = {"confidence": 0.9, "n_episodes": 20, "seed": 2}
    rules = [ScriptedPolicy(f"slot-filling/{rule}") for rule in ("voice-again", "key-pad")]
    assert same_fields(
        calibrate(rules, "slot-filling", **bounds, engine="ray").certificate,
        calibrate(rules, "slot-filling", **bounds).certificate,
    )


def same_fields(one, two):
    names = [field.name for field in fields(one)]
    return all(np.array_equal(getattr(one, name), getattr(two, name)) for name in names)


def test_an_error_of_an_episode_on_a_cluster_is_the_error_here(machines):
    policy = ScriptedPolicy("slot-filling/key-pad")
    how = {"budgets": [0.5], "n_episodes": 4, "seed": 0}
    with pytest.raises(PolicyError, match="cannot act on what"):
        evaluate(policy, "corridors", **how, engine="ray")


def test_an_engine_must_be_there(monkeypatch):
    policy = ScriptedPolicy("slot-filling/key-pad")
    how = {"budgets": [0.5], "n_episodes": 4, "seed": 0}
    bounds = {"confidence": 0.9, "n_episodes": 4, "seed": 0}
    with pytest.raises(ConfigError, match="engine must be one of local, ray; got 'spark'"):
        evaluate(policy, "slot-filling", **how, engine="spark")
    monkeypatch.setattr(cluster.importlib.util, "find_spec", lambda name: None)
    for ask in (
        lambda: evaluate(policy, "slot-filling", **how, engine="ray"),
        lambda: explore(SPEC, seed=0, engine="ray"),
        lambda: calibrate(policy, "slot-filling", **bounds, engine="ray"),
        lambda: RaySums(None, None, workers=2),
    ):
        with pytest.raises(MissingDependency, match=r"pip install 'bmdp\[ray\]'"):
            ask()


def test_a_worker_that_is_lost_again_and_again_is_given_up(crew, log, tmp_path, monkeypatch):
    monkeypatch.setattr(cluster_sums, "_LOSSES", 0)
    sums = by(crew, lambda number: ray.kill(crew.actor(1)))
    with pytest.raises(BmdpError, match=r"^worker 1 of .* lost 1 times .* ActorDied") as found:
        saved(tmp_path, LEARNERS["forest, backwards"], log, sums)
    assert "\n" not in str(found.value)


@pytest.mark.slow
def test_the_front_door_learns_the_same_from_a_large_log(machines, tmp_path, monkeypatch):
    monkeypatch.setattr("bmdp.learn.auto.LARGE", 2_000)
    monkeypatch.setattr("bmdp.data.store.CHUNK_ROWS", 400)
    for name, size in {"_CONTEST": 800, "_FEW_HELD": 400, "_HELD_ROWS": 800}.items():
        monkeypatch.setattr(contest, name, size)
    recipes = contest.recipes
    monkeypatch.setattr(contest, "recipes", lambda *args, **how: recipes(*args, **how)[:1])
    for engine in ("local", "ray"):
        how = {"gamma": 1.0, "sample": 1_000, "device": "cpu", "engine": engine, "workers": 2}
        fit(small_logs.plane(800), **how, out=tmp_path / engine)
    assert content(tmp_path / "ray/policy") == content(tmp_path / "local/policy")
