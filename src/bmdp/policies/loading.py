"""Reading policies back from their folders."""

from __future__ import annotations

import os
from pathlib import Path

from bmdp.errors import StoreError
from bmdp.policies.protocol import BudgetedPolicy, Policy
from bmdp.policies.stored import from_stored, read_stored


def load_policy(folder: str | os.PathLike[str]) -> BudgetedPolicy:
    """Returns the policy that `policy.save(folder)` wrote, or that a training run left.

    Args:
        folder: of a policy, or of a run.

    Raises:
        StoreError: if the folder is missing, damaged, of a newer schema, or holds no policy, or
            is a training run that is not finished.

    >>> import tempfile
    >>> from bmdp.policies import HullPolicy, TabularQ
    >>> q = TabularQ(q_r=[[[0.0, 0.0], [10.0, 10.0]]], q_c=[[[0.0, 0.0], [1.0, 1.0]]])
    >>> with tempfile.TemporaryDirectory() as place:
    ...     HullPolicy(q, beta_grid=[0.0, 1.0]).save(f"{place}/policy")
    ...     load_policy(f"{place}/policy").frontier(0).reward_at(0.25)
    2.5
    """
    place = _place(Path(folder))
    policy = from_stored(read_stored(place))
    if not isinstance(policy, Policy):
        raise StoreError(f"{place} holds a {type(policy).__name__}, which is no policy.")
    return policy


def _place(folder: Path) -> Path:
    """Where the policy is: in the folder, or in that of a run."""
    if (folder / "manifest.json").exists() or not (folder / "spec.json").exists():
        return folder
    if not (folder / "policy").exists():
        raise StoreError(
            f"{folder} is a training run that is not finished: bmdp train --resume {folder}"
        )
    return folder / "policy"
