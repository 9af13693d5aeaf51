import csv
import json
import os

import pytest

import folders
from bmdp.errors import StoreError
from bmdp.report import build
from bmdp.report.build import write_report


@pytest.fixture
def folder(tmp_path):
    folders.small(tmp_path / "theory")
    return tmp_path / "theory"


def test_a_report_has_its_page_figures_tables_and_animations(tmp_path):
    folders.driving(tmp_path / "driving")
    page = write_report(tmp_path / "driving", made="now").page
    assert page == tmp_path / "driving/report/index.html"
    text = page.read_text()
    assert "<title>Driving on a two-way road (smoke)</title>" in text
    figures = {path.name for path in (page.parent / "figures").iterdir()}
    assert {"report-trade-off.svg", "driving-executions.gif"} & figures == {
        "driving-executions.gif"
    }
    for name in ("trade-off", "asked", "calibration", "drives", "hull"):
        assert {f"driving-{name}.svg", f"driving-{name}.png"} <= figures
    rows = list(csv.DictReader((page.parent / "tables/driving-bftq.csv").read_text().splitlines()))
    assert [float(row["asked"]) for row in rows] == folders.BUDGETS
    assert [float(row["cost"]) for row in rows] == pytest.approx([0.05, 0.55, 0.65])


def test_the_same_folder_gives_the_same_report(folder, tmp_path):
    first = write_report(folder, tmp_path / "a", made="now").page.parent
    second = write_report(folder, tmp_path / "b", made="now").page.parent
    names = sorted(p.relative_to(first) for p in first.rglob("*") if p.is_file())
    assert len(names) == 5  # the page, a figure in two formats, two tables
    assert names == sorted(p.relative_to(second) for p in second.rglob("*") if p.is_file())
    differing = [n for n in names if (first / n).read_bytes() != (second / n).read_bytes()]
    assert differing == []


def test_a_folder_of_experiments_has_one_page_in_the_order_of_the_catalog(tmp_path):
    folders.comparison(tmp_path / "a comparison")
    folders.small(tmp_path / "zz")
    page = write_report(tmp_path, made="now").page
    text = page.read_text()
    assert 0 < text.index('<section id="zz"') < text.index('<section id="a-comparison"')
    assert (page.parent / "figures/zz-expansion.svg").exists()
    assert (page.parent / "tables/a-comparison-corridors.csv").exists()


def test_a_report_can_be_made_of_what_is_there(folder):
    (folder / "seed-0/finished.json").unlink()
    (folder / "counter-examples/branches.json").write_text("{")
    found = write_report(folder, made="now")
    assert len(found.notes) == 2
    assert "branches.json is not JSON" in found.notes[0]
    assert "seed 0 is not finished." in found.page.read_text()


def test_making_a_report_again_replaces_it_and_nothing_is_left_aside(folder):
    write_report(folder, made="first")
    (folder / "report/figures/theory-old.svg").write_text("old")
    page = write_report(folder, made="second").page
    assert "second" in page.read_text()
    assert not (page.parent / "figures/theory-old.svg").exists()
    assert {path.name for path in folder.iterdir()} == {
        *("spec.json", "seed-0", "counter-examples", "report")
    }


def test_a_report_that_fails_leaves_the_earlier_one(folder, monkeypatch):
    page = write_report(folder, made="first").page
    monkeypatch.setattr(build, "png_of", lambda figure: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_report(folder, made="second")
    assert "first" in page.read_text()
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]


def test_an_earlier_report_is_put_back_if_the_new_one_cannot_be_put_in_its_place(
    folder, monkeypatch
):
    page = write_report(folder, made="first").page
    rename = os.rename

    def fails_for_the_new_one(source, target):
        if source.name == "new":
            raise OSError("the disk is gone")
        rename(source, target)

    monkeypatch.setattr("bmdp.storage.os.rename", fails_for_the_new_one)
    with pytest.raises(StoreError, match="the disk is gone"):
        write_report(folder, made="second")
    assert "first" in page.read_text()


def test_another_place_is_not_overwritten_unless_forced(folder, tmp_path):
    out = tmp_path / "there/report"
    write_report(folder, out, made="first")
    with pytest.raises(StoreError, match="exists already"):
        write_report(folder, out, made="second")
    assert "second" in write_report(folder, out, force=True, made="second").page.read_text()


@pytest.mark.parametrize("name", ["notes.txt", "figures/notes.txt", "tables/deep/table.csv"])
def test_a_place_with_anything_else_in_it_is_never_overwritten(folder, tmp_path, name):
    (tmp_path / "mine" / name).parent.mkdir(parents=True)
    (tmp_path / "mine" / name).write_text("mine")
    with pytest.raises(StoreError, match="is no report"):
        write_report(folder, tmp_path / "mine", force=True)
    with pytest.raises(StoreError, match="is no report"):
        write_report(folder, folder, force=True)
    assert (tmp_path / "mine" / name).read_text() == "mine"


def test_not_even_the_report_of_the_folder_if_it_holds_something_else(folder):
    (folder / "report").mkdir()
    (folder / "report/thesis.tex").write_text("mine")
    with pytest.raises(StoreError, match="is no report"):
        write_report(folder)


def test_a_place_that_cannot_be_written_is_told_of(folder, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="is no report"):
        write_report(folder, tmp_path / "file", force=True)
    with pytest.raises(StoreError, match="cannot be written"):
        write_report(folder, tmp_path / "file/report")


def test_a_page_that_is_too_large_shows_fewer_episodes(tmp_path, monkeypatch):
    folders.corridors(tmp_path)
    piece = folders.executions()
    piece["episodes"] = [some * 20 for some in piece["episodes"]]
    folders.write(tmp_path / "seed-0/executions.json", piece)
    folders.write(tmp_path / "seed-0/exploration.json", folders.exploration(n_episodes=30))
    monkeypatch.setattr(build, "_write_files", lambda told, place: None)
    whole = write_report(tmp_path, made="now")
    assert whole.notes == ()
    size = len(whole.page.read_bytes())
    monkeypatch.setattr(build, "MOST_BYTES", size - 1_000)
    fewer = write_report(tmp_path, made="now")
    assert fewer.notes == (
        "For its size, the page shows 16 episodes of a round or budget at most.",
    )
    text = fewer.page.read_text()
    assert len(text.encode()) < size - 1_000
    assert fewer.notes[0] in text
    begin = text.index('id="', text.index('<script type="application/json"'))
    dial = json.loads(text[text.index(">", begin) + 1 : text.index("</script>", begin)])
    assert [len(some) for some in dial["episodes"]] == [16, 16, 16]


def test_a_page_that_cannot_be_made_small_enough_is_refused(folder, monkeypatch):
    monkeypatch.setattr(build, "MOST_BYTES", 1_000)
    folders.write(folder / "seed-0/gaps.json", {"kind": {"random": [folders.gap_row([0.5])]}})
    with pytest.raises(StoreError, match=r"would have 0\.\d MB"):
        write_report(folder)
    assert not (folder / "report").exists()


def test_the_page_says_when_it_was_made_and_from_what(folder):
    assert "Made from theory by bmdp" in write_report(folder).page.read_text()
