from xml.etree import ElementTree

import numpy as np
import pytest

from bmdp import DataError
from bmdp.envs.two_way import physics, pictures
from bmdp.envs.two_way.physics import LEFT, ONCOMING, OWN, RoadState, copied
from bmdp.envs.two_way.pictures import BEHIND, TOP, film, filmstrip, picture, svg

SCALE = 6
EGO, AHEAD, AGAINST = range(3)
SVG = "{http://www.w3.org/2000/svg}"


def road(n_cars=3, **columns):
    """One road: the ego car at 100 m, one 30 m ahead of it, others oncoming from 150 m on."""
    cars = np.zeros((1, n_cars, physics.N_COLUMNS))
    cars[0, :, physics.X] = [100, 130, *range(150, 150 + 20 * (n_cars - 2), 20)]
    cars[0, :, physics.Y] = [4, 4] + [0] * (n_cars - 2)
    cars[0, :, physics.HEADING] = [0, 0] + [np.pi] * (n_cars - 2)
    cars[0, :, physics.LANE] = [OWN, OWN] + [ONCOMING] * (n_cars - 2)
    cars[0, :, physics.SPEED] = 27.42
    cars[0, :, physics.PRESENT] = 1
    for name, values in columns.items():
        cars[0, : len(values), getattr(physics, name.upper())] = values
    return RoadState(cars, np.zeros(1, np.int64), np.full(1, 3))


def drive(n_frames, n_cars=3, crash=None):
    """A drive at constant speed, with a crash of the ego car and the last one at some frame."""
    states = []
    for k in range(n_frames):
        state = copied(road(n_cars))
        state.cars[..., physics.X] += 2.0123 * k * np.cos(state.heading)
        state.cars[..., physics.Y] += 0.0123 * k
        state.cars[..., physics.HEADING] += 0.00123 * k
        state.cars[:, [0, -1], physics.CRASHED] = crash is not None and k >= crash
        state.time[:] = k // 15
        states.append(state)
    return states


def rgb(colour):
    return list(bytes.fromhex(colour[1:]))


def shows(image, colour):
    """Which pixels have a colour."""
    return (image == rgb(colour)).all(axis=-1)


def pixel(state, x, y, scale=SCALE):
    """Row and column of a place, in m on the road."""
    return int((y - TOP) * scale), int((x - state.x[0, 0] + BEHIND) * scale)


def elements(document, path):
    return ElementTree.fromstring(document).findall(path.replace("//", f".//{SVG}"))


@pytest.mark.parametrize("scale", [3, 6, 10])
def test_each_car_is_where_it_is_in_its_colour(scale):
    state = road()
    image = picture(state, scale=scale)
    assert image.shape == (12 * scale, 200 * scale, 3)
    assert image.dtype == np.uint8
    for x, y, colour in (
        (99, 4, pictures.BLUE),
        (129, 4, pictures.GREY),
        (151, 0, pictures.ORANGE),
        (110, 4, pictures.ASPHALT),
        (110, -3, pictures.VERGE),
        (110, 7.5, pictures.VERGE),
    ):
        assert image[pixel(state, x, y, scale)].tolist() == rgb(colour), (x, y)


def test_the_row_chooses_the_road():
    first, second = road(), road(x=[200, 250], crashed=[1])
    both = RoadState(*(np.concatenate(pair) for pair in zip(first, second, strict=True)))
    assert np.array_equal(picture(both, 1), picture(second))
    assert svg(both, 1) == svg(second)
    assert not np.array_equal(picture(both, 0), picture(both, 1))


def test_an_absent_car_is_not_drawn():
    assert shows(picture(road()), pictures.ORANGE).any()
    assert not shows(picture(road(present=[1, 1, 0])), pictures.ORANGE).any()


@pytest.mark.parametrize("heading", [0.0, 0.5, -1.2, np.pi])
def test_a_car_covers_five_by_two_metres_whichever_way_it_is_turned(heading):
    with_car = picture(road(heading=[0, heading]), scale=SCALE)
    without = picture(road(present=[1, 0, 1]), scale=SCALE)
    changed = (with_car != without).any(axis=-1)
    assert changed.sum() / SCALE**2 == pytest.approx(10, rel=0.1)
    rows, columns = np.nonzero(changed)
    middle = pixel(road(), 130, 4)
    assert (rows.mean() + 0.5, columns.mean() + 0.5) == pytest.approx(middle, abs=0.5)


