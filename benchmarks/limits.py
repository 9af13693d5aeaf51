"""Speed of memory, which bounds all that reads it: in order, and row by row at random.

    python benchmarks/limits.py --out limits.json

*Reading*: the sum of an array that is much larger than the cache. *Gathering*: rows of 176 bytes at
random places of tables that fit into a core's own cache, into that of all cores, and into none. A
row is *fetched* if one number of each of its cache lines is read, which is the limit of memory;
*summed* if all of its numbers are. Gigabytes (1e9 bytes) are those of the array or of the rows; the
numbers of the rows are not counted. Each is the best of three tries, in this process.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import records
from numba import njit, prange
from workers import all_threads

from learning import best_of

ROW = 22  # int64 of a row, 176 bytes
MB = 1 << 20
READ = 512 * MB  # bytes, the cache being 32 MB
TABLES = (MB, 16 * MB, 256 * MB)  # bytes
N_GATHERED = 4_000_000  # rows
COUNTS = (1, 2)


@njit(parallel=True, cache=True)
def _sum(values):  # type: ignore[no-untyped-def]
    total = 0
    for i in prange(len(values)):
        total += values[i]
    return total


@njit(parallel=True, cache=True)
def _fetched(table, places):  # type: ignore[no-untyped-def]
    total = 0
    for i in prange(len(places)):
        row = table[places[i]]
        total += row[0] + row[8] + row[16] + row[21]  # lines have 8 numbers
    return total


@njit(parallel=True, cache=True)
def _summed(table, places):  # type: ignore[no-untyped-def]
    total = 0
    for i in prange(len(places)):
        row = table[places[i]]
        for k in range(ROW):
            total += row[k]
    return total


def reading(n_bytes: int = READ, threads: int = 1) -> dict[str, Any]:
    """Speed of reading an array in order, with so many threads."""
    values = np.ones(max(1, n_bytes // 8), np.int64)
    with all_threads(threads):
        assert _sum(values) == len(values)
        seconds = best_of(lambda: _sum(values))
    return _row(values.nbytes, threads) | {"gigabytes_per_second": _speed(values.nbytes, seconds)}


def gathering(
    n_bytes: int = TABLES[-1], n_rows: int = N_GATHERED, threads: int = 1
) -> dict[str, Any]:
    """Speed of reading rows at random places of a table of so many bytes."""
    table = np.ones((max(1, n_bytes // (8 * ROW)), ROW), np.int64)
    places = np.random.default_rng(0).integers(len(table), size=n_rows)
    row = _row(table.nbytes, threads)
    with all_threads(threads):
        for name, work, n_read in (("fetched", _fetched, 4), ("summed", _summed, ROW)):
            assert work(table, places) == n_read * n_rows
            seconds = best_of(lambda work=work: work(table, places))  # type: ignore[misc]
            row[f"gigabytes_per_second_{name}"] = _speed(8 * ROW * n_rows, seconds)
            row[f"nanoseconds_a_row_{name}"] = round(1e9 * seconds / n_rows, 2)
    return row


def _row(n_bytes: int, threads: int) -> dict[str, Any]:
    return {"megabytes": round(n_bytes / MB, 2), "threads": threads}


def _speed(n_bytes: int, seconds: float) -> float:
    return round(n_bytes / seconds / 1e9, 3)


def limits(share: float = 1.0) -> dict[str, Any]:
    """All limits of this machine; a share below 1 is of all sizes, to see that it runs."""
    counts = [count for count in COUNTS if count <= numba.get_num_threads()]
    n_rows = max(1, int(share * N_GATHERED))
    return {
        "row_bytes": 8 * ROW,
        "reading": [reading(int(share * READ), count) for count in counts],
        "gathering": [
            gathering(int(share * size), n_rows, count) for size in TABLES for count in counts
        ],
    }


def main(arguments: list[str] | None = None) -> None:
    """Measures and writes."""
    asked = records.options(__doc__, arguments)
    records.write(limits(0.001 if asked.quick else 1.0), asked.out)


if __name__ == "__main__":
    main()
