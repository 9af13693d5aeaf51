"""A short run of every campaign. `make fuzz NAME=...` runs one for as long as it is told."""

import pytest

from fuzz.__main__ import CAMPAIGNS, run_campaign

SHORT = {"calls": 100}
"""Cases of a short run; 20 of others."""


@pytest.mark.parametrize("name", CAMPAIGNS)
def test_a_short_run_breaks_no_promise(name):
    n_cases = SHORT.get(name, 20)
    counts = run_campaign(name, n_cases=n_cases, seed=1)
    assert sum(counts.values()) == n_cases
