"""What the site has beyond the pages in docs/: tables, references and a gallery, made from the code and a workspace.

A comment ``<!-- generated: NAME -->`` in a page is replaced with a table of :data:`GENERATED`. The gallery shows the
pages in ``runs/reports`` of the workspace ``MDCR_ROOT``; ``make docs`` makes one.
"""

from __future__ import annotations

import argparse
import html
import inspect
import os
import re
from pathlib import Path
from types import ModuleType
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

import pipeline
from pipeline.cli.papers import sections
from pipeline.cli.parsers import parsers, top
from pipeline.corpus.poolconfig import SETTINGS
from pipeline.exchange.views import PoolView
from pipeline.scores import plot
from pipeline.sources import content
from pipeline.studies.base import STUDIES, find
from pipeline.studies.recipe import details_of

ROOT = Path(__file__).parents[1]
FRAMES = (
    "pipeline.stages.selection.selection",
    "pipeline.exchange.views",
    "pipeline.scores.summary.SUMMARY",
    "pipeline.scores.compare.DIFFERENCES",
    "pipeline.scores.compare.QUERIES",
    "pipeline.scores.frames.IDENTITY",
    "pipeline.scores.facts.REQUESTED",
    "pipeline.scores.frames.FACTS",
    "pipeline.scores.facts.GAPS",
    "pipeline.scores.sources.ENCODER",
)
"""What the functions of ``mdcr`` take and return, in addition to the names in ``mdcr`` itself."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made, and those that lie beside the folder docs."""
    pages = {
        "reference/api.md": api(),
        "reference/commands.md": commands(),
        "contributing.md": _beside("CONTRIBUTING.md"),
        "changelog.md": _beside("CHANGELOG.md"),
    }
    reports = reports_of(Path(os.environ.get("MDCR_ROOT", ".")))
    pages["gallery.md"] = gallery(reports)
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    for path in reports:
        files.append(File.generated(config, f"gallery/{path.parent.name}.html", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Fill in what is generated; of links to files that the site does not have, such as code, leave the text."""
    markdown = re.sub("<!-- generated: (\\w+) -->", lambda found: GENERATED[found[1]](), markdown)
    return re.sub(r"\[([^\]]*)\]\(\.\./pipeline/[^)]*\)", r"\1", markdown)


def on_page_content(content: str, **_: Any) -> str:
    """Leave the names of Sphinx's roles out: ``:func:`` before code."""
    return re.sub(r":[a-z]+:<code>~?", "<code>", content)


def api() -> str:
    """Return the page of the Python interface; mkdocstrings fills it from the docstrings."""
    parts = ["# Python interface", "`import mdcr` gives these names. The code is the folder `pipeline`."]
    for name in pipeline.__all__:
        value = getattr(pipeline, name)
        if name != "__version__":
            path = value.__name__ if isinstance(value, ModuleType) else f"{value.__module__}.{value.__qualname__}"
            parts.append(f"::: {path}\n    options:\n      heading: mdcr.{name}\n      toc_label: {name}")
    parts += [f"::: {path}\n    options:\n      show_root_full_path: true" for path in FRAMES]
    rows = [[f"`{setting.name}`", setting.about()] for setting in SETTINGS.values()]
    return "\n\n".join([*parts, "## Settings of pools", _table(["keyword", "meaning"], rows)])


def calls() -> str:
    """Return a table of the calls of the Python interface: signature, and first sentence of the docstring."""
    interface = {name: getattr(pipeline, name) for name in pipeline.__all__ if name not in ("__version__", "study")}
    owners = {"mdcr.plot": plot, "ws": pipeline.Workspace, "pool": PoolView}
    members = {f"mdcr.{name}": value for name, value in interface.items() if not isinstance(value, ModuleType)}
    for owner, value in owners.items():
        names = ("by_size", "by_field") if owner == "mdcr.plot" else (name for name in vars(value) if name[0] != "_")
        members |= {f"{owner}.{name}": getattr(value, name) for name in names}
    return _table(["call", "what it does"], [_call(name, value) for name, value in members.items()])


def _call(name: str, value: Any) -> list[str]:
    names = inspect.signature(value).parameters if callable(value) else None
    arguments = "" if names is None else f"({', '.join(argument for argument in names if argument != 'self')})"
    does = (inspect.getdoc(value) or "").split("\n\n")[0].replace("\n", " ")
    return [f"`{name}{arguments}`", re.sub(r":\w+:`~?([\w.]+)`", r"`\1`", does)]


def refusals() -> str:
    """Return a table of the contents of files that are refused, and what to do with each."""
    texts = [[kind, remedy] for _, kind, remedy in content._TEXTS if " " in remedy]
    refused = [[kind, remedy] for _, kind, remedy in content._KINDS]
    return _table(["a file that is", "is refused: do this"], [*refused, *texts])


GENERATED = {"papers": sections, "calls": calls, "refusals": refusals}
"""Tables of pages, by name."""


def commands() -> str:
    """Return the page of all commands and options, as the parser has them."""
    whole = top()
    parts = ["# Commands and options", f"{whole.description} {whole.epilog}"]
    parts.append("With `make`, an option becomes a variable: `--min-citations 5` is `MIN_CITATIONS=5`.")
    for name, command in parsers().items():
        first = command.command.word
        word = f" [{first.name.upper()}]" if first else ""
        parts += [f"## mdcr {name}", str(command.description), f"`mdcr {name}{word} [options]`"]
        for group in command._action_groups:
            rows = [_option(action) for action in group._group_actions if action.help != argparse.SUPPRESS]
            rows = [row for row in rows if row[0] != "`--help`"]
            if rows:
                title = str(group.title or "")
                parts += [f"**{title[0].upper()}{title[1:]}**", _table(["option", "meaning"], rows)]
    parts += ["## Settings of studies", "`mdcr study NAME --set SETTING=VALUE` changes a setting of the recipe."]
    for study in map(find, STUDIES):
        settings = details_of(study.recipe, study.default_recipe).items()
        rows = [[f"`{name}`", html.escape(text)] for name, text in settings]
        parts += [f"### {study.name}", _table(["setting", "meaning"], rows)]
    return "\n\n".join(parts)


def _option(action: argparse.Action) -> list[str]:
    """Return an option, or a word by its place, and what it means."""
    name = action.option_strings[-1] if action.option_strings else str(action.metavar or action.dest)
    return [f"`{name}`", html.escape(str(action.help))]


def reports_of(workspace: Path) -> list[Path]:
    """Return the pages of a workspace.

    Raises:
        PluginError: it has none.
    """
    found = sorted(workspace.glob("runs/reports/*/index.html"))
    if not found:
        raise PluginError(f"the gallery found no page in {workspace}/runs/reports. Fix: make docs, or set MDCR_ROOT")
    return found


def gallery(reports: list[Path]) -> str:
    """Return the page that links to the pages of a workspace."""
    rows = [[f"[{path.parent.name}](gallery/{path.parent.name}.html)", _about(path), _size(path)] for path in reports]
    intro = (
        "Every page is one file that opens from disk and fetches nothing. These pages show the corpus of `mdcr demo`: "
        "7,233 papers that systematic reviews in medicine and psychology considered. `make docs` makes them with "
        "`docs/gallery.py`."
    )
    return "\n\n".join(["# Gallery", intro, _table(["page", "shows", "size"], rows)])


def _about(report: Path) -> str:
    """Return the summary of a study, or the title of another page."""
    if report.parent.name in STUDIES:
        return find(report.parent.name).summary
    with report.open(encoding="utf-8") as file:
        found = re.search("<title>(.*?)</title>", file.read(4096))
    return found[1] if found else ""


def _size(path: Path) -> str:
    return f"{path.stat().st_size / 1e6:.1f} MB"


def _beside(name: str) -> str:
    """Return a page of the repository's folder; links into docs stay, of other links the text."""
    text = (ROOT / name).read_text(encoding="utf-8").replace("](docs/", "](")
    return re.sub(r"\[([^\]]*)\]\((?!\w+:|[\w-]+\.md)[^)#]+\)", r"\1", text)


def _table(head: list[str], rows: list[list[str]]) -> str:
    """Return a table in Markdown."""
    cells = [head, ["---"] * len(head), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(row) + " |" for row in cells)
