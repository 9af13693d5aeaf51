"""Pictures of reports that are drawn once for each name: drawing is most of what a page takes.

What is to be drawn is made every time; the pictures that were drawn stand for later ones of the
same name, or of the same size as files.
"""

from bmdp.report import build, section

_DRAWN = {}


def draw_once(patches):
    """Draws as little as can be from now on.

    Args:
        patches: pytest's `monkeypatch`.
    """
    svg_of, png_of = section.svg_of, build.png_of

    def known_svg(figure, name):
        return _known(name, lambda: svg_of(figure, name))

    def known_png(figure):
        return _known(tuple(figure.get_size_inches()), lambda: png_of(figure))

    patches.setattr(section, "svg_of", known_svg)
    patches.setattr(build, "png_of", known_png)


def _known(key, make):
    if key not in _DRAWN:
        _DRAWN[key] = make()
    return _DRAWN[key]
