import matplotlib
import pytest

from bmdp.report.drawing import literal, new_figure, plane, png_of, svg_of


def figure():
    made = new_figure()
    axes = made.subplots()
    plane(axes)
    axes.plot([0, 1], [2, 3], "o-", label="points", clip_on=True)
    axes.legend()
    return made


def test_svg_and_png_are_the_same_whenever_they_are_made():
    assert svg_of(figure(), "a") == svg_of(figure(), "a")
    assert png_of(figure()) == png_of(figure())


def test_svg_has_no_date_and_identifiers_by_name():
    assert "dc:date" not in svg_of(figure(), "a")
    assert svg_of(figure(), "a") != svg_of(figure(), "b")


def test_saving_leaves_the_settings_of_matplotlib_alone():
    before = dict(matplotlib.rcParams)
    svg_of(figure(), "a")
    assert dict(matplotlib.rcParams) == before


def test_the_axes_of_the_plane_are_named():
    (axes,) = figure().axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("expected cost", "expected reward")
    assert not axes.spines["top"].get_visible()


@pytest.mark.parametrize("save", [lambda f: svg_of(f, "a"), png_of])
def test_pictures_have_their_format(save):
    content = save(figure())
    assert content.startswith(b"\x89PNG") if isinstance(content, bytes) else "<svg" in content


@pytest.mark.parametrize(
    "name", ["$\\frac{$", "$x", "_hidden", "a\nb", "\u2603 \U0001f600", "x" * 500, ""]
)
def test_any_name_can_be_drawn(name):
    made = new_figure()
    axes = made.subplots()
    axes.bar([0], [1], label=literal(name))
    handles, labels = axes.get_legend_handles_labels()
    assert len(labels) == len(handles) == bool(name)
    made.legend(handles, labels)
    assert "<svg" in svg_of(made, "a")
    assert png_of(made)
    assert len(literal(name)) <= 40
