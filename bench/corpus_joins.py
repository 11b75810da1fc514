"""Order papers by id and resolve their citations, by one engine; bench/corpus.py compares them in the same run.

    python bench/corpus_joins.py ours|duckdb|polars RUNS OUT MEMORY

RUNS is a folder of runs (:data:`pipeline.corpus.extract.RUN`) without repeated ids. OUT gets the sorted papers and both
directions of the citation graph. DuckDB and Polars sort whole papers, join references with papers by key, and sort the
citations both ways; both spill to OUT. Prints a digest of the ids and of both directions.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from pipeline.core import files, progress
from pipeline.core.config import parse_bytes
from pipeline.core.resources import Resources
from pipeline.core.schema import SHARD_ROWS
from pipeline.core.workdir import Workdir

WORKERS = 2
_IN_ORDER = {"outgoing": "citing, row", "incoming": "row, citing"}

Columns = Iterable[pa.ChunkedArray]


def ours(runs: list[Path], out: Path, memory: int) -> Columns:
    from pipeline.corpus.graph import CitationGraph
    from pipeline.corpus.merge import merge_runs

    work, resources = Workdir.prepare(out / "work"), Resources(memory, WORKERS)
    merged = merge_runs(runs, work, SHARD_ROWS, resources)
    CitationGraph(merged.shards, work.scratch(), WORKERS, memory // 2).write(work)
    shards = [files.read_arrow(path).column("paper_id") for path in sorted(work.path.glob("papers-*.arrow"))]
    graphs = [files.read_arrow(work.path / f"{name}-indices.arrow").column("row") for name in _IN_ORDER]
    return pa.chunked_array([chunk for shard in shards for chunk in shard.chunks]), *graphs


def by_duckdb(runs: list[Path], out: Path, memory: int) -> Columns:
    import duckdb

    settings = {"threads": WORKERS, "memory_limit": f"{memory}B", "temp_directory": str(out / "spilled")}
    with duckdb.connect(config=settings) as engine:

        def write(name: str, query: str, **tables: pa.RecordBatchReader | pa.Table) -> pa.Table:
            for table, rows in tables.items():
                engine.register(table, rows)
            reader = engine.sql(query).to_arrow_reader(65_536)
            files.write_arrow(out / name, reader, reader.schema)
            return files.read_arrow(out / name)

        batches = (batch for run in runs for batch in files.read_arrow(run).to_batches(max_chunksize=8192))
        given = pa.RecordBatchReader.from_batches(files.read_arrow(runs[0]).schema, batches)
        papers = write("papers.arrow", "SELECT * FROM given ORDER BY paper_id", given=given)
        engine.register("papers", pa.table({"key": papers.column("key"), "row": np.arange(len(papers), dtype="u4")}))
        schema = pa.schema({"citing": pa.uint32(), "cited": pa.uint64()})
        engine.register("listed", pa.RecordBatchReader.from_batches(schema, _references(papers)))
        joined = "CREATE TABLE links AS SELECT citing, row FROM listed JOIN papers ON cited = key"
        engine.execute(joined).fetchall()
        graphs = [
            write(f"{name}.arrow", f"SELECT {order} FROM links ORDER BY {order}").column(1)  # noqa: S608
            for name, order in _IN_ORDER.items()
        ]
    return papers.column("paper_id"), *graphs


def by_polars(runs: list[Path], out: Path, memory: int) -> Columns:
    settings = {"MAX_THREADS": WORKERS, "OOC_MEMORY_BUDGET_MB": memory >> 20, "TEMP_DIR": out}
    os.environ |= {f"POLARS_{name}": str(value) for name, value in settings.items()}
    import polars as pl

    def write(name: str, frame: pl.LazyFrame) -> pl.LazyFrame:
        frame.sink_ipc(out / name, compression="uncompressed", engine="streaming")
        return pl.scan_ipc(out / name)

    papers = write("papers.arrow", pl.scan_ipc(runs).sort("paper_id")).with_row_index("row")
    listed = papers.select(pl.col("row").alias("citing"), cited="outbound").explode("cited")
    links = listed.join(papers.select("key", "row"), left_on="cited", right_on="key").select("citing", "row")
    links = write("links.arrow", links)
    for name, order in _IN_ORDER.items():
        write(f"{name}.arrow", links.sort(order.split(", ")).select(order.split(", ")))
    graphs = [files.read_arrow(out / f"{name}.arrow").column(1) for name in _IN_ORDER]
    return files.read_arrow(out / "papers.arrow").column("paper_id"), *graphs


def _references(papers: pa.Table) -> Iterator[pa.RecordBatch]:
    """Yield the row of the citing paper and the key of the cited one."""
    row = 0
    for batch in papers.select(["outbound"]).to_batches():
        cited = batch.column(0)
        citing = np.repeat(np.arange(row, row + len(cited), dtype=np.uint32), cited.value_lengths())
        yield pa.record_batch({"citing": citing, "cited": cited.flatten()})
        row += len(cited)


ENGINES: dict[str, Callable[[list[Path], Path, int], Columns]] = {
    "ours": ours,
    "duckdb": by_duckdb,
    "polars": by_polars,
}


def main() -> None:
    progress.set_quiet(True)
    engine, runs, out, memory = sys.argv[1:]
    ids, *graphs = ENGINES[engine](sorted(Path(runs).glob("run-*.arrow")), Path(out), parse_bytes(memory))
    digest = hashlib.sha256()
    for chunk in ids.chunks:
        digest.update("".join(f"{paper}\n" for paper in chunk.to_pylist()).encode())
    for chunk in (chunk for graph in graphs for chunk in graph.chunks):
        digest.update(np.asarray(chunk).tobytes())
    print(digest.hexdigest())


if __name__ == "__main__":
    main()
