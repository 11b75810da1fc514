"""Results of other tools: values of systems on queries or tasks, recognised by what the files hold.

Read are TREC runs with their qrels, predictions and results of MTEB, values of trec_eval, pytrec_eval, ir_measures and
ranx, and tables (CSV, TSV, Parquet, JSON, Markdown, LaTeX), wide or long, such as our own exports of scores.
"""

from __future__ import annotations

import csv
import json
import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pyarrow.parquet as pq

from pipeline.core import files
from pipeline.core.config import counted
from pipeline.core.errors import InputError, MdcrError
from pipeline.exchange import markup
from pipeline.exchange.boards import MAIN, METHOD, VALUES, Reading, Row, framed, of_grid, of_table
from pipeline.exchange.entries import name_of, read_entries
from pipeline.exchange.names import in_our_spelling, measure_name, sign_of_name
from pipeline.exchange.qrels import Judged, Run, judged
from pipeline.sources.base import check_inside
from pipeline.sources.content import read_blocks
from pipeline.sources.judgements import read_judgements
from pipeline.sources.records import Tally
from pipeline.sources.tables import SEPARATORS, open_table
from pipeline.sources.triples import PREDICTIONS, splits_of

_BESIDE = "model_meta.json"
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(nan|inf)", re.IGNORECASE)

_CELL_BYTES, _JSON_FACTOR, _TEXT_FACTOR = 64, 30, 12
"""Approximate memory of a cell of Parquet in bytes, and of a text of JSON or of a table as a multiple of its size."""

_SHARED = 0.5
"""Least share of items that systems of ``{system: {item: value}}`` have in common; documents of runs differ."""

