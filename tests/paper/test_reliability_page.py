"""The page of promises has the counts of the records, and a way to run each campaign."""

import json
import re

import pytest

from fuzz.__main__ import CAMPAIGNS
from scripts import ROOT, script

tables = script("benchmarks/fuzz_tables.py")
TEXT = tables.PAGE.read_text()
COUNTS = tables.counts(tables.RECORDS)


def test_the_page_agrees_with_the_records():
    assert tables.with_tables(TEXT, COUNTS) == TEXT


def test_a_page_with_other_counts_is_rewritten():
    wrong = re.sub(r"(\| `kills` \| )\d", r"\g<1>99", TEXT)
    assert wrong != TEXT
    assert tables.with_tables(wrong, COUNTS) == TEXT


@pytest.mark.parametrize("name", CAMPAIGNS)
def test_every_campaign_is_on_the_page(name):
    assert f"| `{name}` | " in TEXT


def test_records_are_counts_of_campaigns():
    for path in (ROOT / "benchmarks/results/fuzz").glob("*.json"):
        assert list(json.loads(path.read_text())) == [path.stem]
        assert path.stem in COUNTS
    assert all(n > 0 for found in COUNTS.values() for n in found.values())
