"""The page as a text: what is in it, and what cannot get out of it."""

import base64
import hashlib
import json
import math
import re
from html.parser import HTMLParser
from importlib import resources

import pytest

from bmdp.errors import DataError
from bmdp.report.page import SCRIPTS, STYLES, page
from bmdp.report.section import Picture, TableData
from dials import SVG, corridors, film, picture, section, sections, table

MADE = "Made by a test."
EVIL = "</script><script>alert(1)</script><!-- <b>&amp;\u2028"


class Reader(HTMLParser):
    """Tags, the text of scripts by id, and all visible text."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.scripts, self.texts, self.open = [], {}, [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "input"):
            self.open.append((tag, dict(attrs)))

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        tag, attributes = self.open[-1] if self.open else ("", {})
        if tag == "script":
            self.scripts[attributes.get("id", "")] = data
        elif tag != "style":
            self.texts.append(data)

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


def read(*given, title="Report"):
    return Reader(page(title, given, made=MADE))


def text_of(reader):
    return " ".join(" ".join(reader.texts).split())


def test_every_element_that_is_opened_is_closed():
    assert Reader(page("Report", sections(), made=MADE)).open == []


def test_a_section_says_what_it_is_about():
    told = text_of(read(section()))
    for text in ("On corridors", "Does it work?", "It does.", "Seeds", "0, 1", MADE):
        assert text in told


def test_contents_lead_to_every_section():
    reader = Reader(page("Report", sections(), made=MADE))
    links = {a["href"] for a in reader.all("a")}
    ids = [a["id"] for a in reader.all("section")]
    assert ids == ["corridors", "slot-filling", "driving"]
    assert {f"#{name}" for name in ids} <= links


def test_contents_count_what_there_is():
    assert "1 dial, 1 film, 1 figure, 1 table" in text_of(read(section()))


def test_dials_and_films_can_be_read_back():
    scripts = read(section()).scripts
    assert json.loads(scripts["corridors-dial-0"]) == corridors()
    assert json.loads(scripts["corridors-film-0"]) == film()


def test_text_in_data_cannot_end_its_element():
    reader = read(section(dials=[corridors() | {"title": EVIL}]))
    assert json.loads(reader.scripts["corridors-dial-0"])["title"] == EVIL
    assert len(reader.all("script")) == len(read(section()).all("script"))
    assert "<" not in reader.scripts["corridors-dial-0"]


@pytest.mark.parametrize(
    "given",
    [
        section(facts={EVIL: EVIL}),
        section(tables=[TableData("t", EVIL, [EVIL], [[EVIL]], EVIL)]),
        section(pictures=[Picture("p", EVIL, EVIL, f'"{EVIL}', SVG)]),
    ],
)
def test_text_stays_text(given):
    reader = read(given, title=EVIL)
    assert len(reader.all("script")) == 3  # of the dial, of the film, and ours
    assert not reader.all("b")
    assert "<b>&amp;" in text_of(reader)


def test_only_our_script_may_run_and_nothing_is_fetched():
    text = page("Report", sections(), made=MADE)
    reader = Reader(text)
    policy = next(m["content"] for m in reader.all("meta") if "http-equiv" in m)
    digest = hashlib.sha256(reader.scripts[""].encode()).digest()
    assert f"script-src 'sha256-{base64.b64encode(digest).decode()}'" in policy
    assert "default-src 'none'" in policy
    addresses = [a.get("src") or a.get("href") for _, a in reader.tags]
    assert all(a.startswith(("#", "data:")) for a in addresses if a)
    assert not re.search(r"@import|url\((?!#)|https?://(?!www\.w3\.org)", text)


def test_the_policy_comes_before_all_that_it_rules():
    tags = [tag for tag, _ in read(section()).tags]
    assert tags.index("meta") < tags.index("style") < tags.index("script")


def test_names_in_pictures_stay_inside_them():
    text = page("Report", [section(pictures=[picture("a"), picture("b")])], made=MADE)
    ids = re.findall(r'\sid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    for i in range(2):
        assert f'href="#corridors-{i}-dot"' in text
        assert f"url(#corridors-{i}-clip)" in text
        assert f"#corridors-{i}{{*{{stroke-linejoin: round}}}}" in text


def test_a_picture_has_a_text_alternative():
    svg = read(section()).all("svg")[0]
    assert (svg["role"], svg["aria-label"]) == ("img", "A rising line.")


def test_a_picture_that_is_none_is_refused():
    bad = Picture("curve", "t", "c", "a", "<p>no picture</p>")
    with pytest.raises(DataError, match=r"picture 'curve' must be an SVG document"):
        read(section(pictures=[bad]))


def test_columns_of_numbers_stand_on_the_right():
    heads = read(section()).all("th")
    assert [head.get("class") for head in heads] == ["number", "number", None]


def test_a_table_without_rows_keeps_its_columns():
    empty = TableData("none", "Nothing", ["a", "b"], [])
    assert len(read(section(tables=[empty])).all("th")) == 2


@pytest.mark.parametrize(("n_facts", "opened"), [(6, True), (7, False)])
def test_many_facts_are_folded(n_facts, opened):
    details = read(section(facts={f"name {i}": "text" for i in range(n_facts)})).all("details")
    assert [("open" in a) for a in details] == [opened]


def test_without_scripts_one_is_told_what_is_missing():
    reader = read(section())
    assert "need JavaScript" in text_of(reader)
    assert all("hidden" in a for a in reader.all("article"))


def test_the_same_sections_give_the_same_text():
    assert page("R", sections(), made=MADE) == page("R", sections(), made=MADE)


def test_the_code_of_a_page_is_small():
    bare = section(facts={}, pictures=[], tables=[], dials=[], films=[])
    assert len(page("R", [bare], made=MADE).encode()) < 120_000


def test_a_page_has_every_script_and_style():
    folder = resources.files("bmdp.report") / "assets"
    found = [f.name for f in folder.iterdir() if f.name.endswith((".js", ".css"))]
    assert sorted(found) == sorted(SCRIPTS + STYLES)


def test_a_page_of_nothing_is_refused():
    with pytest.raises(DataError, match="sections must not be empty"):
        page("Report", [], made=MADE)


@pytest.mark.parametrize("anchor", ["", "1st", "a b", 'a"b', "a<b"])
def test_an_anchor_that_is_no_name_is_refused(anchor):
    with pytest.raises(DataError, match=r"anchor must be letters.*at \[0\]"):
        read(section(anchor))


def test_an_anchor_is_given_once():
    with pytest.raises(DataError, match=r"got 'twice' again at \[1\]"):
        read(section("twice"), section("twice"))


def test_a_row_of_the_wrong_length_is_refused():
    bad = TableData("short", "t", ["a", "b"], [["1", "2"], ["3"]])
    with pytest.raises(DataError, match=r"table 'short' must have 2 cells.*got 1 at \[1\]"):
        read(section(tables=[table(), bad]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"choices": []}, "choices of a dial of 'corridors' .* 3 budgets; got 0"),
        ({"episodes": [[]]}, "episodes of a dial .* got 1"),
        ({"realised": {}}, "realised cost of a dial .* got 0"),
        ({"budgets": []}, "budgets of a dial .* must increase"),
        ({"budgets": [0.0, 0.5, 0.5]}, "budgets of a dial .* must increase"),
        ({"title": math.nan}, "corridors-dial-0 must be what JSON can say"),
        ({"title": object()}, "corridors-dial-0 must be what JSON can say"),
    ],
)
def test_a_dial_that_does_not_fit_is_refused(change, message):
    with pytest.raises(DataError, match=message):
        read(section(dials=[corridors() | change]))


def test_a_dial_with_something_missing_says_what():
    bad = {name: value for name, value in corridors().items() if name not in ("env", "choices")}
    with pytest.raises(DataError, match="env, choices missing"):
        read(section(dials=[bad]))


def test_a_film_without_rounds_is_refused():
    with pytest.raises(DataError, match="must have rounds"):
        read(section(films=[film() | {"rounds": []}]))
