"""How pages of the built site look: on a desk and on a telephone, light and dark.

    make docs
    python docs/screenshots.py build/site out/screenshots

Opens pages from disk in chromium, by playwright, and writes a picture of each, of its whole length.
Says what sticks out of a page sideways, and pictures that are missing.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path
from typing import Any

PAGES = ("index", "getting-started", "theory-in-pictures", "results")
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


def shoot(browser: Any, site: Path, page: str, device: str, scheme: str, out: Path) -> list[str]:
    """Writes one picture, and returns what is wrong with the page."""
    tab = browser.new_page(viewport={"width": WIDTHS[device], "height": 900}, color_scheme=scheme)
    tab.goto((site / f"{page}.html").resolve().as_uri())
    tab.wait_for_load_state("networkidle")
    tab.screenshot(path=str(out / f"{page}-{device}-{scheme}.png"), full_page=True)
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
                    wrong = shoot(browser, options.site, page, device, scheme, options.out)
                    n_wrong += len(wrong)
                    print(page, device, scheme, *wrong, sep="\n    " if wrong else " ")
        browser.close()
    sys.exit(1 if n_wrong else 0)


if __name__ == "__main__":
    main()
