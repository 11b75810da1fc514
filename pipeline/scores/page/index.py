"""Writing pages, and the index of a folder of several reports."""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime
from pathlib import Path

from pipeline.core import files
from pipeline.scores.page.parts import LISTED, Page
from pipeline.scores.page.write import as_html, as_index

NAME = "index.html"


def write_page(page: Page, folder: Path) -> Path:
    """Write a page as ``index.html`` of a folder, and return it."""
    files.write_text(folder / NAME, as_html(page))
    return folder / NAME


def write_index(folder: Path) -> Path:
    """Write the index of all pages in the folders of a folder, by name, and return it."""
    pages = {path.parent.name: _described(path) for path in sorted(folder.glob(f"[!.]*/{NAME}"))}
    files.write_text(folder / NAME, as_index(pages))
    return folder / NAME


def _described(path: Path) -> list[str]:
    """Return what a page says for an index, when it was written, and its title and description."""
    with path.open(encoding="utf-8", errors="replace") as handle:
        head = handle.read(1 << 16)
    meta = {name: html.unescape(text) for name, text in re.findall('<meta name="([a-z ]+)" content="(.*?)">', head)}
    title = re.search("<title>(.*?)</title>", head)
    contents = ". ".join(filter(None, (html.unescape(title[1]) if title else "", meta.get("description"))))
    written = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    return [*(meta.get(name, "") for name in LISTED), f"{written:%Y-%m-%d %H:%M}", contents]
