"""CSFCube (Mysore et al. 2021) and collections in its layout: papers with labelled sentences, judgements by facet.

A query is a paper and a facet, such as ``1198964_method``; its text is the paper's sentences of that facet.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from pipeline.core import files
from pipeline.core.errors import InputError, require_known
from pipeline.core.text import normalise, one_a_line
from pipeline.sources.base import QuerySet, find_files, fingerprint
from pipeline.sources.content import read_pairs
from pipeline.sources.papers import FileRelease, Paper
from pipeline.sources.records import Tally, read_records

FACETS: Mapping[str, tuple[str, ...]] = {
    "background": ("background", "objective"),
    "method": ("method",),
    "result": ("result",),
}
"""Sentence labels of each facet, as the authors define them."""

NOT_JUDGED = -1
"""Grade of a candidate that an annotator did not judge."""

_QUERIES, _CITED = "queries.tsv", "cited_pairs.tsv"
_GRADES = re.compile(r"relevance_\w+")

Annotations = dict[str, dict[str, list[Any]]]
"""An annotation file by query paper: ``cands`` (ids), and parallel lists of grades such as ``relevance_adju``."""


class Document(msgspec.Struct):
    """A paper with labelled sentences (``method_label``), with the key names of both releases."""

    corpusid: str | int | None = None
    paper_id: str | int | None = None
    title: str | None = None
    year: int | None = None
    sents: list[str] = []
    abstract: list[str] = []
    labels: list[str] = []
    pred_labels: list[str] = []

    @property
    def id(self) -> str:
        """The paper's id; empty if missing."""
        identifier = self.paper_id if self.corpusid is None else self.corpusid
        return "" if identifier is None else str(identifier)

    @property
    def sentences(self) -> list[tuple[str, str]]:
        """(label without ``_label``, text) of the sentences that are not blank."""
        labels = [label.removesuffix("_label") for label in self.labels or self.pred_labels]
        texts = map(normalise, self.sents or self.abstract)
        return [(label, text) for label, text in zip(labels, texts, strict=True) if text]


@dataclass(frozen=True)
class Csfcube(FileRelease):
    """A collection in CSFCube's layout.

    The folder has ``docs.jsonl.gz`` (or ``abstracts-*.jsonl``); ``*pid2anns*-FACET.json`` or, without judgements,
    ``queries.tsv`` (paper id, facet); and optionally ``cited_pairs.tsv``.
    """

    source = "csfcube"
    record = Document

    def identity(self) -> Mapping[str, Any]:
        """Return the files' checksums."""
        optional = [*self.annotations().values(), self.folder / _CITED, self.folder / _QUERIES]
        paths = [*self.files(), *(path for path in optional if path.is_file())]
        return {"files": fingerprint(paths, self.folder)}

    def files(self) -> list[Path]:
        """Return the files of papers."""
        return find_files(self.folder, ("docs.jsonl*", "abstracts-*.jsonl*"), "labelled abstracts")

    def annotations(self) -> dict[str, Path]:
        """Return the annotation file of each facet; InputError if a facet is not in :data:`FACETS`."""
        paths: dict[str, Path] = {}
        for path in sorted(self.folder.glob("*pid2anns*-*.json")):
            paths[checked_facet(path.stem.rpartition("-")[2], str(path))] = path
        return paths

    def papers(self, tally: Tally) -> Iterator[Paper]:
        """Yield the papers with their sentences as abstract; papers without sentences are counted."""
        citations = self._citations()
        for document in _documents(tally):
            tally.noted["paper_without_sentences"] += not document.sentences
            yield Paper(
                id=document.id,
                title=document.title,
                abstract=one_a_line(text for _, text in document.sentences),
                year=document.year,
                outbound=citations.get(document.id),
                lined=True,
            )

    def documents(self, ids: set[str]) -> dict[str, Document]:
        """Return the papers that the files have, by id."""
        documents = (document for path in self.files() for document in _documents(Tally(path, self)))
        return {document.id: document for document in documents if document.id in ids}

    def _citations(self) -> dict[str, list[str]]:
        references: dict[str, list[str]] = {}
        path = self.folder / _CITED
        pairs = read_pairs(path, "citing and cited paper id", "Correct the line") if path.is_file() else ()
        for _, (citing, cited) in pairs:
            references.setdefault(citing, []).append(cited)
        return references

    def query_facets(self) -> list[tuple[str, str]]:
        """Return (paper id, facet) of the queries, from the annotation files, else from ``queries.tsv``."""
        files = self.annotations()
        if files:
            return [(query, facet) for facet, path in files.items() for query in read_annotations(path)]
        path = self.folder / _QUERIES
        if not path.is_file():
            raise InputError(f"{self.folder} has neither *pid2anns*-FACET.json nor {_QUERIES}", "Give one of them")
        pairs = read_pairs(path, "paper id and facet", "Correct the line")
        return [(query, checked_facet(facet, f"{path}:{line_number}")) for line_number, (query, facet) in pairs]

    def queries(self) -> QuerySet:
        """Return the queries and their judgements (``relevance_adju``).

        Queries without a sentence of their facet are dropped and counted, and so are judgements of the query itself.

        Raises:
            InputError: a query's paper is missing, or an annotation file is malformed.
        """
        query_facets, noted, examples = self.query_facets(), Counter[str](), list[str]()
        documents = self.documents({query for query, _ in query_facets})
        texts: dict[str, str] = {}
        for query, facet in query_facets:
            if query not in documents:
                raise InputError(f"query {query} ({facet}) must be a paper of {self.folder}", "Add its abstract")
            labels = FACETS[facet]
            if text := one_a_line(text for label, text in documents[query].sentences if label in labels):
                texts[query_id(query, facet)] = text
            else:
                noted["query_without_sentences_of_its_facet"] += 1
                examples.append(f"query_without_sentences_of_its_facet: {query_id(query, facet)}")
        judgements = []
        for facet, path in self.annotations().items():
            for query, lists in read_annotations(path, "relevance_adju").items():
                for paper, grade in zip(lists["cands"], lists["relevance_adju"], strict=True):
                    if paper == query or grade == NOT_JUDGED:
                        noted["judgement_of_the_query_itself" if paper == query else "candidate_not_judged"] += 1
                    elif query_id(query, facet) in texts:
                        judgements.append((query_id(query, facet), paper, grade))
        self_pairs = [(query, query.rpartition("_")[0]) for query in texts]
        return QuerySet(texts, judgements, noted, examples[:3], self_pairs)


