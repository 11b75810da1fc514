"""The study ``card``: where one encoder is strong and weak against BM25, what it costs, and a model card that says so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from pipeline.api import Workspace
from pipeline.core.config import file_name
from pipeline.core.errors import InputError, nearest
from pipeline.encode import names, registry
from pipeline.measure.estimates import share_of_clusters
from pipeline.measure.measures import sign_of
from pipeline.measure.statistics import Floats, holm, paired_differences
from pipeline.scores.compare import most_different
from pipeline.scores.render import render_table
from pipeline.scores.store import artifact, opened_pool, positives, ranks_of
from pipeline.scores.tables import Column, frame_table, grid, label_of
from pipeline.stages.systems import TUNED, fused_names
from pipeline.studies.base import Study, StudyResult, StudyTable
from pipeline.studies.leaderboard import study as leaderboard
from pipeline.studies.leaderboard.benchmarks import Benchmark
from pipeline.studies.leaderboard.costs import costs, leak
from pipeline.studies.tables import Measurement, interval_table, points

_BM25 = (TUNED, "bm25")
_HIT = 30
"""Ranks among which a positive is found."""
_EXAMPLES = 5
CARD = "README.md"


@dataclass(frozen=True)
class Recipe(leaderboard.Recipe):
    """Settings of the study, beside those of the leaderboard.

    Attributes:
        model: the encoder.
    """

    model: str


def results(workspace: Workspace, recipe: Recipe) -> StudyResult:
    """Return the encoder against BM25 on every benchmark, by class and positives, its fusions, costs and examples."""
    roots, every = leaderboard.found_in(workspace, recipe)
    found = [one for one in every if recipe.model in one.systems]
    if not found:
        scored = sorted({name for one in every for name in one.systems})
        raise InputError(f"{recipe.model} was scored beside no other system", nearest(recipe.model, scored))
    compared = {one.name: base for one in found if (base := next((b for b in _BM25 if b in one.systems), None))}
    both = [_only(one, (recipe.model, compared[one.name])) for one in found if one.name in compared]
    (cost,) = costs(roots, [_only(one, (recipe.model,)) for one in found]).rows(named=True)
    tables = [_against(found, compared, recipe), *_by_class(both, recipe.seed)]
    largest = max((one for one in both if one.kind == "pools"), key=lambda one: one.size or 0, default=None)
    if largest is not None and opened_pool(largest.runs.row(0, named=True)) is not None:
        tables += [_by_positives(largest), _examples(largest)]
    tables += [*_fusions(found, recipe), _facts(recipe.model, cost)]
    lines = [
        _front_matter(found, recipe.model),
        f"# {recipe.model}",
        *(render_table(one.table, "markdown") for one in tables),
    ]
    parts = [*leaderboard.queries_of(both, recipe.seed)]
    return StudyResult(tables, files={CARD: "\n\n".join(lines)}, parts=parts, tables_first=True, best=_best(tables[0]))


def _only(one: Benchmark, systems: Sequence[str]) -> Benchmark:
    """Return a benchmark with some of its systems, in the order given."""
    places = [one.systems.index(name) for name in systems]
    kept = {name: tuple(getattr(one, name)[place] for place in places) for name in ("systems", "sources", "commands")}
    frames = {name: frame.filter(pl.col("system").is_in(systems)) if len(frame) else frame
              for name, frame in (("runs", one.runs), ("scores", one.scores))}  # fmt: skip
    arrays = {"values": one.values[places], "figures": one.figures[:, places], "ranked": one.ranked[places],
              "apart": one.apart[np.ix_(places, places)]}  # fmt: skip
    return replace(one, **kept, **frames, **arrays)


def _differences(changes: Floats, one: Benchmark, item: str, seed: int) -> dict[str, Any]:
    """Return a difference, float64 ``[queries]``, with its interval, its p-value, and on how many queries it helps."""
    sign = sign_of(one.measure) if one.measure != "mean" else 1
    differ = paired_differences({item: changes[None]}, seed, signs=sign)
    named = {"difference": differ.value, "low": differ.low, "high": differ.high, "p": differ.p_value}
    counts = {name: int(getattr(differ, name)[0]) for name in ("wins", "ties", "losses")}
    return {name: float(value[0]) for name, value in named.items()} | counts


def _against(found: Sequence[Benchmark], compared: Mapping[str, str], recipe: Recipe) -> StudyTable:
    """Return every benchmark with the encoder's value, rank, and difference from BM25."""
    rows = []
    for one in found:
        place = one.systems.index(recipe.model)
        rank, low, high = one.rank(place)
        row = {"benchmark": one.name, "kind": one.kind, "measure": one.measure, "value": one.figures[0, place],
               "rank": rank, "rank_low": low, "rank_high": high, "systems": len(one.systems),
               "leak": leak(recipe.model, one.year), "command": one.commands[place]}  # fmt: skip
        if base := compared.get(one.name):
            bm25 = one.values[one.systems.index(base)]
            row |= {"than": base, "bm25": bm25.mean()} | _differences(
                one.values[place] - bm25, one, one.name, recipe.seed
            )
        rows.append(row)
    frame = pl.DataFrame(rows, infer_schema_length=None)
    cells: dict[tuple[str, str], Any] = {}
    if "p" in frame.columns:
        adjusted = iter(holm(frame["p"].drop_nulls()).tolist())
        frame = frame.with_columns(p_adjusted=pl.Series([None if p is None else next(adjusted) for p in frame["p"]]))
    for row in frame.iter_rows(named=True):
        shown = {"measure": label_of(row["measure"]) if row["measure"] != "mean" else "mean",
                 recipe.model: f"{100 * row['value']:.1f}",
                 "rank": f"{row['rank']:g} [{row['rank_low']:g}, {row['rank_high']:g}] of {row['systems']}"}  # fmt: skip
        if row.get("than"):
            shown |= {"BM25": f"{100 * row['bm25']:.1f}", "less BM25": points(row), "p": f"{row['p_adjusted']:.4f}",
                      "wins, ties, losses": f"{row['wins']}, {row['ties']}, {row['losses']}"}  # fmt: skip
        shown["leak"] = row["leak"]
        cells |= {(row["benchmark"], name): value for name, value in shown.items()}
    notes = (
        f"Percent; differences from {' or '.join(dict.fromkeys(compared.values())) or 'BM25'} in points [95% interval]. p: "
        "paired permutation test, Holm's correction over benchmarks. Rank [95% of the resamples of queries].",
    )
    columns = ("measure", recipe.model, "BM25", "less BM25", "p", "wins, ties, losses", "rank", "leak")
    ordered = {(name, column): cells.get((name, column)) for name in frame["benchmark"] for column in columns}
    return StudyTable("benchmarks", grid(f"{recipe.model} against BM25", "benchmark", ordered, notes), frame)


