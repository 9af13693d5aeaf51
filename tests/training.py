"""Training runs that take a moment, and what they leave."""

from dataclasses import replace

from bmdp.learn import BFTQConfig, EnvConfig, Exploration, Iterations, TrainingSpec
from bmdp.models import EncoderNet, Regression

LEARNER = BFTQConfig(
    gamma=1.0,
    n_budgets=5,
    model=EncoderNet((8,), (4,), regression=Regression(steps=3)),
    schedule=Iterations(2, settled=0.0),
    ensemble=2,
    pooled=False,
)
SPEC = TrainingSpec(
    EnvConfig("corridors", {"observe_time": True}), LEARNER, Exploration(2, 20, decay=0.05)
)
OPTIONS = (
    "--episodes=40",
    "--set=exploration.rounds=2",
    "--set=exploration.decay=0.05",
    "--set=env.observe_time=true",
    "--set=learner.n_budgets=5",
    "--set=learner.ensemble=2",
    "--set=learner.pooled=false",
    "--set=learner.model=EncoderNet",
    "--set=learner.model.hidden=[8]",
    "--set=learner.model.encoder=[4]",
    "--set=learner.model.regression.steps=3",
    '--set=learner.schedule={"kind": "Iterations", "n": 2, "settled": 0}',
)
"""The same, nearly, on the command line."""


class Killed(BaseException):
    """Stands for the end of a process."""


def kill_after(n_records):
    """Something to call with records, which is killed by one of them."""
    seen = []

    def on_record(record):
        seen.append(record)
        if len(seen) == n_records:
            raise Killed

    return on_record


def with_learner(**changes):
    return replace(SPEC, learner=replace(LEARNER, **changes))


def content(folder):
    """Contents of all files of a folder, by their names."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    assert files
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def told(records):
    """Records, or lines of a file of them, without what the clock said."""
    return [{k: v for k, v in r.items() if not k.startswith("seconds")} for r in map(row, records)]


def row(record):
    """A record as a line of a file has it."""
    if isinstance(record, dict):
        return record
    line = {"kind": record.kind, **record.as_dict()}
    return {k: list(v) if isinstance(v, tuple) else v for k, v in line.items()}
