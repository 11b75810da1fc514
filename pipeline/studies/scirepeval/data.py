"""Read the data of one task: labels, judged queries, judged reviewers, or blocks of author signatures.

A third of a training sample is held out as its test set.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from pipeline.studies import kit
from pipeline.studies.kit import InputError
from pipeline.studies.scirepeval.tasks import TEST, Doc, Entry, Folder, Keys, read_doc, rows, sibling

_SPLIT_SEED, _TEST_SHARE = 13, 3
_REMEDY = "Fetch its files again, or leave the task out"


class Labelled(NamedTuple):
    """A task of classification or regression: keys, labels and counts of its papers.

    Labels of regression are float64 ``[papers]``, of classification bool ``[papers, classes]``, where classes are the
    sorted labels of all papers.
    """

    train: Sequence[str]
    test: Sequence[str]
    train_labels: npt.NDArray[Any]
    test_labels: npt.NDArray[Any]
    counts: Counter[str]


class DataSet(NamedTuple):
    """An S2AND data set: its name and blocks; a block has the paper key and author number of each signature."""

    name: str
    blocks: tuple[tuple[tuple[str, ...], npt.NDArray[np.int64]], ...]


@dataclass(frozen=True)
class Judged:
    """A ranking task: judged ``pairs``, the key of each paper, and ``texts`` of ad-hoc queries by id.

    Pairs are grouped by query and have the grade; of reviewer matching that by hard labels, and in the column ``soft``
    that by soft labels, and ``groups`` has the papers of each reviewer.
    """

    pairs: pl.DataFrame
    keys: Keys
    texts: Mapping[str, str] = field(default_factory=dict)
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def queries(self) -> list[str]:
        """Ids of the queries, in the order of the pairs."""
        return list(self.pairs["query"].unique(maintain_order=True))


def docs(entry: Entry, folder: Folder) -> Iterator[Doc]:
    """Yield every paper of a task's texts, with repeats."""
    sample = folder.sample(entry)
    if entry.kind == "authors":
        for path in folder.authors(entry):
            for paper, row in _document(sibling(path, "papers")).items():
                yield read_doc(row, entry.fields, entry.name, _paper_id(path, paper))
        return
    columns = ("doc_id", "corpus_id", "sha", "paper_id", *entry.fields, "query", "candidates", "pos", "neg")
    for row in rows([sample] if sample else folder.texts(entry), (), columns):
        papers: list[Mapping[str, Any]] = [row]
        if "query" in row:
            papers = row["candidates"] if "candidates" in row else [row["pos"], row["neg"]]
            if isinstance(row["query"], Mapping):
                papers = [row["query"], *papers]
        yield from (read_doc(paper, entry.fields, entry.name) for paper in papers)


