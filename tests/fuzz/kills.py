"""Runs that are killed at random moments, and resumed, end with the bytes of one that was not.

Each process has one or two threads, at random. A run is killed up to eight times.
"""

import json
import multiprocessing
import os
import random
import signal
import time
from dataclasses import replace

from training import content

os.environ.setdefault("OMP_NUM_THREADS", "1")  # of the process that others are forked from

MOST_KILLS = 8  # of a run
PATIENCE = 600  # seconds for a process to end by itself


def cases(seed, folder):
    """Yields `killed KIND` for each kill, and `resumed KIND` for each run that ended the same."""
    rng = random.Random(seed)
    whole = {}
    for number in range(10**9):
        kind = list(KINDS)[number % len(KINDS)]
        if kind not in whole:
            begin = time.monotonic()
            end_of(kind, folder / f"{kind}-whole", 1).join(PATIENCE)
            whole[kind] = folder / f"{kind}-whole", time.monotonic() - begin
        path, seconds = whole[kind]
        run, n_kills = folder / f"{kind}-{number}", 0
        while True:
            process = end_of(kind, run, rng.choice((1, 2)))
            patience = rng.uniform(0, 1.2 * seconds) if n_kills < MOST_KILLS else PATIENCE
            process.join(patience)
            if process.exitcode is not None:
                break
            assert n_kills < MOST_KILLS, f"seed {seed}, run {number}: {kind} does not end"
            os.kill(process.pid, signal.SIGKILL)
            process.join()
            n_kills += 1
            yield f"killed {kind}"
        assert process.exitcode == 0, f"seed {seed}, run {number}: resuming {kind} failed"
        assert result(run) == result(path), f"seed {seed}, run {number}: {kind} differs"
        left = [one for one in folder.rglob(".*") if one.name != ".locks"]
        assert not left, f"seed {seed}, run {number}: {kind} left {left}"
        yield f"resumed {kind}"


def end_of(kind, folder, n_threads):
    """A process that begins a run, or goes on with it. It is forked from one that has imported."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["fuzz.kills", "bmdp.learn.auto", "ferries", "tiny_experiments"])
    process = context.Process(target=work, args=(kind, folder, n_threads))
    process.start()
    return process


def work(kind, folder, n_threads):
    """Does what is left to do of a run."""
    import torch

    torch.set_num_threads(n_threads)
    KINDS[kind](folder)


def fit_log(folder):
    """A fit of logged episodes."""
    import bmdp
    from small_logs import plane

    begun_or(folder, lambda: bmdp.fit(plane(60), gamma=0.9, out=folder, device="cpu"))


def fit_env(folder):
    """A fit that explores."""
    import bmdp
    import ferries

    ferries.register()
    begun_or(folder, lambda: bmdp.fit(ferries.ENV, episodes=100, out=folder, device="cpu"))


def with_settings(folder):
    """Rounds of exploring with kernels, whose decompositions threads would round differently."""
    from bmdp.learn import BFTQConfig, Exploration, Iterations, train
    from bmdp.models import KernelModel
    from training import SPEC

    model = KernelModel(centres=100, lengths=(0.35, 1.0), ridges=(1e-3, 1e-1))
    learner = BFTQConfig(gamma=1.0, n_budgets=5, model=model, schedule=Iterations(2, settled=0.0))
    spec = replace(SPEC, learner=learner, exploration=Exploration(2, 60, decay=0.05))
    begun_or(folder, lambda: train(spec, folder, seed=0, device="cpu"))


def experiment(folder):
    """An experiment, whose tasks are done in the process itself."""
    from bmdp.paper import runner
    from tiny_experiments import SHORT, run_inline

    runner.run_jobs = run_inline
    assert runner.run_experiment(SHORT, folder) == ()


KINDS = {
    "a run with settings": with_settings,
    "a fit of a log": fit_log,
    "a fit of an environment": fit_env,
    "an experiment": experiment,
}


def begun_or(folder, begin):
    """Goes on with a run, if it was begun."""
    from bmdp.learn import resume

    resume(folder) if folder.exists() else begin()


def result(run):
    """What a run hands over, byte by byte, but for what the clock said."""
    if (run / "seed-0").is_dir():
        from tiny_experiments import results

        return results(run)
    found = {"policy": content(run / "policy")}
    if (run / "fitted.json").exists():
        told = json.loads((run / "fitted.json").read_text())
        found |= {name: told[name] for name in ("forecast", "notes")}
    return found
