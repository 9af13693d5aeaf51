"""Studies of how honest dials are: which settings of a preset `dial.py` changes.

docs/paper/honest-dial.md has what was found with version 0.1.0, under the names of settings of that
version; it says how they are called now.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Variant:
    """A name and settings that are changed."""

    name: str
    settings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Study:
    """Variants of a preset."""

    preset: str
    variants: tuple[Variant, ...]
    settings: tuple[str, ...] = ()  # of all variants
    same_batch: bool = False
    moved_at: int = 0  # step at which the dial is moved, too


SELF = ("exploration.optimism=0", "learner.ensemble=1", "learner.caution=0")
CROSSED = ("learner.caution=0", "learner.pooled=false")
ROUTES = ("env.settings.routes=4",)
PAPER_FEATURES = ("env.settings.features=paper",)


def _rules() -> tuple[Variant, ...]:
    """Ways to learn from a batch; models act by their mean."""
    every = {
        "one model": SELF,
        **{f"ensemble of {k}": (*CROSSED, f"learner.ensemble={k}") for k in (2, 3, 5, 8)},
        **{f"caution {c:g}": ("learner.ensemble=5", f"learner.caution={c}") for c in (0.5, 1.0)},
        "one model, no cap": (*SELF, "learner.slope_cap=0"),
        "ensemble of 3, no cap": (*CROSSED, "learner.ensemble=3", "learner.slope_cap=0"),
        "one model, iterations": (*SELF, "learner.schedule=Iterations"),
    }
    return tuple(Variant(name, settings) for name, settings in every.items())


def _explorations() -> tuple[Variant, ...]:
    """Ways to explore."""
    plain = "exploration.optimism=0"
    every = {
        "independent": (plain, "exploration.hold=1"),
        **{f"held {n}": (plain, f"exploration.hold={n}") for n in (3, 5, 8)},
        **{f"counts {w:g}": (plain, f"exploration.count_bonus={w}") for w in (0.1, 1.0)},
        **{f"optimism {w:g}": (f"exploration.optimism={w}",) for w in (0.3, 1.0)},
        "moved 0.1": ("exploration.move=0.1",),
    }
    return tuple(Variant(name, settings) for name, settings in every.items())


def _models(decay: float) -> tuple[Variant, ...]:
    """Regressors, backwards or by iterations of one model."""
    how = ("learner.model.regression.steps=600", f"learner.model.regression.weight_decay={decay}")
    kinds = {
        "EncoderNet": ("learner.model=EncoderNet", *how),
        "FrontierNet": ("learner.model=FrontierNet", *how),
        "LinearModel": ("learner.model=LinearModel",),
        "ForestModel": ("learner.model=ForestModel",),
    }
    one = ("learner.schedule=Iterations", "learner.pooled=false")
    return (
        *PLAIN,
        *(Variant(f"{name}, backwards", settings) for name, settings in kinds.items()),
        *(Variant(f"{name}, iterations", (*kinds[name], *one)) for name in list(kinds)[:2]),
    )


def _decays() -> tuple[Variant, ...]:
    """Weights of the regularisation of networks."""
    how = (
        "model=EncoderNet",
        "schedule=Iterations",
        "schedule.n=11",
        "ensemble=2",
        "model.regression.steps=1000",
        "model.regression.batch_size=2048",
    )
    every = (*CROSSED, *(f"learner.{h}" for h in how))
    return tuple(
        Variant(f"decay {decay:g}", (*every, f"learner.model.regression.weight_decay={decay}"))
        for decay in (0.0, 1e-5, 1e-4, 5e-4, 2e-3, 1e-2)
    )


PLAIN = (Variant("preset"),)
CAPS = tuple(Variant(f"cap {c:g}", (f"learner.slope_cap={c}",)) for c in (0, 2, 10, 50))
MOVED = (*PLAIN, *(Variant(f"moved {p:g}", (f"exploration.move={p}",)) for p in (0.1, 0.2)))
ATTEMPTS = (
    Variant("less random", ("exploration.decay=0.002", "exploration.floor=0.1")),
    Variant("600 centres", ("learner.model.centres=600",)),
    Variant("ensemble of 5", ("learner.ensemble=5",)),
    Variant("held 3", ("exploration.hold=3",)),
    Variant("11 budgets", ("learner.n_budgets=11",)),
)
SLOT_ATTEMPTS = (
    *(
        Variant(
            f"{n} budgets, caution {c:g}",
            (f"learner.n_budgets={n}", f"learner.caution={c}"),
        )
        for n, c in ((21, 0.5), (11, 0.3), (11, 0.5), (6, 0.5))
    ),
    *(Variant(f"{n} budgets", (*CROSSED, f"learner.n_budgets={n}")) for n in (21, 11, 6)),
    Variant("ensemble of 8", (*CROSSED, "learner.n_budgets=21", "learner.ensemble=8")),
    Variant("200 centres", (*CROSSED, "learner.n_budgets=21", "learner.model.centres=200")),
)
EPISODES = tuple(
    Variant(f"{n:,}", (f"exploration.episodes={n // 10}", f"exploration.decay={5 / n}"))
    for n in (1_000, 5_000, 20_000, 100_000)
)
STUDIES = {
    "episodes corridors": Study("corridors", EPISODES),
    "episodes slot-filling": Study("slot-filling", EPISODES),
    "attempts corridors": Study("corridors", ATTEMPTS, moved_at=4),
    "attempts routes": Study("corridors", ATTEMPTS, ROUTES, moved_at=4),
    "attempts slot-filling": Study("slot-filling", SLOT_ATTEMPTS, moved_at=3),
    "attempts slot-filling paper": Study("slot-filling", SLOT_ATTEMPTS, PAPER_FEATURES, moved_at=3),
    "goals corridors": Study("corridors", MOVED, moved_at=4),
    "goals corridors seen": Study("corridors", PLAIN, ("env.settings.observe_time=true",)),
    "goals routes": Study("corridors", MOVED, ROUTES, moved_at=4),
    "goals slot-filling": Study("slot-filling", MOVED, moved_at=3),
    "goals slot-filling paper": Study("slot-filling", PLAIN, PAPER_FEATURES, moved_at=3),
    "rules corridors batch": Study("corridors", _rules(), same_batch=True),
    "rules routes batch": Study("corridors", _rules(), ROUTES, same_batch=True),
    "rules slot-filling batch": Study("slot-filling", _rules(), same_batch=True),
    "rules slot-filling paper batch": Study(
        "slot-filling", _rules(), PAPER_FEATURES, same_batch=True
    ),
    "models corridors batch": Study("corridors", _models(0.0), same_batch=True),
    "models slot-filling batch": Study("slot-filling", _models(5e-4), same_batch=True),
    "decays slot-filling batch": Study("slot-filling", _decays(), same_batch=True),
    "decays slot-filling paper batch": Study(
        "slot-filling", _decays(), PAPER_FEATURES, same_batch=True
    ),
    "caps corridors batch": Study("corridors", CAPS, same_batch=True, moved_at=4),
    "caps slot-filling batch": Study("slot-filling", CAPS, same_batch=True, moved_at=3),
    "exploration corridors": Study("corridors", _explorations()),
    "exploration routes": Study("corridors", _explorations(), ROUTES),
}
