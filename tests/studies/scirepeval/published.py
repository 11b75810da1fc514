"""Small data in the published layouts of SciRepEval: one task of each kind, from a vocabulary a topic."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

TOPICS = ("enzyme", "galaxy", "lattice")
PAPERS, TRAIN = 120, 84


def paper(number: int) -> dict[str, Any]:
    """Return a paper of topic ``number % 3``; its length falls with its number."""
    topic = TOPICS[number % 3]
    words = [f"{topic}{(number * 7 + step) % 11}" for step in range(12)] + ["measure"] * (number // 10)
    return {"doc_id": f"p{number}", "title": f"{topic} study {number}", "abstract": " ".join(words)}


def write(root: Path, *, changes: Mapping[str, Any] | None = None) -> Path:
    """Write the folder; ``changes`` replaces the rows of files, by path."""
    docs = [paper(number) for number in range(PAPERS)]
    pairs = [
        {"query_id": f"p{q}", "cand_id": f"p{c}", "score": int(q % 3 == c % 3)} for q in range(4) for c in range(10, 22)
    ]
    asked = [
        {
            "doc_id": f"q{q}",
            "query": f"{TOPICS[q]} study",
            "candidates": [{**docs[c], "score": 0} for c in range(10, 20)],
        }
        for q in range(3)
    ]
    grades = [
        {"query_id": f"q{q}", "cand_id": f"p{c}", "score": int(q == c % 3) * 2} for q in range(3) for c in range(10, 20)
    ]
    reviewed = [{"query_id": f"p{q}", "cand_id": f"r{r}", "score": 3 - (q - r) % 3} for q in range(4) for r in range(6)]
    labels = {
        "drsm": lambda number: TOPICS[number % 3],
        "biomimicry": lambda number: int(number % 3 == 0),
        "fos": lambda number: [int(number % 3 == topic) for topic in range(3)] + [int(number % 2)],
        "cite_count": lambda number: number / PAPERS,
    }
    found: dict[str, Iterable[Mapping[str, Any]]] = {
        "scirepeval/scidocs_view_cite_read/evaluation-00000-of-00001.parquet": docs,
        "scirepeval_test/scidocs_cite/test-00000-of-00001.parquet": pairs,
        "scirepeval/trec_covid/evaluation.jsonl": asked,
        "scirepeval_test/trec_covid/test.jsonl": grades,
        "scirepeval/paper_reviewer_matching/evaluation.jsonl": docs,
        "scirepeval_test/paper_reviewer_matching/test.jsonl": reviewed,
        "scirepeval_test/reviewers/metadata.jsonl": [
            {"r_id": f"r{r}", "papers": [f"p{10 + r + 3 * step}" for step in range(4)]} for r in range(6)
        ],
    }
    for name, label in labels.items():
        rows = [{"paper_id": f"p{number}", "label": label(number)} for number in range(PAPERS)]
        ending = "csv" if name == "biomimicry" else "parquet" if name == "fos" else "jsonl"
        found[f"scirepeval/{name}/evaluation.jsonl"] = docs
        found[f"scirepeval_test/{name}/train.{ending}"] = rows[:TRAIN]
        found[f"scirepeval_test/{name}/test.{ending}"] = rows[TRAIN:]
    for path, rows in (found | dict(changes or {})).items():
        _write(root / path, list(rows))
    authors(root / "s2and")
    return root


def authors(folder: Path) -> None:
    """Write an S2AND data set: in each block, the papers of a topic are by one author."""
    signatures, clusters = {}, {f"a{b}-{t}": {"signature_ids": []} for b in range(8) for t in range(3)}
    for block in range(8):
        for number in range(6):
            name, of = f"s{block}-{number}", block * 6 + number
            signatures[name] = {"signature_id": name, "paper_id": f"p{of}", "author_info": {"block": f"b{block}"}}
            clusters[f"a{block}-{of % 3}"]["signature_ids"].append(name)
    papers = {f"p{number}": {**paper(number), "paper_id": f"p{number}"} for number in range(48)}
    for part, content in (("signatures", signatures), ("clusters", clusters), ("papers", papers)):
        path = folder / "tiny" / f"tiny_{part}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content))


def _write(path: Path, rows: list[Mapping[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".csv":
        with path.open("w", newline="") as file:
            table = csv.DictWriter(file, list(rows[0]))
            table.writeheader()
            table.writerows(rows)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def vectors(seed: int, papers: int, dimension: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return vectors around a centre a class, and the classes."""
    random = np.random.default_rng(seed)
    target = random.integers(0, classes, papers)
    centres = random.normal(size=(classes, dimension))
    return (centres[target] + random.normal(scale=2, size=(papers, dimension))).astype(np.float32), target