def _documents(tally: Tally) -> Iterator[Document]:
    for document in read_records(Document, tally):
        labels = document.labels or document.pred_labels
        if not document.id:
            tally.drop("no_paper_id")
        elif len(labels) != len(document.sents or document.abstract):
            tally.drop("labels_not_of_sentences", document.id)
        else:
            yield document


def query_id(paper: str, facet: str) -> str:
    """Return the id of a query, as in the authors' splits."""
    return f"{paper}_{facet}"


def checked_facet(name: str, origin: str) -> str:
    """Return a facet's name; InputError if there is no such facet."""
    require_known(name, FACETS, f"the facet in {origin} must be one of {', '.join(FACETS)}, got {name!r}")
    return name


def read_annotations(path: Path, required: str | None = None) -> Annotations:
    """Return an annotation file, with ids as text; ``required`` is a list of grades that every query must have.

    Raises:
        InputError: the file is malformed.
    """
    try:
        annotations = msgspec.convert(files.given_json(path), dict[str, dict[str, list[str | int]]])
    except msgspec.ValidationError as error:
        raise InputError(f"{path} must be an annotation file ({error})", "See docs/facets.md") from error
    checked: Annotations = {}
    for query, lists in annotations.items():
        place = f"query {query} of {path}"
        for name in filter(None, ("cands", required)):
            require_known(name, lists, f"{place} has no {name}", "See docs/facets.md")
        papers = list(map(str, lists["cands"]))
        if twice := [paper for paper, count in Counter(papers).items() if count > 1]:
            raise InputError(f"{place} has candidate {twice[0]} twice", "Keep one of them")
        grades = {name: values for name, values in lists.items() if _GRADES.fullmatch(name)}
        for name, values in grades.items():
            if len(values) != len(papers):
                what = f"{name} of {place} must have {len(papers)} grades, got {len(values)}"
                raise InputError(what, "Give one for each candidate")
            if wrong := [value for value in values if value not in (NOT_JUDGED, 0, 1, 2, 3)]:
                raise InputError(f"a grade of {place} must be -1 (none) to 3, got {wrong[0]!r}", f"Correct {name}")
        checked[query] = {"cands": papers, **grades}
    return checked
