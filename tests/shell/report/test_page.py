"""The page as a text: what is in it, and what cannot get out of it."""

import base64
import hashlib
import json
import math
import re
from html.parser import HTMLParser

import pytest

from bmdp.errors import ConfigError, DataError
from bmdp.report.page import MOST_ROWS, page
from bmdp.report.section import Column, Plugin, Table
from dials import (
    corridors,
    film,
    forecast_only,
    picture,
    plugins,
    section,
    sections,
    table,
)

MADE = "Made by a test."
EVIL = "</script><script>alert(1)</script><!-- <b>&amp;\u2028 {{ 7*7 }} {% raw %}"


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


def read(*given, title="Report", with_plugins=()):
    return Reader(page(title, given, made=MADE, plugins=with_plugins))


def text_of(reader):
    return " ".join(" ".join(reader.texts).split())


def test_every_element_that_is_opened_is_closed():
    assert Reader(page("Report", sections(), made=MADE, plugins=plugins())).open == []


def test_a_section_says_what_it_is_about():
    told = text_of(read(section()))
    for text in ("On corridors", "Does it work?", "It does.", "Seeds", "0, 1", MADE):
        assert text in told


def test_contents_lead_to_every_section():
    reader = Reader(page("Report", sections(), made=MADE, plugins=plugins()))
    links = {a["href"] for a in reader.all("a")}
    ids = [a["id"] for a in reader.all("section")]
    assert ids == ["corridors", "slot-filling", "driving"]
    assert {f"#{name}" for name in ids} <= links


def test_contents_count_what_there_is():
    hidden = table("hidden", columns=[Column("a", [1.0], "")])
    other = section("other", films=[], pictures=[], tables=[table("shown"), hidden])
    told = text_of(read(section(), other))
    assert "1 dial, 1 film, 1 figure, 1 table" in told
    assert "On other 1 dial, 1 table" in told


def test_a_page_of_one_section_has_no_contents_and_says_its_title_once():
    reader = read(section(), title="On corridors")
    assert not reader.all("nav")
    assert [a.get("class") for a in reader.all("h2")] == ["unseen"]


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
        section(tables=[table(title=EVIL, columns=[Column(EVIL, [EVIL], "s")], note=EVIL)]),
        section(pictures=[picture(title=EVIL, caption=EVIL, alt=f'"{EVIL}')]),
        section(notes=[EVIL], question=EVIL, answer=EVIL),
    ],
)
def test_text_stays_text(given):
    reader = read(given, title=EVIL)
    assert len(reader.all("script")) == 3  # of the dial, of the film, and ours
    assert not reader.all("b")
    assert "<b>&amp;" in text_of(reader)
    assert "49" not in "".join(text for text in reader.texts if "7*7" in text)
    assert ("Good to know" in text_of(reader)) == bool(given.notes)


def test_a_plugin_is_there_if_a_dial_or_film_names_its_environment():
    marked = [Plugin(env, [f"// of {env}"], [f"/* of {env} */"]) for env in ("corridors", "chess")]
    text = page("Report", [section(dials=[])], made=MADE, plugins=marked)
    assert "// of corridors" in text
    assert "/* of corridors */" in text
    assert "of chess" not in text
    assert "// of corridors" not in page("R", [section(dials=[], films=[])], made=MADE)


@pytest.mark.parametrize(
    "bad", [Plugin("corridors", ["'</SCRIPT>'"]), Plugin("corridors", [], ["</style>"])]
)
def test_a_plugin_that_would_end_its_element_is_refused(bad):
    with pytest.raises(ConfigError, match="must not have </s"):
        read(section(), with_plugins=[bad])


def test_only_our_script_may_run_and_nothing_is_fetched():
    text = page("Report", sections(), made=MADE, plugins=plugins())
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
        inner = re.search(rf'<svg id="corridors-{i}".*?</svg>', text, re.DOTALL)[0]
        used = re.findall(r'(?:href="|url\()#([^")]+)', inner)
        assert used
        assert set(used) <= set(re.findall(r'\sid="([^"]+)"', inner))
        assert re.search(rf"<style[^>]*>#corridors-{i}\{{", inner)


def test_a_picture_has_a_text_alternative_and_numbers_stand_on_the_right():
    reader = read(section())
    svg, heads = reader.all("svg")[0], reader.all("th")
    assert (svg["role"], svg["aria-label"]) == ("img", "A rising line.")
    assert [head.get("class") for head in heads] == ["number", "number", None]


def test_a_table_without_rows_keeps_its_columns():
    empty = Table("none", "Nothing", [Column("a", []), Column("b", [])])
    assert len(read(section(tables=[empty])).all("th")) == 2


@pytest.mark.parametrize(("n_rows", "folded"), [(MOST_ROWS, False), (MOST_ROWS + 1, True)])
def test_a_long_table_is_folded(n_rows, folded):
    long = Table("long", "Long", [Column("a", list(range(n_rows)), "d")])
    reader = read(section(tables=[long], facts={}))
    assert bool(reader.all("details")) == folded
    assert len(reader.all("tr")) == n_rows + 1


