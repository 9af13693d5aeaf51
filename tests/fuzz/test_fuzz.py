"""A short run of every campaign. `make fuzz NAME=...` runs one for as long as it is told."""

import pytest

from fuzz.__main__ import CAMPAIGNS, run_campaign

SHORT = {"calls": 100, "files": 100, "kills": 2, "frontiers": 7_000, "soak": 66_000}
"""Cases of a short run; 20 of others."""
LONGER = {"kills": 30, "disks": 12}
"""Cases of what starts processes."""
SLOW = ("disks",)
"""Too slow for a short run."""


@pytest.mark.parametrize("name", [name for name in CAMPAIGNS if name not in SLOW])
def test_a_short_run_breaks_no_promise(name):
    n_cases = SHORT.get(name, 20)
    counts = run_campaign(name, n_cases=n_cases, seed=1)
    assert sum(counts.values()) == n_cases


@pytest.mark.slow
@pytest.mark.parametrize("name", LONGER)
def test_a_longer_run_breaks_no_promise(name):
    assert sum(run_campaign(name, n_cases=LONGER[name], seed=2).values()) == LONGER[name]
