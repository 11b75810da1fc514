"""Pages of the documentation: links, commands, options, variables, figures; ``test_first_hour.py`` follows them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs import figures
from pipeline.cli.parsers import parsers
from pipeline.cli.variables import variable
from pipeline.corpus.poolconfig import RULES
from pipeline.studies.base import STUDIES
from tests import conftest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMMANDS = parsers()
RECIPES = {path.stem for path in (ROOT / "pipeline/data/recipes").glob("*.toml")}
TOOLS = {"--requeue", "--nv", "--exclude"}
"""Options of other tools."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    for path, heading in re.findall(r"\]\((?!\w+://)([^)#]*)#?([^)]*)\)", page.read_text()):
        linked = page.parent / path if path else page
        assert linked.exists(), path
        titles = re.findall(r"^#+ (.*)$", linked.read_text(), re.MULTILINE) if heading else []
        assert not heading or heading in [re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles]


def test_concepts_are_classes_of_their_packages() -> None:
    package, rows = "", re.findall(r"^\| (\w*) ?\| `(\w+)` \|", (ROOT / "CONTRIBUTING.md").read_text(), re.M)
    for named, concept in rows:
        package = named or package
        modules = (path.read_text() for path in (ROOT / "pipeline" / package).rglob("*.py"))
        assert any(re.search(rf"^class {concept}\b", module, re.M) for module in modules), concept
    assert 40 <= len(rows) <= 50


def commands(page: Path, tool: str) -> Iterator[tuple[str, str]]:
    """Yield the commands of a tool on a page: first word and the rest."""
    fenced, plain = re.findall(r"^```\w*\n(.*?)^```", page.read_text(), re.S | re.M), page.read_text()
    lines = re.sub(r"\\\n\s*", " ", "".join(fenced)).replace("&& ", "\n").splitlines()
    spans = [span for line in plain.splitlines() if "| error" not in line for span in re.findall("`([^`]+)`", line)]
    for words in re.findall(rf"^{tool} ([a-z].*)", "\n".join([*lines, *spans]), re.M):
        first, _, rest = re.split(r"\s+#", words)[0].partition(" ")
        yield first, rest


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_options_recipes_and_studies_exist(page: Path) -> None:
    for name, rest in commands(page, "mdcr"):
        stage = rest.split()[0] if name == "submit" else name
        takes = COMMANDS[name].options.keys() | COMMANDS[stage].options.keys()
        assert set(re.findall(r"(?<!\S)--[a-z][a-z0-9-]*", rest)) <= takes, (name, rest)
    text, every = page.read_text(), TOOLS.union(*(command.options for command in COMMANDS.values()))
    assert set(re.findall(r"`(--[a-z][a-z0-9-]+)", text)) <= every
    assert set(re.findall(r"(?:--recipe |RECIPE=)([a-z_0-9]+)(?![\w./])", text)) <= RECIPES
    assert set(re.findall(r"(?:mdcr study |STUDY=)([a-z_]+)(?![\w.])", text)) <= STUDIES.keys()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_goals_and_variables_of_make_exist(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text()
    own = {*re.findall(r"\w+", re.findall(r"^MAKE_OWN := (.*)", makefile, re.MULTILINE)[0])}
    goals = {word for line in re.findall(r"^([a-z ]+):", makefile, re.MULTILINE) for word in line.split()}
    for first, rest in commands(page, "make"):
        named = [word for word in (first, *rest.split()) if re.fullmatch("[a-z]+", word)]
        assert {*named} <= goals, (first, rest)
        takes = own.union(*(map(variable, COMMANDS[name].options) for name in named if name in COMMANDS))
        stage = (re.search(r"(?<!\S)STAGE=(\w+)", rest) or ["", first])[1]
        stage = {"benchmark": "study"}.get(stage, stage)
        takes |= {*map(variable, COMMANDS[stage].options)} if stage in COMMANDS else set()
        assert set(re.findall(r"(?<!\S)([A-Z][A-Z0-9_]+)=", rest)) <= takes, (first, rest)


def test_every_command_and_recipe_is_documented() -> None:
    """On a page that a user reads; the site lists all options."""
    text = "\n".join(page.read_text() for page in PAGES if page.name != "CONTRIBUTING.md")
    assert COMMANDS.keys() <= set(re.findall(r"(?:mdcr|make) ([a-z]+)", text))
    assert not RECIPES - set(re.findall(r"\w+", text))


def test_every_page_leads_to_the_words_and_all_pages_are_short_together() -> None:
    docs = [page for page in PAGES if page.parent != ROOT]
    assert [page.name for page in docs if "protocols.md#words" not in page.read_text()] == ["protocols.md"]
    short = [page for page in (ROOT / "README.md", *docs) if page.name != "million.md"]  # which is a report
    assert sum(len(page.read_text().split()) for page in short) <= 25_000


def test_the_protocols_state_every_rule_of_pools() -> None:
    stated = set(re.findall(r"`([a-z_]+)", (ROOT / "docs/protocols.md").read_text()))
    assert {*RULES} <= stated


def test_the_lists_of_slow_and_of_quick_modules_name_modules() -> None:
    assert not [path for path in conftest.paths(conftest._LONG + conftest._QUICK) if not path.is_file()]


TABLE = """Retrieval, Art (2019, 600 queries)

system  MAP
bm25    24.3   [20.8, 28.3]
rrf(bm25,lsa)  27.0*\u2020 [23.3, 31.1]  citations to 2021

Retrieval, Physics (2019, 600 queries)

bm25    30.1   [27.0, 33.0]
"""
CSV = "system,measure,value\nbm25,ndcg@10,0.67894\n"
FIGURE = re.compile(r"\d \[[-+]?\d|\| [*]*[-+]?\d*\.\d+[^|a-zA-Z]*\|")
"""An interval, or a cell of decimal numbers."""


@pytest.mark.parametrize(
    ("row", "made", "found"),
    [
        ("| bm25 | 24.3 [20.8, 28.3] |", TABLE, True),
        ("| bm25 | 24.3 [28.3, 20.8] |", TABLE, False),  # in another order
        ("| Physics | 600 | bm25 | 24.3 [20.8, 28.3] |", TABLE, False),
        ("| Art | bm25 | 24.3 [20.8, 28.3] |", TABLE, True),
        ("| Art | bm25 | 30.1 [27.0, 33.0] |", TABLE, False),  # of the table below
        ("| lsa | 24.3 [20.8, 28.3] |", TABLE, False),
        ("| `rrf(bm25,lsa)` | **27.0**\u2020 [23.3, 31.1] | citations to 2021 |", TABLE, True),
        ("| bm25 | 67.9 |", CSV, True),
        ("| bm25 | 0.6788 |", CSV, False),
    ],
)
def test_a_row_is_found_by_its_words_and_digits(row: str, made: str, found: bool) -> None:
    assert any(figures.is_in(row, line) for line in figures.titled(made)) == found


def test_a_page_whose_digits_differ_is_said_with_line_and_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    table = "| system | MAP |\n|---|---|\n| bm25 | 1.5 |\n| lsa | 2.0 |\n| minilm | 9.9 |\n"
    comment = "<!-- figures, but minilm: above && printf 'bm25 1.5\\nlsa 2.1\\n' -->"
    page.write_text(f"# Page\n\n```\ntrue  # first\n```\n\n{comment}\n{table}")
    (line,) = figures.check(page, tmp_path)
    assert line.startswith("page.md:8: printf")
    assert line.endswith("| lsa | 2.0 |")


@pytest.mark.parametrize("page", figures.PAGES, ids=lambda page: page.name)
def test_a_table_of_figures_has_its_command_or_its_date(page: Path) -> None:
    intro, *sections = re.split(r"^## ", page.read_text(), flags=re.MULTILINE)
    commands = [block.rows for block in figures.blocks(page)]
    for section in (intro, *sections):
        for table in re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE):
            rows = [row for row in table.splitlines() if FIGURE.search(row)]
            dated = re.search(r"Measured in [A-Z][a-z]+ \d{4} on ", intro + section)
            assert not rows or dated or any(rows[0] in of_block for of_block in commands), rows[0]