_UNKNOWN = (
    *files.ZIP_ERRORS, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError, csv.Error,
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

    def rates(self) -> list[str]:
        """Return the names of files and of what is left out that say that lower is better."""
        names = [path.name.partition(".")[0] for path in self.files]
        names += [word for line in self.skipped for word in re.split("[:,] ", line.partition(": ")[2])]
        return [name for name in names if sign_of_name(name) < 0]


class _Reader:
    """Collects what files hold; ``nested`` are ``{name: {name: number}}``, which are runs or tables."""

    def __init__(self, metric: str, items: Sequence[str], memory: int, *, rates: bool) -> None:
        self.metric, self.items, self.memory, self.rates = metric, items, memory, rates
        self.frames, self.of_mteb, self.kinds = list[pl.DataFrame](), list[Row](), Counter[str]()
        self.runs, self.judgements = list[Run](), dict[Path, Collection[str]]()
        self.nested, self.skipped = list[tuple[Path, Mapping[str, Any]]](), list[str]()
        self.read, self.errors = list[Path](), list[MdcrError]()

    def take(self, path: Path, given: Sequence[Path], *, is_qrels: bool) -> None:
        """Read a file; one that is no result is named."""
        try:
            if path not in given:
                check_inside(path, given)
            kind = self._qrels(path) if is_qrels else self._recognise(path)
            self.kinds[kind] += bool(kind)
            self.read.append(path)
        except MdcrError as error:
            self.fail(path, error)
        except _UNKNOWN as error:
            reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0][:90]}"
            self.fail(path, InputError(f"{path} is no file of results that is known ({reason})", METHOD))

    def skip(self, path: Path, reason: str) -> None:
        """Name what is left out."""
        self.skipped.append(f"{_shown(path)}: {reason}")

    def fail(self, path: Path, error: MdcrError) -> None:
        """Name a file that cannot be read."""
        self.errors.append(error)
        self.skip(path, error.what.replace(str(path), "it").replace(path.name, "it"))

    def _qrels(self, path: Path) -> str:
        self.judgements[path] = {query for _, (query, _), _ in read_judgements(path)}
        return "qrels"

    def _run(self, path: Path) -> str:
        self.runs.append(Run(name_of(path), path, path, {*read_entries(path, self.memory).queries}))
        return "run"

    def _recognise(self, path: Path) -> str:
        """Read a file by its content, and return its kind."""
        with files.given(path).open("rb") as handle:
            head = handle.read(4)
        if head == b"PAR1":
            return self._parquet(path)
        text = self._text(path)
        if path.name.lower().endswith((".md", ".markdown", ".tex")) or re.match(r"\s*\|.*\|\s*\n\s*\|[\s:|-]+\n", text):
            return self._marked_up(path, text)
        return self._json(path, text) if text.lstrip()[:1] in ("{", "[") else self._lines(path, text)

    def _text(self, path: Path) -> str:
        data = bytearray()
        for block in read_blocks(path):
            data += block
            if len(data) * _TEXT_FACTOR > self.memory:
                self._refuse(path)
        return data.decode()

    def _refuse(self, path: Path) -> None:
        raise InputError(
            f"{path} needs more than {self.memory / 2**20:,.0f} MiB of memory", "Give more with --memory, or divide it"
        )

    def _parquet(self, path: Path) -> str:
        metadata = pq.ParquetFile(path).metadata
        if metadata.num_rows * metadata.num_columns * _CELL_BYTES > self.memory:
            self._refuse(path)
        table = pq.read_table(path)
        table.validate(full=True)  # texts that are no UTF-8 would stop polars
        frame: pl.DataFrame = pl.DataFrame(table)
        index = [name for name in frame.columns if re.fullmatch(r"__index_level_\d+__", name)]
        frame = frame.select(*index, pl.exclude(index)).rename(dict.fromkeys(index[:1], "")) if index else frame
        return self._frame(path, frame)

    def _reading(self, path: Path, number: str = "") -> Reading:
        return Reading(f"{_shown(Path(path.name))}{number}", self.skipped, self.items, rates=self.rates)

    def _frame(self, path: Path, frame: pl.DataFrame) -> str:
        self.frames.append(of_table(frame, self._reading(path), name_of(path)))
        return "table"

    def _table(self, path: Path) -> str:
        tally = Tally(path)
        names, _, rows = open_table(tally)
        grid = [names or [], *(cells for _, cells in rows)]
        for reason, count in tally.dropped.items():
            self.skip(Path(path.name), f"{counted(count, 'row')} cannot be read ({reason})")
        self.frames.append(of_grid(grid, self._reading(path), name_of(path)))
        return "table"

    def _marked_up(self, path: Path, text: str) -> str:
        """Read the tables of Markdown or LaTeX that share systems with the largest; the others are named."""
        tables = [*(markup.latex if "\\begin{" in text else markup.markdown)(text)]
        if not tables:
            raise InputError(f"{path} has no table of Markdown or LaTeX", METHOD)
        found = dict[int, pl.DataFrame]()
        for number, grid in enumerate(tables, 1):
            place = f", table {number}" if len(tables) > 1 else ""
            try:
                found[number] = of_grid(grid, self._reading(path, place), name_of(path))
            except InputError as error:
                self.skip(path, f"table {number} is left out: {error.what}")
        if not found:
            raise InputError(f"{path} has no table with systems and numbers", METHOD)
        main = max(found, key=lambda number: len(found[number]))
        for number, values in found.items():
            if {*values["system"]} & {*found[main]["system"]}:
                self.frames.append(values)
            else:
                self.skip(path, f"table {number} has none of the systems of table {main}, the largest")
        return "table of LaTeX" if "\\begin{" in text else "table of Markdown"

    def _lines(self, path: Path, text: str) -> str:
        lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
        words = lines[0].split() if lines else []
        if path.name.endswith((".csv", ".csv.gz")) or re.match(r"[^\s,;|]+([,;|]).*\1", lines[0]):
            return self._table(path)
        if len(words) == 6 and _NUMBER.fullmatch(words[4]):
            return self._run(path)
        has_header = len(words) == 3 and words[0].casefold() in ("query-id", "query_id", "qid")
        if has_header or (len(words) == 4 and _NUMBER.fullmatch(words[3])):
            return self._qrels(path)
        for at, tool in enumerate(("trec_eval", "ir_measures")):
            if len(words) == 3 and (measure_name(words[at]) or words[0] == "runid"):
                rows = (of for of in map(str.split, lines) if len(of) == 3)
                self.frames.append(_of_tool(path, ((of[at], of[1 - at], of[2]) for of in rows)))
                return f"values of {tool}"
        if any(separator in lines[0] or separator in lines[-1] for separator in SEPARATORS):
            return self._table(path)
        raise InputError(f"{path} is text without known columns, such as {lines[0]!r:.60}", METHOD)

    def _json(self, path: Path, text: str) -> str:
        if (len(text) + 20 * sum(map(text.count, "[{,"))) * 2 > self.memory:
            self._refuse(path)
        try:
            content = json.loads(text)
        except ValueError:
            content = [json.loads(line) for line in text.splitlines() if line.strip()]
        if isinstance(content, list):
            return self._frame(path, _of_records(content))
        if PREDICTIONS in content:
            self.runs += _of_predictions(path, content)
            return "run"
        if isinstance(content.get("scores"), dict) and "task_name" in content:
            self.of_mteb += _of_mteb(path, content, self.metric)
            return "results of MTEB"
        if not content or not all(isinstance(of, dict) for of in content.values()):
            raise InputError(f"{path} is JSON with other keys: {', '.join(list(content)[:5])}", METHOD)
        return self._nested(path, content)

    def _nested(self, path: Path, content: Mapping[str, Mapping[str, Any]]) -> str:
        """Read ``{name: {name: value}}``."""
        inner = dict.fromkeys(name for of in content.values() for name in of)
        leaves = [value for of in content.values() for value in of.values()]
        if all(map(measure_name, content)):
            self.frames.append(_of_tool(path, ((m, q, v) for m, of in content.items() for q, v in of.items())))
            return "values of ranx"
        if all(map(measure_name, inner)):
            self.frames.append(_of_tool(path, ((m, q, v) for q, of in content.items() for m, v in of.items())))
            return "values of pytrec_eval"
        if all(isinstance(value, int | float) or value is None for value in leaves):
            self.nested.append((path, content))
            return ""
        kinds = [{type(value) for value in of.values() if value is not None} for of in content.values()]
        if {str} in kinds and all(len(of) < 2 for of in kinds):  # to_json() of pandas has a mapping for each column
            rows = [{head: of.get(row) for head, of in content.items()} for row in inner]
            return self._frame(path, _of_records(rows))
        return self._frame(path, _of_records([{"system": name, **_flat(of)} for name, of in content.items()]))

    def settle(self) -> None:
        """Tell runs from tables among ``{name: {name: number}}``: queries are judged, or differ in documents."""
        judged_queries = {query for queries in self.judgements.values() for query in queries}
        for path, content in self.nested:
            every = len({name for of in content.values() for name in of}) * len(content)
            total = sum(map(len, content.values()))
            try:
                if judged_queries & content.keys() or len(content) < 2 or total < _SHARED * every:
                    self.kinds[self._run(path)] += 1
                else:
                    records = [{"system": name, **of} for name, of in content.items()]
                    self.frames.append(of_table(_of_records(records), self._reading(path), name_of(path)))
                    self.kinds["table {system: {item: value}}"] += 1
            except MdcrError as error:
                self.fail(path, error)


