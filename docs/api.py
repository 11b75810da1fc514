"""Print the page of the Python interface, from its docstrings."""

from __future__ import annotations

import re
from pathlib import Path

from griffe import GriffeLoader, Parser
from griffe2md import ConfigDict, render_object_docs

from pipeline.corpus.poolconfig import SETTINGS

_LINK = r"\[([^\]]*)\]\(#[^)]*\)"

MODULES = (
    "pipeline.api",
    "pipeline.stages.selection",
    "pipeline.exchange.views",
    "pipeline.scores.plot",
    "pipeline.scores.summary.summarise",
    "pipeline.scores.summary.SUMMARY",
    "pipeline.scores.average.Draws",
    "pipeline.scores.compare.compare",
    "pipeline.scores.compare.compare_pairs",
    "pipeline.scores.compare.DIFFERENCES",
    "pipeline.scores.compare.QUERIES",
    "pipeline.scores.layout.tables",
    "pipeline.scores.store.IDENTITY",
    "pipeline.scores.store.FACTS",
)


def page() -> str:
    """Return the page as Markdown; roles of Sphinx become code."""
    config = ConfigDict(
        show_if_no_docstring=False, show_submodules=False, heading_level=2, show_root_full_path=True, filters=["!^_"]
    )
    loader = GriffeLoader(docstring_parser=Parser.google, search_paths=[Path(__file__).parents[1]])
    package = loader.load("pipeline")
    parts = [render_object_docs(package[name.removeprefix("pipeline.")], config) for name in MODULES]
    rows = [f"| `{setting.name}` | {setting.help} | {setting.usual} |" for setting in SETTINGS.values()]
    table = ["## Settings of pools", "", "| keyword | meaning | default |", "|---|---|---|", *rows, ""]
    text = "# Python interface\n\n" + "\n".join([*parts, *table])
    text = re.sub(r":[a-z]+:`~?(?:pipeline\.)?([^`]+)`", r"`\1`", text)
    text = re.sub(r"(?<!`)``([^`]+)``(?!`)", r"`\1`", text)
    text = re.sub(r"<code>(.*?)</code>", lambda found: "`" + re.sub(_LINK, r"\1", found[1]) + "`", text)
    headings = set(re.findall(r"^#+ `(.*)`$", text, re.MULTILINE))

    def link(found: re.Match[str]) -> str:
        """Return a link as GitHub names headings; without a heading, its text."""
        return f"[{found[1]}](#{found[2].replace('.', '').lower()})" if found[2] in headings else found[1]

    text = re.sub(r"\[([^\]]*)\]\(#([\w.]+)\)", link, text)
    return text.rstrip() + "\n"


if __name__ == "__main__":
    print(page(), end="")