@pytest.mark.parametrize("heading", [0.0, 0.5, np.pi])
def test_the_windscreen_is_light_and_towards_the_front(heading):
    state = road(heading=[heading], present=[1, 0, 0])
    image = picture(state)
    front, rear = (
        image[pixel(state, 100 + d * np.cos(heading), 4 + d * np.sin(heading))] for d in (0.8, -0.8)
    )
    assert rear.tolist() == rgb(pictures.BLUE)
    assert front.min() > 200


def test_a_car_partly_out_of_sight_is_cut_off():
    cut = shows(picture(road(x=[100, 270])), pictures.GREY)
    assert cut[:, -15:].any()
    assert not cut[:, :-15].any()
    assert not shows(picture(road(x=[100, 273])), pictures.GREY).any()


def test_dashes_and_marks_stay_on_the_road_while_the_car_moves():
    def lines(x):
        image = picture(road(x=[x], y=[4], present=[1, 0, 0]))
        return image[:42], image[62:]  # all but the lane on which the car is

    for before, after in zip(lines(100), lines(101), strict=True):
        assert np.array_equal(before[:, SCALE:], after[:, :-SCALE])
        assert not np.array_equal(before, after)


def test_dashes_are_four_of_ten_metres_and_marks_stand_every_fifty():
    state = road(present=[1, 0, 0])
    image = picture(state)
    centre, mark = pixel(state, 100, 2)[0], pixel(state, 100, 7)[0]
    painted = shows(image, pictures.PAINT)[centre]
    assert painted.reshape(20, 10 * SCALE).sum(axis=1).tolist() == [4 * SCALE] * 20
    marks = np.flatnonzero(np.diff(shows(image, pictures.MARK)[mark].astype(int)) == 1)
    assert np.diff(marks).tolist() == [50 * SCALE] * 3
    assert marks[0] / SCALE + 70 == pytest.approx(100, abs=0.5)


def test_lines_are_seen_at_one_pixel_a_metre_too():
    painted = shows(picture(road(), scale=1), pictures.PAINT)
    assert painted[1:3].any(axis=0).all()
    assert painted[9:11].any(axis=0).all()


def test_a_crashed_car_is_red():
    state = road(crashed=[1, 0, 1])
    image = picture(state)
    assert image[pixel(state, 99, 4)].tolist() == rgb(pictures.RED)
    assert image[pixel(state, 151, 0)].tolist() == rgb(pictures.RED)
    assert not shows(image, pictures.BLUE).any()
    assert shows(image, pictures.GREY).any()


@pytest.mark.parametrize(("ego", "on_road", "beyond"), [(10, 2, -2), (700, 798, 802)])
def test_beyond_its_ends_the_road_is_verge(ego, on_road, beyond):
    state = road(x=[ego], present=[1, 0, 0])
    image = picture(state)
    assert image[pixel(state, on_road, 0)].tolist() == rgb(pictures.ASPHALT)
    column = pixel(state, beyond, 0)[1]
    assert shows(image, pictures.VERGE)[:, column].all()


def test_a_filmstrip_stacks_pictures_with_a_light_gap():
    states = drive(3)
    strip = filmstrip(states)
    gap = (len(strip) - 3 * 72) // 2
    assert 1 <= gap <= 6
    assert strip.shape == (3 * 72 + 2 * gap, 1200, 3)
    assert np.array_equal(strip[72 + gap : 2 * 72 + gap], picture(states[1]))
    assert strip[72 : 72 + gap].min() > 230
    assert np.array_equal(filmstrip(states[:1], scale=2), picture(states[0], scale=2))


@pytest.mark.parametrize(
    ("lane", "crashed", "words", "line"),
    [
        (OWN, 0, "own lane, and has not crashed", "own lane"),
        (LEFT, 0, "oncoming lane, and has not crashed", "oncoming lane"),
        (LEFT, 1, "oncoming lane, and has crashed", "oncoming lane · crashed"),
    ],
)
def test_an_svg_says_in_words_what_it_shows(lane, crashed, words, line):
    document = svg(road(lane=[lane], crashed=[crashed]))
    root = ElementTree.fromstring(document)
    assert (root.tag, root.get("role")) == (f"{SVG}svg", "img")
    assert root[0].tag == f"{SVG}title"
    assert "after 3 s" in root[0].text
    assert f"27.4 m/s on the {words}." in root[0].text
    assert [text.text for text in root.iter(f"{SVG}text")] == [f"t = 3 s · 27.4 m/s · {line}"]
    assert document.replace("·", "").isascii()


