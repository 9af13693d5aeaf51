"""Several logs as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bmdp.data.checks import FIELDS
from bmdp.errors import DataError


def joined(parts: Sequence[dict[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """Returns the columns that all parts have, one part after the other.

    The episodes of a part are numbered from after the largest number of the part before it.

    Raises:
        DataError: if there is no part, or their states differ in size.
    """
    if not parts:
        raise DataError("batches must hold at least one; got none.")
    sizes = [part["state"].shape[1] for part in parts]
    for i, size in enumerate(sizes):
        if size != sizes[0]:
            raise DataError(
                f"batches must have states of one size; [0] has {sizes[0]} numbers a state, "
                f"[{i}] has {size}."
            )
    shared = [name for name in FIELDS if all(name in part for part in parts)]
    columns = {name: np.concatenate([part[name] for part in parts]) for name in shared}
    if "episode" in shared:
        numbers = [parts[0]["episode"]]
        for part in parts[1:]:
            numbers.append(part["episode"] - part["episode"].min() + numbers[-1].max() + 1)
        columns["episode"] = np.concatenate(numbers)
    return columns
