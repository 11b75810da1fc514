"""Titles, provenance notes and report folders of tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from pipeline.core.config import counted, digest, file_name, format_count
from pipeline.core.workspace import corpus_folders
from pipeline.corpus.poolconfig import OMITTED, RULES, SEPARATING, SETTINGS
from pipeline.measure.design import RESAMPLED
from pipeline.measure.statistics import intervals_text
from pipeline.scores.average import AVERAGE
from pipeline.scores.choose import option
from pipeline.scores.facts import Row, effective, has_own_queries

DATASET = "dataset level"


def title(table: pl.DataFrame, runs: pl.DataFrame) -> str:
    """Return the title of a table: what its pools have in common, and every rule that differs from the default."""
    first, depths = runs.row(0, named=True), sorted(set(runs["depth"]))
    config = effective(first)
    details = [str(config["year"])] if config.get("year") else []
    details += [counted(config["queries"], "query")] if config.get("queries") else []
    details += [f"seed {config['seed']}"] if "seed" in config else []
    details += [f"top {depths[0]:,}"] if len(depths) == 1 else []
    asked = runs.filter(pl.col("size_asked") > pl.col("size"))["size_asked"].unique().sort()
    details += [f"of {', '.join(map(format_count, asked))} candidates asked for"] if len(asked) else []
    details += unusual(first)
    if table["over"][0] == "fields":
        size = common_size(table)
        heading = "Retrieval by field" + ("" if size is None else f", {format_count(size)} candidates")
    elif has_own_queries(first) and table["field"][0] is None:
        heading = f"Retrieval on {scope(first)}"
    else:
        heading = f"Retrieval by pool size, {scope(first)}"
    if config.get("split") == "validation":
        heading = f"Validation queries: {heading[0].lower()}{heading[1:]}"
    return f"{heading} ({', '.join(details)})" if details else heading


def common_size(table: pl.DataFrame) -> int | None:
    """Return the number of candidates if it is the same in all pools of a table."""
    sizes = table.filter(pl.col("field").ne_missing(AVERAGE))["size"].unique()
    return int(sizes[0]) if len(sizes) == 1 else None


def collection(corpus: str) -> str:
    """Return the readable part of a corpus's folder name: the name it was built under."""
    return corpus.rpartition("-")[0] or corpus


def scope(run: Row) -> str:
    """Return the scope of a pool: its field, the collection that its queries came with, or :data:`DATASET`."""
    return run["field"] or (collection(run["corpus"]) if has_own_queries(run) else DATASET)


def unusual(run: Row) -> list[str]:
    """Return the rules of the pool of a row that differ from the protocol, as texts."""
    given = effective(run)
    rules = [_rule_text(name, given[name]) for name in RULES if given.get(name, _default(name)) != _default(name)]
    rules += ["without the document of the query's id"] * (
        has_own_queries(run) and given.get("drop_identical_id", False)
    )
    return rules + [f"without {name} ({digest[:6]})" for name, digest in given.get("exclude", ())]


def _default(name: str) -> Any:
    return SETTINGS[name].default


def _rule_text(name: str, value: Any) -> str:
    return f"{name.replace('_', ' ')} {str(value).lower() if isinstance(value, bool) else value}"


def provenance(summary: pl.DataFrame, runs: pl.DataFrame) -> str:
    """Return the provenance note of a summary: corpus, pools, rules, tie-breaking and bootstrap."""
    pools = runs.unique("pool", keep="first", maintain_order=True)
    pools = pools.sort(pl.col("field").fill_null(""), "size", "sample", maintain_order=True)
    config = effective(pools.row(0, named=True))
    resample = summary["resample"][0]
    kinds = summary.filter(pl.col("field").ne_missing(AVERAGE))["interval"]
    interval = intervals_text(kinds, summary["level"][0])
    stated = [name for name in ("year", "split", *RULES) if name in config]
    stated = [name for name in stated if name not in OMITTED or config[name] != _default(name)]
    rules = [_rule_text(name, config[name]) for name in stated]
    seeds = sorted({pool["seed"] for pool in pools.iter_rows(named=True) if "seed" in effective(pool)})
    seed_text = f", drawn with seed {', '.join(map(str, seeds))}" if seeds else ""
    rules_text = f" and the rules {', '.join(rules)}" if seed_text and rules else ""
    source = f"corpus {pools['corpus'][0]}; pools {', '.join(pools['pool'])}{seed_text}{rules_text}"
    if has_own_queries(pools.row(0, named=True)) and pools["workspace"][0] is None:
        source = f"qrels {pools['corpus'][0]}; runs {', '.join(runs['ranking'])}"
    return (
        f"Provenance: {source}; ties: score descending, then paper id descending; bootstrap over "
        f"{RESAMPLED[resample]}: {summary['resamples'][0]:,} resamples, "
        f"{interval}, seed {summary['bootstrap_seed'][0]}."
    )


_MAX_NAME = 120
"""Characters of a folder name; a longer one is cut and ends in its digest."""


def folder_names(root: Path, runs: pl.DataFrame, chosen: Mapping[str, Any], further: Sequence[str]) -> dict[str, str]:
    """Return a folder name for each kind of pool: corpus and kind, then the settings that the user chose.

    ``chosen`` are settings of :func:`pipeline.scores.choose.choose`; ``further`` are texts of other options.
    """
    corpus_name = corpus_folders(root)
    # The kind names the corpus, and what separates tables, whether it was chosen or not.
    limits = {name: value for name, value in chosen.items() if name not in SEPARATING}
    limits.pop("corpus", None)
    parts = [_name_part(option(name)[2:], value) for name, value in limits.items() if value is not None]
    names: dict[str, str] = {}
    for run in runs.unique("kind", keep="first", maintain_order=True).iter_rows(named=True):
        corpus = corpus_name.get(run["corpus"], run["corpus"])
        details = [*_kind(run), *parts, *map(_plain, further)]
        name = "_".join([corpus, *(details or ["scores"])])  # a corpus may have the name of a study
        name = name if len(name) <= _MAX_NAME else f"{name[: _MAX_NAME - 9]}-{digest(name)[:8]}"
        repeats = sum(name == earlier or earlier.startswith(f"{name}_table-") for earlier in names.values())
        names[run["kind"]] = f"{name}_table-{repeats + 1}" if repeats else name
    return names


def _kind(run: Row) -> list[str]:
    config = effective(run)
    parts = [str(config["year"])] if config.get("year") else []
    parts += ["validation"] if config.get("split") == "validation" else []
    parts += [_name_part("queries", config["queries"])] if "queries" in config else []
    parts += [_name_part("seed", config["seed"])] if "seed" in config else []
    return parts + [_plain(rule) for rule in unusual(run)]


def pool_text(run: Row) -> str:
    """Return the settings that apply to the pool of a row as text."""
    return "; ".join(f"{name}={value}" for name, value in effective(run).items())


def _name_part(name: str, value: Any) -> str:
    values = value if isinstance(value, tuple) else (value,)
    if len(values) == 19 and name == "field":
        return "field-all"
    return f"{name}-{'+'.join(format_count(v) if type(v) is int and name == 'size' else _plain(v) for v in values)}"


def _plain(value: Any) -> str:
    return file_name(str(value), kept=".=,@()+-").lower()
