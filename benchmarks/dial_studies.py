"""Studies of how honest dials are: which settings of a preset `dial.py` changes."""

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


SELF = "learner.valuation=self"
CROSSED = "learner.valuation=crossed"
ROUTES = ("env.settings.routes=4", "learner.slope_cap=50")
PAPER_FEATURES = ("env.settings.features=paper",)


def _rules() -> tuple[Variant, ...]:
    """Ways to learn from a batch; models act by their mean, unless it says otherwise."""
    folds = {f"crossed, {k} folds": (CROSSED, f"learner.folds={k}") for k in (2, 3, 5, 8)}
    wary = {
        f"pessimistic, {c:g} deviations": (
            "learner.valuation=pessimistic",
            "learner.folds=5",
            f"learner.caution={c}",
        )
        for c in (0.0, 0.5, 1.0)
    }
    every = {
        "self": (SELF,),
        **folds,
        **wary,
        "self, no cap": (SELF, "learner.slope_cap=0"),
        "3 folds, no cap": (CROSSED, "learner.folds=3", "learner.slope_cap=0"),
        "self, iterations": (SELF, "learner.stages=none"),
    }
    mean = ("learner.acting=average",)
    return tuple(Variant(name, (*mean, *settings)) for name, settings in every.items())


def _explorations() -> tuple[Variant, ...]:
    """Ways to explore."""
    every = {
        "independent": ("exploration.bonus=none", "exploration.hold=1"),
        "held 3": ("exploration.bonus=none", "exploration.hold=3"),
        "held 5": ("exploration.bonus=none", "exploration.hold=5"),
        "held 8": ("exploration.bonus=none", "exploration.hold=8"),
        "counts 0.1": ("exploration.bonus=count", "exploration.weight=0.1"),
        "counts 1": ("exploration.bonus=count", "exploration.weight=1"),
        "targets 0.3": ("exploration.bonus=targets", "exploration.weight=0.3"),
        "targets 1": ("exploration.bonus=targets", "exploration.weight=1"),
        "moved 0.1": ("exploration.move=0.1",),
    }
    return tuple(Variant(name, settings) for name, settings in every.items())


def _models(decay: float) -> tuple[Variant, ...]:
    """What values can be estimated by, step by step, or by iterations of one model."""
    how = ("learner.regression.steps=600", f"learner.regression.weight_decay={decay}")
    kinds = {
        "EncoderNet": ("learner.model=EncoderNet", *how),
        "FrontierNet": ("learner.model=FrontierNet", *how),
        "LinearModel": ("learner.model=LinearModel",),
    }
    one = ("learner.stages=none", "learner.acting=average")
    return (
        *PLAIN,
        *(Variant(f"{name}, stages", settings) for name, settings in kinds.items()),
        *(Variant(f"{name}, iterations", (*kinds[name], *one)) for name in list(kinds)[:2]),
    )


def _decays() -> tuple[Variant, ...]:
    """Weights of the regularisation of networks."""
    how = (
        "model=EncoderNet",
        "stages=none",
        "folds=2",
        "iterations=11",
        "regression.steps=1000",
        "regression.batch_size=2048",
    )
    every = (CROSSED, *(f"learner.{h}" for h in how))
    return tuple(
        Variant(f"decay {decay:g}", (*every, f"learner.regression.weight_decay={decay}"))
        for decay in (0.0, 1e-5, 1e-4, 5e-4, 2e-3, 1e-2)
    )


PLAIN = (Variant("preset"),)
CAPS = tuple(Variant(f"cap {c:g}", (f"learner.slope_cap={c}",)) for c in (0, 4, 15, 60))
MOVED = (*PLAIN, *(Variant(f"moved {p:g}", (f"exploration.move={p}",)) for p in (0.1, 0.2)))
ATTEMPTS = (
    Variant("less random", ("exploration.decay=0.002", "exploration.floor=0.1")),
    Variant("600 centres", ("learner.model.centres=600",)),
    Variant("5 folds", ("learner.folds=5",)),
    Variant("held 3", ("exploration.hold=3",)),
    Variant("11 budgets", ("learner.n_budgets=11",)),
)
SLOT_ATTEMPTS = (
    *(
        Variant(
            f"{n} budgets, caution {c:g}",
            (f"learner.n_budgets={n}", "learner.valuation=pessimistic", f"learner.caution={c}"),
        )
        for n, c in ((21, 0.5), (11, 0.3), (11, 0.5), (6, 0.5))
    ),
    *(Variant(f"{n} budgets", (CROSSED, f"learner.n_budgets={n}")) for n in (21, 11, 6)),
    Variant("8 folds", (CROSSED, "learner.n_budgets=21", "learner.folds=8")),
    Variant("200 centres", (CROSSED, "learner.n_budgets=21", "learner.model.centres=200")),
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
