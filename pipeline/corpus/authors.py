"""The authors of the papers of a corpus, and which cited papers are by acquaintances."""

from __future__ import annotations

import functools
import glob
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.core.artifact import Artifact
from pipeline.core.csr import Ints, Owners, find_sorted, offsets_of
from pipeline.core.errors import InputError
from pipeline.core.parallel import unordered
from pipeline.core.progress import Progress
from pipeline.core.resources import Resources
from pipeline.core.schema import AUTHORS, INDPTR, NO_YEAR
from pipeline.core.workdir import Workdir
from pipeline.corpus.joins import connected
from pipeline.corpus.reader import AnyRows, Corpus, Graph
from pipeline.corpus.shards import GrowingColumns
from pipeline.sources.authors import RESOLUTIONS, author_rows
from pipeline.sources.base import Release, grouped

CLASSES = ("unknown", "self", "collaborator", "stranger")
"""What a cited paper is to the citing one (:meth:`Authors.classes`)."""

_READ, _SEARCHED = 1 << 17, 1 << 24
"""Authors that are read and written, and that are searched, at a time."""

_PART_BITS = 40

_FOUND = """
    CREATE TABLE records AS SELECT place, any_value(key) AS key FROM authors GROUP BY place;
    CREATE TABLE found AS SELECT row, min(place) AS place, count(*) AS records FROM records JOIN papers USING (key)
        GROUP BY row"""
"""Of several records of a paper the first counts, as in its corpus."""

_COUNTED = "SELECT (SELECT count(*) FROM records), count(*), sum(records) FROM found"


