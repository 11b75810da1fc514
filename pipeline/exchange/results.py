"""Results of other tools: values of systems on queries or tasks, recognised by what the files hold.

Read are TREC runs with their qrels, predictions and results of MTEB, values of trec_eval, ir_measures and ranx, and
tables (CSV, TSV, Parquet), wide or long, such as our own exports of scores.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pyarrow.parquet as pq

from pipeline.core import files
from pipeline.core.errors import InputError, MdcrError
from pipeline.exchange.boards import MAIN, METHOD, VALUES, Row, measure_name, of_table
from pipeline.exchange.entries import name_of, read_entries
from pipeline.exchange.qrels import HUB, Judged, Run, judged
from pipeline.sources.content import read_blocks
from pipeline.sources.judgements import read_judgements
from pipeline.sources.records import Tally
from pipeline.sources.tables import read_table
from pipeline.sources.triples import PREDICTIONS, splits_of

_BESIDE = ("model_meta.json", "README.md")

LIMIT = 2**30
"""Maximum bytes of a file, unpacked."""

_UNKNOWN = (
    *files.ZIP_ERRORS, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError,
    pl.exceptions.PolarsError,
)  # fmt: skip
"""What readers raise for content of another shape."""


class Found(NamedTuple):
    """What files hold.

    Attributes:
        values: columns :data:`VALUES`.
        runs: runs with their qrels.
        kinds: number of files of each kind.
        skipped: files that are no results, each with the reason.
        files: files that were read.
    """

    values: pl.DataFrame
    runs: Sequence[Judged]
    kinds: Mapping[str, int]
    skipped: list[str]
    files: Sequence[Path]


def read_results(paths: Sequence[Path], qrels: str = "", metric: str = "") -> Found:
    """Return the results in files and folders; what cannot be read is named, and the rest goes on.

    Args:
        paths: files, or folders with their subfolders.
        qrels: a file or folder with judgements of the runs, or with copies of data sets of MTEB; ``hub``: data sets
            come from the Hugging Face hub. Empty: judgements that lie beside the runs.
        metric: the metric of results of MTEB that is read; empty: the main one of each task.

    Raises:
        InputError: a path does not exist, or nothing was recognised.
    """
    rows, frames, kinds, skipped = list[Row](), list[pl.DataFrame](), Counter[str](), list[str]()
    runs, judgements, read = list[Run](), dict[Path, Collection[str]](), list[Path]()
    folder = Path(qrels).expanduser() if qrels not in ("", HUB) else None
    given = {
        path
        for path in _files([folder] if folder else [])
        if path == folder or "qrel" in str(path.relative_to(folder or path)).casefold()
    }
    for path in [*sorted(given), *(path for path in _files(paths) if path not in given)]:
        try:
            _check_inside(path, [*paths, *([folder] if folder else [])])
            kind, content = _recognised(path, metric, skipped, is_qrels=path in given)
            if kind == "run":
                runs += content
            elif kind == "qrels":
                judgements[path] = content
            elif isinstance(content, pl.DataFrame):
                frames.append(content)
            else:
                rows += list(content)
            kinds[kind] += 1
            read.append(path)
        except MdcrError as error:
            skipped.append(f"{path}: {error.what.replace(str(path), 'it')}")
        except _UNKNOWN as error:
            reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0][:90]}"
            skipped.append(f"{path}: it is no file of results that is known ({reason})")
    paired = list[Judged]()
    for run in runs:
        try:
            paired.append(judged(run, judgements, qrels, folder))
        except MdcrError as error:
            skipped.append(f"{run.path}: {error.what}. {error.remedy}")
    values = pl.concat([pl.DataFrame(rows, VALUES, orient="row"), *frames])
    unnamed, values = len(values), values.drop_nulls(["system", "item"])
    if unnamed := unnamed - len(values):
        skipped.append(f"{unnamed:,} values: they lack the name of a system or an item")
    if values.is_empty() and not paired:
        reasons = f" ({'; '.join(skipped[:3])})" if skipped else ""
        raise InputError(f"{', '.join(map(str, paths))} must hold results, got none that is known{reasons}", METHOD)
    return Found(_one_revision(values, skipped), paired, kinds, skipped, read)


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        if not path.exists():
            raise InputError(f"there is no file or folder {path}", "Name results, or a folder of results")
        found = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
        hidden = (any(part.startswith(".") for part in file.relative_to(path).parts) for file in found)
        yield from (
            file for file, is_hidden in zip(found, hidden, strict=True) if not is_hidden and file.name not in _BESIDE
        )


def _check_inside(path: Path, given: Sequence[Path]) -> None:
    """Raise InputError for a link out of the folders that were given; the cache of huggingface_hub has such links."""
    if not path.is_symlink() or path in given:
        return
    homes = [*given, *(folder.parents[1] / "blobs" for folder in given if folder.parent.name == "snapshots")]
    target = files.resolved(path)
    if not any(target.is_relative_to(files.resolved(home)) for home in homes):
        raise InputError(f"{path} must stay in its folder, got a link to {target}", "Copy the file into the folder")


def _recognised(path: Path, metric: str, left_out: list[str], *, is_qrels: bool) -> tuple[str, Any]:
    """Return the kind of a file, and its rows, its frame, its runs, or the queries of its judgements."""
    if is_qrels:
        return "qrels", _judged_queries(path)
    with files.given(path).open("rb") as handle:
        head = handle.read(4)
    if head == b"PAR1":
        return "table", of_table(path, pl.DataFrame(pq.read_table(path)), left_out)
    text = _text(path)
    if text.lstrip()[:1] in ("{", "["):
        return _of_json(path, text, metric, left_out)
    return _of_lines(path, text, left_out)


def _text(path: Path) -> str:
    data = bytearray()
    for block in read_blocks(path):
        data += block
        if len(data) > LIMIT:
            raise InputError(f"{path} must hold at most {LIMIT // 2**20:,} MiB, got more", "Divide it")
    return data.decode()


def _of_lines(path: Path, text: str, left_out: list[str]) -> tuple[str, Any]:
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    words = lines[0].split()
    if path.name.endswith((".csv", ".csv.gz")) or re.match(r"[^\s,;|]+([,;|]).*\1", lines[0]):
        return "table", of_table(path, _of_separated(path, left_out), left_out)
    if len(words) == 6 and _number(words[4]) is not None:
        return "run", [_run_of(path)]
    if len(words) == 4 and _number(words[3]) is not None:
        return "qrels", _judged_queries(path)
    if len(words) == 3 and words[0].casefold() in ("query-id", "query_id", "qid"):
        return "qrels", _judged_queries(path)
    if len(words) == 3 and any(measure_name(line.split()[0]) for line in lines[:1]):
        return "values of trec_eval", _of_queries(path, lines, metric=0, query=1)
    if len(words) == 3 and measure_name(words[1]):
        return "values of ir_measures", _of_queries(path, lines, metric=1, query=0)
    if "\t" in lines[0]:
        return "table", of_table(path, _of_separated(path, left_out), left_out)
    raise InputError(f"{path} is text without known columns, such as {lines[0]!r:.60}", METHOD)


def _of_separated(path: Path, left_out: list[str]) -> pl.DataFrame:
    """Return a table whose cells are texts, or null where they are empty."""
    tally = Tally(path)
    frame = pl.DataFrame([*read_table(tally)]).rename({"": "unnamed"}, strict=False)
    left_out += [f"{path.name}: {example}" for example in tally.examples]
    return frame.with_columns(pl.all().replace("", None))


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _of_queries(path: Path, lines: Iterable[str], metric: int, query: int) -> Iterator[Row]:
    for number, line in enumerate(lines, 1):
        words = line.split()
        if len(words) == 3 and words[query] != "all" and not words[metric].startswith("num_"):
            value = _number(words[2])
            if value is None:
                raise InputError(f"{path}:{number} must end in a number, got {line!r:.60}", "Write it again")
            yield name_of(path), "", words[query], None, "", measure_name(words[metric]) or words[metric], value


def _of_json(path: Path, text: str, metric: str, left_out: list[str]) -> tuple[str, Any]:
    try:
        content = json.loads(text)
    except ValueError:
        records = [json.loads(line) for line in text.splitlines() if line.strip()]
        return _of_records(path, records, left_out)
    if isinstance(content, list):
        return _of_records(path, content, left_out)
    if PREDICTIONS in content:
        return "run", list(_of_predictions(path, content))
    if isinstance(content.get("scores"), dict) and "task_name" in content:
        return "results of MTEB", _of_mteb(path, content, metric)
    if all(measure_name(name) and isinstance(of_queries, dict) for name, of_queries in content.items()):
        return "values of ranx", _of_ranx(path, content)
    if all(isinstance(scored, dict) for scored in content.values()):
        return "run", [_run_of(path)]
    raise InputError(f"{path} is JSON with other keys: {', '.join(list(content)[:5])}", METHOD)


def _of_records(path: Path, records: Sequence[Any], left_out: list[str]) -> tuple[str, Any]:
    return "table", of_table(path, pl.DataFrame(records, infer_schema_length=None), left_out)


def _judged_queries(path: Path) -> set[str]:
    return {query for _, (query, _), _ in read_judgements(path)}


def _run_of(path: Path) -> Run:
    return Run(name_of(path), path, path, {*read_entries(path).queries})


def _of_predictions(path: Path, content: Mapping[str, Any]) -> Iterator[Run]:
    """Yield the runs of a file of predictions of MTEB, ``TASK_predictions.json``: one for each subset and split."""
    meta, task = content[PREDICTIONS], name_of(path).removesuffix("_predictions")
    system = str(meta.get("model_name") or meta.get("name") or task)
    for (subset, split), scores in splits_of(path, content):
        yield Run(system, path, scores, scores.keys(), (task, subset, split))


def _of_mteb(path: Path, content: Mapping[str, Any], metric: str) -> Iterator[Row]:
    """Yield the value of a task, the mean over subsets of the split test, or of all splits without one."""
    splits = content["scores"]
    subsets = splits["test"] if "test" in splits else [subset for of_split in splits.values() for subset in of_split]
    named = files.read_json(path.parent / "model_meta.json") or {}
    system = f"{named.get('name') or path.parent.parent.name.replace('__', '/')}@{path.parent.name}"
    name = metric.replace("@", "_at_") or "main_score"
    value = sum(float(subset[name]) for subset in subsets) / len(subsets)
    yield system, "", str(content["task_name"]), None, "", metric or MAIN, value


def _of_ranx(path: Path, content: Mapping[str, Any]) -> Iterator[Row]:
    for name, of_queries in content.items():
        for query, value in of_queries.items():
            yield name_of(path), "", str(query), None, "", measure_name(name) or name, float(value)


def _one_revision(values: pl.DataFrame, skipped: list[str]) -> pl.DataFrame:
    """Return values of one revision of each model of MTEB (``name@revision``), that with the most tasks."""
    parts = pl.col("system").str.extract_groups(r"^(?<name>.+)@(?<revision>[^@/ ]*)$")
    counts = values.group_by("system").agg(tasks=pl.len()).with_columns(parts.alias("of")).unnest("of")
    best = counts.drop_nulls("name").sort("tasks", "revision", descending=[True, False])
    best = best.unique("name", keep="first", maintain_order=True)
    others = counts.drop_nulls("name").join(best, on="system", how="anti").sort("system")
    skipped += [f"{system}: {tasks} tasks; another revision has as many or more" for system, tasks, *_ in others.rows()]
    kept = values.join(others, on="system", how="anti", maintain_order="left")
    return kept.with_columns(pl.col("system").replace(dict(best.select("system", "name").iter_rows())))
