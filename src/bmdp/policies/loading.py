"""Reading policies back from their folders."""

from __future__ import annotations

import os

from bmdp.errors import StoreError
from bmdp.policies.protocol import BudgetedPolicy, Policy
from bmdp.policies.stored import from_stored, read_stored


def load_policy(folder: str | os.PathLike[str]) -> BudgetedPolicy:
    """Returns the policy that `policy.save(folder)` wrote.

    Raises:
        StoreError: if the folder is missing, damaged, of a newer schema, or holds no policy.
    """
    policy = from_stored(read_stored(folder))
    if not isinstance(policy, Policy):
        raise StoreError(
            f"{os.fspath(folder)} holds a {type(policy).__name__}, which is no policy."
        )
    return policy
