"""``show``, ``report`` and ``eval``: every option that chooses or shows has an effect, or is refused."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from pipeline.cli.parsers import Parser
from pipeline.cluster.settings import REQUESTS
from pipeline.corpus.prefilter import PrefilterConfig
from pipeline.stages.pool import exclusions
from tests.cli.run import flags, mdcr, mdcr_json, one_line_error
from tests.scores import published as made
from tests.scores.published import BAD, ENCODER

Row = Mapping[str, Any]
BM25 = {"k1": 0.9, "b": 0.4}
CSV = ("report", "--format", "csv")
COMMON = set(flags("root memory workers device repair dry-run json quiet verbose help strict ray-address what"))
"""Options of how a command runs."""


def column(name: str) -> Callable[[Row], Any]:
    return lambda row: row[name]


CHOOSES: dict[str, tuple[str, Callable[[Row], Any], Any]] = {
    "model": ("lsa", lambda row: row["system"].partition("@")[0], "lsa"),
    "measures": ("recall@2", column("size"), 8),
    "corpus": ("other", lambda row: row["corpus"].split("-")[0], "other"),
    "field": ("Art", column("field"), "Art"),
    "size": ("7", column("size_asked"), 7),
    "samples": ("1", column("samples"), [1]),
    "nested": ("", column("nested"), True),
    "exclude": ("ids.txt", lambda row: len(row["exclude"]), 1),
    "min-citations": ("5", column("min_citations"), 5),
    "keep-same-title": ("", column("drop_same_title"), False),
}
"""A value of an option of each kind that chooses, what to look at in each row, and what it must be there."""

SHOWS = {
    "measures": ("recall@2,map", "R@2", "NDCG"),
    "baseline": ("lsa", "differs from lsa", "differs from bm25"),
    "format": ("markdown", "| system |", "----"),
}
"""A value of every option that shows, what it adds to a table, and what it removes."""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scores of pools and systems that differ in one setting each."""
    root = tmp_path_factory.mktemp("scored")
    (root / "ids.txt").write_text("00001\n")
    of, other = made.corpus(root), made.corpus(root, "other", 9)
    pools: list[dict[str, Any]] = [{"year": 2018}, {"candidates": 7}, {"sample": 2}, {"seed": 99}, {"nested": True}]
    pools += [{"drop_same_title": False}, {"field": "Art"}]
    pools += [{"exclude": exclusions([root / "ids.txt"])}, {"prefilter": PrefilterConfig(min_citations=5)}]
    for settings in pools:
        made.score(root, of, made.pool(root, of, **settings), "bm25", **BM25)
    made.score(root, other, made.pool(root, other), "bm25", **BM25)
    pool = made.pool(root, of)
    made.score(root, of, pool, "bm25", measures="map,ndcg,recall@30", **BM25)
    made.score(root, of, pool, "bm25", depth=10, **BM25)
    made.score(root, of, pool, "lsa", BAD, search="exact", encoder=ENCODER, measures="map,ndcg,recall@30,recall@2")
    return root


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scores of two systems on two samples of one pool."""
    root = tmp_path_factory.mktemp("two")
    of = made.corpus(root)
    for sample in (1, 2):
        pool = made.pool(root, of, sample=sample)
        made.score(root, of, pool, "bm25", measures="map,ndcg,recall@30,recall@2", **BM25)
        made.score(root, of, pool, "lsa", BAD, measures="map,ndcg,recall@30", search="exact", encoder=ENCODER)
    return root


def words(root: Path, name: str, value: str) -> list[str]:
    return [f"--{name}", *([str(root / value) if name == "exclude" else value] if value else [])]


def options_of(command: str) -> set[str]:
    return {text[2:] for text in Parser(command).options}


@pytest.fixture(scope="module")
def everything(root: Path) -> list[Row]:
    rows: list[Row] = mdcr_json(root, "show")["rows"]
    return rows


@pytest.mark.parametrize("name", [name for name in CHOOSES if name != "measures"])
def test_an_option_chooses_rows_and_pools(root: Path, everything: list[Row], name: str) -> None:
    value, look, expected = CHOOSES[name]
    option = words(root, name, value)
    chosen = mdcr_json(root, "show", *option)["rows"]
    assert 0 < len(chosen) < len(everything)
    assert {str(look(row)) for row in chosen} == {str(expected)}
    assert any(str(look(row)) != str(expected) for row in everything)
    if name in ("model", "field", "samples", "exclude"):  # one of each sort: report chooses as show does
        written = mdcr_json(root, "report", "--format", "csv", "--output", str(root / f"by-{name}"), *option)["files"]
        lines = [line for file in written for line in csv.DictReader(Path(file).read_text().splitlines())]
        assert [(line["label"], line["measure"], float(line["value"])) for line in lines] == [
            (row["label"], row["measure"], row["value"]) for row in chosen
        ]
    if name in ("corpus", "field", "samples", "min-citations", "exclude"):
        pools, few = (mdcr_json(root, "show", "pools", *more)["pools"] for more in ([], option))
        assert 0 < len(few) < len(pools)


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("--seed 7", "--seed must be one of 13, 99 here, got 7"),
        ("--year 1999", "--year must be one of 2018, 2019 here, got 1999"),
        ("--depth 11", "--depth must be one of 10, 500 here, got 11"),
        ("--field Physics", "--field must be Art here, got Physics"),
        ("--model bm52", "--model must name systems that were scored on these pools, got 'bm52'"),
        ("--measures mrr", "mrr was not scored for any of these rows. Run mdcr eval --measures mrr"),
        ("--measures recall@1000", "Run mdcr eval --measures recall@1000 --depth 1000"),
        ("--baseline bm52", "the baseline must be one of bm25, lsa"),
    ],
)
def test_a_choice_that_fits_nothing_says_what_there_is(root: Path, two: Path, typed: str, said: str) -> None:
    command = "report" if typed.startswith(("--m", "--baseline")) else "show"  # both choose alike
    assert said in one_line_error(mdcr(two if "baseline" in typed else root, command, *flags(typed)))


@pytest.fixture(scope="module")
def plain(two: Path) -> tuple[str, str]:
    """What show prints without options, and the folder of such a report."""
    return mdcr(two, "show").stdout, mdcr_json(two, *CSV)["reports"][0]


@pytest.mark.parametrize("name", SHOWS)
def test_an_option_shows(two: Path, plain: tuple[str, str], name: str) -> None:
    value, sign, absent = SHOWS[name]
    printed, plain_folder = plain
    shown = mdcr(two, "show", f"--{name}", value).stdout
    assert sign in shown != printed
    assert absent is None or absent not in shown
    (folder,) = mdcr_json(two, *CSV, *([] if name == "format" else [f"--{name}", value]))["reports"]
    if name == "measures":  # CSV holds all measures, whichever are shown
        lines = [sorted((Path(place) / "table.csv").read_text().splitlines()) for place in (plain_folder, folder)]
        assert lines[0] == lines[1]
    assert (folder == plain_folder) == (name == "format")


def test_json_and_csv_have_the_same_fields(two: Path) -> None:
    rows = mdcr_json(two, "show")["rows"]
    (folder,) = mdcr_json(two, *CSV, "--model", "lsa,bm25")["reports"]
    text = (Path(folder) / "table.csv").read_text()
    assert list(next(csv.DictReader(text.splitlines()))) == list(rows[0])
    assert {row["measure"] for row in rows} == {"map", "ndcg", "recall@2", "recall@30"}
    assert [row["sample"] for row in rows].count(None) == len(rows) / 3
    assert any(row["p_adjusted"] is not None and row["baseline"] == "bm25" for row in rows)
    assert mdcr(two, "show", "--format", "csv", "--model", "lsa,bm25").stdout == text


def test_folders_have_names_that_stay_and_tell_choices_apart(two: Path) -> None:
    def names(*more: str) -> list[str]:
        folders = mdcr_json(two, "report", "--dry-run", *more)["reports"]
        return [str(Path(folder).relative_to(two / "runs/reports")) for folder in folders]

    assert names() == names("--seed", "13") == ["tiny_2019_queries-3_seed-13"]
    assert names("--model", "lsa,bm25") == ["tiny_2019_queries-3_seed-13_model-lsa+bm25"]
    many = [f"--{name}={value}" for name, value in (("samples", 1), ("depth", 500), ("baseline", "lsa"), ("size", 8))]
    assert len({*names(), *(name for option in many for name in names(option))}) == 5
    long = names("--model", "lsa,bm25", "--measures", "map,ndcg,recall@2,recall@30", *many)
    assert max(map(len, long)) <= 120
    assert long != names("--model", "lsa,bm25", "--measures", "map,ndcg,recall@30,recall@2", *many)


MAKES = {
    "model": "bm25", "depth": "10", "precision": "bf16", "engine": "faiss:HNSW32", "measures": "f1",
    "field": "Medicine", "year": "2017",
    "size": "121", "queries": "2", "samples": "1", "seed": "99", "split": "validation", "nested": "",
    "exclude": "ids.txt", "citation-direction": "total", "min-citations": "5", "min-abstract-chars": "9",
    "positives": "prefiltered", "keep-same-title": "", "after-cutoff": "2018", "trained-until": "2018",
    "earlier-only": "", "drop-near-duplicates": "",
}  # fmt: skip
BASE = flags("eval --size 120 --queries 3 --samples 2 --model lsa --dry-run")


def test_every_option_is_tried() -> None:
    others = flags("corpus bm25-engine measure-engine missing-positives keep-identical-id allow-unknown run")
    others += ["validation-queries", *REQUESTS]  # tests/corpus/test_contexts.py, tests/cluster
    others += ["brief", "resample"]
    assert options_of("eval") - COMMON == {*MAKES, *SHOWS, *others}


@pytest.mark.java
@pytest.mark.parametrize("name", [name for name in MAKES if name != "precision"])
def test_an_option_of_eval_decides_what_is_made(tiny: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "ids.txt").write_text("00001\n")
    option = words(tmp_path, name, MAKES[name])
    plain, other = ({step["name"] for step in mdcr_json(tiny, *BASE, *more)["plan"]} for more in ([], option))
    assert plain != other


@pytest.mark.java
def test_eval_shows_what_it_was_asked_for(own: Path) -> None:
    evaluate = flags("eval --size 900 --queries 20 --samples 1 --model bm25,lsa")
    rows = mdcr_json(own, *evaluate)["rows"]
    for name, (value, sign, absent) in {**SHOWS, "measures": ("recall@7,map", "R@7", "NDCG")}.items():
        shown = mdcr(own, *evaluate, f"--{name}", value).stdout
        assert sign in shown
        assert absent is None or absent not in shown
    shallow = mdcr(own, *flags("eval --size 900 --queries 20 --samples 1 --model bm25 --depth 10")).stdout
    assert "top 10)" in shallow
    assert "lsa" not in shallow
    stored = mdcr_json(own, "show", "--depth", "500", "--model", "bm25,lsa")["rows"]
    assert {row["measure"] for row in stored} - {row["measure"] for row in rows} == {"recall@7"}  # asked for before
    columns = ("label", "measure", "value", "low", "p_value")
    assert [[row[name] for name in columns] for row in rows] == [
        [row[name] for name in columns] for row in stored if row["measure"] != "recall@7"
    ]
    mixed = " ".join(mdcr(own, "show").stdout.split())
    assert "top 10 (bm25 (depth 10)) and the top 500" in mixed
    assert "lsa (depth 500)" in mixed