def read_results(
    paths: Sequence[Path], qrels: str = "", metric: str = "", items: Sequence[str] = (), memory: int = 2**32, *,
    rates: bool = False,
) -> Found:  # fmt: skip
    """Return the results in files and folders; what cannot be read is named, and the rest goes on.

    Args:
        paths: files, or folders with their subfolders.
        qrels: a file or folder with judgements of the runs; empty: judgements that lie beside the runs.
        metric: the metric of results of MTEB that is read; empty: the main one of each task.
        items: names of items that count (:class:`pipeline.exchange.boards.Reading`).
        memory: approximate memory for reading a file, in bytes.
        rates: whether values of tables are error rates, which may exceed 1.

    Raises:
        InputError: a path does not exist, or nothing was recognised.
    """
    folder = Path(qrels).expanduser() if qrels else None
    given = {
        path
        for path in _files([folder] if folder else [])
        if path == folder or "qrel" in str(path.relative_to(folder or path)).casefold()
    }
    reader, places = _Reader(metric, items, memory, rates=rates), [*paths, *([folder] if folder else [])]
    for path in [*sorted(given), *(path for path in _files(paths) if path not in given)]:
        if path.name.casefold() == "readme.md" and path not in paths:
            reader.skip(path, "its tables are read if it is named itself")
        else:
            reader.take(path, places, is_qrels=path in given)
    reader.settle()
    paired = list[Judged]()
    for run in reader.runs:
        try:
            paired.append(judged(run, reader.judgements))
        except MdcrError as error:
            reader.errors.append(error)
            reader.skip(run.path, f"{error.what}. {error.remedy}")
    of_mteb = _one_revision(framed(reader.of_mteb), reader.skipped)
    values = pl.concat([pl.DataFrame(schema=VALUES), of_mteb, *reader.frames])
    unnamed, values = len(values), values.drop_nulls(["system", "item"])
    if unnamed := unnamed - len(values):
        reader.skipped.append(f"{unnamed:,} values: they lack the name of a system or an item")
    if values.is_empty() and not paired:
        if len(reader.errors) == 1:
            raise reader.errors[0]
        reasons = f" ({'; '.join(reader.skipped[:3])})" if reader.skipped else ""
        raise InputError(f"{', '.join(map(_shown, paths))} must hold results, got none that is known{reasons}", METHOD)
    return Found(values, paired, reader.kinds, reader.skipped, reader.read)