@pytest.mark.parametrize(("n_facts", "opened"), [(6, True), (7, False)])
def test_many_facts_are_folded(n_facts, opened):
    details = read(section(facts={f"name {i}": "text" for i in range(n_facts)})).all("details")
    assert [("open" in a) for a in details] == [opened]


def test_without_scripts_one_is_told_what_is_missing():
    reader = read(section())
    assert "need JavaScript" in text_of(reader)
    assert all("hidden" in a for a in reader.all("article"))


def test_the_code_of_a_page_is_small():
    bare = section(facts={}, pictures=[], tables=[], dials=[], films=[])
    assert len(page("R", [bare], made=MADE, plugins=plugins()).encode()) < 60_000
    every = section(dials=[corridors() | {"env": env} for env in ("corridors", "two-way")])
    assert len(page("R", [every], made=MADE, plugins=plugins()).encode()) < 120_000


def test_a_page_of_nothing_is_refused():
    with pytest.raises(DataError, match="sections must not be empty"):
        page("Report", [], made=MADE)


@pytest.mark.parametrize("anchor", ["", "1st", "a b", 'a"b', "a<b"])
def test_an_anchor_that_is_no_name_is_refused(anchor):
    with pytest.raises(DataError, match=r"anchor: .* got .* at \[0\]"):
        read(section(anchor))
    with pytest.raises(DataError, match=r"got 'twice' again at \[1\]"):
        read(section("twice"), section("twice"))


@pytest.mark.parametrize("name", ["../out", "a b", ""])
def test_a_name_of_a_file_that_is_none_is_refused(name):
    with pytest.raises(DataError, match=r"tables: .* at \[1\]"):
        read(section(tables=[table(), table(name)]))
    with pytest.raises(DataError, match=r"pictures: .* again at \[1\]"):
        read(section(pictures=[picture(), picture()]))


def test_columns_of_a_table_are_of_the_same_length():
    with pytest.raises(DataError, match=r"'b' of table 'short' must have 2 cells.* got 1"):
        Table("short", "t", [Column("a", ["1", "2"], "s"), Column("b", ["3"], "s")])


def changed(*path, to):
    """A dial with something in it replaced."""
    given = json.loads(json.dumps(corridors()))
    *way, last = path
    inner = given
    for step in way:
        inner = inner[step]
    if to is None:
        del inner[last]
    else:
        inner[last] = to
    return given


@pytest.mark.parametrize(
    ("path", "to", "told"),
    [
        (["budgets"], None, "budgets must be there"),
        (["budgets"], [], "budgets must increase"),
        (["budgets"], [0.0, 0.5, 0.5], "budgets must increase"),
        (["budgets"], "abc", "budgets must be a list"),
        (["budgets", 1], "x", r"budgets\[1\] must be a number; got 'x'"),
        (["realised"], None, "realised.cost must be there"),
        (["realised", "cost_low"], None, "realised.cost_low must be there"),
        (["realised", "cost"], [1.0], "realised.cost must have 3 entries; got 1"),
        (["realised", "cost", 1], True, r"realised.cost\[1\] must be a number"),
        (["choices"], [], "choices must have 3 entries; got 0"),
        (["choices"], None, "frontier must come with choices"),
        (["choices", 1, "upper"], 2, r"choices\[1\].upper must be a vertex, 0 to 1; got 2"),
        (["choices", 1, "p_upper"], None, r"choices\[1\].p_upper must be a number"),
        (["choices", 0, "status"], "FINE", r"choices\[0\].status must be one of .*'FINE'"),
        (["frontier", "costs"], [], "frontier"),
        (["frontier", "labels"], ["one"], "frontier.labels must be 2; got 1"),
        (["choices", 2], [], r"choices\[2\] must be values by name"),
        (["truth", "rewards"], [1.0], "truth.rewards must have 2 entries; got 1"),
        (["episodes"], [[]], "episodes must have 3 entries; got 1"),
        (["gamma"], "x", "gamma must be a number"),
    ],
)
def test_a_dial_that_does_not_fit_is_refused(path, to, told):
    read(section(dials=[corridors(), forecast_only()], films=[]))  # these do
    with pytest.raises(DataError, match=rf"dial \[0\] of 'corridors': .*{told}"):
        read(section(dials=[changed(*path, to=to)]))


@pytest.mark.parametrize("title", [math.nan, object()])
def test_a_dial_is_what_json_can_say(title):
    with pytest.raises(DataError, match="corridors-dial-0 must be what JSON can say"):
        read(section(dials=[corridors() | {"title": title}]))


def test_a_film_without_rounds_is_refused():
    with pytest.raises(DataError, match=r"film \[0\] of 'corridors' must have rounds"):
        read(section(films=[film() | {"rounds": []}]))