def write_authors(corpus: Corpus, release: Release, out: Workdir, resources: Resources) -> dict[str, Any]:
    """Write the authors of a corpus by each resolution that its release has, and return the counts.

    Uses at most ``resources.memory`` bytes, and 24 bytes a paper.

    Raises:
        InputError: the source has no authors, or no paper of the corpus has any.
    """
    parts, keys = [*enumerate(release.parts())], corpus.attributes["key"]
    with Progress(len(parts), f"authors: read {release.source}", "parts") as progress:
        for _ in unordered(functools.partial(_read_part, release, out.scratch()), parts, resources.workers):
            progress.add(1)
    counts: dict[str, Any] = {}
    with connected(resources.memory * 3 // 4, resources.workers, out.scratch()) as db:
        folder = glob.escape(out.scratch().as_posix()).replace("'", "''")
        db.execute(f"CREATE VIEW authors AS FROM read_parquet('{folder}/authors-*.parquet')")
        db.register("papers", pa.table({"key": keys, "row": np.arange(len(keys), dtype=np.uint32)}))
        db.execute(_FOUND)
        for name in RESOLUTIONS:
            known = (
                f'SELECT DISTINCT row, "{name}" FROM authors JOIN found USING (place) WHERE "{name}" <> 0 ORDER BY ALL'
            )
            lengths, column = np.zeros(len(keys), np.int64), GrowingColumns(out.scratch(), name, AUTHORS)
            for batch in db.sql(known).to_arrow_reader(_READ):
                np.add.at(lengths, np.asarray(batch["row"]), 1)
                column.append(np.asarray(batch[name]))
            counts[f"with_{name}"] = int(np.count_nonzero(lengths))
            if counts[f"with_{name}"]:
                column.publish(out, f"{name}-keys.arrow")
                offsets = np.concatenate([[0], np.cumsum(lengths)])
                out.arrow(f"{name}-indptr.arrow", pa.table([offsets], schema=INDPTR), INDPTR)
        read, kept, of_papers = (int(number or 0) for number in db.sql(_COUNTED).fetchall()[0])
    if not any(counts.values()):
        remedy = "Build the corpus from a release with authors"
        raise InputError(f"no paper of {corpus.artifact.name} has authors in its release", remedy)
    return {"read": read, "kept": kept, "dropped": {"repeated": of_papers - kept, "other": read - of_papers}} | counts


def _read_part(release: Release, scratch: Path, part: tuple[int, str]) -> None:
    """Write the authors of one part of a release (:func:`author_rows`), with places in its order."""
    number, name = part
    place = number << _PART_BITS
    with pq.ParquetWriter(scratch / f"authors-{number:05d}.parquet", author_rows([], place).schema) as writer:
        for papers in grouped(release.authors(name), lambda paper: len(paper[1]), _READ, _READ):
            writer.write_table(author_rows(papers, place))
            place += len(papers)


class Authors:
    """The authors of the papers of a corpus.

    Attributes:
        resolutions: how they are told apart: those of :data:`pipeline.sources.authors.RESOLUTIONS` that are there.
    """

    def __init__(self, artifact: Artifact, corpus: Corpus) -> None:
        self._artifact, self._year = artifact, corpus.attributes["year"]
        self.resolutions = [name for name in RESOLUTIONS if artifact.outputs(f"{name}-keys.arrow")]

    def of_papers(self, resolution: str) -> Graph:
        """Return the keys of the authors of each paper, uint64, as lists."""
        names = (f"{resolution}-{part}.arrow" for part in ("indptr", "keys"))
        return Graph(*(self._artifact.arrow(name).column(0).chunk(0).to_numpy() for name in names))

    def classes(
        self, queries: AnyRows, years: AnyRows | int, owner: Ints, cited: AnyRows, resolution: str = ""
    ) -> npt.NDArray[np.int64]:
        """Return what cited papers are to the citing ones, places in :data:`CLASSES`, int64 ``[citations]``.

        - ``self``: the two share an author (Aksnes 2003, https://doi.org/10.1023/A:1021919228368).
        - ``collaborator``: no author is shared, but an author of one and an author of the other wrote a paper of the
          corpus together in a year before that of the citing one (distance 1 of Wallace, Larivière & Gingras 2012,
          https://doi.org/10.1371/journal.pone.0033339). Papers beyond the corpus are not seen, so some are missed.
        - ``stranger``: neither.
        - ``unknown``: the authors of one of the two are.

        Args:
            queries: rows of the citing papers; -1: unknown.
            years: their years.
            owner: position of the citing paper in ``queries`` for each citation, rising.
            cited: row of the cited paper.
            resolution: what tells authors apart; empty: the first there is.
        """
        lists = self.of_papers(resolution or self.resolutions[0])
        theirs = np.unique(lists.of_many(queries[queries >= 0])[1])
        papers_of, starts = self._papers_of(theirs, lists), offsets_of(owner, len(queries))
        years, classes = np.broadcast_to(years, len(queries)), np.zeros(len(cited), np.int64)
        for query in np.flatnonzero((np.diff(starts) > 0) & (queries >= 0)):
            citations = slice(starts[query], starts[query + 1])
            own, (paper, author) = lists.of(queries[query]), lists.of_many(cited[citations])
            earlier = np.unique(papers_of.of_many(np.searchsorted(theirs, own))[1])
            earlier = earlier[(self._year[earlier] < years[query]) & (self._year[earlier] != NO_YEAR)]
            near = np.unique(lists.of_many(earlier)[1])
            found = classes[citations]
            found[paper] = CLASSES.index("stranger") if len(own) else 0
            found[paper[np.isin(author, near)]] = CLASSES.index("collaborator")
            found[paper[np.isin(author, own)]] = CLASSES.index("self")
        return classes

    def _papers_of(self, authors: Owners, lists: Graph) -> Graph:
        """Return the papers of each of some authors, whose keys rise."""
        found = []
        for start in range(0, len(lists.indices), _SEARCHED):
            position, is_theirs = find_sorted(authors, lists.indices[start : start + _SEARCHED])
            places = np.flatnonzero(is_theirs)
            paper = np.searchsorted(lists.indptr, start + places, "right") - 1
            found.append(np.stack([position[places], paper]))
        author, paper = np.concatenate([np.empty((2, 0), np.int64), *found], axis=1)
        order = np.argsort(author, kind="stable")
        return Graph(offsets_of(author[order], len(authors)), paper[order].astype(np.uint32))