def _document(path: Path) -> Any:
    """Return the content of a JSON file; CorruptError if it cannot be read."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise kit.CorruptError(f"{path} cannot be read as JSON ({error})", "Fetch it again") from error


def queries(entry: Entry, folder: Folder) -> dict[str, str]:
    """Return the ad-hoc queries of a task by id; empty if its queries are papers."""
    if entry.format != "search":
        return {}
    if sample := folder.sample(entry):
        return {str(position): row["query"] for position, row in enumerate(_sample_rows(entry, sample))}
    return {str(row["doc_id"]): row["query"] for row in rows(folder.texts(entry), ("doc_id", "query"))}


def load_labelled(entry: Entry, folder: Folder) -> Labelled:
    """Return a task of classification or regression; labels of papers without a text are left out and counted."""
    keys = Keys(docs(entry, folder))
    if sample := folder.sample(entry):
        pairs = [(read_doc(row, (), entry.name).id, row[entry.label]) for row in _sample_rows(entry, sample)]
        papers = kit.id_keys([paper for paper, _ in pairs])
        ranks = kit.priorities(papers, _SPLIT_SEED, "scirepeval-sample", entry.name)
        held_out = {*kit.smallest(ranks, len(pairs) // _TEST_SHARE).tolist()}
        parts = [[pair for index, pair in enumerate(pairs) if (index in held_out) == is_test] for is_test in (0, 1)]
    else:
        split_rows = (rows(folder.files(TEST, entry.test, split), ("paper_id", "label")) for split in entry.splits)
        parts = [[(str(row["paper_id"]), row["label"]) for row in labelled_rows] for labelled_rows in split_rows]
    train, test = ([pair for pair in part if pair[0] in keys] for part in parts)
    keys.counts["labels_without_text"] = sum(map(len, parts)) - len(train) - len(test)
    keys.counts |= Counter(train=len(train), test=len(test))
    for name, pairs in (("training", train), ("test", test)):
        if not pairs:
            raise InputError(f"task {entry.name} must have {name} papers, got none", "Fetch it again")
    pairs = [*train, *test]
    labels: npt.NDArray[Any]
    if entry.format == "regression":
        labels = np.array([_parse_number(entry, f"paper {paper!r}", label) for paper, label in pairs], np.float64)
    else:
        labels = _indicator([_labels_of(entry, paper, label) for paper, label in pairs], entry.several_labels)
        keys.counts["papers_without_label"] += int(np.count_nonzero(~labels.any(axis=1)))
    train_keys, test_keys = ([keys[paper] for paper, _ in part] for part in (train, test))
    return Labelled(train_keys, test_keys, labels[: len(train)], labels[len(train) :], keys.counts)


def _labels_of(entry: Entry, paper: str, label: Any) -> Sequence[Any]:
    """Return the labels of a paper; several labels are given as a list or as a JSON list."""
    labels = label if entry.several_labels else (label,)
    if isinstance(labels, str):
        try:
            labels = json.loads(labels)
        except (ValueError, RecursionError):
            labels = None
    if not isinstance(labels, list | tuple) or any(
        value is None or isinstance(value, list | dict) or value == "" or value != value for value in labels
    ):
        problem = f"the label of paper {paper!r} of task {entry.name} must be given, got {label!r:.80}"
        raise InputError(problem, _REMEDY)
    return labels


def _indicator(lists: Sequence[Sequence[Any]], several: bool) -> npt.NDArray[np.bool_]:
    """Return labels as bool ``[papers, classes]``; the label lists may already be rows of an indicator matrix."""
    lengths = {len(labels) for labels in lists}
    if several and len(lengths) == 1 and lengths != {1} and all(value in (0, 1) for row in lists for value in row):
        matrix = np.array(lists, bool).reshape(len(lists), -1)
        return matrix[:, matrix.any(axis=0)]
    sets = [set(map(str, labels)) for labels in lists]
    classes = sorted(set().union(*sets))
    return np.array([[name in labels for name in classes] for labels in sets], bool).reshape(len(lists), -1)


def load_judged(entry: Entry, folder: Folder) -> Judged:
    """Return a ranking task; ``keys.counts`` has the numbers of queries, judgements and left-out judgements.

    The first of several judgements of a pair counts, and one without the text of a paper or a query does not, as in the
    published evaluation.
    """
    keys, texts = Keys(docs(entry, folder)), queries(entry, folder)
    groups = {}
    if entry.kind == "reviewers":
        reviewers = rows(folder.needed(entry)[-1], ("r_id", "papers"))
        groups = {str(row["r_id"]): [str(paper) for paper in row["papers"]] for row in reviewers}
    pairs, *soft_pairs = (_grades(entry, folder, split, keys.counts) for split in entry.splits)
    for split_pairs in soft_pairs:
        renamed = split_pairs.rename({"grade": "soft"})
        pairs = pairs.join(renamed, on=["query", "candidate"], how="left", maintain_order="left").fill_null(0)
    judgements = len(pairs)
    pairs = pairs.filter([
        (query in texts if texts else query in keys or query in groups)
        and (candidate in keys or (bool(groups) and query not in groups))  # a reviewer without papers is not ranked
        for query, candidate in pairs.select("query", "candidate").iter_rows()
    ])  # fmt: skip
    keys.counts["judgements_without_text"] = judgements - len(pairs)
    for reviewer, papers in groups.items():
        groups[reviewer] = [paper for paper in papers if paper in keys]
        keys.counts["reviewer_papers_without_text"] += len(papers) - len(groups[reviewer])
    if not len(pairs):
        raise InputError(f"no judgement of task {entry.name} has texts, of {judgements}", "Fetch the texts again")
    keys.counts["queries"] = pairs["query"].n_unique()
    keys.counts["judgements"] = len(pairs)
    return Judged(pairs, keys, texts, groups)


def _grades(entry: Entry, folder: Folder, split: str, counts: Counter[str]) -> pl.DataFrame:
    """Return the grade of each pair; queries, and the candidates of each query, keep the order of the file."""
    rows = []
    for query, candidate, score in _judgements(entry, folder, split):
        pair = f"query {query!r}, candidate {candidate!r}"
        grade = _parse_number(entry, pair, score)
        if grade != int(grade):
            raise InputError(f"the grade of {pair} of task {entry.name} must be whole, got {score!r}", _REMEDY)
        rows.append((query, candidate, int(grade)))
    schema = {"query": pl.String, "candidate": pl.String, "grade": pl.Int64}
    judged = pl.DataFrame(rows, schema, orient="row").with_row_index("order")
    pairs = judged.unique(["query", "candidate"], keep="first", maintain_order=True)
    counts["judgements_repeated"] += len(judged) - len(pairs)
    return pairs.sort(pl.col("order").min().over("query"), "order").drop("order")


def _judgements(entry: Entry, folder: Folder, split: str) -> Iterator[tuple[str, str, Any]]:
    """Yield (query, candidate, score) of each judgement of a split, or of the sample that replaces it."""
    sample = folder.sample(entry)
    if sample is None:
        for row in rows(folder.files(TEST, entry.test, split), ("query_id", "cand_id", "score")):
            yield str(row["query_id"]), str(row["cand_id"]), row["score"]
        return
    for position, row in enumerate(_sample_rows(entry, sample)):
        query = row["query"]
        query_id = read_doc(query, (), entry.name).id if isinstance(query, Mapping) else str(position)
        for paper in row.get("candidates") or [{**row["pos"], "score": 1}, {**row["neg"], "score": 0}]:
            yield query_id, read_doc(paper, (), entry.name).id, paper["score"]


def _sample_rows(entry: Entry, sample: Path) -> Iterator[dict[str, Any]]:
    columns = ("doc_id", "corpus_id", "sha", "query", "candidates", "pos", "neg", entry.label)
    return rows([sample], (entry.label or "query",), columns)


def _parse_number(entry: Entry, item: str, value: Any) -> float:
    try:
        parsed = kit.number(value) if isinstance(value, str) else float(value)
    except (TypeError, ValueError, OverflowError):
        parsed = math.nan
    if not math.isfinite(parsed):
        problem = f"the label of {item} of task {entry.name} must be a number, got {value!r:.80}"
        raise InputError(problem, "Fetch it again")
    return parsed


def load_authors(entry: Entry, folder: Folder, counts: Counter[str]) -> list[DataSet]:
    """Return the data sets, their blocks in random order; signatures without a cluster are left out and counted."""
    keys = {doc.id: doc.key for doc in docs(entry, folder)}
    sets = []
    for path in folder.authors(entry):
        clusters = enumerate(_document(sibling(path, "clusters")).values())
        author_of = {signature: position for position, cluster in clusters for signature in cluster["signature_ids"]}
        blocks: dict[str, list[tuple[str, int]]] = {}
        for signature, row in _document(path).items():
            block, paper = row.get("author_info", {}).get("block"), _paper_id(path, str(row.get("paper_id")))
            if block is None or paper not in keys:
                raise InputError(
                    f"signature {signature!r} of task {entry.name} must have a block and a paper with a text, "
                    f"got {block!r} and {paper!r}",
                    "Fetch the files again; those of another version are not read",
                )
            counts["signatures_without_cluster"] += signature not in author_of
            if signature in author_of:
                blocks.setdefault(block, []).append((keys[paper], author_of[signature]))
        counts["signatures"] += sum(map(len, blocks.values()))
        if len(blocks) < 2:
            problem = f"data set {path.parent.name} of task {entry.name} must have two blocks, got {len(blocks)}"
            raise InputError(problem, _REMEDY)
        order = np.argsort(kit.priorities(kit.id_keys(list(blocks)), _SPLIT_SEED, "s2and"), kind="stable")
        columns = [tuple(zip(*list(blocks.values())[position], strict=True)) for position in order]
        sets.append(DataSet(path.parent.name, tuple((papers, np.array(authors)) for papers, authors in columns)))
    return sets


def _paper_id(path: Path, paper: str) -> str:
    return f"{path.parent.name}/{paper}"
