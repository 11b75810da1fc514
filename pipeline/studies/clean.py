"""The study ``clean``: how systems compare on queries and citations that their training data did not hold.

A query or a cited paper counts as seen if the training data name its id or DOI, hold its title, or hold a text that
shares sequences of 13 words with its title and abstract. Files of training data may have any layout: every string in
them is tried as an id, a DOI, a title and a text.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from pipeline.studies import kit

Mask = npt.NDArray[np.bool_]
_WORDS = re.compile(r"\w+")
_LENGTH, _SHARED = 13, 8  # words of a sequence; sequences that a text must share with a paper, 20 words in a row
_SHARES = (0.25, 0.5, 0.75, 0.95)  # thresholds of the table "seen"


@dataclass(frozen=True, kw_only=True)
class Recipe(kit.PoolsRecipe):
    """Settings of the study."""

    field: str
    size: str
    baseline: str = kit.required("the system that the others are compared with")
    training: tuple[str, ...] = kit.required("files of ids, DOIs, titles or texts: lines, JSON lines, CSV or Parquet")
    contained: float = kit.required("share of 13-word sequences in common, from which a text counts as the paper")


@kit.study("clean", "how systems compare on queries and citations that training data did not hold", Recipe)
def clean(workspace: kit.Workspace, recipe: Recipe) -> kit.Steps:
    """Return the scores of all, clean and seen queries and citations, and by what they were found."""
    if not recipe.training or not 0 < recipe.contained <= 1:
        given = f"{list(recipe.training)} and {recipe.contained:g}"
        problem = f"training must name files and contained be above 0 and at most 1, got {given}"
        raise kit.InputError(problem, "Write --set=training=FILE")
    found = yield from kit.scored(workspace, recipe, [kit.selection(**kit.pools_of(recipe))])
    baseline, corpus = found.label(recipe.baseline), kit.corpus_of(workspace, recipe)
    positives = found.positives
    papers_of = {name: found.pool(name).query_papers[0] for name in positives["pool"].unique(maintain_order=True)}
    queries = pl.concat(
        pl.DataFrame({"pool": pool, "paper": papers}).with_row_index("query") for pool, papers in papers_of.items()
    )
    papers = np.unique(np.append(queries["paper"], positives["paper"]).astype(np.int64))
    held = held_by(corpus, papers[papers >= 0], recipe.training, recipe.contained)
    seen = held.select("paper", "seen")
    queries, positives = (
        frame.with_columns(pl.col("paper").cast(pl.Int64)).join(seen, "paper", "left", maintain_order="left")
        for frame in (queries, positives)
    )
    values = pl.concat(parts(found.values.filter(measure="map"), queries, positives))
    design = kit.Design(row=("system",), of=("size", "part"), group="field", over="sample", family=("size",))
    frame = kit.estimate(values, design, recipe.seed, (baseline,))
    tables = [scores_table(frame, baseline, len(papers_of)), seen_table(held, queries, positives)]
    return found.report("map", baseline=baseline, tables=tables)


def parts(values: pl.DataFrame, queries: pl.DataFrame, positives: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Yield the average precision of all, clean and seen queries, and the precision at clean and seen citations."""
    known = queries.select("pool", "query", seen=pl.col("seen").fill_null(value=False))
    values = values.join(known, ["pool", "query"], maintain_order="left")
    kept = {"clean": ~pl.col("seen"), "seen": pl.col("seen")}
    yield _values(values, "all")
    for name, of_part in kept.items():
        yield _values(values.filter(of_part), f"{name} queries")
    pools = values.select("pool", "size", "sample").unique()
    for name, of_part in kept.items():
        means = positives.filter(of_part).group_by("label", "field", "pool", "query", maintain_order=True)
        at_cited = means.agg(value=pl.col("precision").mean()).join(pools, "pool", maintain_order="left")
        yield _values(at_cited, f"{name} citations")


def _values(values: pl.DataFrame, part: str) -> pl.DataFrame:
    field, query = pl.col("field").cast(pl.String).fill_null("dataset"), pl.col("query").cast(pl.Int64)
    return values.select("size", "sample", "value", field, query, system="label", part=pl.lit(part))


def held_by(corpus: kit.Corpus, papers: npt.NDArray[np.int64], files: Sequence[str], contained: float) -> pl.DataFrame:
    """Return by what training data (``files``, :func:`strings`) hold papers of a corpus, rising rows.

    Returns:
        A row for each of ``papers``: the ``paper``; whether its ``id``, its ``doi`` and its ``title`` are there; the
        greatest ``share`` of 13-word sequences that it has in common with a text, of the shorter of the two; and
        ``seen``, by one of these, or from a share of ``contained`` on.
    """
    table = corpus.take(papers, ["paper_id", "title", "abstract"]).to_pydict()
    keys = {"id": np.array(table["paper_id"], object)}
    keys |= {name: corpus.attributes[f"{name}_key"][papers] for name in ("doi", "title")}
    wanted, given = {name: {*of.tolist()} - {0} for name, of in keys.items()}, {name: set[Any]() for name in keys}
    hashes = [_hashes(f"{title} {abstract}") for title, abstract in zip(table["title"], table["abstract"], strict=True)]
    counts, shares = np.array([*map(len, hashes)]), np.zeros(len(papers))
    owners, known = np.repeat(np.arange(len(papers)), counts), np.concatenate([np.empty(0, np.int64), *hashes])
    order = np.argsort(known, kind="stable")
    owners, known = owners[order], known[order]
    for text in (text.strip() for file in files for text in strings(Path(file).expanduser())):
        tried = {"id": text, "doi": kit.doi_key(text), "title": int(kit.title_keys([text])[0])}
        for name, key in tried.items():
            given[name] |= {key} & wanted[name]
        of_text = _hashes(text)
        starts, ends = (np.searchsorted(known, of_text, side) for side in ("left", "right"))
        if (found := np.flatnonzero(ends > starts)).size:
            alike, common = np.unique(np.concatenate([owners[starts[i] : ends[i]] for i in found]), return_counts=True)
            share = np.where(common >= _SHARED, common / np.minimum(counts[alike], len(of_text)), 0)
            shares[alike] = np.maximum(shares[alike], share)
    found_by = {name: np.isin(of, list(given[name])) for name, of in keys.items()}
    frame = pl.DataFrame({"paper": papers, **found_by, "share": shares})
    return frame.with_columns(seen=pl.any_horizontal(*found_by, pl.col("share") >= contained))


