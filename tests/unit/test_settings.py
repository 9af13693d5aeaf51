"""Settings of any class: as JSON and back, changed by their path, and refused by their path."""

import json
import math
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

import numpy as np
import pytest

from bmdp import ConfigError, settings
from bmdp.settings import change, parse, plain, read


class Shape(Protocol):
    """Anything that has a size."""


@dataclass(frozen=True)
class Circle:
    radius: float = 1.0

    def __post_init__(self):
        if not self.radius > 0:
            raise ConfigError(f"radius must be above 0; got {self.radius}.")


@dataclass(frozen=True)
class Box:
    sides: tuple[float, float] = (1.0, 1.0)
    tilted: bool = False


@dataclass(frozen=True)
class Linear:
    slope: float


@dataclass(frozen=True)
class Steps:
    ends: tuple[int, ...] = ()


@dataclass(frozen=True)
class Drawing:
    name: str
    shape: Shape = field(default_factory=Circle)
    growth: Linear | Steps | None = None
    copies: int = 1
    most: float | None = None
    colour: Literal["red", "blue"] = "red"
    frame: Box = field(default_factory=Box)
    notes: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self):
        if self.copies > 9:
            raise ConfigError("a drawing has at most 9 copies.")


@pytest.fixture(autouse=True)
def shapes(monkeypatch):
    """What a shape may be; a table to which more can be added."""
    known = {"Circle": Circle, "Box": Box}
    kinds = {"Linear": Linear, "Steps": Steps}
    monkeypatch.setattr(settings, "_OFFERED", {})
    settings.offer(Shape, known)
    settings.offer(Linear | Steps, kinds)
    return known


FULL = Drawing(
    "one",
    Box((2.0, math.inf), True),
    Steps((1, 2)),
    3,
    -math.inf,
    "blue",
    Box((0.5, 0.25)),
    {"a": (1, (2, "b")), "c": None},
)


@pytest.mark.parametrize(
    "drawing",
    [
        FULL,
        Drawing("two"),
        Drawing("three", growth=Linear(0.5), most=0.1 + 0.2),
        Drawing("four", Circle(3)),
    ],
    ids=lambda drawing: drawing.name,
)
def test_settings_come_back_as_they_were(drawing):
    back = read(Drawing, json.loads(json.dumps(plain(drawing), allow_nan=False)))
    assert back == drawing
    assert type(back.shape) is type(drawing.shape)


def test_settings_are_written_by_their_names():
    assert plain(FULL) == {
        "name": "one",
        "shape": {"kind": f"{__name__}:Box", "sides": [2.0, "inf"], "tilted": True},
        "growth": {"kind": f"{__name__}:Steps", "ends": [1, 2]},
        "copies": 3,
        "most": "-inf",
        "colour": "blue",
        "frame": {"kind": f"{__name__}:Box", "sides": [0.5, 0.25], "tilted": False},
        "notes": {"a": [1, [2, "b"]], "c": None},
    }


def test_numbers_of_numpy_are_written_as_numbers():
    assert plain((np.float32(0.5), np.int64(3), np.bool_(True))) == [0.5, 3, True]


def test_what_json_cannot_say_is_refused_by_its_path():
    with pytest.raises(ConfigError, match=r"notes\.a\[1\] .*JSON.* set"):
        plain(replace(FULL, notes={"a": [1, {2}]}))


def test_whole_numbers_are_numbers():
    (found,) = read(tuple[float, ...], [3])
    assert (found, type(found)) == (3.0, float)


@pytest.mark.parametrize("word", ["inf", "-inf", "nan"])
def test_words_are_numbers_where_json_has_none(word):
    np.testing.assert_equal(read(float, word), float(word))


REFUSED = [
    ({"copies": True}, r"copies must be a whole number; got True"),
    ({"copies": 2.5}, r"copies must be a whole number; got 2\.5"),
    ({"copies": "3"}, r"copies must be a whole number; got '3'"),
    ({"most": "3"}, r"most must be a number; got '3'"),
    ({"most": False}, r"most must be a number; got False"),
    ({"name": 3}, r"name must be a word; got 3"),
    ({"colour": "rde"}, r"colour must be 'red' or 'blue'; got 'rde'"),
    ({"notes": 3}, r"notes must be settings by name; got 3"),
    ({"frame": {"tilted": 1}}, r"frame\.tilted must be true or false; got 1"),
    ({"frame": {"sides": 3}}, r"frame\.sides must be a list .*; got 3"),
    ({"frame": {"sides": [1]}}, r"frame\.sides\[1\] is missing"),
    ({"frame": {"sides": [1, None]}}, r"frame\.sides\[1\] must be a number; got None"),
    ({"frame": 7}, r"frame must be settings of Box; got 7"),
    ({"growth": {"slope": 1}}, r"growth must be one of Linear, Steps, .*kind; got {'slope': 1}"),
    ({"growth": {"kind": "Linear"}}, r"growth\.slope must be given for Linear"),
    ({"growth": {"kind": "Step"}}, r"growth must be .*; got 'Step'\. Did you mean 'Steps'"),
    ({"growth": "os:system"}, r"growth must be one of Linear, Steps; got 'system'"),
    ({"growth": {"kind": "Steps", "ends": [1, "x"]}}, r"growth\.ends\[1\] .*; got 'x'"),
    ({"shape": None}, r"shape must be one of Circle, Box"),
    ({"shape": {"kind": "Circle", "radus": 1}}, r"Circle .*'radus'\. Did you mean 'radius'"),
    ({"shape": {"kind": "Circle", "radius": -1}}, r"^shape\.radius must be above 0; got -1\.0"),
    (
        {"shape": "no_such_module:Circle"},
        r"shape needs the module no_such_module: .*PYTHONPATH",
    ),
    ({"shape": ".:Circle"}, r"shape needs the module \., which cannot be imported: TypeError"),
    ({"copies": 10}, r"^a drawing has at most 9"),
    ({"zzz": 10}, r"Drawing has no setting 'zzz'\. There are name, shape, growth, copies"),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED)
