"""The page in a real browser: it opens from disk, asks for nothing, and does what it shows."""

import re
import shutil

import pytest

import ferries
from bmdp.report.build import write_report
from bmdp.report.page import page
from bmdp.report.run import run_section
from bmdp.report.section import Column, Table
from dials import (
    BUDGETS,
    corridors,
    dialogues,
    drives,
    forecast_only,
    plugins,
    section,
    sections,
)

try:
    from playwright.sync_api import sync_playwright
except ImportError:
    sync_playwright = None

CHROMIUM = shutil.which("chromium")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PHONE, DESK = {"width": 390, "height": 844}, {"width": 1440, "height": 900}
STAGES = {"corridors": corridors, "slot-filling": dialogues, "driving": drives}

pytestmark = [
    pytest.mark.skipif(
        sync_playwright is None, reason="no playwright: python -m pip install playwright"
    ),
    pytest.mark.skipif(
        CHROMIUM is None, reason="no browser: apt-get update && apt-get install -y chromium"
    ),
]


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield found
        found.close()


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "index.html"
    path.write_text(page("Report", sections(), made="Made by a test.", plugins=plugins()))
    return path


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Of a run on an environment that is not ours, of one from a log, and of a calibrated one."""
    place = tmp_path_factory.mktemp("pages")
    ferries.explored(place / "ferry")
    ferries.from_log(place / "log")
    ferries.calibrated(place / "calibrated", place / "ferry")
    found = {}
    for name, env in (("ferry", None), ("log", None), ("calibrated", ferries.ENV)):
        told = run_section(place / name, anchor=name, env=env, n_episodes=200)
        found[name] = write_report([told], place / name / "report", title=told.title).page
    return found


class Opener:
    """Opens pages, and keeps what went wrong in them. A tab is used again for the same options."""

    def __init__(self, browser, path):
        self.browser, self.path, self.tabs, self.errors, self.requests = browser, path, {}, [], []

    def __call__(self, path=None, *, viewport=DESK, has_clock=False, **options):
        name = repr((viewport, has_clock, options))
        if name not in self.tabs:
            tab = self.tabs[name] = self.browser.new_context(
                viewport=viewport, **options
            ).new_page()
            tab.set_default_timeout(10_000)
            tab.on("pageerror", lambda error: self.errors.append(str(error)))
            tab.on("console", lambda said: said.type == "error" and self.errors.append(said.text))
            tab.on("request", lambda request: self.requests.append(request.url))
            if has_clock:
                tab.clock.install(time=0)
                tab.clock.pause_at(1)  # from now on it goes only where it is told to
        self.tabs[name].goto((path or self.path).as_uri())
        return self.tabs[name]


@pytest.fixture(scope="module")
def opener(browser, written):
    found = Opener(browser, written)
    yield found
    for tab in found.tabs.values():
        tab.context.close()


@pytest.fixture
def opened(opener):
    """Opens the page, or another; the test fails if something goes wrong in it."""
    opener.errors.clear()
    opener.requests.clear()
    yield opener
    assert opener.errors == []
    assert all(url.startswith("file://") and url.endswith(".html") for url in opener.requests)


def dial(tab, anchor):
    return tab.locator(f"#{anchor} .dial")


def slider(tab, anchor):
    return dial(tab, anchor).locator(".control input")


def texts(found):
    return [text.strip() for text in found.all_inner_texts()]


@pytest.mark.parametrize("viewport", [PHONE, DESK])
def test_it_opens_from_disk_and_asks_for_nothing_else(opened, written, viewport):
    tab = opened(viewport=viewport)
    assert tab.title() == "Report"
    assert tab.locator(".dial:visible").count() == 3
    assert tab.locator(".film:visible").count() == 1
    assert opened.requests == [written.as_uri()]


def test_a_request_is_refused_by_the_page_itself(opened):
    tab = opened()
    broken = tab.evaluate(
        """() => new Promise((done) => {
            document.addEventListener("securitypolicyviolation", (e) => done(e.violatedDirective));
            const picture = new Image();
            picture.src = "http://127.0.0.1:9/picture.png";
        })"""
    )
    assert broken == "img-src"
    assert "violates the following Content Security Policy" in opened.errors.pop()
    opened.requests.pop()  # it was tried, and not sent


@pytest.mark.parametrize("anchor", STAGES)
def test_the_slider_moves_what_is_said(opened, anchor):
    tab = opened()
    host = dial(tab, anchor)
    values = host.locator(".tile .value")
    assert texts(host.locator(".big")) == ["0.25"]
    assert texts(values) == ["0.25", "0.240", "34.5", "35.0"]
    slider(tab, anchor).fill("0")
    assert texts(host.locator(".big")) == ["0.00"]
    assert texts(values) == ["0.00", "0.110", "19.0", "20.0"]
    assert "Below what can be promised: the cheapest is played." in texts(host.locator(".status"))
    slider(tab, anchor).fill("2")
    assert texts(values) == ["1.00", "\N{EN DASH}", "58.3", "60.0"]
    assert texts(host.locator(".status")) == ["More than can be used: the best paid is played."]
    assert texts(host.locator(".chip")) == ["not measured"]


@pytest.mark.parametrize(
    ("cost", "low", "said"),
    [
        (0.24, 0.22, "budget kept"),
        (0.25, 0.25, "budget kept"),
        (0.2501, 0.24, "over by 0.00010, within noise"),
        (0.26, 0.24, "over by 0.010, within noise"),
        (0.26, None, "over by 0.010"),
        (0.3, 0.28, "over by 0.050"),
        (None, None, "not measured"),
    ],
)
def test_it_says_whether_the_budget_was_kept(opened, tmp_path, cost, low, said):
    given = corridors()
    given["realised"]["cost"][1], given["realised"]["cost_low"][1] = cost, low
    path = tmp_path / "verdict.html"
    path.write_text(page("Verdict", [section(dials=[given])], made="now", plugins=plugins()))
    tab = opened(path)
    chip = dial(tab, "corridors").locator(".chip")
    assert texts(chip) == [said]
    slider(tab, "corridors").fill("0")
    assert texts(chip) == ["cheapest is played"]


def drawn_at(tab, number):
    """Where the frontier picture has things at a budget: x and y of each, in pixels."""
    slider(tab, "corridors").fill(str(number))
    picture = dial(tab, "corridors").locator(".frontier-chart")
    return picture.evaluate(
        """one => {
            const circles = (name) => [...one.querySelectorAll(name)].map(({ cx, cy }) =>
                [cx.baseVal.value, cy.baseVal.value]);
            const line = (name) => [...(one.querySelector(name)?.points ?? [])].map(({ x, y }) =>
                [x, y]);
            const names = [".vertex", ".end", ".mixture"];
            const found = Object.fromEntries(names.map((name) => [name, circles(name)]));
            const lines = Object.fromEntries([".truth", ".predicted"].map((n) => [n, line(n)]));
            return { ...found, ...lines, asked: one.querySelector(".asked").x1.baseVal.value };
        }"""
    )


def test_the_frontier_picture_shows_the_mixture_where_it_is(opened):
    tab = opened()
    below, on, above = (drawn_at(tab, number) for number in range(3))
    vertices = on[".vertex"]
    assert len(vertices) == len(on[".truth"]) == len(on[".predicted"]) == 2
    assert on[".end"] == vertices
    assert below[".end"] == below[".mixture"] == vertices[:1]
    assert above[".end"] == above[".mixture"] == vertices[1:]
    (low, bottom), (high, top) = vertices  # at costs 0.1 and 0.5
    assert on[".mixture"][0] == pytest.approx(
        [low + 0.375 * (high - low), bottom + 0.375 * (top - bottom)], abs=0.01
    )
    assert on["asked"] == pytest.approx(on[".mixture"][0][0], abs=0.01)
    assert below["asked"] < low < on["asked"] < high < above["asked"]


def test_the_mixture_is_said_in_words(opened):
    tab = opened()
    parts = dial(tab, "corridors").locator(".mix-list li")
    assert [text.split("cost")[0].strip() for text in texts(parts)] == [
        "63 % of the time: left, handing on 0",
        "38 % of the time: right, handing on 1",
    ]
    slider(tab, "corridors").fill("2")
    assert [text.split("cost")[0].strip() for text in texts(parts)] == [
        "Always: right, handing on 1"
    ]


@pytest.mark.parametrize("anchor", STAGES)
def test_the_slider_moves_pictures_and_their_text_alternatives(opened, anchor):
    tab = opened(reduced_motion="reduce")
    pictures = dial(tab, anchor).locator("svg[role=img]:not([aria-hidden])")

    def drawn():
        return pictures.evaluate_all("all => all.map((one) => one.innerHTML)")

    def told():
        return pictures.evaluate_all("all => all.map((one) => one.getAttribute('aria-label'))")

    slider(tab, anchor).fill("0")
    before, said = drawn(), told()
    slider(tab, anchor).fill("2")
    assert len(before) == {"corridors": 4, "slot-filling": 2, "driving": 3}[anchor]
    assert all(old != new for old, new in zip(before, drawn(), strict=True))
    assert all(old != new for old, new in zip(said, told(), strict=True))


def test_the_keyboard_moves_the_slider(opened):
    tab = opened()
    shown = dial(tab, "corridors").locator(".big")
    slider(tab, "corridors").focus()
    seen = []
    for key in ("Home", "ArrowRight", "ArrowRight", "ArrowRight", "ArrowLeft", "End"):
        tab.keyboard.press(key)
        seen += texts(shown)
    assert seen == ["0.00", "0.25", "1.00", "1.00", "0.25", "1.00"]
    assert slider(tab, "corridors").get_attribute("aria-valuetext") == "budget 1.00"


@pytest.mark.parametrize("chart", [".frontier-chart", ".v-honesty .chart"])
def test_a_pointer_on_a_chart_moves_the_slider(opened, chart):
    tab = opened()
    place = dial(tab, "corridors").locator(chart)
    box = place.bounding_box()
    place.click(position={"x": box["width"] - 16, "y": 60})
    assert slider(tab, "corridors").input_value() == str(len(BUDGETS) - 1)
    place.click(position={"x": 40, "y": 60})
    assert slider(tab, "corridors").input_value() == "0"


def test_a_finger_moves_the_slider(opened):
    tab = opened(viewport=PHONE, has_touch=True, is_mobile=True)
    slider(tab, "corridors").scroll_into_view_if_needed()
    box = slider(tab, "corridors").bounding_box()
    assert box["height"] >= 44
    tab.touchscreen.tap(box["x"] + box["width"] - 4, box["y"] + box["height"] / 2)
    assert texts(dial(tab, "corridors").locator(".big")) == ["1.00"]


def out_of_the_page(tab):
    """By how much the page is too wide, and what leaves it."""
    for details in tab.locator("details").all():
        details.evaluate("one => one.open = true")
    return tab.evaluate(
        """() => {
            const width = document.documentElement.clientWidth;
            const isOut = (one) => {
                const { left, right, width: own } = one.getBoundingClientRect();
                return own > 1 && (left < -0.5 || right > width + 0.5);
            };
            const free = (one) => !one.closest(".scroll, .road");
            const all = [...document.querySelectorAll("body *")].filter((one) => free(one));
            const names = all.filter(isOut).map((one) => one.outerHTML.slice(0, 120));
            return [document.documentElement.scrollWidth - width, names];
        }"""
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [PHONE, DESK])
def test_nothing_overflows(opened, viewport, scheme):
    assert out_of_the_page(opened(viewport=viewport, color_scheme=scheme)) == [0, []]


def test_a_wide_table_scrolls_in_its_own_box(opened, tmp_path):
    columns = [Column(f"column {i}", [0.123456], ".6f") for i in range(30)]
    wide = Table("wide", "Wide", columns)
    path = tmp_path / "wide.html"
    path.write_text(page("Wide", [section(tables=[wide])], made="now", plugins=plugins()))
    tab = opened(path, viewport=PHONE)
    box = tab.locator(".scroll")
    assert box.evaluate("one => one.scrollWidth > one.clientWidth")
    assert tab.evaluate("document.documentElement.scrollWidth") == PHONE["width"]


def test_a_sentence_in_a_table_has_room_on_a_telephone(opened, tmp_path):
    columns = [Column(f"column {i}", [0.123456], ".6f") for i in range(4)]
    told = Table("told", "Told", [*columns, Column("why", ["it earns more over all budgets"])])
    path = tmp_path / "told.html"
    path.write_text(page("Told", [section(tables=[told])], made="now", plugins=plugins()))
    cell = opened(path, viewport=PHONE).locator("td").last
    assert cell.evaluate("one => one.clientWidth / parseFloat(getComputedStyle(one).fontSize)") > 14


def test_dark_is_dark(opened):
    ground = "getComputedStyle(document.body).backgroundColor"
    tab = opened(color_scheme="light")
    light = tab.evaluate(ground)
    tab.emulate_media(color_scheme="dark")
    dark = tab.evaluate(ground)
    assert light != dark
    tab.locator("#theme").click()
    assert tab.evaluate(ground) == light
    tab.locator("#theme").click()
    assert tab.evaluate(ground) == dark
    tab.emulate_media(color_scheme="light")


def test_pictures_stand_on_white_in_the_dark(opened):
    tab = opened(color_scheme="dark")
    ground = tab.locator(".paper").evaluate("one => getComputedStyle(one).backgroundColor")
    assert ground == "rgb(255, 255, 255)"


def test_without_scripts_figures_and_tables_are_there(opened):
    tab = opened(java_script_enabled=False)
    assert tab.locator("noscript").is_visible()
    assert "need JavaScript" in tab.locator("noscript").inner_text()
    assert tab.locator("figure svg").is_visible()
    assert tab.locator("table").is_visible()
    assert tab.locator(".dial:visible, .film:visible, #theme:visible").count() == 0


def heads(tab):
    """Where the ways of the dial end, by now."""
    dots = dial(tab, "corridors").locator(".head")
    return dots.evaluate_all(
        "all => all.map((one) => [one.cx.baseVal.value, one.cy.baseVal.value])"
    )


def test_ways_are_drawn_step_by_step_when_played(opened):
    tab = opened(has_clock=True)
    tab.clock.run_for(500)
    ends = [[0.5, 1.5], [2.5, 1.5]]
    assert heads(tab) == [pytest.approx(end) for end in ends]
    button = dial(tab, "corridors").locator(".play")
    button.click()
    tab.clock.run_for(200)
    assert "Pause" in button.inner_text()
    assert all(head[1] == pytest.approx(0.5) for head in heads(tab))
    tab.clock.run_for(5000)
    assert heads(tab) == [pytest.approx(end) for end in ends]
    assert "Play" in button.inner_text()


def test_ways_glide_to_their_new_places(opened):
    tab = opened(has_clock=True)
    slider(tab, "corridors").fill("0")
    tab.clock.run_for(1000)
    assert heads(tab)[1] == pytest.approx([0.5, 1.5])
    slider(tab, "corridors").fill("2")
    tab.clock.run_for(130)
    assert 0.5 < heads(tab)[1][0] < 2.5
    tab.clock.run_for(1000)
    assert heads(tab)[1] == pytest.approx([2.5, 1.5])


def test_with_reduced_motion_nothing_glides(opened):
    tab = opened(has_clock=True, reduced_motion="reduce")
    slider(tab, "corridors").fill("2")
    assert heads(tab) == [pytest.approx([2.5, 1.5])] * 2
    animation = tab.locator(".chat .line").first.evaluate(
        "one => getComputedStyle(one).animationName"
    )
    assert animation == "none"
    dial(tab, "corridors").locator(".play").click()
    tab.clock.run_for(500)  # one step and a half
    assert heads(tab) == [pytest.approx([2.5, 0.5])] * 2


def test_the_end_of_ways_says_how_many_and_at_what_cost(opened):
    tab = opened(reduced_motion="reduce")
    badges = dial(tab, "corridors").locator(".badge text")
    assert badges.evaluate_all("all => all.map((one) => one.textContent)") == [
        "1 \N{MULTIPLICATION SIGN} 0.00",
        "1 \N{MULTIPLICATION SIGN} 0.25",
    ]


def test_dialogues_change_with_the_budget_and_the_button(opened):
    tab = opened()
    host = dial(tab, "slot-filling")
    assert texts(host.locator(".line.system .held")) == ["holds 0.25"]
    assert "Please say value 0.25." in host.locator(".chat").inner_text()
    slider(tab, "slot-filling").fill("2")
    assert "Please say value 1" in host.locator(".chat").inner_text()
    assert "all slots right; reward 100, cost 0.00" in host.locator(".told").inner_text()
    host.locator(".next").click()
    assert "the user hung up; reward 0.00, cost 1.00" in host.locator(".told").inner_text()
    assert "cost 1.00" in host.locator(".line.user").inner_text()
    host.locator(".next").click()  # round again
    assert "Dialogue 1 of 2" in host.locator(".told").inner_text()


def gauges(tab):
    pairs = dial(tab, "driving").locator(".gauges > div")
    return dict(text.split("\n") for text in texts(pairs))


def test_the_drive_goes_on_when_played_and_the_camera_follows(opened):
    tab = opened(has_clock=True)
    road = dial(tab, "driving").locator(".road").first
    button = dial(tab, "driving").locator(".play")
    before = road.get_attribute("viewBox")
    button.click()
    tab.clock.run_for(2000)
    button.click()
    at, seen = float(gauges(tab)["time"].split()[0]), road.get_attribute("viewBox")
    assert at == pytest.approx(2.0, abs=0.15)
    assert float(seen.split()[0]) > float(before.split()[0]) + 50
    tab.clock.run_for(2000)
    assert road.get_attribute("viewBox") == seen
    assert float(gauges(tab)["time"].split()[0]) == at


def test_the_time_of_a_drive_can_be_chosen(opened):
    tab = opened()
    time = dial(tab, "driving").locator(".time input")
    time.fill("1")
    assert gauges(tab) == {
        "time": "4.0 s",
        "speed": "crashed",
        "cost so far": "0.84",
        "reward so far": "1.72",
        "budget held": "0.00",
    }
    time.fill("0.5")
    assert gauges(tab)["speed"] == "30 m/s"
    slider(tab, "driving").fill("0")
    assert gauges(tab)["time"] == "2.0 s"  # the same moment at another budget
    assert gauges(tab)["cost so far"] == "0.00"


def test_a_decision_leads_to_its_moment(opened):
    tab = opened()
    decisions = dial(tab, "driving").locator(".decisions li")
    decisions.nth(3).click()
    assert gauges(tab)["time"] == "3.0 s"
    assert "now" in decisions.nth(3).get_attribute("class")


def test_a_film_goes_round_by_round(opened):
    tab = opened(has_clock=True)
    film = tab.locator(".film")
    film.locator(".control input").fill("1")
    told = film.locator(".sentence")
    assert "Round 2: 50 episodes, 70 % of decisions random; mean reward 5.00, mean cost 0.100" in (
        told.inner_text()
    )
    assert film.locator(".way").count() == 2
    assert film.locator(".ghosts polyline").count() == 1
    film.locator(".play").click()
    tab.clock.run_for(3000)
    assert "Round 3" in told.inner_text()


def test_every_graphic_and_control_has_a_name(opened):
    tab = opened()
    nameless = tab.evaluate(
        """() => [...document.querySelectorAll("svg[role=img], input, button")].filter((one) =>
            !one.closest("[aria-hidden=true]") && !one.getAttribute("aria-label") &&
            !(one.labels && one.labels.length) && !one.textContent.trim()
        ).map((one) => one.outerHTML.slice(0, 100))"""
    )
    assert nameless == []


def test_what_changes_is_announced(opened):
    tab = opened()
    spoken = dial(tab, "corridors").locator("[aria-live=polite]")
    slider(tab, "corridors").fill("0")
    assert spoken.text_content() == (
        "Budget 0.00. Below what can be promised: the cheapest is played. "
        "Realised: cost 0.110 (0.100 to 0.120), reward 19.0."
    )


def test_text_of_data_is_shown_as_text(opened, tmp_path):
    evil = "<img src=x onerror='window.hacked=1'></script><script>window.hacked=1</script>"
    given = corridors() | {"title": evil}
    given["frontier"] = given["frontier"] | {"labels": [evil, evil]}
    path = tmp_path / "evil.html"
    path.write_text(page("Evil", [section(dials=[given])], made=evil, plugins=plugins()))
    tab = opened(path)
    assert dial(tab, "corridors").locator("h3").inner_text() == evil
    assert evil in dial(tab, "corridors").locator(".mix-list").inner_text()
    assert tab.evaluate("window.hacked") is None


def test_a_dial_that_cannot_be_drawn_says_so_and_others_are_drawn(opened, tmp_path):
    bad = corridors() | {"layout": {}}
    path = tmp_path / "bad.html"
    path.write_text(page("Bad", [section(dials=[bad, corridors()])], made="now", plugins=plugins()))
    tab = opened(path)
    assert "This dial could not be drawn" in tab.locator(".dial").first.inner_text()
    assert tab.locator(".dial .big").count() == 1
    assert "TypeError" in opened.errors.pop()


def test_a_dial_of_another_environment_has_its_charts(opened, tmp_path):
    path = tmp_path / "other.html"
    path.write_text(
        page(
            "Other",
            [section(dials=[corridors() | {"env": "other"}])],
            made="now",
            plugins=plugins(),
        )
    )
    tab = opened(path)
    assert tab.locator(".dial .chart").count() == 2
    assert tab.locator(".dial .stage").count() == 0


def test_the_page_can_be_printed(opened):
    tab = opened(color_scheme="dark")
    tab.emulate_media(media="print", color_scheme="dark")
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not tab.locator("#theme").is_visible()
    tab.emulate_media(media="screen", color_scheme="dark")


def write(tmp_path, *dials):
    path = tmp_path / "dial.html"
    path.write_text(page("Dial", [section(dials=dials, films=[])], made="now"))
    return path


def test_a_dial_without_a_simulator_tells_forecasts(opened, tmp_path):
    tab = opened(write(tmp_path, forecast_only()))
    host = dial(tab, "corridors")
    assert texts(host.locator(".tile dt")) == ["Asked", "Forecast cost", "Forecast reward"]
    assert texts(host.locator(".tile .value")) == ["0.25", "0.300", "33.0"]
    assert texts(host.locator(".chip")) == ["forecast only: over by 0.050"]
    slider(tab, "corridors").fill("2")
    assert texts(host.locator(".chip")) == ["forecast only: kept"]
    slider(tab, "corridors").fill("0")
    assert texts(host.locator(".chip")) == ["cheapest is played"]
    assert "Forecast: cost 0.120, reward 19.0" in host.locator("[aria-live=polite]").text_content()
    assert host.locator(".realised").count() == 0
    assert "from held-out episodes" in host.locator("p.caption").first.inner_text()


@pytest.mark.parametrize(("low", "said"), [(0.24, ", within noise"), (0.26, "")])
def test_a_forecast_is_over_where_its_interval_is(opened, tmp_path, low, said):
    given = forecast_only()
    given["forecast"]["cost_low"] = [0.0, low, 0.4]
    host = dial(opened(write(tmp_path, given)), "corridors")
    assert texts(host.locator(".chip")) == [f"forecast only: over by 0.050{said}"]


def test_a_state_can_be_chosen_and_its_frontier_and_mixture_are_shown(opened, tmp_path):
    tab = opened(write(tmp_path, forecast_only()))
    host, chart = dial(tab, "corridors"), dial(tab, "corridors").locator(".frontier-chart")
    assert chart.locator(".vertex").count() == 2
    assert chart.locator(".baseline, .baseline-point").count() == 2
    assert "the log" in texts(host.locator(".v-frontier .key li"))
    host.locator("select").select_option("1")
    assert chart.locator(".vertex").count() == 3
    assert chart.locator(".baseline, .baseline-point, .foretold").count() == 0
    assert [text.split("cost")[0].strip() for text in texts(host.locator(".mix-list li"))] == [
        "75 % of the time: b",
        "25 % of the time: c",
    ]
    assert "7.00 at 0.40" in chart.get_attribute("aria-label")
    host.locator("select").focus()
    tab.keyboard.press("ArrowUp")  # by keyboard, too
    assert chart.locator(".vertex").count() == 2


def test_a_baseline_that_is_far_away_is_told_in_the_legend(opened, tmp_path):
    given = forecast_only()
    given["baselines"][1] |= {"costs": [90.0], "is_far": True}
    tab = opened(write(tmp_path, given))
    chart = dial(tab, "corridors").locator(".frontier-chart")
    assert chart.locator(".baseline-point").count() == 0
    legend = dial(tab, "corridors").locator(".v-frontier .key")
    assert "the log, off the chart: cost 90.0, reward 25.0" in legend.inner_text()


def bar_heights(tab, chart):
    return chart.evaluate(
        """one => [...one.querySelectorAll("g > g > rect:not(.ring)")].map((bar) =>
            [bar.getAttribute("class"), Math.round(Number(bar.getAttribute("height")))])"""
    )


def test_actions_are_stacked_and_follow_the_budget(opened, tmp_path):
    tab = opened(write(tmp_path, forecast_only()))
    whole, steps = dial(tab, "corridors").locator(".shares").all()
    tall = 196 - 24 - 40
    assert bar_heights(tab, whole) == [
        ["s0", tall],
        ["s0", tall / 2],
        ["s1", tall / 2],
        ["s1", tall],
    ]
    assert bar_heights(tab, steps) == [[s, h] for h in (tall / 2, tall / 4) for s in ("s0", "s1")]
    slider(tab, "corridors").fill("2")
    assert bar_heights(tab, steps) == [["s1", tall], ["s1", tall / 2]]
    assert "step 2: wait 0 %, go 50 %" in steps.get_attribute("aria-label")
    assert texts(dial(tab, "corridors").locator(".deeds .key li")) == ["wait", "go"]
    whole.click(position={"x": 45, "y": 100})
    assert slider(tab, "corridors").input_value() == "0"


@pytest.mark.parametrize("budgets", [[0.0], [0.0, 0.0004, 0.0008], [0.0, 150.0, 300.0]])
def test_a_dial_of_any_size_is_drawn(opened, tmp_path, budgets):
    given = forecast_only()
    n = len(budgets)
    for name in ("realised", "forecast"):
        given[name] = {k: v if k == "source" else v[:n] for k, v in given[name].items()}
    for place in (given, *given["states"]):
        place["choices"] = place["choices"][:n]
    given["actions"] |= {k: given["actions"][k][:n] for k in ("by_budget", "by_step")}
    tab = opened(write(tmp_path, given | {"budgets": budgets}))
    shown = dial(tab, "corridors").locator(".big")
    slider(tab, "corridors").fill(str(n - 1))
    assert float(shown.inner_text()) == pytest.approx(budgets[-1])
    marks = texts(dial(tab, "corridors").locator(".scale .at"))
    assert len(set(marks)) == n


def test_a_policy_without_frontier_has_its_other_charts(opened, tmp_path):
    given = forecast_only(status=["INFEASIBLE", "TIGHT", "SLACK"])
    for name in ("frontier", "choices", "states"):
        del given[name]
    tab = opened(write(tmp_path, given))
    assert dial(tab, "corridors").locator(".chart").count() == 4
    assert dial(tab, "corridors").locator(".v-mixture").count() == 0
    assert texts(dial(tab, "corridors").locator(".status")) == [
        "It expects to just spend the budget."
    ]


def test_a_plugin_that_fails_leaves_the_dials_alone(opened, tmp_path):
    from bmdp.report.section import Plugin

    broken = Plugin("corridors", ["const nextName = 1;", "throw new Error('broken plug-in');"])
    path = tmp_path / "broken.html"
    path.write_text(page("Broken", [section(films=[])], made="now", plugins=[broken]))
    tab = opened(path)
    assert texts(dial(tab, "corridors").locator(".big")) == ["0.25"]
    assert "broken plug-in" in opened.errors.pop()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [PHONE, DESK])
@pytest.mark.parametrize("name", ["ferry", "log", "calibrated"])
def test_the_page_of_a_run_fits_and_fails_nowhere(opened, pages, name, viewport, scheme):
    tab = opened(pages[name], viewport=viewport, color_scheme=scheme)
    assert tab.locator(".dial:visible").count() == 1
    assert out_of_the_page(tab) == [0, []]
    assert opened.requests == [pages[name].as_uri()]


def test_the_page_of_a_run_tells_what_was_measured(opened, pages):
    tab = opened(pages["ferry"])
    assert tab.title() == "ferry: a policy for tests/Ferry-v0"
    host = dial(tab, "ferry")
    assert texts(host.locator(".tile dt")) == [
        *("Asked", "Realised cost", "Realised reward", "Forecast")
    ]
    slider(tab, "ferry").fill("0")
    assert texts(host.locator(".tile .value")) == ["0.00", "0.000", "3.00", "3.00"]
    assert texts(host.locator(".chip")) == ["budget kept"]
    assert texts(host.locator(".status")) == ["One choice is expected to just spend the budget."]
    assert texts(host.locator(".deeds .key li")) == ["wait", "leave at once", "sleep"]
    assert "Always: wait" in host.locator(".mix-list").inner_text()
    legend = " ".join(texts(host.locator(".v-frontier .key li")))
    for word in ("coin", "random actions", "exploration", "forecast", "realised"):
        assert word in legend


def test_the_page_of_a_run_goes_by_keyboard(opened, pages):
    tab = opened(pages["ferry"], reduced_motion="reduce")
    for _ in range(10):
        tab.keyboard.press("Tab")
        if tab.evaluate("document.activeElement.type") == "range":
            break
    tab.keyboard.press("End")
    assert texts(dial(tab, "ferry").locator(".big")) == ["0.60"]
    tab.keyboard.press("Tab")
    before = dial(tab, "ferry").locator(".mix-list").inner_text()
    tab.keyboard.press("ArrowDown")
    assert dial(tab, "ferry").locator("select").input_value() == "1"
    assert dial(tab, "ferry").locator(".mix-list").inner_text() != before


def test_the_page_of_a_log_says_that_nothing_was_played(opened, pages):
    tab = opened(pages["log"])
    assert "no simulator" in tab.locator(".notes").inner_text()
    assert texts(dial(tab, "log").locator(".tile dt"))[1] == "Forecast cost"
    assert re.match("crossing 0, tide [01]: ", texts(dial(tab, "log").locator("option"))[0])
    assert "log's own behaviour" in dial(tab, "log").locator(".v-frontier .key").inner_text()
    assert tab.locator("#log h2").evaluate("one => one.textContent").startswith("log: ")


@pytest.mark.parametrize("name", ["ferry", "log"])
def test_without_scripts_the_page_of_a_run_has_figures_and_tables(opened, pages, name):
    tab = opened(pages[name], java_script_enabled=False)
    assert "need JavaScript" in tab.locator("noscript").inner_text()
    assert tab.locator(".dial:visible").count() == 0
    titles = texts(tab.locator("figure h3"))
    assert {"Reward against cost", "What the policy does", "Learning"} <= set(titles)
    assert tab.locator("figure svg:visible").count() == len(titles)
    assert tab.locator("table:visible").count() >= 2


HOSTILE = (
    '</script><img src=x onerror="window.hacked=1">',
    '"><svg onload=window.hacked=1>',
    "{{7*7}} $\\frac{ \u202e \u2603 " + "long " * 60,
)


def test_hostile_names_are_shown_as_text_and_nothing_runs(opened, tmp_path):
    ferries.register()
    evil = HOSTILE[0]
    folder = tmp_path / "<b>run{{7*7}}"
    settings = {"names": HOSTILE, "note": evil}
    ferries.explored(folder, env=settings)
    ferries.retold(
        folder, command=f"bmdp train {evil}", versions={evil: evil}, data={"files": [evil]}
    )
    told = run_section(folder, anchor="evil", n_episodes=50)
    path = write_report([told], tmp_path / "report", title=told.title).page
    tab = opened(path, viewport=PHONE)
    assert tab.evaluate("window.hacked") is None
    assert tab.locator("img, svg[onload], main b:not(.dial b)").count() == 0
    assert texts(dial(tab, "evil").locator(".deeds .key li")) == [
        " ".join(name.split()) for name in HOSTILE
    ]
    assert "<b>run{{7*7}}" in tab.locator("h1").inner_text()
    for details in tab.locator("details").all():
        details.evaluate("one => one.open = true")
    assert evil in tab.locator(".facts").inner_text()
    assert "{{7*7}}" in tab.locator(".facts").inner_text()
    assert out_of_the_page(tab) == [0, []]