def _best(table: StudyTable) -> str:
    if "difference" not in table.frame.columns:
        return ""
    row = table.frame.sort("difference", descending=True, nulls_last=True).row(0, named=True)
    return f"{100 * row['difference']:+.1f} points over BM25 on {row['benchmark']}"


def _by_class(both: Sequence[Benchmark], seed: int) -> Iterator[StudyTable]:
    """Yield the difference from BM25 by class of neighbour."""
    for one in (one for one in both if one.kind == "neighbours"):
        classes = artifact(one.runs.row(0, named=True), "pool").arrow("queries.arrow").column("field").to_pylist()
        of_query = np.array(classes)[np.unique(one.scores["query"].to_numpy())]
        rows = [
            {"class": name, "queries": len(changes), **_differences(changes, one, name, seed)}
            for name in dict.fromkeys(classes)
            if len(changes := (one.values[0] - one.values[1])[of_query == name])
        ]
        cells = {(row["class"], column): text for row in rows for column, text in
                 (("less BM25", points(row)), ("queries", f"{row['queries']:,}"))}  # fmt: skip
        notes = (f"Points of {label_of(one.measure)} [95% interval], not corrected.",)
        yield StudyTable("classes", grid(f"By class: {one.name}", "class", cells, notes), pl.DataFrame(rows))


def _by_positives(one: Benchmark) -> StudyTable:
    """Return the share of positives among the first ranks, by the length of their abstract and their age, in thirds."""
    run = one.runs.filter(sample=one.runs["sample"].min())
    pool = opened_pool(run.row(0, named=True))
    assert pool is not None  # noqa: S101  # the caller has opened it
    query, row = positives(pool)
    attributes = pool.corpus.attributes
    year = attributes["year"].astype(np.int64)
    known = {
        "abstract, characters": attributes["abstract_chars"][row].astype(np.int64),
        "age, years": year[pool.query_rows[query]] - year[row],
    }
    systems = {name: run.filter(system=name).row(0, named=True) for name in one.systems}
    ranks = {name: ranks_of(artifact(of, "ranking"), query, row) for name, of in systems.items()}
    rows = []
    for what, numbers in known.items():
        for label, group in _thirds(numbers):
            for name, rank in ranks.items():
                hit = (rank[group] > 0) & (rank[group] <= _HIT)
                rows.append(Measurement(f"{what}: {label}", name, *share_of_clusters(hit, query[group])))
            rows.append(Measurement(f"{what}: {label}", "positives", float(group.sum()) / 100, np.nan, np.nan))
    notes = (f"Percent of positives among the first {_HIT}; queries are drawn. Positives: their number.",)
    return interval_table("positives", f"By positives: {one.name}", "positives", rows, notes)


def _thirds(numbers: npt.NDArray[np.int64]) -> Iterator[tuple[str, npt.NDArray[np.bool_]]]:
    """Yield a label and the members of each third of some numbers; equal numbers are in one."""
    place = np.searchsorted(np.quantile(numbers, [1 / 3, 2 / 3]), numbers)
    for third in np.unique(place):
        members = place == third
        yield f"{numbers[members].min():,} to {numbers[members].max():,}", members


