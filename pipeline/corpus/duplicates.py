"""Find duplicate papers, by DOI or by normalised title and year, and write a corpus without them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from scipy import sparse
from scipy.sparse import csgraph

from pipeline.core.csr import Ints, Keys, pack
from pipeline.core.errors import InputError, require_known
from pipeline.core.progress import Progress
from pipeline.core.resources import Resources
from pipeline.core.schema import NO_YEAR, PAPERS, SHARD_ROWS
from pipeline.core.workdir import Workdir
from pipeline.corpus.arrays import GrowingLists, write_attributes
from pipeline.corpus.graph import NO_ROW
from pipeline.corpus.join import partition_of
from pipeline.corpus.merge import field_lists
from pipeline.corpus.prefilter import Attributes, PrefilterConfig, prefilter
from pipeline.corpus.reader import Corpus, Graph, Rows

RULES = ("doi", "title")


@dataclass(frozen=True)
class DuplicatesConfig:
    """How duplicate papers are found and treated.

    Attributes:
        action: ``drop`` keeps one paper of each group; ``merge`` also gives it the citations of the others.
        rules: some of :data:`RULES`: the same DOI; the same normalised title and year.
        min_title_chars: shorter titles, such as "Editorial", are not compared.
    """

    action: Literal["drop", "merge"]
    rules: tuple[str, ...] = RULES
    min_title_chars: int = 20

    def __post_init__(self) -> None:
        actions = ("drop", "merge")
        require_known(self.action, actions, f"--duplicates={self.action!r} is unknown", "Choose keep, drop or merge")
        for rule in self.rules:
            require_known(rule, RULES, f"duplicates cannot be identified by {rule!r}")


class SharedKeys(NamedTuple):
    """Rows that share a key with another row, int64, rising within a group, and the size of each group, int64."""

    rows: Ints
    sizes: Ints

    @property
    def extra(self) -> int:
        """Number of papers beyond the first of each group."""
        return len(self.rows) - len(self.sizes)


def title_year_keys(attributes: Attributes, rows: slice, min_title_chars: int) -> Keys:
    """Return a key of title and year for each paper, uint64 ``[rows]``; 0: not compared."""
    year = attributes["year"][rows]
    with np.errstate(over="ignore"):
        keys: Keys = attributes["title_key"][rows] + year.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    compared = (attributes["title_chars"][rows] >= min_title_chars) & (attributes["title_key"][rows] != 0)
    keys[~compared | (year == NO_YEAR)] = 0
    return keys


def groups(attributes: Attributes, rule: str, min_title_chars: int, memory: int) -> SharedKeys:
    """Return the groups of one rule. The columns are read once per ``memory / 40`` papers."""
    papers = len(attributes["key"])
    partitions = max(1, -(-papers * 40 // max(memory, 1)))
    by_partition = [SharedKeys(np.empty(0, np.int64), np.empty(0, np.int64))]
    for partition in range(partitions):
        selected = [(np.empty(0, np.uint64), np.empty(0, np.int64))]
        for start in range(0, papers, _READ_PAPERS):
            part = slice(start, start + _READ_PAPERS)
            keys = attributes["doi_key"][part] if rule == "doi" else title_year_keys(attributes, part, min_title_chars)
            chosen = np.flatnonzero((partition_of(keys, partitions) == partition) & (keys != 0))
            selected.append((keys[chosen], chosen + start))
        keys, rows = (np.concatenate(columns) for columns in zip(*selected, strict=True))
        _, group, size = np.unique(keys, return_inverse=True, return_counts=True)
        shared = np.flatnonzero(size[group] > 1)
        by_partition.append(SharedKeys(rows[shared[np.argsort(group[shared], kind="stable")]], size[size > 1]))
    return SharedKeys(*(np.concatenate(columns) for columns in zip(*by_partition, strict=True)))


class Duplicates(NamedTuple):
    """Papers that another paper replaces.

    Attributes:
        rows: int64 ``[n]``, rising, the papers that are not kept.
        kept: int64 ``[n]``, the paper that replaces each of them.
        by_doi: bool ``[n]``, whether the DOI identifies it; otherwise title and year do.
    """

    rows: Ints
    kept: Ints
    by_doi: npt.NDArray[np.bool_]


def find_duplicates(attributes: Attributes, config: DuplicatesConfig, memory: int) -> Duplicates:
    """Return the duplicates under all rules together: A equals B by DOI, B equals C by title, so A equals C.

    The kept paper of a group is the first by: has an abstract, most references, most citations, lowest id.
    """
    by_rule = {rule: groups(attributes, rule, config.min_title_chars, memory) for rule in config.rules}
    members = np.unique(np.concatenate([np.empty(0, np.int64), *(of_rule.rows for of_rule in by_rule.values())]))
    links = sparse.coo_array((len(members), len(members)), dtype=bool)
    for rows, sizes in by_rule.values():
        positions = np.searchsorted(members, rows)
        lowest = np.repeat(positions[np.cumsum(sizes) - sizes], sizes)
        links += sparse.coo_array((np.ones(len(rows), bool), (lowest, positions)), links.shape)
    label = csgraph.connected_components(links, directed=False)[1]
    chars, outbound, inbound = (attributes[name][members] for name in ("abstract_chars", "n_outbound", "n_inbound"))
    order = np.lexsort((members, -inbound, -outbound, chars == 0, label))
    is_first = np.concatenate([[True], label[order][1:] != label[order][:-1]]) if len(order) else np.empty(0, bool)
    kept_of = members[order[is_first]][np.cumsum(is_first) - 1]
    removed = order[~is_first]
    rows, kept = members[removed], kept_of[~is_first]
    rising = np.argsort(rows)
    rows, kept = rows[rising], kept[rising]
    return Duplicates(rows, kept, np.isin(rows, by_rule["doi"].rows) if "doi" in by_rule else np.zeros(len(rows), bool))


_READ_PAPERS = 4_000_000
"""Papers whose keys are read at a time."""

_BLOCK_PAPERS = 262_144
"""Papers whose citations are rewritten at a time."""


def write_without_duplicates(
    corpus: Corpus, config: DuplicatesConfig, out: Workdir, resources: Resources
) -> dict[str, Any]:
    """Write a corpus without duplicate papers and return its counts.

    Uses about 40 bytes a paper in addition to ``resources.memory``. A paper gets the fields and the citations, in both
    directions, of the papers merged into it. Its number of references (and of citing papers) is the largest of theirs,
    or the number of edges in the new graph if that is larger. InputError if the corpus has judged queries, which name
    papers by id.
    """
    if corpus.has_query_texts():
        raise InputError("a corpus with judged queries keeps its duplicates", "Build it with --duplicates=keep")
    columns = dict(corpus.attributes)
    duplicates = find_duplicates(columns, config, resources.memory // 2)
    merge = config.action == "merge"
    is_kept = np.ones(len(corpus), bool)
    is_kept[duplicates.rows] = False
    new_row = (np.cumsum(is_kept, dtype=np.int64) - 1).astype(np.uint32)
    new_row[duplicates.rows] = new_row[duplicates.kept] if merge else NO_ROW
    merged = duplicates.rows[np.argsort(new_row[duplicates.rows], kind="stable")] if merge else duplicates.rows[:0]
    edges = {}
    for name, graph in (("outgoing", corpus.outgoing), ("incoming", corpus.incoming)):
        lists = GrowingLists(out.scratch(), name)
        _rewrite(graph, new_row, is_kept, merged, lists, name)
        edges[name] = lists.counts()
        lists.write(out)
    if merge:
        columns |= {name: np.array(columns[name]) for name in ("fields", "n_outbound", "n_inbound")}
        np.bitwise_or.at(columns["fields"], duplicates.kept, columns["fields"][duplicates.rows])
        for name, direction in (("n_outbound", "outgoing"), ("n_inbound", "incoming")):
            np.maximum.at(columns[name], duplicates.kept, columns[name][duplicates.rows])
            columns[name][is_kept] = np.maximum(columns[name][is_kept], edges[direction])
    blocks = (slice(start, start + _BLOCK_PAPERS) for start in range(0, len(corpus), _BLOCK_PAPERS))
    kept_columns = ({name: column[block][is_kept[block]] for name, column in columns.items()} for block in blocks)
    attributes = write_attributes(out, kept_columns)
    _write_shards(corpus, is_kept, attributes, out)
    by_doi = int(np.count_nonzero(duplicates.by_doi))
    return {
        "read": len(corpus),
        "kept": len(attributes["key"]),
        "dropped": {"duplicate_doi": by_doi, "duplicate_title_and_year": len(duplicates.rows) - by_doi},
        "duplicate_groups": len(np.unique(duplicates.kept)),
        "references": int(attributes["n_outbound"].sum(dtype=np.int64)),
        "references_in_corpus": int(edges["outgoing"].sum()),
        "prefilter": prefilter(attributes, PrefilterConfig())[1],
    }


def _rewrite(
    graph: Graph, new_row: Rows, is_kept: npt.NDArray[np.bool_], merged: Ints, lists: GrowingLists, name: str
) -> None:
    """Append one direction of the graph with the new rows; ``merged`` are old rows in the order of their new ones."""
    merged_into = new_row[merged]
    with Progress(len(new_row), f"corpus: {name} without duplicates", "papers") as progress:
        for start in range(0, len(new_row), _BLOCK_PAPERS):
            rows = start + np.flatnonzero(is_kept[start : start + _BLOCK_PAPERS])
            progress.add(min(_BLOCK_PAPERS, len(new_row) - start))
            if not len(rows):
                continue
            first_row, last_row = int(new_row[rows[0]]), int(new_row[rows[-1]])
            rows = np.concatenate([rows, merged[slice(*np.searchsorted(merged_into, [first_row, last_row + 1]))]])
            positions, neighbours = graph.of_many(rows)
            owner, neighbour = new_row[rows[positions]], new_row[neighbours]
            is_kept_edge = (neighbour != NO_ROW) & (neighbour != owner)
            pairs = np.unique(pack(owner[is_kept_edge], neighbour[is_kept_edge]))
            owner = (pairs >> np.uint64(32)).astype(np.uint32) - first_row
            lists.append(np.bincount(owner, minlength=last_row + 1 - first_row), pairs.astype(np.uint32))


def _write_shards(corpus: Corpus, is_kept: npt.NDArray[np.bool_], attributes: Mapping[str, Any], out: Workdir) -> None:
    kept_rows = np.flatnonzero(is_kept)
    for shard, start in enumerate(range(0, max(len(kept_rows), 1), SHARD_ROWS)):
        name, rows = f"papers-{shard:05d}.arrow", slice(start, start + SHARD_ROWS)
        if out.done(name):
            continue
        table = corpus.take(kept_rows[rows], ["paper_id", "title", "abstract", "year"])
        columns = dict(zip(table.column_names, table.columns, strict=True))
        columns |= {name: pa.array(attributes[name][rows]) for name in ("n_outbound", "n_inbound")}
        columns["fields"] = field_lists(attributes["fields"][rows])
        out.arrow(name, pa.table([columns[field.name] for field in PAPERS], schema=PAPERS), PAPERS)
