"""Environments whose best reward for every cost is known, so that a policy can be scored."""

from __future__ import annotations

from gymnasium.envs.registration import EnvSpec

from bmdp.envs import corridors, slot_filling
from bmdp.envs.tasks import TrueFrontier
from bmdp.kinds import checked

RESOLUTION = 17  # of the grid of corridors, which takes seconds; its own value is 1 % off


@checked
def known_frontier(spec: EnvSpec) -> tuple[TrueFrontier | None, str]:
    """Returns the true frontier of an environment, if seconds suffice to find it, and how.

    Args:
        spec: of the environment. Corridors and slot-filling are known with the settings of the
            paper; what an observation shows makes no difference.

    Returns:
        The frontier, or None if none is known, and a line on how it was found.

    >>> import gymnasium
    >>> known_frontier(gymnasium.spec("bmdp/TwoWay-v0"))
    (None, 'no optimum known')
    """
    settings = spec.kwargs
    if spec.id == "bmdp/Corridors-v0" and set(settings) <= {"observe_time"}:
        true = corridors.true_frontier(
            corridors.Corridors(**settings), resolution=RESOLUTION, max_disagreement=0.02
        )
        how = f"corridors on a grid of resolution {RESOLUTION}"
    elif spec.id == "bmdp/SlotFilling-v0" and set(settings) <= {"features"}:
        true = slot_filling.true_frontier(slot_filling.SlotFilling(**settings))
        how = f"slot-filling with scores in {true.settings['n_bins']} bins"
    else:
        return None, "no optimum known"
    return true, f"optimum: {how}, rewards within {true.reward_error:.2g}"
