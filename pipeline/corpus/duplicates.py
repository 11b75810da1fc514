"""Find duplicate papers, by DOI or by normalised title and year, and write a corpus without them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from scipy import sparse
from scipy.sparse import csgraph

from pipeline.core.csr import Ints, Keys, pack
from pipeline.core.errors import InputError, require_known
from pipeline.core.progress import Progress
from pipeline.core.resources import Resources
from pipeline.core.schema import NO_YEAR, PAPERS, SHARD_ROWS
from pipeline.core.workdir import Workdir
from pipeline.corpus.joins import connected
from pipeline.corpus.prefilter import Attributes, Mask, PrefilterConfig, prefilter
from pipeline.corpus.reader import Corpus, Graph
from pipeline.corpus.shards import paper_batch, write_attributes, write_graph

RULES = {
    "doi": ("doi_key", "doi_key <> 0"),
    "title": ("title_key, year", f"title_key <> 0 AND year <> {NO_YEAR} AND title_chars >= $chars"),
}
"""Columns in which two papers agree, and which papers are compared, in SQL."""


@dataclass(frozen=True)
class DuplicatesConfig:
    """How duplicate papers are found.

    Attributes:
        action: ``drop``: one paper of each group is kept.
        rules: some of :data:`RULES`: the same DOI; the same normalised title and year.
        min_title_chars: shorter titles, such as "Editorial", are not compared.
    """

    action: Literal["drop"] = "drop"
    rules: tuple[str, ...] = tuple(RULES)
    min_title_chars: int = 20

    def __post_init__(self) -> None:
        require_known(self.action, ("drop",), f"--duplicates={self.action!r} is unknown", "Choose keep or drop")
        for rule in self.rules:
            require_known(rule, tuple(RULES), f"duplicates cannot be identified by {rule!r}")


def groups(attributes: Attributes, rule: str, min_title_chars: int, memory: int) -> tuple[Ints, Ints]:
    """Return the rows of papers that agree with another one by a rule, and the lowest row of the group of each.

    Uses ``memory`` bytes and the columns themselves.
    """
    columns, compared = RULES[rule]
    table = {name: attributes[name] for name in ("doi_key", "title_key", "title_chars", "year")}
    with connected(memory) as db:
        db.register("papers", pa.table({**table, "row": np.arange(len(table["year"]), dtype=np.uint32)}))
        same, compared = f"OVER (PARTITION BY {columns})", compared.replace("$chars", str(min_title_chars))
        sql = f"SELECT row, min(row) {same} AS lowest FROM papers WHERE {compared} QUALIFY count(*) {same} > 1"
        found = db.execute(sql).fetchnumpy()
    return found["row"].astype(np.int64), found["lowest"].astype(np.int64)


def find_duplicates(attributes: Attributes, config: DuplicatesConfig, memory: int) -> tuple[Ints, Ints, Mask]:
    """Return rows of duplicates, rising, the paper that is kept for each, and whether the DOI identifies it.

    All rules count together: A equals B by DOI, B equals C by title, so A equals C. The kept paper of a group is the
    first by: has an abstract, most references, most citations, lowest id.
    """
    by_rule = {rule: groups(attributes, rule, config.min_title_chars, memory) for rule in config.rules}
    members = np.unique(np.concatenate([np.empty(0, np.int64), *(rows for rows, _ in by_rule.values())]))
    links = sparse.coo_array((len(members), len(members)), dtype=bool)
    for found in by_rule.values():
        ends = tuple(np.searchsorted(members, rows) for rows in found)
        links += sparse.coo_array((np.ones(len(ends[0]), bool), ends), links.shape)
    label = csgraph.connected_components(links, directed=False)[1]
    chars, outbound, inbound = (attributes[name][members] for name in ("abstract_chars", "n_outbound", "n_inbound"))
    order = np.lexsort((members, -inbound, -outbound, chars == 0, label))
    is_first = np.concatenate([[True], label[order][1:] != label[order][:-1]]) if len(order) else np.empty(0, bool)
    kept_of = members[order[is_first]][np.cumsum(is_first) - 1]
    rows, kept = members[order[~is_first]], kept_of[~is_first]
    rising = np.argsort(rows)
    rows, kept = rows[rising], kept[rising]
    return rows, kept, np.isin(rows, by_rule["doi"][0]) if "doi" in by_rule else np.zeros(len(rows), bool)


_BLOCK_PAPERS = 262_144
"""Papers whose citations are rewritten at a time."""


def write_without_duplicates(
    corpus: Corpus, config: DuplicatesConfig, out: Workdir, resources: Resources
) -> dict[str, Any]:
    """Write a corpus without duplicate papers, and without their citations, and return its counts.

    Uses about 20 bytes per paper in addition to ``resources.memory``. InputError if the corpus has judged queries,
    which name papers by id.
    """
    if corpus.has_query_texts():
        raise InputError("a corpus with judged queries keeps its duplicates", "Build it with --duplicates=keep")
    duplicates, kept_of, are_by_doi = find_duplicates(corpus.attributes, config, resources.memory // 2)
    is_kept = np.ones(len(corpus), bool)
    is_kept[duplicates] = False
    kept = len(corpus) - len(duplicates)
    edges = {
        name: write_graph(out, name, kept, _kept_pairs(graph, is_kept, name))
        for name, graph in (("outgoing", corpus.outgoing), ("incoming", corpus.incoming))
    }
    blocks = [slice(start, start + _BLOCK_PAPERS) for start in range(0, len(corpus), _BLOCK_PAPERS)]
    columns = corpus.attributes.values()
    attributes = write_attributes(out, ([column[block][is_kept[block]] for column in columns] for block in blocks))
    _write_shards(corpus, np.flatnonzero(is_kept), attributes, out)
    by_doi = int(np.count_nonzero(are_by_doi))
    return {
        "read": len(corpus),
        "kept": kept,
        "dropped": {"duplicate_doi": by_doi, "duplicate_title_and_year": len(duplicates) - by_doi},
        "duplicate_groups": len(np.unique(kept_of)),
        "references": int(attributes["n_outbound"].sum(dtype=np.int64)),
        "references_in_corpus": edges["outgoing"],
        "prefilter": prefilter(attributes, PrefilterConfig())[1],
    }


def _kept_pairs(graph: Graph, is_kept: Mask, name: str) -> Iterator[Keys]:
    """Yield the edges between kept papers in one direction, as rising pairs of their new rows."""
    new_row = (np.cumsum(is_kept, dtype=np.int64) - 1).astype(np.uint32)
    with Progress(len(new_row), f"corpus: {name} without duplicates", "papers") as progress:
        for start in range(0, len(new_row), _BLOCK_PAPERS):
            rows = start + np.flatnonzero(is_kept[start : start + _BLOCK_PAPERS])
            positions, neighbours = graph.of_many(rows)
            edges = np.flatnonzero(is_kept[neighbours])
            yield pack(new_row[rows[positions[edges]]], new_row[neighbours[edges]])
            progress.add(min(_BLOCK_PAPERS, len(new_row) - start))


def _write_shards(corpus: Corpus, kept_rows: Ints, attributes: Attributes, out: Workdir) -> None:
    for shard, start in enumerate(range(0, max(len(kept_rows), 1), SHARD_ROWS)):
        name, rows = f"papers-{shard:05d}.arrow", slice(start, start + SHARD_ROWS)
        if not out.done(name):
            texts = corpus.take(kept_rows[rows], ["paper_id", "title", "abstract"]).combine_chunks()
            columns = {column: texts[column].chunk(0) for column in texts.column_names}
            batch = paper_batch(columns, {column: values[rows] for column, values in attributes.items()})
            out.arrow(name, [batch], PAPERS)
