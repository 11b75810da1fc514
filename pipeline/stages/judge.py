"""Stage ``draw``: pairs of query and paper that are worth judging, and the files that annotators fill in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from pipeline.core import files
from pipeline.core.artifact import Artifact
from pipeline.core.csr import pack
from pipeline.core.manifest import Counts
from pipeline.core.resources import Resources
from pipeline.core.schema import JUDGED_PAIRS
from pipeline.core.task import Inputs, Task
from pipeline.core.workdir import Workdir
from pipeline.core.workspace import JUDGED
from pipeline.corpus.pool import Pool
from pipeline.exchange.frames import as_csv
from pipeline.measure.inputs import Qrels, RankedRun, query_of, ranks_of, within
from pipeline.measure.judged import inclusion, random_numbers, stratify
from pipeline.stages.ranking_file import FILE, open_pool

PEOPLE, SECOND, MACHINE, INSTRUCTIONS = "people.csv", "people-2.csv", "machine.jsonl", "instructions.md"
"""Files of a draw: pairs for people, for a second annotator and for a model, and how to judge them."""

_INSTRUCTIONS = """# How to judge

Each row of `{people}` has a query and another paper. Is the other paper relevant to the query: would one cite it, or
want to read it, for the same work? Write a whole number from 0 to {grades} into `label`: {scale}.

- Judge by titles and abstracts alone, in the order of the file. Leave a row empty rather than guess.
- Leave the other columns as they are. Each annotator has a file, whose name is theirs.
- `{second}` repeats some pairs for a second annotator, who does not see the labels of the first.
- A model judges all pairs of `{machine}`, whatever people judge: the same fields, with `label` filled in.
"""
_TEXT = ("title", "abstract")
_SCALES = {1: "0 not relevant, 1 relevant", 2: "0 not relevant, 1 partly, 2 relevant"}


@dataclass(frozen=True)
class DrawConfig:
    """Settings that decide which pairs are judged.

    Attributes:
        systems: names of the systems, in order of the rankings.
        pairs: expected number of pairs for people.
        ranks: first ranks of each system that can be drawn.
        grades: highest grade.
        seed: seed of the permanent random numbers.
    """

    systems: tuple[str, ...]
    pairs: int
    ranks: int
    grades: int
    seed: int


def draw_task(corpus: Artifact, pool: Task, rankings: Sequence[Task], config: DrawConfig) -> Task:
    """Return the task that draws pairs from the first ranks of the rankings and the positives of a pool."""

    def run(inputs: Inputs, out: Workdir, _resources: Resources) -> Counts:
        opened_pool = open_pool(inputs)
        runs = runs_of(inputs, opened_pool)
        positives = Qrels.from_table(opened_pool.qrels, opened_pool)
        cited = pack(query_of(positives.offsets), positives.rows)
        tops = [within(ranked.offsets) < config.ranks for ranked in runs]
        ranked = [pack(query_of(r.offsets)[top], r.rows[top]) for r, top in zip(runs, tops, strict=True)]
        pairs = np.unique(np.concatenate([cited, *ranked]))
        query, row = (pairs >> np.uint64(32)).astype(np.int64), (pairs & np.uint64(2**32 - 1)).astype(np.int64)
        strata = stratify(np.stack([ranks_of(r, query, row) for r in runs]), np.isin(pairs, cited), config.ranks)
        probability = inclusion(strata, config.pairs)
        drawn = random_numbers(opened_pool.query_rows[query], row, config.seed) < probability
        ids = np.array(opened_pool.query_ids(), object)[query], opened_pool.corpus.ids(row)
        columns = [query, row, *ids, strata[0].astype(bool), *strata[1:], probability, drawn]
        arrays = [pa.array(values).cast(kind) for values, kind in zip(columns, JUDGED_PAIRS.types, strict=True)]
        out.arrow("pairs.arrow", pa.Table.from_arrays(arrays, schema=JUDGED_PAIRS), JUDGED_PAIRS)
        return {"pairs": len(pairs), "cited": int(strata[0].sum()), "drawn": int(drawn.sum())}

    inputs: dict[str, Task | Artifact] = {"corpus": corpus, "pool": pool}
    inputs |= {f"ranking-{number}": ranking for number, ranking in enumerate(rankings)}
    return Task("draw", 1, JUDGED, f"draw-{pool.slug}", config, inputs, run)


def runs_of(inputs: Inputs, pool: Pool) -> list[RankedRun]:
    """Return the rankings among a task's inputs, in their order."""
    count = sum(name.startswith("ranking-") for name in inputs)
    return [RankedRun.from_table(inputs[f"ranking-{number}"].arrow(FILE), pool) for number in range(count)]


def pairs_of(draw: Artifact) -> pl.DataFrame:
    """Return the pairs of a draw, columns :data:`pipeline.core.schema.JUDGED_PAIRS`."""
    return pl.DataFrame(draw.arrow("pairs.arrow"))


def write_pairs(draw: Artifact, pool: Pool, folder: Path, second: float) -> list[Path]:
    """Write the files of a draw, blind to system, rank and citation and in random order, and return their paths.

    Args:
        draw: the draw.
        pool: its pool.
        folder: where to write.
        second: share of the drawn pairs that a second annotator gets.
    """
    config, pairs = draw.manifest.config, pairs_of(draw)
    rows = pairs["row"].unique().sort().to_numpy()
    papers = pl.DataFrame([text for block in pool.corpus.texts(rows) for text in block], _TEXT, orient="row")
    queries = pl.DataFrame([text for block in pool.query_texts() for text in block], _TEXT, orient="row")
    queries = queries.rename(lambda name: f"query_{name}").with_row_index("query")
    shown = pairs.join(queries, "query", maintain_order="left").join(
        papers.with_columns(row=rows), "row", maintain_order="left"
    )
    one_line = pl.selectors.ends_with("abstract").str.replace_all(r"\s+", " ")
    shown = shown.select("query_id", "paper_id", *queries.columns[1:], *_TEXT, label=None).with_columns(one_line)

    def numbers(purpose: str) -> npt.NDArray[np.float64]:
        return random_numbers(pool.query_rows[pairs["query"]], pairs["row"].to_numpy(), config["seed"], purpose)

    drawn = pairs["drawn"].to_numpy()
    chosen = {PEOPLE: drawn, SECOND: drawn & (numbers("second") < second), MACHINE: np.full(len(pairs), True)}
    scale = _SCALES.get(config["grades"], f"0 not relevant, {config['grades']} most relevant")
    with files.disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for name, selected in chosen.items():
            order = np.argsort(numbers(f"order {name}"), kind="stable")
            part = shown[order[selected[order]]]
            files.write_text(folder / name, part.write_ndjson() if name == MACHINE else as_csv(part))
        of_files = {"people": PEOPLE, "second": SECOND, "machine": MACHINE, "grades": config["grades"], "scale": scale}
        files.write_text(folder / INSTRUCTIONS, _INSTRUCTIONS.format(**of_files))
    return [folder / name for name in (*chosen, INSTRUCTIONS)]
