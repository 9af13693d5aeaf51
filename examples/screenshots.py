"""Pictures of a page that `bmdp report` wrote, as a browser shows it.

    python examples/screenshots.py out/lake/report/index.html --out docs/images/lake

Writes lake-1440-light.png, lake-1440-dark.png, lake-390-light.png and lake-390-dark.png: the top of
the page on a desk and on a phone. Needs playwright, and Debian's chromium.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from PIL import Image

SIZES = {1440: 1320, 390: 1320}  # pixels: width of the window, and height that is kept
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")


def shoot(page: Path, out: str) -> list[Path]:
    """Takes a picture in each width and colour scheme, and returns the files.

    Args:
        page: a page on disk.
        out: path of the pictures, without what is added to their names.
    """
    from playwright.sync_api import sync_playwright

    written = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=list(ARGUMENTS)
        )
        for width, height in SIZES.items():
            for scheme in ("light", "dark"):
                tab = browser.new_page(
                    viewport={"width": width, "height": height},
                    color_scheme="dark" if scheme == "dark" else "light",
                )
                tab.goto(page.resolve().as_uri())
                path = Path(f"{out}-{width}-{scheme}.png")
                path.parent.mkdir(parents=True, exist_ok=True)
                tab.screenshot(path=path)
                tab.close()
                with Image.open(path) as picture:  # few colours: a quarter of the size
                    picture.convert("RGB").quantize(128).save(path, optimize=True)
                written.append(path)
        browser.close()
    return written


def main(words: list[str] | None = None) -> None:
    """Runs the script."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("page", type=Path, help="index.html of a report")
    parser.add_argument("--out", required=True, help="path of the pictures, without an ending")
    asked = parser.parse_args(words)
    if not asked.page.is_file():
        sys.exit(f"{asked.page} is not there: `bmdp report` writes it.")
    for path in shoot(asked.page, asked.out):
        print(path)


if __name__ == "__main__":
    main()
