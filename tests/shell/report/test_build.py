import csv
import json
import os

import pytest

from bmdp.errors import StoreError
from bmdp.report import build
from bmdp.report.build import write_report
from bmdp.report.section import Animation
from dials import corridors, film, picture, section, table


@pytest.fixture
def place(tmp_path):
    return tmp_path / "run/report"


def write(out, *given, **changes):
    how = {"title": "Report", "made": "now", **changes}
    return write_report(given or [section()], out, **how)


def test_a_report_has_its_page_figures_tables_and_animations(place):
    animated = section(animations=[Animation("ways", "ways by budget", lambda: b"GIF89a")])
    found = write(place, animated, title="On corridors")
    assert found.page == place / "index.html"
    assert (found.figures, found.tables) == (2, 1)
    text = found.page.read_text()
    assert "<title>On corridors</title>" in text
    assert "figures/ways.gif (ways by budget)" in text
    assert {path.name for path in (place / "figures").iterdir()} == {
        *("curve.svg", "curve.png", "ways.gif")
    }
    rows = list(csv.DictReader((place / "tables/asked.csv").read_text().splitlines()))
    assert [float(row["low"]) for row in rows] == [0.1, 0.2]


def test_the_same_sections_give_the_same_report(tmp_path):
    first, second = (write(tmp_path / name).page.parent for name in "ab")
    names = sorted(p.relative_to(first) for p in first.rglob("*") if p.is_file())
    assert len(names) == 4  # the page, a figure in two formats, a table
    assert names == sorted(p.relative_to(second) for p in second.rglob("*") if p.is_file())
    differing = [n for n in names if (first / n).read_bytes() != (second / n).read_bytes()]
    assert differing == []


def test_notes_of_several_sections_are_told_with_their_anchors(place):
    others = {"pictures": [picture("b")], "tables": [table("b")]}
    found = write(place, section(notes=["half"]), section("other", **others, notes=["whole"]))
    assert found.notes == ("corridors: half", "other: whole")
    assert write(place, section(notes=["half"]), force=True).notes == ("half",)


def test_making_a_report_again_replaces_it_and_nothing_is_left_aside(place):
    write(place, made="first")
    (place / "figures/old.svg").write_text("old")
    page = write(place, made="second", force=True).page
    assert "second" in page.read_text()
    assert not (place / "figures/old.svg").exists()
    assert [path.name for path in place.parent.iterdir()] == ["report"]


def test_a_report_that_fails_leaves_the_earlier_one(place, monkeypatch):
    page = write(place, made="first").page
    monkeypatch.setattr(build, "png_of", lambda figure: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write(place, made="second", force=True)
    assert "first" in page.read_text()
    assert not [path for path in place.parent.iterdir() if path.name.startswith(".")]


def test_an_earlier_report_is_put_back_if_the_new_one_cannot_be_put_in_its_place(
    place, monkeypatch
):
    page = write(place, made="first").page
    rename = os.rename

    def fails_for_the_new_one(source, target):
        if source.name == "new":
            raise OSError("the disk is gone")
        rename(source, target)

    monkeypatch.setattr("bmdp.storage.os.rename", fails_for_the_new_one)
    with pytest.raises(StoreError, match="the disk is gone"):
        write(place, made="second", force=True)
    assert "first" in page.read_text()


def test_a_report_is_not_overwritten_unless_forced(place):
    write(place, made="first")
    with pytest.raises(StoreError, match="exists already"):
        write(place, made="second")
    assert "second" in write(place, force=True, made="second").page.read_text()


@pytest.mark.parametrize("name", ["notes.txt", "figures/notes.txt", "tables/deep/table.csv"])
def test_a_place_with_anything_else_in_it_is_never_overwritten(tmp_path, name):
    (tmp_path / "mine" / name).parent.mkdir(parents=True)
    (tmp_path / "mine" / name).write_text("mine")
    with pytest.raises(StoreError, match="is no report"):
        write(tmp_path / "mine", force=True)
    assert (tmp_path / "mine" / name).read_text() == "mine"


def test_a_place_that_cannot_be_written_is_told_of(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="is no report"):
        write(tmp_path / "file", force=True)
    with pytest.raises(StoreError, match="cannot be written"):
        write(tmp_path / "file/report")


def test_a_page_that_is_too_large_shows_fewer_episodes(place, monkeypatch):
    dial, played = corridors(), film()
    dial["episodes"] = [some * 20 for some in dial["episodes"]]
    played["rounds"] = [one | {"episodes": one["episodes"] * 30} for one in played["rounds"]]
    given = section(dials=[dial], films=[played])
    monkeypatch.setattr(build, "_write_files", lambda section, place: None)
    whole = write(place, given)
    assert whole.notes == ()
    size = len(whole.page.read_bytes())
    monkeypatch.setattr(build, "MOST_BYTES", size - 1_000)
    fewer = write(place, given, force=True)
    (note,) = fewer.notes
    assert "16 episodes" in note
    text = fewer.page.read_text()
    assert len(text.encode()) < size - 1_000
    assert note in text
    begin = text.index('id="', text.index('<script type="application/json"'))
    shown = json.loads(text[text.index(">", begin) + 1 : text.index("</script>", begin)])
    assert [len(some) for some in shown["episodes"]] == [16, 16, 16]


def test_a_page_that_cannot_be_made_small_enough_is_refused(place, monkeypatch):
    monkeypatch.setattr(build, "MOST_BYTES", 1_000)
    with pytest.raises(StoreError, match=r"would have 0\.\d MB"):
        write(place)
    assert not place.exists()


def test_the_page_says_from_what_and_by_what_it_was_made(place):
    text = write(place, made=None).page.read_text()
    assert "Made from corridors by bmdp" in text
    assert "(bmdp report) on" in text
