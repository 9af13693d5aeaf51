"""Reports of experiments as they are really run: what the catalog writes, the report can read."""

import pytest

from bmdp.experiments.running.runner import run_experiment
from bmdp.experiments.running.spec import ExperimentSpec
from bmdp.report.sections import tell
from folders import PICTURES

QUICK = ("corridors-exploration", "theory")
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in PICTURES if name not in QUICK]
MORE = {"slot-filling": ["rounds"], "driving": ["rounds"]}  # of records of training
ELSEWHERE = {"comparison": ["slot-filling-scores", "slot-filling-trade-off"]}


@pytest.mark.parametrize("name", [*QUICK, *SLOW])
def test_a_smoke_run_has_all_its_pictures_and_nothing_damaged(tmp_path, name):
    assert run_experiment(ExperimentSpec(name, "smoke", (0,)), tmp_path / name) == ()
    told = tell(tmp_path / name, name)
    assert told.results.notes == ()
    wanted = [*PICTURES[name], *MORE.get(name, []), *ELSEWHERE.get(name, [])]
    assert [picture.name for picture in told.section.pictures] == [f"{name}-{w}" for w in wanted]
    for animation in told.chapter.animations:
        assert 10_000 < len(animation.make()) < 1_500_000
