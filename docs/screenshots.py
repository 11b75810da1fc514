"""Screenshots of the pages in docs/study.md and README.md, of real papers. Needs Chromium.

Usage: python docs/screenshots.py WORKSPACE, after ``make docs WORKSPACE=build/demo`` made its pages.
"""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

FIGURES = Path(__file__).parent / "figures"
SHOTS = [
    ("study-charts-1280", 0, "Score against pool size (dataset level)", 1280, 830, "light"),
    ("study-query-1280", 0, "", 1280, 1090, "light"),
    ("study-query-390", 0, "", 390, 1090, "dark"),
    ("study-tables-390", 0, "Table 1: dataset level", 390, 1090, "light"),
    ("study-comparison-1280", 1, "Difference by pool", 1280, 1060, "light"),
]
"""File, page, heading at the top (empty: the title of the query that is opened), size in pixels, colours."""


def shoot(page: Any, heading: str) -> bytes:
    """Return a page from a heading on, with the first query opened, as PNG in 256 colours."""
    page.locator(".queries tbody button").first.click()
    found = page.get_by_role("heading", name=heading, exact=True) if heading else page.locator("article.query h3")
    found.evaluate("each => scrollTo(0, each.getBoundingClientRect().top + scrollY - 16)")
    page.mouse.move(0, 0)
    small = io.BytesIO()
    Image.open(io.BytesIO(page.screenshot())).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(
        small, "png", optimize=True
    )
    return small.getvalue()


def main(workspace: str) -> None:
    """Write every screenshot."""
    reports = Path(workspace).resolve() / "runs" / "reports"
    (comparison,) = reports.glob("*lsa-against-bm25/index.html")
    paths = (reports / "large_scale" / "index.html", comparison)
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, number, heading, width, height, colours in SHOTS:
            viewport = {"width": width, "height": height}
            context = browser.new_context(viewport=viewport, color_scheme=colours, reduced_motion="reduce")
            page = context.new_page()
            page.goto(paths[number].as_uri())
            page.wait_for_selector("html[data-ready]")
            image = shoot(page, heading)
            (FIGURES / f"{name}.png").write_bytes(image)
            print(f"{name}.png: {len(image) / 1e3:.0f} kB")
            context.close()
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1])
