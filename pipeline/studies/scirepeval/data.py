"""Read the data of one task: labels, judged queries, judged reviewers, or blocks of author signatures.

A third of a training sample is held out as its test set. The gold standard of reviewer assignment (Stelmakh et al.
2023) replaces reviewer matching: queries are the reviewers, and candidates are the papers that each of them rated,
since few papers have two ratings. Expertise from 1 to 5 becomes a grade from 0 to 3, rounded half up.
"""

from __future__ import annotations

import contextlib
import csv
import functools
import io
import math
import tarfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from pipeline.core.errors import CorruptError, InputError
from pipeline.core.rng import priorities, smallest
from pipeline.core.text import id_keys, number
from pipeline.studies.scirepeval.tasks import TEST, Doc, Entry, Folder, Keys, decoded, document, read_doc, rows, sibling

_SPLIT_SEED, _TEST_SHARE = 13, 3
_RATED = 10
"""Maximum number of papers that a reviewer of the gold standard rated."""
_RELEVANT = {"test_hard": 3, "test_soft": 2}
"""Lowest relevant grade of the gold standard, by split of reviewer matching."""


@dataclass(frozen=True)
class Labelled:
    """A task of classification or regression.

    Attributes:
        train: keys of the training papers.
        test: keys of the test papers.
        train_labels: regression: float64 ``[papers]``; classification: bool ``[papers, classes]``, where classes are
            the sorted labels of all papers.
        test_labels: likewise.
        counts: numbers of papers read, by kind.
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
    """A ranking task.

    Attributes:
        pairs: judged pairs, grouped by query: ``query`` and ``candidate`` (ids in the task) and ``grade``. Reviewer
            matching has the grade by hard labels, and in the column ``soft`` the grade by soft labels.
        keys: key of each paper.
        texts: ad-hoc queries by id; empty if queries are papers.
        groups: papers of each reviewer, by id; empty unless the task is reviewer matching.
    """

    pairs: pl.DataFrame
    keys: Keys
    texts: Mapping[str, str] = field(default_factory=dict)
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def queries(self) -> list[str]:
        """Ids of the queries, in the order of the pairs."""
        return list(self.pairs["query"].unique(maintain_order=True))


def docs(entry: Entry, folder: Folder, split: str = "evaluation") -> Iterator[Doc]:
    """Yield every paper of a split of a task's texts, with repeats."""
    sample = folder.sample(entry) if split == "evaluation" else None
    if entry.kind == "authors":
        for path in folder.authors(entry):
            for paper, row in document(sibling(path, "papers")).items():
                yield read_doc(row, entry.fields, entry.name, _paper_id(path, paper))
    elif entry.kind == "reviewers" and sample:
        for name, content in _archive(sample).items():
            if "/papers/" in name:
                paper = decoded(content, f"{name} of {sample}")
                yield Doc(Path(name).stem, paper.get("title") or "", paper.get("abstract") or "")
    else:
        columns = ("doc_id", "corpus_id", "sha", "paper_id", *entry.fields, "query", "candidates", "pos", "neg")
        for row in rows([sample] if sample else folder.texts(entry, split), (), columns):
            papers: list[Mapping[str, Any]] = [row]
            if "query" in row:
                papers = row["candidates"] if "candidates" in row else [row["pos"], row["neg"]]
                if isinstance(row["query"], Mapping):
                    papers = [row["query"], *papers]
            yield from (read_doc(paper, entry.fields, entry.name) for paper in papers)


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
        ranks = priorities(id_keys([paper for paper, _ in pairs]), _SPLIT_SEED, "scirepeval-sample", entry.name)
        held_out = set(smallest(ranks, len(pairs) // _TEST_SHARE).tolist())
        train, test = (
            [pair for index, pair in enumerate(pairs) if (index in held_out) == in_test] for in_test in (False, True)
        )
    else:
        split_rows = (rows(folder.files(TEST, entry.test, split), ("paper_id", "label")) for split in entry.splits)
        train, test = ([(str(row["paper_id"]), row["label"]) for row in labelled_rows] for labelled_rows in split_rows)
    for part in (train, test):
        judged, part[:] = len(part), [pair for pair in part if pair[0] in keys]
        keys.counts["labels_without_text"] += judged - len(part)
    keys.counts |= Counter(train=len(train), test=len(test))
    for name, pairs in (("training", train), ("test", test)):
        if not pairs:
            raise InputError(f"task {entry.name} must have {name} papers, got none", "Fetch it again")
    train_keys, test_keys = ([keys[paper] for paper, _ in pairs] for pairs in (train, test))
    pairs = [*train, *test]
    labels: npt.NDArray[Any]
    if entry.format == "regression":
        labels = np.array([_parse_number(entry, f"paper {paper!r}", label) for paper, label in pairs], np.float64)
    else:
        labels = _indicator([_labels_of(entry, paper, label) for paper, label in pairs], entry.several_labels)
        keys.counts["papers_without_label"] += int(np.count_nonzero(~labels.any(axis=1)))
    return Labelled(train_keys, test_keys, labels[: len(train)], labels[len(train) :], keys.counts)


def _labels_of(entry: Entry, paper: str, label: Any) -> Sequence[Any]:
    """Return the labels of a paper; several labels are given as a list or as a JSON list."""
    labels = label if entry.several_labels else (label,)
    if isinstance(labels, str):
        with contextlib.suppress(msgspec.DecodeError, UnicodeError, RecursionError):
            labels = msgspec.json.decode(labels)
    if not isinstance(labels, list | tuple) or any(
        value is None or isinstance(value, list | dict) or value == "" or value != value for value in labels
    ):
        raise InputError(f"the label of paper {paper!r} of task {entry.name} must be given, got {label!r}", "")
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
    groups = _reviewers(entry, folder) if entry.kind == "reviewers" else {}
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
            raise InputError(f"the grade of {pair} of task {entry.name} must be whole, got {score!r}", "")
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
    elif entry.kind == "reviewers":
        for reviewer, paper, grade in _ratings(entry, sample):
            yield reviewer, paper, int(grade >= _RELEVANT[split])
    else:
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
        parsed = number(value) if isinstance(value, str) else float(value)
    except (TypeError, ValueError, OverflowError):
        parsed = math.nan
    if not math.isfinite(parsed):
        raise InputError(
            f"the label of {item} of task {entry.name} must be a number, got {value!r:.80}", "Fetch it again"
        )
    return parsed


def _reviewers(entry: Entry, folder: Folder) -> dict[str, list[str]]:
    """Return the papers of each reviewer."""
    if sample := folder.sample(entry):
        contents = {Path(name).stem: text for name, text in _archive(sample).items() if "/participants/" in name}
        profiles = {name: decoded(text, f"participant {name} of {sample}") for name, text in contents.items()}
        return {name: [paper["paperId"] for paper in profile["papers"]] for name, profile in profiles.items()}
    reviewers = rows(folder.needed(entry)[-1], ("r_id", "papers"))
    return {str(row["r_id"]): [str(paper) for paper in row["papers"]] for row in reviewers}


def _ratings(entry: Entry, sample: Path) -> Iterator[tuple[str, str, int]]:
    """Yield (reviewer, paper, grade) of each rating of the gold standard."""
    table = next(content for name, content in _archive(sample).items() if name.endswith("/evaluations.csv"))
    for row in csv.DictReader(io.StringIO(table.decode()), delimiter="\t"):
        reviewer = row["ParticipantID"]
        for position in range(1, _RATED + 1):
            if paper := row[f"Paper{position}"]:
                expertise = _parse_number(entry, f"reviewer {reviewer!r}, paper {paper!r}", row[f"Expertise{position}"])
                yield reviewer, paper, math.floor((expertise - 1) * 3 / 4 + 0.5)


@functools.lru_cache(maxsize=1)
def _archive(path: Path) -> dict[str, bytes]:
    """Return the content of the files of the gold standard by name; ``path`` is an archive or an unpacked folder."""
    if path.is_dir():
        return {f"/{file.relative_to(path)}": file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}
    try:
        with tarfile.open(path) as archive:
            members = [member for member in archive.getmembers() if member.isfile()]
            return {f"/{member.name}": handle.read() for member in members if (handle := archive.extractfile(member))}
    except (tarfile.TarError, OSError, EOFError) as error:
        raise CorruptError(f"{path} cannot be read as an archive ({error})", "Fetch it again") from error


def load_authors(entry: Entry, folder: Folder, counts: Counter[str]) -> list[DataSet]:
    """Return the data sets, their blocks in random order; signatures without a cluster are left out and counted."""
    keys = {doc.id: doc.key for doc in docs(entry, folder)}
    sets = []
    for path in folder.authors(entry):
        clusters = enumerate(document(sibling(path, "clusters")).values())
        author_of = {signature: position for position, cluster in clusters for signature in cluster["signature_ids"]}
        blocks: dict[str, list[tuple[str, int]]] = {}
        for signature, row in document(path).items():
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
            raise InputError(
                f"data set {path.parent.name} of task {entry.name} must have two blocks, got {len(blocks)}", ""
            )
        order = np.argsort(priorities(id_keys(list(blocks)), _SPLIT_SEED, "s2and"), kind="stable")
        columns = [tuple(zip(*list(blocks.values())[position], strict=True)) for position in order]
        sets.append(DataSet(path.parent.name, tuple((papers, np.array(authors)) for papers, authors in columns)))
    return sets


def _paper_id(path: Path, paper: str) -> str:
    return f"{path.parent.name}/{paper}"
