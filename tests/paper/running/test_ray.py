import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

import tiny_experiments
from bmdp import ConfigError
from bmdp import cluster as clusters
from bmdp.paper.runner import run_experiment
from tiny_experiments import DEATH, LONG, SHORT, results

ray = pytest.importorskip("ray")
SEEDS = [f"seed-{seed}" for seed in LONG.seeds]


@pytest.fixture(scope="module")
def cluster():
    """One machine of one core, as far as Ray can tell, which this process has joined."""
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("RAY_USAGE_STATS_ENABLED", "0")
        paths = [str(Path(tiny_experiments.__file__).parent), os.environ.get("PYTHONPATH", "")]
        patched.setenv("PYTHONPATH", os.pathsep.join(paths))
        head = {"num_cpus": 1, "include_dashboard": False}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        try:
            ray.init(cluster.address, log_to_driver=False, logging_level="error")
            yield cluster
        finally:
            ray.shutdown()
            cluster.shutdown()


def beginnings(folder):
    """Files of records by task: a run that is begun or gone on with writes its own anew."""
    return {seed: (folder / seed / "records.jsonl").stat().st_ino for seed in SEEDS}


def n_records(folder, seed):
    path = folder / seed / "records.jsonl"
    return len(path.read_text().splitlines()) if path.exists() else 0


def test_without_a_gpu_in_the_cluster_none_can_be_used(cluster, tmp_path):
    with pytest.raises(ConfigError, match=r"cuda.*GPU"):
        run_experiment(replace(SHORT, device="cuda"), tmp_path / "run", engine="ray")


def test_what_ray_says_of_a_task_that_died_is_told(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(clusters, "_RETRIES", 0)
    (failure,) = run_experiment(DEATH, tmp_path / "run", engine="ray")
    assert failure.task == "seed-0"
    assert failure.message.startswith("WorkerCrashedError: ")


@pytest.mark.slow
def test_an_interruption_ends_the_tasks_of_a_cluster(cluster, tmp_path):
    def interrupt(*said):
        if (tmp_path / "run" / "seed-0" / "records.jsonl").exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_experiment(LONG, tmp_path / "run", engine="ray", on_progress=interrupt)
    until = time.monotonic() + 30
    while ray.available_resources().get("CPU", 0) < 1:
        assert time.monotonic() < until
        time.sleep(0.1)
    assert not list((tmp_path / "run").glob("seed-*/finished.json"))


@pytest.mark.slow
def test_a_machine_that_is_lost_in_the_middle_changes_nothing(cluster, whole, tmp_path):
    folder, lost, before = tmp_path / "run", cluster.add_node(num_cpus=1), {}

    def lose_a_machine():
        while min(n_records(folder, seed) for seed in SEEDS) < 3:
            time.sleep(0.02)
        before.update(beginnings(folder))
        assert not list(folder.glob("seed-*/finished.json"))
        cluster.remove_node(lost, allow_graceful=False)

    thief = threading.Thread(target=lose_a_machine, daemon=True)
    thief.start()
    assert run_experiment(LONG, folder, engine="ray") == ()
    thief.join()
    done_again = [seed for seed in SEEDS if beginnings(folder)[seed] != before[seed]]
    assert len(done_again) == 1
    assert results(folder) == results(whole)


@pytest.mark.parametrize(
    ("address", "workers", "expected"),
    [
        ("", None, {"include_dashboard": False}),
        ("", 3, {"include_dashboard": False, "num_cpus": 6}),
        ("10.0.0.1:6379", 3, {}),
    ],
)
def test_a_cluster_is_joined_or_started_and_left(monkeypatch, address, workers, expected):
    seen = []
    monkeypatch.setenv("RAY_ADDRESS", address)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", lambda address, **how: seen.append((address, how)))
    monkeypatch.setattr(ray, "shutdown", lambda: seen.append("left"))
    with clusters.joined(workers, threads=2):
        ((joined, how),) = seen
    assert joined == (address or "local")
    assert how == {"log_to_driver": False, "logging_level": 40, **expected}
    assert seen[1:] == ["left"]


@pytest.mark.parametrize(("workers", "share"), [(None, 1.0), (1, 1.0), (8, 0.25)])
def test_gpus_are_shared_by_workers(monkeypatch, workers, share):
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 8.0, "GPU": 2.0})
    assert clusters._share_of_gpu(workers) == share
