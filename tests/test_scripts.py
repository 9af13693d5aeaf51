"""Examples and benchmarks are run, the latter at their smallest size."""

import importlib.util
import json
from pathlib import Path

ROOT = Path(__file__).parents[1]


def script(path):
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_frontier_of_one_state_prints_its_table_and_draws(tmp_path, capsys):
    picture = tmp_path / "frontier.png"
    script("examples/frontier_of_one_state.py").main(["--budget", "0.3", "--out", str(picture)])
    printed = capsys.readouterr().out
    assert "wait, then pass     0.20    4.00  vertex     75.0%" in printed
    assert "pass now            0.60    7.00  vertex     25.0%" in printed
    assert "creep out           0.40    4.20  below" in printed
    assert "budget 0.3 (TIGHT): expected cost 0.300, expected reward 4.750" in printed
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_the_frontier_benchmark_agrees_with_its_references(tmp_path):
    out = tmp_path / "frontier.json"
    script("benchmarks/frontier.py").main(["--quick", "--out", str(out)])
    rows = json.loads(out.read_text())["rows"]
    assert len(rows) == 12
    for row in rows:
        for reference in ("convex_hull", "graham_scan", "monotone_chain"):
            difference = row[f"{reference}_difference"]
            assert difference is None or difference < 1e-6
