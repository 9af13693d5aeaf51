"""Named settings: the paper's tables, and our own.

The paper's are as its tables have them, with what its authors' code adds: element-wise clipping of
gradients at 1, regression that ends below a loss of 0.001, new weights at every iteration with the
moments of Adam kept, iterations that end at a change of 0.001, labels that are the budgets held,
and networks without the first activations, whose states are not scaled. On the road: ten fixed
labels a row, Q_c from 0 to 1.5, and an epsilon that falls by the step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from bmdp.checks import require_name
from bmdp.envs import ENV_IDS
from bmdp.envs.slots import find_spec, open_slots
from bmdp.kinds import checked
from bmdp.learn.fit import Backward, Iterations
from bmdp.learn.learners import BFTQConfig, FTQConfig
from bmdp.learn.spec import EnvConfig, Exploration, TrainingSpec
from bmdp.models import EncoderNet, ForestModel, FrontierNet, KernelModel, Regression

_CROWDED = tuple((0.1 * 11 ** (np.arange(21) / 20) - 0.1).round(12).tolist())
"""Budgets from 0 to 1 that crowd at 0, by the rule of the paper's figure of the road."""


@checked
def preset(name: str) -> TrainingSpec:
    """Returns the settings that have a name.

    "paper-corridors", "paper-slot-filling" and "paper-driving" are the paper's; with "-ftq" after
    it, its risk-neutral fitted Q-iteration. "corridors", "slot-filling" and "two-way" are ours.

    Args:
        name: one of these.

    Raises:
        ConfigError: if there is none of that name, with the nearest one.

    Paper: the tables of the appendix.

    >>> preset("paper-corridors").learner.n_budgets
    101
    >>> preset("corridors").learner.schedule
    Backward(last_step='shared')
    """
    require_name("preset", name, PRESETS)
    return PRESETS[name]()


def exploring_spec(env: str, name: str | None = None) -> TrainingSpec:
    """Returns settings to learn in an environment by exploring.

    Args:
        env: id, or short name.
        name: of a preset; without, that of the environment, and plain settings with its own
            discount if it has none.

    Raises:
        ConfigError: if there is no such environment, or preset, with the nearest one.

    >>> exploring_spec("bmdp/Corridors-v0") == preset("corridors")
    True
    """
    short = {env_id: short for short, env_id in ENV_IDS.items()}.get(env, env)
    if name is None and short not in ENV_IDS:
        slots = open_slots(find_spec(env))
        slots.close()
        return TrainingSpec(EnvConfig(env), BFTQConfig(gamma=slots.facts.gamma), Exploration())
    spec = preset(name or short)
    is_of_env = spec.env is not None and spec.env.id == short
    return spec if is_of_env else replace(spec, env=EnvConfig(env))


def _paper(encoder: int, steps: int, iterations: int, decay: float, gamma: float) -> BFTQConfig:
    """Settings that the paper's tables have in common."""
    regression = Regression(
        steps=steps,
        weight_decay=decay,
        clip=1.0,
        stop_loss=1e-3,
        start="restart",
        keep_moments=True,
    )
    return BFTQConfig(
        gamma=gamma,
        n_budgets=101,
        model=EncoderNet(
            (256, 128, 64), (encoder,), reading="code", labels="stored", regression=regression
        ),
        schedule=Iterations(iterations, settled=0.0, stop_loss=1e-3),
        ensemble=1,
        slope_cap=0.0,
        costs_from_zero=False,
    )


def _paper_corridors() -> TrainingSpec:
    return TrainingSpec(
        EnvConfig("corridors"), _paper(3, 1000, 12, 1e-3, 1.0), Exploration(10, 500, decay=1e-3)
    )


def _paper_slot_filling() -> TrainingSpec:
    return TrainingSpec(
        EnvConfig("slot-filling"),
        _paper(50, 5000, 11, 5e-4, 1.0),
        Exploration(10, 500, decay=1e-3),
    )


def _paper_driving() -> TrainingSpec:
    learner = _paper(50, 5000, 15, 5e-4, 0.9)
    assert isinstance(learner.model, EncoderNet)
    learner = replace(
        learner,
        costs_from_zero=True,
        cost_cap=1.5,
        model=replace(learner.model, labels="fixed", n_labels=10),
    )
    return TrainingSpec(
        EnvConfig("two-way", {"features": "time-to-collision"}),
        learner,
        Exploration(10, 150, decay=1 / 3000, floor=0.1, decay_by="step"),
    )


def _without_dial(spec: TrainingSpec, rate: float, steps: int, decay: float) -> TrainingSpec:
    """The paper's fitted Q-iteration for the same task."""
    assert isinstance(spec.learner, BFTQConfig)
    assert isinstance(spec.learner.model, EncoderNet)
    regression = replace(
        spec.learner.model.regression, steps=steps, learning_rate=rate, weight_decay=decay
    )
    learner = FTQConfig(
        gamma=spec.learner.gamma,
        model=FrontierNet((128, 64, 32), "free", "raw", regression),
        schedule=spec.learner.schedule,
        ensemble=1,
    )
    return replace(spec, learner=learner)


def _corridors() -> TrainingSpec:
    return TrainingSpec(
        EnvConfig("corridors"),
        BFTQConfig(
            gamma=1.0,
            n_budgets=21,
            model=KernelModel(),
            schedule=Backward(last_step="shared"),
        ),
        Exploration(10, 500, decay=1e-3, floor=0.15, hold=5, move=0.1, optimism=0.3),
    )


def _slot_filling() -> TrainingSpec:
    return TrainingSpec(
        EnvConfig("slot-filling", {"features": "belief"}),
        BFTQConfig(
            gamma=1.0,
            n_budgets=11,
            model=KernelModel(100),
            schedule=Backward(),
            ensemble=5,
            caution=0.5,
        ),
        Exploration(10, 500, decay=1e-3, floor=0.15),
    )


def _two_way() -> TrainingSpec:
    return TrainingSpec(
        EnvConfig("two-way", {"features": "full", "observe_time": True}),
        BFTQConfig(
            gamma=0.9,
            budgets=_CROWDED,
            model=ForestModel(regrown=True),
            schedule=Backward(last_step="shared"),
            ensemble=1,
        ),
        Exploration(10, 500, decay=1e-3, floor=0.1),
    )


PRESETS: dict[str, Callable[[], TrainingSpec]] = {
    "paper-corridors": _paper_corridors,
    "paper-slot-filling": _paper_slot_filling,
    "paper-driving": _paper_driving,
    "paper-corridors-ftq": lambda: _without_dial(_paper_corridors(), 1e-3, 5000, 1e-3),
    "paper-slot-filling-ftq": lambda: _without_dial(_paper_slot_filling(), 1e-3, 5000, 5e-4),
    "paper-driving-ftq": lambda: _without_dial(_paper_driving(), 1e-2, 400, 0.0),
    "corridors": _corridors,
    "slot-filling": _slot_filling,
    "two-way": _two_way,
}
