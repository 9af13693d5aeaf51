"""Pictures of pages on a desk and on a telephone, light and dark: of the site, or of a report.

    make docs
    python docs/screenshots.py build/site out/screenshots
    python docs/screenshots.py out/lake/report out/screenshots --pages index --top 1320

Opens pages from disk in chromium, by playwright, and writes a picture of each, of its whole length
or of its top. Says what sticks out of a page sideways, and pictures that are missing.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path
from typing import Any

from PIL import Image

PAGES = ("index", "getting-started", "tutorial-customers", "reference/start")
WIDTHS = {"desk": 1440, "telephone": 390}
SCHEMES = ("light", "dark")

ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
"""Of chromium; it need not ask anyone for anything."""

WIDE = """() => {
    const width = document.documentElement.clientWidth;
    const scrolls = (one) => one.closest(".md-typeset__scrollwrap, pre, .md-sidebar, .md-header");
    const isOut = (one) => {
        const { left, right, width: own } = one.getBoundingClientRect();
        return own > 1 && (left < -1 || right > width + 1);
    };
    const inside = [...document.querySelectorAll(".md-content *")];
    const out = inside.filter((one) => isOut(one) && !scrolls(one));
    const pictures = [...document.images].filter((one) => one.naturalWidth === 0);
    return [...out, ...pictures].map((one) => one.outerHTML.slice(0, 100));
}"""
"""What sticks out of a page and does not scroll by itself, and pictures that were not found."""


def shoot(
    browser: Any, page: Path, device: str, scheme: str, out: Path, top: int | None
) -> list[str]:
    """Writes one picture, and returns what is wrong with the page."""
    size = {"width": WIDTHS[device], "height": top or 900}
    tab = browser.new_page(viewport=size, color_scheme=scheme)
    tab.goto(page.resolve().as_uri())
    tab.wait_for_load_state("networkidle")
    picture = out / f"{page.stem}-{device}-{scheme}.png"
    tab.screenshot(path=str(picture), full_page=top is None)
    with Image.open(picture) as whole:  # few colours make a small file
        whole.convert("RGB").quantize(128).save(picture, optimize=True)
    wrong: list[str] = tab.evaluate(WIDE)
    tab.close()
    return wrong


def main(arguments: list[str] | None = None) -> None:
    """Shoots all pages, and fails if something is wrong with one."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("site", type=Path, help="folder of the built site")
    parser.add_argument("out", type=Path, help="folder for the pictures")
    parser.add_argument("--pages", nargs="*", default=PAGES, help="names of pages, without .html")
    parser.add_argument("--top", type=int, help="pixels from the top; without, the whole page")
    options = parser.parse_args(arguments)
    from playwright.sync_api import sync_playwright  # only who runs this needs it

    options.out.mkdir(parents=True, exist_ok=True)
    n_wrong = 0
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=ARGUMENTS
        )
        for page in options.pages:
            for device in WIDTHS:
                for scheme in SCHEMES:
                    place = options.site / f"{page}.html"
                    wrong = shoot(browser, place, device, scheme, options.out, options.top)
                    n_wrong += len(wrong)
                    print(page, device, scheme, *wrong, sep="\n    " if wrong else " ")
        browser.close()
    sys.exit(1 if n_wrong else 0)


if __name__ == "__main__":
    main()
