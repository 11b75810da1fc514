"""Choose stored scores; the command line and the Python interface use the same settings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from pipeline.core.artifact import Artifact, published
from pipeline.core.config import canonical
from pipeline.core.errors import InputError, nearest
from pipeline.core.settings import read
from pipeline.core.workspace import POOLS, SCORES, find_corpus
from pipeline.corpus.poolconfig import SETTINGS, wants
from pipeline.measure.measures import parse_measures
from pipeline.scores.facts import REQUESTED, Row, requested, setting_of
from pipeline.scores.frames import IDENTITY
from pipeline.scores.labels import labelled
from pipeline.scores.store import scores_of, stored, with_values
from pipeline.stages.pool import exclusions
from pipeline.stages.selection import joined
from pipeline.stages.settings import CHOICE
from pipeline.stages.systems import stored_names, system_of

Settings = Mapping[str, Any]


def load(root: Path, **chosen: Any) -> pl.DataFrame:
    """Return stored scores that :func:`choose` finds, columns :data:`pipeline.scores.frames.SCORES_SCHEMA`."""
    return scores_of(choose(stored(root), root, **chosen))


def choose(runs: pl.DataFrame, root: Path, **chosen: Any) -> pl.DataFrame:
    """Return the rankings that match some settings, labelled.

    Rows have the order of ``systems``; without it BM25 is first, the others follow by name. Of several tunings of a
    system on pools of one field and size, the newest is taken.

    Args:
        runs: frame of rankings (:func:`pipeline.scores.store.stored`).
        root: the workspace.
        **chosen: ``corpus`` (name or folder name); settings of pools (:data:`pipeline.corpus.poolconfig.SETTINGS`),
            where ``samples`` means the samples 1 to this number, and ``exclude`` name and SHA-256 of each list;
            ``systems`` (names), ``depth``; ``measures``, each scored for at least one row. None: any.

    Raises:
        InputError: nothing matches; the message lists the values that exist.
    """
    if runs.is_empty():
        raise InputError(f"nothing that was scored is in {root / SCORES}", "Run mdcr eval first")
    corpus, systems, measures = (chosen.get(name) for name in ("corpus", "systems", "measures"))
    if corpus is not None:
        runs = runs.filter(corpus=find_corpus(root, corpus).name)
        if runs.is_empty():
            raise InputError(f"nothing that was scored belongs to the corpus {corpus!r}", "Run mdcr eval first")
    runs = filter_settings(runs, chosen)
    if systems is not None:
        runs = _filter_systems(runs, systems)
    runs = with_values(_newest_tunings(runs))
    if runs.is_empty():
        raise InputError("the scores that were chosen cannot be read", "Score them again with --repair")
    if measures is not None:
        require_measures(runs, measures)
    return labelled(_sort_rows(runs, systems or ()))


def settings_of_choice(**settings: Any) -> dict[str, Any]:
    """Read the settings of :func:`choose` as users type them; None restricts nothing.

    Raises:
        InputError: a setting or its value is unknown, or of another type.
    """
    chosen = read({**SETTINGS, **CHOICE}, settings)
    readers: dict[str, Callable[[Any], Any]] = {
        "systems": lambda names: stored_names(joined(names)),
        "measures": lambda names: tuple(map(str, parse_measures(joined(names)))),
        "exclude": exclusions,
    }
    return {name: readers[name](value) if name in readers else value for name, value in chosen.items()}


def choose_pools(root: Path, **chosen: Any) -> list[Artifact]:
    """Return the pools of a workspace that match the corpus and the pool settings of :func:`choose`."""
    pools = list(published(root / POOLS))
    if chosen.get("corpus") is not None:
        corpus = find_corpus(root, chosen["corpus"]).id
        pools = [pool for pool in pools if pool.manifest.inputs["corpus"] == corpus]
    if not pools:
        return []
    rows = [requested(pool.manifest.config) | {"place": place} for place, pool in enumerate(pools)]
    schema = {name: IDENTITY[name] for name in ("field", "year", "split", "seed", "sample")} | REQUESTED
    frame = pl.DataFrame(rows, {"place": pl.Int64, **schema}, orient="row")
    selected = filter_settings(frame, {name: value for name, value in chosen.items() if name in SETTINGS})
    return [pools[number] for number in selected["place"]]


def require_measures(runs: pl.DataFrame, measures: Iterable[str]) -> None:
    """Check that each measure was scored for at least one ranking that is deep enough for it."""
    scored, deepest = set(runs["measures"].explode()), runs["depth"].max()
    for measure in parse_measures(list(measures)):
        if str(measure) not in scored:
            depth = f" --depth {measure.cutoff}" if (measure.cutoff or 0) > deepest else ""
            problem = f"{measure} was not scored for any of these rows"
            raise InputError(problem, f"Run mdcr eval --measures {measure}{depth}")


def option(name: str) -> str:
    """Return the command-line option of a setting of :func:`choose`."""
    return "--" + (SETTINGS | CHOICE)[name].option


def is_called(run: Row, name: str) -> bool:
    """Whether a name means the system of a ranking (:func:`pipeline.stages.systems.display_name`)."""
    return name == run["system"] or name in (run["aliases"] or ())


def labels_of(runs: pl.DataFrame, name: str) -> list[str]:
    """Return the label that a name is, else the labels of the rows whose system it means."""
    if name in set(runs["label"]):
        return [name]
    rows = runs.unique("label", maintain_order=True).rows(named=True)
    called = [run["label"] for run in rows if is_called(run, name)]
    return called or [run["label"] for run in rows for spelling in stored_names(name) if is_called(run, spelling)]


def label_of_row(runs: pl.DataFrame, name: str) -> str:
    """Return the label of the only row that a name or label means; InputError if there is none, or several."""
    matching, labels = labels_of(runs, name), list(runs["label"].unique(maintain_order=True))
    if not matching:
        raise InputError(f"{name!r} must be a system that was scored on these pools", nearest(name, labels))
    if len(matching) > 1:
        raise InputError(
            f"{name!r} must mean one row, got {'; '.join(matching)}", "Give its label, or choose with --depth"
        )
    return matching[0]


def filter_settings(runs: pl.DataFrame, chosen: Settings) -> pl.DataFrame:
    """Return the rows that match all given settings of pools, and the depth."""
    for name in (*SETTINGS, "depth"):
        wanted = canonical(chosen.get(name))
        if wanted is None:
            continue
        rows = runs.rows(named=True)
        stored_values = [canonical(setting_of(run, name) if name in SETTINGS else run[name]) for run in rows]
        available = {str(item) for value in stored_values for item in _items(value) if item is not None}
        matches = [wants(name, value, wanted) if name in SETTINGS else value == wanted for value in stored_values]
        runs = runs.filter(pl.Series(matches, dtype=pl.Boolean))
        if runs.is_empty():
            got = ", ".join(map(str, _items(wanted)))
            choices = ", ".join(sorted(available, key=_natural_key)) or "left out"
            one_of = "one of " if len(available) > 1 else ""
            raise InputError(f"{option(name)} must be {one_of}{choices} here, got {got}", "Choose one that is there")
    return runs


def _filter_systems(runs: pl.DataFrame, names: Iterable[str]) -> pl.DataFrame:
    rows = runs.rows(named=True)
    for name in names:
        if not any(is_called(run, name) for run in rows):
            choices = ", ".join(sorted(set(runs["system"])))
            raise InputError(
                f"--model must name systems that were scored on these pools, got {name!r}", f"Choose from {choices}"
            )
    return runs.filter(pl.Series([any(is_called(run, name) for name in names) for run in rows], dtype=pl.Boolean))


def _newest_tunings(runs: pl.DataFrame) -> pl.DataFrame:
    """Return one tuning of each system for each kind of pool, field and size, and one ranking of each pool by it.

    Both are the newest: a later version of a stage may have made a ranking again.
    """
    group = ["row", "kind", "field", "size_asked"]
    newest = pl.col("variant").sort_by("published", "ranking").last().over(group)
    has_others = (pl.col("variant").n_unique() > 1).over(group)
    newest_runs = runs.with_columns(has_others.alias("replaced")).filter(pl.col("variant") == newest)
    return newest_runs.filter(
        pl.col("ranking") == pl.col("ranking").sort_by("published", "ranking").last().over("row", "pool")
    )


def _sort_rows(runs: pl.DataFrame, systems: Sequence[str]) -> pl.DataFrame:
    def key(run: Row) -> tuple[Any, ...]:
        positions = [number for number, name in enumerate(systems) if is_called(run, name)]
        pool = (run["field"] or "", run["size"], run["sample"])
        return (
            min(positions, default=0),
            system_of(run["system"]).base != "bm25",
            run["system"],
            -run["depth"],
            run["row"],
            *pool,
            run["pool"],
        )

    rows = runs.rows(named=True)
    return runs[sorted(range(len(rows)), key=lambda number: key(rows[number]))]


def _items(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else [value]


def _natural_key(text: str) -> tuple[bool, float, str]:
    number = re.fullmatch(r"-?\d+", text)
    return number is None, float(text) if number else 0.0, text