def _examples(one: Benchmark) -> StudyTable:
    """Return the queries that the encoder wins and loses most."""
    measure = one.measure
    model, bm25 = one.systems
    scores, runs = one.scores.with_columns(label="system"), one.runs.with_columns(label="system")
    queries = most_different(scores, runs, (bm25, model), measure, one.values.shape[1])
    gain = (pl.col("second") - pl.col("first")) * sign_of(measure) * 100
    ordered = queries.with_columns(gain=gain).sort("gain", descending=True)
    chosen = pl.concat([ordered.head(_EXAMPLES), ordered.tail(_EXAMPLES)]).unique("query_id", maintain_order=True)
    best = pl.col("positives").list.eval(pl.element().struct.field("title")).list.first().fill_null("–")
    frame = chosen.select("title", (pl.col("first", "second") * 100), "gain", best.alias("best positive"))
    shown = frame.rename({"title": "query", "first": bm25, "second": model})
    return StudyTable(
        "examples", frame_table(f"Queries it wins and loses: {one.name}", shown, ["Percent; gain in points."]), frame
    )


def _fusions(found: Sequence[Benchmark], recipe: Recipe) -> Iterator[StudyTable]:
    """Yield what fusions of the encoder add to the best of their parts."""
    rows = []
    for one in found:
        for place, name in enumerate(one.systems):
            parts = [one.systems.index(part) for part in fused_names(name) if part in one.systems]
            if recipe.model in fused_names(name) and len(parts) == len(fused_names(name)):
                best = min(parts)  # systems are in the order of their values
                differ = _differences(one.values[place] - one.values[best], one, name, recipe.seed)
                rows.append({"benchmark": one.name, "fusion": name, "best part": one.systems[best], **differ})
    if rows:
        cells = {(row["benchmark"], Column(row["fusion"], f"less {row['best part']}")): points(row) for row in rows}
        note = "Points over the part that is best on the benchmark [95% interval], not corrected."
        yield StudyTable("fusions", grid("What fusion adds", "benchmark", cells, (note,)), pl.DataFrame(rows))


def _facts(model: str, cost: Mapping[str, Any]) -> StudyTable:
    """Return costs, recipe and prompts."""
    entries = {entry.name: entry for entry in registry.known_models()}
    entry = entries.get(names.parse(model)[0].base)
    known = {name.replace("_", " "): value for name, value in cost.items() if value is not None and name != "system"}
    recipe = {} if entry is None else {"weights": entry.source, "revision": entry.revision, **entry.recipe}
    rows = {**known, **{name: value for name, value in recipe.items() if value not in ("", None)}}
    shown = {
        name: f"{value:,.4g}" if isinstance(value, float) else f"{value:,}" if type(value) is int else str(value)
        for name, value in rows.items()
    }
    frame = pl.DataFrame({"fact": list(shown), "value": list(shown.values())})
    return StudyTable("facts", frame_table("Cost and recipe", frame, ["Bytes and tokens are of a paper."]), frame)


def _evaluations(found: Sequence[Benchmark], model: str) -> list[Any]:
    """Return the values of an encoder as the hub's results of evaluations."""
    from huggingface_hub import EvalResult

    return [
        EvalResult(
            task_type="Retrieval" if one.measure != "mean" else "SciRepEval",
            dataset_type=file_name(one.name).lower(), dataset_name=one.name, metric_type=one.measure,
            metric_value=round(100 * float(one.figures[0, place]), 2), metric_args={"queries": one.values.shape[1]},
        )
        for one in found
        for place in [one.systems.index(model)]
    ]  # fmt: skip


def _front_matter(found: Sequence[Benchmark], model: str) -> str:
    from huggingface_hub import ModelCardData

    return f"---\n{ModelCardData(model_name=model, eval_results=_evaluations(found, model)).to_yaml()}\n---"


def push(card: Path, target: str) -> str:
    """Write the results of a card into a model card: that of a folder, or of a repository of the hub.

    Its text, its other metadata and its results of other evaluations stay.

    Raises:
        InputError: the hub does not have the repository, or refuses.
    """
    from huggingface_hub import ModelCard
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    ours, folder = ModelCard.load(card), Path(target).expanduser()
    file = folder / CARD
    try:
        theirs = ModelCard.load(file if folder.is_dir() else target) if file.is_file() or not folder.is_dir() else ours
        others = [
            one
            for one in theirs.data.eval_results or []
            if not any(map(one.is_equal_except_value, ours.data.eval_results))
        ]
        theirs.data.model_name = theirs.data.model_name or ours.data.model_name
        theirs.data.eval_results = [*others, *ours.data.eval_results]
        if folder.is_dir():
            theirs.save(file)
            return str(file)
        return str(theirs.push_to_hub(target))
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        raise InputError(
            f"the model card of {target} cannot be written ({error})", "Give a folder, or log in with: hf auth login"
        ) from error


STUDY = Study("card", "one encoder against BM25, on every benchmark", Recipe, leaderboard.no_tasks, results)