def _shown(path: Path) -> str:
    """Return a path as text; bytes of its name that are not UTF-8 are replaced."""
    return os.fsencode(path).decode("utf-8", "replace")


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        if not path.exists():
            raise InputError(f"there is no file or folder {path}", "Name results, or a folder of results")
        for file in sorted(filter(Path.is_file, path.rglob("*"))) if path.is_dir() else [path]:
            is_hidden = any(part.startswith(".") for part in file.relative_to(path).parts)
            if not is_hidden and file.name != _BESIDE:
                yield file


def _of_tool(path: Path, values: Iterable[tuple[str, str, Any]]) -> pl.DataFrame:
    """Return the values (metric, query, value) of a tool that evaluates, without its sums, counts and texts."""
    of_queries = (of for of in values if not of[0].startswith(("num_", "relstring", "runid")) and of[1] != "all")
    return framed((name_of(path), "", query, None, "", in_our_spelling(of), float(n)) for of, query, n in of_queries)


def _flat(record: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return a record without nested ones: ``{"pass@1": {"humaneval": 80}}`` has ``pass@1 humaneval``."""
    flat = dict[str, Any]()
    for name, value in record.items():
        flat |= _flat(value, f"{prefix}{name} ") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return flat


def _of_records(records: Sequence[Any]) -> pl.DataFrame:
    """Return records as a table; columns with lists or mappings are texts, which are no numbers."""
    if not all(isinstance(record, Mapping) for record in records):
        raise InputError("it must be a list of records", METHOD)
    names = dict.fromkeys(str(name) for record in records for name in record)
    columns = []
    for name in names:
        cells = [record.get(name) for record in records]
        if all(cell is None or type(cell) in (int, float) for cell in cells):
            columns.append(pl.Series(name, cells, pl.Float64))
        else:
            texts = [cell if cell is None or isinstance(cell, str) else json.dumps(cell) for cell in cells]
            columns.append(pl.Series(name, texts, pl.String))
    return pl.DataFrame(columns)


def _of_predictions(path: Path, content: Mapping[str, Any]) -> Iterator[Run]:
    """Yield the runs of a file of predictions of MTEB, ``TASK_predictions.json``: one for each subset and split."""
    system = content[PREDICTIONS].get("model_name") or name_of(path)
    yield from (Run(str(system), path, scores, scores.keys()) for _, scores in splits_of(path, content))


def _of_mteb(path: Path, content: Mapping[str, Any], metric: str) -> list[Row]:
    """Return the value of a task, the mean over subsets of the split test, or of all splits without one."""
    splits = content["scores"]
    subsets = splits["test"] if "test" in splits else [subset for of_split in splits.values() for subset in of_split]
    named = files.read_json(path.parent / _BESIDE) or {}
    system = f"{named.get('name') or path.parent.parent.name.replace('__', '/')}@{path.parent.name}"
    name = metric.replace("@", "_at_") or "main_score"
    value = sum(float(subset[name]) for subset in subsets) / len(subsets)
    return [(system, "", str(content["task_name"]), None, "", metric or MAIN, value)]


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
