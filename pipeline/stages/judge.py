"""Stage ``draw``: pairs of query and paper that are worth judging, and the files that annotators fill in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
from pipeline.corpus.reader import Text
from pipeline.exchange.frames import write_frame
from pipeline.measure.inputs import Qrels, RankedRun, query_of, ranks_of, within
from pipeline.measure.judged import inclusion, random_numbers, stratify
from pipeline.stages.ranking_file import FILE, open_pool, slug_of

PEOPLE, SECOND, MACHINE, INSTRUCTIONS = "people.csv", "people-2.csv", "machine.jsonl", "instructions.md"
"""Files of a draw: pairs for people, for a second annotator and for a model, and how to judge them."""

_INSTRUCTIONS = """# How to judge

Each row of `{people}` has a query and another paper. Is the other paper relevant to the query: would one cite it, or
want to read it, for the same work? Write a whole number from 0 to {grades} into `label`: {scale}.

- Judge by titles and abstracts alone, in the order of the file. Leave a row empty rather than guess.
- Leave the other columns as they are; add a column `annotator` if several people share a file.
- `{second}` repeats some pairs for a second annotator, who does not see the labels of the first.
- A model judges all pairs of `{machine}`, whatever people judge: the same fields, with `label` filled in.
"""
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
        ranks = np.stack([ranks_of(of_system, query, row) for of_system in runs])
        strata = stratify(ranks, np.isin(pairs, cited), config.ranks)
        probability = inclusion(strata, config.pairs)
        drawn = random_numbers(opened_pool.query_rows[query], row, config.seed) < probability
        columns = [query, row, strata[0].astype(bool), *strata[1:], probability, drawn]
        arrays = [pa.array(values).cast(kind) for values, kind in zip(columns, JUDGED_PAIRS.types, strict=True)]
        out.arrow("pairs.arrow", pa.Table.from_arrays(arrays, schema=JUDGED_PAIRS), JUDGED_PAIRS)
        return {"pairs": len(pairs), "cited": int(strata[0].sum()), "drawn": int(drawn.sum())}

    inputs = {"corpus": corpus, "pool": pool} | {f"ranking-{n}": ranking for n, ranking in enumerate(rankings)}
    return Task("draw", 1, JUDGED, f"draw-{slug_of(pool)}", config, inputs, run)


def runs_of(inputs: Inputs, pool: Pool) -> list[RankedRun]:
    """Return the rankings among a task's inputs, in their order."""
    names = sorted((name for name in inputs if name.startswith("ranking-")), key=lambda name: int(name[8:]))
    return [RankedRun.from_table(inputs[name].arrow(FILE), pool) for name in names]


def pairs_of(draw: Artifact) -> pl.DataFrame:
    """Return the pairs of a draw, columns :data:`pipeline.core.schema.JUDGED_PAIRS`."""
    return pl.DataFrame(draw.arrow("pairs.arrow"))


def _shown(text: Text, prefix: str) -> dict[str, str]:
    return {f"{prefix}title": text.title, f"{prefix}abstract": " ".join(text.abstract.split())}


def write_pairs(draw: Artifact, pool: Pool, folder: Path, second: float) -> list[Path]:
    """Write the files of a draw, blind to system, rank and citation and in random order, and return their paths.

    Args:
        draw: the draw.
        pool: its pool.
        folder: where to write.
        second: share of the drawn pairs that a second annotator gets.
    """
    config, pairs = draw.manifest.config, pairs_of(draw)
    query, row = pairs["query"].to_numpy(), pairs["row"].to_numpy().astype(np.int64)

    def number(purpose: str) -> npt.NDArray[np.float64]:
        return random_numbers(pool.query_rows[query], row, config["seed"], purpose)

    rows = np.unique(row)
    texts = dict(zip(rows.tolist(), (text for block in pool.corpus.texts(rows) for text in block), strict=True))
    queries = [text for block in pool.query_texts() for text in block]
    ids = dict(zip(rows.tolist(), pool.corpus.ids(rows), strict=True))
    query_ids = pool.query_ids()

    def record(place: int) -> dict[str, Any]:
        paper = int(row[place])
        of_query = _shown(queries[query[place]], "query_")
        return {"query_id": query_ids[query[place]], "paper_id": ids[paper], **of_query, **_shown(texts[paper], "")}

    drawn = pairs["drawn"].to_numpy()
    chosen = {PEOPLE: drawn, SECOND: drawn & (number("second") < second), MACHINE: np.full(len(pairs), True)}
    scale = _SCALES.get(config["grades"], f"0 not relevant, {config['grades']} most relevant")
    written = []
    with files.disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for name, selected in chosen.items():
            order = np.argsort(number(f"order {name}"), kind="stable")
            records = [record(place) | {"label": None} for place in order[selected[order]].tolist()]
            if name == MACHINE:
                files.write_text(folder / name, pl.DataFrame(records).write_ndjson())
            elif records:
                write_frame(folder / name, pl.DataFrame(records))
            written += [folder / name] if records else []
        text = _INSTRUCTIONS.format(people=PEOPLE, second=SECOND, machine=MACHINE, grades=config["grades"], scale=scale)
        files.write_text(folder / INSTRUCTIONS, text)
    return [*written, folder / INSTRUCTIONS]