def test_an_svg_has_the_cars_of_the_picture_and_is_still():
    document = svg(road(heading=[0.5], crashed=[0, 1, 0]))
    cars = elements(document, "//g[@class]")
    assert [car.get("fill") for car in cars] == [pictures.ORANGE, pictures.RED, pictures.BLUE]
    assert cars[-1].get("class") == "car ego"
    places = [car[0].get("transform") for car in cars]
    assert places == ["translate(150,0)", "translate(130,4)", "translate(100,4)"]
    turns = [car[0][0].get("transform") for car in cars]
    assert turns == ["rotate(180)", "rotate(0)", "rotate(28.65)"]
    body = cars[0][0][0][0]
    assert [body.get(k) for k in ("x", "y", "width", "height")] == ["-2.5", "-1", "5", "2"]
    assert len(elements(svg(road(present=[1, 0, 1])), "//g[@class]")) == 2
    assert "animate" not in document
    assert len(document) < 6000


def test_a_film_follows_the_ego_car_and_takes_its_time():
    states = drive(45)
    document = film(states)
    moves = elements(document, "//animateTransform")
    assert {move.get("dur") for move in moves} == {"3s"}
    assert {move.get("repeatCount") for move in moves} == {"indefinite"}
    camera, *_ = (move.get("values").split(";") for move in moves)
    (ego,) = elements(document, "//g[@class='car ego']")
    places = [pair.split(",") for pair in ego[0][0].get("values").split(";")]
    assert len(places) == len(camera) == 45
    assert [float(x) for x, _ in places] == [-float(x) for x in camera]
    expected = [(state.x[0, 0], state.y[0, 0]) for state in states]
    assert np.array(places, float) == pytest.approx(np.array(expected), abs=0.006)
    slow = film(states, seconds_per_frame=0.5)
    assert {move.get("dur") for move in elements(slow, "//animateTransform")} == {"22.5s"}


def test_cars_turn_red_in_the_frame_in_which_they_crash():
    document = film(drive(40, crash=30))
    switches = {
        car.get("class"): [
            (s.get("calcMode"), s.get("values"), s.get("keyTimes"))
            for s in car.findall(f"{SVG}animate[@attributeName='fill']")
        ]
        for car in elements(document, "//g[@class]")[1:]
    }
    assert switches["car ego"] == [("discrete", f"{pictures.BLUE};{pictures.RED}", "0;0.75")]
    assert switches["car"] == []
    assert "the ego car crashes." in elements(document, "//title")[0].text
    assert "the ego car does not crash." in elements(film(drive(40)), "//title")[0].text


def test_one_line_of_text_is_visible_at_each_frame_of_a_film():
    n = 45
    visible = np.zeros((n, 0), bool)
    texts = elements(film(drive(n)), "//text")
    for text in texts:
        (switch,) = text.findall(f"{SVG}animate")
        times = np.array(switch.get("keyTimes").split(";"), float)
        at = np.searchsorted(times, (np.arange(n) + 0.5) / n, side="right") - 1
        shown = np.array(switch.get("values").split(";"))[at] == "visible"
        assert text.get("visibility") == ("visible" if shown[0] else "hidden")
        visible = np.column_stack([visible, shown])
    assert np.array_equal(visible.argmax(axis=1), np.arange(n) // 15)
    assert (visible.sum(axis=1) == 1).all()
    assert ["".join(text.itertext())[:7] for text in texts] == ["t = 0 s", "t = 1 s", "t = 2 s"]


def test_a_turn_over_the_half_circle_takes_the_short_way():
    states = [road(heading=[0, 0, turn]) for turn in (3.1, -3.1)]
    (turn,) = elements(film(states), "//animateTransform[@type='rotate']")
    begin, end = map(float, turn.get("values").split(";"))
    assert end - begin == pytest.approx(np.degrees(2 * (np.pi - 3.1)), abs=0.02)


def test_a_film_of_an_episode_stays_small():
    document = film(drive(225, n_cars=6, crash=200))
    assert len(elements(document, "//g[@class]")) == 6
    assert len(document.encode()) < 200_000
    ElementTree.fromstring(document)


@pytest.mark.parametrize("states", [[], [road(), road(present=[1, 0, 1])]])
def test_a_film_needs_states_with_the_same_cars(states):
    with pytest.raises(DataError, match="must all have the same cars"):
        film(states)