def _hashes(text: str) -> npt.NDArray[np.int64]:
    words = _WORDS.findall(text.casefold())
    return np.unique(np.array([hash(of) for of in zip(*(words[i:] for i in range(_LENGTH)), strict=False)], np.int64))


def strings(path: Path) -> Iterator[str]:
    """Yield the strings of a file, and numbers that could be ids: of JSON lines, cells of tables, or else lines.

    In JSON and tables, a number is an id if it has five digits or the name of its key or column has "id".

    Raises:
        InputError: the file cannot be read.
    """
    kinds = {suffix.lower() for suffix in path.suffixes}
    try:
        if ".parquet" in kinds:
            yield from _within(pl.read_parquet(path).to_dicts())
        elif {".csv", ".tsv"} & kinds:
            table = pl.read_csv(path, separator="\t" if ".tsv" in kinds else ",", infer_schema=False)
            yield from _within([table.columns, *table.iter_rows(named=True)])
        else:
            is_json = bool({".jsonl", ".json", ".ndjson"} & kinds)
            with (gzip.open if ".gz" in kinds else open)(path, "rt", encoding="utf-8-sig") as lines:
                for line in lines:
                    yield from _within(json.loads(line)) if is_json and line.strip() else line.strip().split("\t")
    except (OSError, ValueError, EOFError, pl.exceptions.PolarsError) as error:
        problem = f"the training data {path} cannot be read ({str(error)[:200]})"
        raise kit.InputError(problem, "Give text, JSON lines, CSV or Parquet") from error


def _within(value: Any, key: str = "") -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield from _within(part, name)
    elif isinstance(value, list):
        for part in value:
            yield from _within(part, key)
    elif isinstance(value, str | int) and not isinstance(value, bool):
        text = str(value)
        if not text.isdecimal() or len(text) > 4 or "id" in key.lower():
            yield text


def scores_table(frame: pl.DataFrame, baseline: str, pools: int) -> kit.Table:
    """Return the scores and leads of each part as a table."""
    notes: tuple[str, ...] = (
        f"MAP in percent; lead: points over {baseline} on the same queries, with its interval and the p-value of the "
        "paired permutation test by Holm's correction over all rows. Brackets: 95% interval over queries.",
        "Clean queries are in no training data. Clean citations: of every query, the mean precision at cited papers "
        "that are in none. Detectable: the smallest lead that these queries show with power .8.",
    )
    notes += (f"Queries of {pools} pools.",) if pools > 1 else ()
    lead = kit.points("difference", "difference_low", "difference_high")
    shown: kit.Columns = {
        "queries": "{items:,}", "MAP": kit.figure(),
        "lead": lambda row: None if row["difference"] is None else lead(row),
        "p, Holm": "{p_adjusted:.4f}", "detectable": kit.figure("detectable", None, None),
    }  # fmt: skip
    return kit.table("clean", "Scores on what training data did not hold", frame, "{part}, {system}", shown, notes)


def seen_table(held: pl.DataFrame, queries: pl.DataFrame, positives: pl.DataFrame) -> kit.Table:
    """Return how many queries and cited papers training data hold, by what they were found."""
    ways = {name: pl.col(name) for name in ("id", "doi", "title")}
    ways |= {f"text, {100 * share:.0f}%": pl.col("share") >= share for share in _SHARES}
    ways["counted as seen"] = pl.col("seen")
    rows = []
    for kind, frame in {"queries": queries, "cited papers": positives}.items():
        papers = held.join(frame, "paper", "semi")
        rows += [(kind, way, len(papers), int(papers.select(found.sum()).item())) for way, found in ways.items()]
    frame = pl.DataFrame(rows, ["papers", "found by", "all", "seen"], orient="row")
    notes = (
        f"Text: the share of sequences of {_LENGTH} words that a paper has in common with one training text, of the "
        f"shorter of both; fewer than {_SHARED} do not count.",
    )
    shown: kit.Columns = {
        "all": "{all:,}", "seen": "{seen:,}", "share in %": lambda row: f"{100 * row['seen'] / max(row['all'], 1):.1f}",
    }  # fmt: skip
    return kit.table("seen", "What training data hold", frame, "{papers}, {found by}", shown, notes)