def test_a_wrong_value_is_refused_by_its_path(changes, message):
    with pytest.raises(ConfigError, match=message):
        read(Drawing, {"name": "one", **changes})


def test_a_path_begins_where_it_is_told_to():
    with pytest.raises(ConfigError, match=r"^page\.frame\.sides\[0\] must be a number; got 'x'"):
        read(Drawing, {"name": "one", "frame": {"sides": ["x", 1]}}, "page")
    with pytest.raises(ConfigError, match=r"^page: a drawing has"):
        read(Drawing, {"name": "one", "copies": 10}, "page")


def test_a_class_of_another_package_is_named_with_its_module(tmp_path, monkeypatch, shapes):
    text = (
        "from dataclasses import dataclass\n@dataclass(frozen=True)\nclass Star:\n    n: int = 5\n"
    )
    (tmp_path / "stars.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    import stars

    shapes["Star"] = stars.Star
    drawing = Drawing("one", stars.Star(7))
    assert plain(drawing)["shape"] == {"kind": "stars:Star", "n": 7}
    assert read(Drawing, plain(drawing)) == drawing
    assert read(Drawing, {"name": "one", "shape": "Star"}).shape == stars.Star()


@pytest.mark.parametrize("name", ["growth", "frame"])
def test_nothing_is_imported_where_no_class_can_be_added(tmp_path, monkeypatch, name):
    (tmp_path / "bombs.py").write_text("raise AssertionError")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=f"{name} must be one of .*; got 'Bomb'"):
        read(Drawing, {"name": "one", name: "bombs:Bomb"})


# Changes


@pytest.mark.parametrize(
    ("text", "keys", "value"),
    [
        ("a.b=1", ["a", "b"], 1),
        (" a = 1e3 ", ["a"], 1000),
        ("a=1e-3", ["a"], 0.001),
        ("a=2.0", ["a"], 2.0),
        ("a=[1, [2]]", ["a"], (1, (2,))),
        ("a=word", ["a"], "word"),
        ("a=b=c", ["a"], "b=c"),
        ("a=inf", ["a"], math.inf),
        ("a=null", ["a"], None),
        ("a=", ["a"], ""),
    ],
)
def test_a_change_is_a_path_and_json_or_a_word(text, keys, value):
    found = parse(text)
    assert found == (keys, value)
    assert type(found[1]) is type(value)


@pytest.mark.parametrize("text", ["a.b", "=1", ""])
def test_a_change_without_a_path_or_a_value_is_refused(text):
    with pytest.raises(ConfigError, match=f"got '{text}'"):
        parse(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("copies=2", replace(FULL, copies=2)),
        ("frame.sides=[1, 2]", replace(FULL, frame=Box((1.0, 2.0)))),
        ("shape=Circle", replace(FULL, shape=Circle())),
        ("shape.tilted=false", replace(FULL, shape=Box((2.0, math.inf)))),
        ("growth=null", replace(FULL, growth=None)),
        ('growth={"kind": "Linear", "slope": 2}', replace(FULL, growth=Linear(2.0))),
    ],
)
def test_a_setting_is_changed_by_its_path(text, expected):
    assert change(FULL, *parse(text)) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("copy=2", "Drawing has no setting 'copy'. Did you mean 'copies'"),
        ("sides=2", r"Did you mean shape\.sides"),  # the outermost, and the first, of that name
        ("steps=2", "Did you mean growth=Steps"),
        ("shape.radius=2", "Box has no setting 'radius'. Circle has it: say shape=Circle"),
        ("growth.slope=2", "Steps has no setting 'slope'. Linear has it: say growth=Linear"),
        ("copies.x=2", "copies is 3, which has no setting 'x'"),
        ("copies=12", "^a drawing has at most 9"),
        ("frame.sides=[1, 2, 3]", r"frame\.sides must have at most 2 .* 3; got \(1, 2, 3\)"),
    ],
)
def test_a_wrong_change_is_refused(text, message):
    with pytest.raises(ConfigError, match=message):
        change(FULL, *parse(text))


def test_what_is_not_chosen_yet_has_no_settings():
    with pytest.raises(ConfigError, match=r"growth is None.*'ends'\. Steps has it: say growth=St"):
        change(Drawing("one"), *parse("growth.ends=[1]"))
