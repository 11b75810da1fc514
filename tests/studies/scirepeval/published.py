"""Small data in the published layouts of SciRepEval, from a vocabulary a topic.

Configurations, splits and rows are those that ``scirepeval_tasks.jsonl`` of allenai/scirepeval names and its loaders
read: ``SimpleDataset`` and ``IRDataset`` the texts, ``SupervisedEvaluator``, ``IREvaluator`` and
``ReviewerMatchingEvaluator`` the judgements. The hub has them as Parquet files, one a split; the loaders also read
files in a folder.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

TOPICS = ("enzyme", "galaxy", "lattice")
PAPERS, TRAIN = 120, 84

TEXTS = "scirepeval/{}/{}-00000-of-00001.parquet"
JUDGED = "scirepeval_test/{}/{}/0000.parquet"
"""Files of a configuration and split, as on two branches of the hub."""

Form = Literal["topic", "binary", "several", "number", "papers", "queries", "texts", "reviewers"]
"""Labels of papers, by what they are; judgements of papers, whose texts are ``papers`` or ``queries`` with candidates,
of ad-hoc queries (``texts``), or of reviewers."""

CONFIGURATIONS: dict[str, tuple[str, Form]] = {
    "biomimicry": ("biomimicry", "binary"),
    "drsm": ("drsm", "topic"),
    "relish": ("relish", "queries"),
    "nfcorpus": ("nfcorpus", "texts"),
    "trec_covid": ("trec_covid", "texts"),
    "paper_reviewer_matching": ("paper_reviewer_matching", "reviewers"),
    "peer_review_score": ("peer_review_score_hIndex", "number"),
    "hIndex": ("peer_review_score_hIndex", "number"),
    "tweet_mentions": ("tweet_mentions", "number"),
    "scidocs_mag": ("scidocs_mag_mesh", "topic"),
    "scidocs_mesh": ("scidocs_mag_mesh", "topic"),
    "scidocs_cite": ("scidocs_view_cite_read", "papers"),
    "scidocs_view": ("scidocs_view_cite_read", "papers"),
    "scidocs_cocite": ("scidocs_view_cite_read", "papers"),
    "scidocs_read": ("scidocs_view_cite_read", "papers"),
    "same_author": ("same_author", "queries"),
    "high_influence_cite": ("high_influence_cite", "queries"),
    "search": ("search", "texts"),
    "cite_count": ("cite_count", "number"),
    "pub_year": ("pub_year", "number"),
    "fos": ("fos", "several"),
    "mesh_descriptors": ("mesh_descriptors", "topic"),
}
"""Of each configuration of judgements, the one of its texts, and the form of both; S2AND has neither."""

SOME = ("biomimicry", "drsm", "trec_covid", "paper_reviewer_matching", "scidocs_cite", "cite_count", "fos")
"""One configuration of each kind of task."""


def paper(number: int) -> dict[str, Any]:
    """Return a paper of topic ``number % 3``; its length falls with its number."""
    topic = TOPICS[number % 3]
    words = [f"{topic}{(number * 7 + step) % 11}" for step in range(12)] + ["measure"] * (number // 10)
    title = f"{topic} study {number}"
    return {"doc_id": f"p{number}", "corpus_id": number, "title": title, "abstract": " ".join(words)}


def write(
    root: Path, names: Sequence[str] = SOME, *, changes: Mapping[str, Any] | None = None, hub: bool = True
) -> Path:
    """Write the configurations ``names`` and S2AND; ``changes`` replaces the rows of files, by path.

    Without ``hub`` they are the files that the loaders read from a folder.
    """
    files = dict[str, list[Any]]()
    for name in names:
        texts, form = CONFIGURATIONS[name]
        files[TEXTS.format(texts, "evaluation") if hub else f"scirepeval/{texts}/evaluation.jsonl"] = _texts(form)
        for split, rows in _judged(form).items():
            ending = f"{split}_qrel.jsonl" if "cand_id" in rows[0] else f"{split}.csv"
            files[JUDGED.format(name, split) if hub else f"scirepeval_test/{name}/{ending}"] = rows
        if form == "reviewers":
            papers = JUDGED.format("reviewers", "metadata")
            files[papers if hub else "scirepeval_test/reviewers/reviewer_metadata.jsonl"] = [
                {"r_id": f"r{r}", "papers": [f"p{10 + r + 3 * step}" for step in range(4)]} for r in range(6)
            ]
    for path, rows in (files | dict(changes or {})).items():
        _write(root / path, list(rows))
    authors(root / "s2and")
    return root


def _texts(form: Form) -> list[dict[str, Any]]:
    docs = [paper(number) for number in range(PAPERS)]
    judged = [{**doc, "score": 0} for doc in docs[10:22]]
    if form == "queries":
        return [{"query": docs[q], "candidates": judged} for q in range(4)]
    if form == "texts":
        return [{"doc_id": f"q{q}", "query": f"{TOPICS[q]} study", "candidates": judged} for q in range(3)]
    return docs


def _judged(form: Form) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of each split."""
    if form == "reviewers":
        grades = {(q, r): 3 - (q - r) % 3 for q in range(4) for r in range(6)}
        return {
            split: [{"query_id": f"p{q}", "cand_id": f"r{r}", "score": int(grades[q, r] >= least)} for q, r in grades]
            for split, least in (("test_hard", 3), ("test_soft", 2))
        }
    if form in ("papers", "queries", "texts"):
        first, queries = ("q", 3) if form == "texts" else ("p", 4)
        pairs = [(q, c) for q in range(queries) for c in range(10, 22)]
        grade = 2 if form == "texts" else 1
        return {
            "test": [
                {"query_id": f"{first}{q}", "cand_id": f"p{c}", "score": grade * (q % 3 == c % 3)} for q, c in pairs
            ]
        }
    labels = {
        "topic": lambda number: TOPICS[number % 3],
        "binary": lambda number: int(number % 3 == 0),
        "several": lambda number: [int(number % 3 == topic) for topic in range(3)] + [number % 2],
        "number": lambda number: number / PAPERS,
    }
    rows = [{"paper_id": f"p{number}", "label": labels[form](number)} for number in range(PAPERS)]
    return {"train": rows[:TRAIN], "test": rows[TRAIN:]}


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
