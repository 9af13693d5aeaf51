"""The figure of decisions shows what its record says."""

import json

import pytest
import serving_figure as made
from tables import ROOT

RECORD = json.loads((ROOT / "benchmarks/results/serving.json").read_text())


def test_each_policy_has_a_dot_for_each_way_to_ask():
    left, right = made.serving_figure(RECORD).axes
    lines = {line.get_label(): line.get_xdata().tolist() for line in left.get_lines()[:3]}
    for way in ("step", "request", "reference"):
        assert lines[way] == [row["one"][way]["median_us"] for row in RECORD["rows"]]
    later = [row["batch"]["later_per_second"] for row in RECORD["rows"]]
    assert right.get_lines()[0].get_xdata().tolist() == later
    assert [text.get_text() for text in left.get_yticklabels()] == [
        row["policy"] for row in RECORD["rows"]
    ]


def test_the_figure_is_written_as_a_picture(tmp_path):
    record = ROOT / "benchmarks/results/serving.json"
    made.main([str(record), str(tmp_path / "serving.png")])
    assert (tmp_path / "serving.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("kind", ["table", "forest of 25 trees", "forest of 100 trees"])
def test_the_table_of_the_guide_has_the_slower_dial_of_each_model(kind):
    page = (ROOT / "docs/production.md").read_text()
    dials = [row for row in RECORD["rows"] if row["policy"].partition(",")[0] == kind]
    assert len(dials) == 2
    step, request = (
        max(row["one"][way]["median_us"] for row in dials) / 1_000 for way in ("step", "request")
    )
    later = min(row["batch"]["later_per_second"] for row in dials)
    rate = int(float(f"{later:.3g}"))
    assert f"| {kind} | {step:.2f} | {request:.2f} | {rate:,} |" in page
