"""An environment that is not the library's, and small runs and policies on it."""

import json

import gymnasium
import numpy as np
from gymnasium import spaces

import bmdp
from bmdp.data import TransitionBatch
from bmdp.learn import BFTQConfig, EnvConfig, Exploration, TrainingSpec, train, train_from_data
from bmdp.models import TableModel
from bmdp.storage import header_text

ENV = "tests/Ferry-v0"
LEARNER = BFTQConfig(gamma=1.0, budget_range=(0.0, 0.6), n_budgets=7, model=TableModel())


class Ferry(gymnasium.Env):
    """Crosses three times: waits (0), leaves at once (1), which may go wrong, or sleeps (2)."""

    metadata = {  # noqa: RUF012
        "render_modes": [],
        "gamma": 1.0,
        "horizon": 3,
        "cost_range": (0.0, 3.0),
        "action_names": ("wait", "leave at once", "sleep"),
    }
    observation_space, action_space = spaces.Discrete(4), spaces.Discrete(3)

    def __init__(self, names=None, sinks=False, crossings=3, note=""):
        self.sinks, self.crossings = sinks, crossings
        self.metadata = {**self.metadata, "horizon": crossings}
        if names is not None:
            self.metadata["action_names"] = tuple(names)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.crossing = 0
        return 0, {"cost": 0.0}

    def step(self, action):
        self.crossing += 1
        goes_wrong = action == 1 and self.np_random.random() < 0.2
        reward = (1.0, 3.0, 0.0)[action]
        ended = self.crossing == self.crossings or bool(self.sinks and goes_wrong)
        return self.crossing, reward, ended, False, {"cost": float(goes_wrong)}


def register():
    if ENV not in gymnasium.registry:
        gymnasium.register(ENV, Ferry)


def spec(env=None, **changes):
    settings = {"rounds": 2, "episodes": 200, **changes}
    return TrainingSpec(EnvConfig(ENV, env or {}), LEARNER, Exploration(**settings), held_out=0.2)


def explored(folder, env=None, on_record=None, **changes):
    """A run on the ferry, in a second or so."""
    register()
    how = {} if on_record is None else {"on_record": on_record}
    train(spec(env, **changes), folder, seed=0, **how)
    return folder


def retold(folder, **changes):
    """A run whose spec.json says something else."""
    path = folder / "spec.json"
    header = json.loads(path.read_text()) | changes
    header.pop("checksum", None)
    path.write_text(header_text(header))
    return folder


def log(n=300, seed=0):
    """What somebody did who often waits: states of two numbers with names."""
    rng = np.random.default_rng(seed)
    step = np.arange(3 * n) % 3
    action = rng.choice(3, size=3 * n, p=[0.6, 0.3, 0.1])
    cost = (action == 1) & (rng.random(3 * n) < 0.2)
    tide = rng.integers(2, size=n).repeat(3)
    return TransitionBatch(
        state=np.stack([step, tide], axis=1),
        action=action,
        reward=np.array([1.0, 3.0, 0.0])[action],
        cost=cost.astype(float),
        next_state=np.stack([step + 1, tide], axis=1),
        terminal=step == 2,
        episode=np.arange(3 * n) // 3,
        step=step,
        state_names=("crossing", "tide"),
    )


def from_log(folder, **changes):
    """A run from a log, without any simulator."""
    how = {"held_out": 0.2, "files": ["ferry.parquet"], **changes}
    train_from_data(log(), LEARNER, folder, seed=0, **how)
    return folder


def calibrated(folder, run):
    """The policy of a run, calibrated and saved."""
    register()
    policy = bmdp.calibrate(
        bmdp.load_policy(run), ENV, confidence=0.9, n_episodes=300, seed=1, budgets=[0.0, 0.3, 0.6]
    )
    policy.save(folder)
    return folder
