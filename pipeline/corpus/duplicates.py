"""Papers that stand in a corpus more than once, by DOI or by normalised title and year, and a corpus without them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from scipy import sparse
from scipy.sparse import csgraph

from pipeline.core.errors import InputError, nearest
from pipeline.core.progress import Progress
from pipeline.core.resources import Resources
from pipeline.core.schema import NO_YEAR, PAPERS, SHARD_ROWS
from pipeline.core.workdir import Workdir
from pipeline.corpus.arrays import GrowingLists, write_attributes
from pipeline.corpus.graph import NOWHERE
from pipeline.corpus.join import partition_of
from pipeline.corpus.merge import field_lists
from pipeline.corpus.prefilter import Attributes, PrefilterConfig, prefilter
from pipeline.corpus.reader import Corpus, Graph

Rows = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]

RULES = ("doi", "title")


@dataclass(frozen=True)
class DuplicatesConfig:
    """What happens to papers that stand in a corpus more than once.

    Attributes:
        action: ``drop`` leaves one paper of each group; ``merge`` also lets the citations of the others be its own.
        rules: some of :data:`RULES`: the same DOI; the same normalised title and year.
        min_title_chars: shorter titles ("Editorial", "Book reviews") say nothing and are never compared.
    """

    action: Literal["drop", "merge"]
    rules: tuple[str, ...] = RULES
    min_title_chars: int = 20

    def __post_init__(self) -> None:
        if self.action not in ("drop", "merge"):
            raise InputError(f"--duplicates={self.action!r} is unknown", "Choose keep, drop or merge")
        for rule in self.rules:
            if rule not in RULES:
                raise InputError(f"duplicates cannot be identified by {rule!r}", nearest(rule, RULES))


class Groups(NamedTuple):
    """Rows that share a key with another row, int64, rising within a group, and the size of each group, int64."""

    rows: Rows
    sizes: Rows

    @property
    def extra(self) -> int:
        """Number of papers beyond the first of each group."""
        return len(self.rows) - len(self.sizes)


def title_keys(attributes: Attributes, rows: slice, min_title_chars: int) -> Keys:
    """Return the key by which two papers have one title and year, uint64; 0: not compared."""
    year = attributes["year"][rows]
    with np.errstate(over="ignore"):
        keys: Keys = attributes["title_key"][rows] + year.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    compared = (attributes["title_chars"][rows] >= min_title_chars) & (attributes["title_key"][rows] != 0)
    keys[~compared | (year == NO_YEAR)] = 0
    return keys


def groups(attributes: Attributes, rule: str, min_title_chars: int, memory: int) -> Groups:
    """Return the groups of one rule; the columns are read once for each ``memory / 40`` papers."""
    papers = len(attributes["key"])
    partitions = max(1, -(-papers * 40 // max(memory, 1)))
    parts = [Groups(np.empty(0, np.int64), np.empty(0, np.int64))]
    for partition in range(partitions):
        taken = [(np.empty(0, np.uint64), np.empty(0, np.int64))]
        for start in range(0, papers, _READ):
            part = slice(start, start + _READ)
            keys = attributes["doi_key"][part] if rule == "doi" else title_keys(attributes, part, min_title_chars)
            mine = np.flatnonzero((partition_of(keys, partitions) == partition) & (keys != 0))
            taken.append((keys[mine], mine + start))
        keys, rows = (np.concatenate(columns) for columns in zip(*taken, strict=True))
        _, group, size = np.unique(keys, return_inverse=True, return_counts=True)
        shared = np.flatnonzero(size[group] > 1)
        parts.append(Groups(rows[shared[np.argsort(group[shared], kind="stable")]], size[size > 1]))
    return Groups(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


class Duplicates(NamedTuple):
    """Papers that another paper replaces.

    Attributes:
        rows: int64 ``[n]``, rising, the papers that are not kept.
        kept: int64 ``[n]``, the paper that stands for each.
        by_doi: bool ``[n]``, whether its DOI tells (otherwise title and year do).
    """

    rows: Rows
    kept: Rows
    by_doi: npt.NDArray[np.bool_]


def find_duplicates(attributes: Attributes, config: DuplicatesConfig, memory: int) -> Duplicates:
    """Return which papers are the same as another one, over all rules together: A is B by DOI and B is C by title.

    Of a group that paper is kept that has an abstract, then the most references, then the most citations, then the
    lowest id.
    """
    by_rule = {rule: groups(attributes, rule, config.min_title_chars, memory) for rule in config.rules}
    members = np.unique(np.concatenate([np.empty(0, np.int64), *(same.rows for same in by_rule.values())]))
    links = sparse.coo_array((len(members), len(members)), dtype=bool)
    for rows, sizes in by_rule.values():
        place = np.searchsorted(members, rows)
        lowest = np.repeat(place[np.cumsum(sizes) - sizes], sizes)
        links += sparse.coo_array((np.ones(len(rows), bool), (lowest, place)), links.shape)
    label = csgraph.connected_components(links, directed=False)[1]
    chars, outbound, inbound = (attributes[n][members] for n in ("abstract_chars", "n_outbound", "n_inbound"))
    order = np.lexsort((members, -inbound, -outbound, chars == 0, label))
    first = np.concatenate([[True], label[order][1:] != label[order][:-1]]) if len(order) else np.empty(0, bool)
    best = members[order[first]][np.cumsum(first) - 1]
    gone = order[~first]
    rows, kept = members[gone], best[~first]
    rising = np.argsort(rows)
    rows, kept = rows[rising], kept[rising]
    return Duplicates(rows, kept, np.isin(rows, by_rule["doi"].rows) if "doi" in by_rule else np.zeros(len(rows), bool))


_READ = 4_000_000
"""Papers whose keys are read at a time."""

_BLOCK = 262_144
"""Papers whose citations are rewritten at a time."""


class _Renumbering(NamedTuple):
    """New rows.

    Attributes:
        of: uint32 ``[papers]``, new row of each paper, or of the one it is merged into; :data:`NOWHERE` where it has
            none.
        kept: bool ``[papers]``.
        merged: int64 ``[n]``, old rows of the merged papers, in the order of their new rows.
    """

    of: npt.NDArray[np.uint32]
    kept: npt.NDArray[np.bool_]
    merged: Rows


def write_without_duplicates(
    corpus: Corpus, config: DuplicatesConfig, out: Workdir, resources: Resources
) -> dict[str, Any]:
    """Write a corpus in which every paper stands once, and return its counts.

    Holds about 40 bytes a paper beside ``resources.memory``. Merged papers give their citations, in both directions,
    and their fields to the paper that stands for them; it lists as many references (and citing papers) as the longest
    of their lists, or as the corpus then knows of. InputError if the corpus has judged queries, which name papers by
    id.
    """
    if corpus.has_query_texts():
        raise InputError("a corpus with judged queries keeps its duplicates", "Build it with --duplicates=keep")
    columns = dict(corpus.attributes)
    duplicates = find_duplicates(columns, config, resources.memory // 2)
    renumbering = _renumber(len(corpus), duplicates, config.action == "merge")
    kept = renumbering.kept
    edges = {}
    for name, graph in (("outgoing", corpus.outgoing), ("incoming", corpus.incoming)):
        lists = GrowingLists(out.scratch(), name)
        _rewrite(graph, renumbering, lists, name)
        edges[name] = lists.counts()
        lists.write(out)
    if config.action == "merge":
        columns |= {name: np.array(columns[name]) for name in ("fields", "n_outbound", "n_inbound")}
        np.bitwise_or.at(columns["fields"], duplicates.kept, columns["fields"][duplicates.rows])
        for name, direction in (("n_outbound", "outgoing"), ("n_inbound", "incoming")):
            np.maximum.at(columns[name], duplicates.kept, columns[name][duplicates.rows])
            columns[name][kept] = np.maximum(columns[name][kept], edges[direction])
    blocks = (slice(start, start + _BLOCK) for start in range(0, len(corpus), _BLOCK))
    new = write_attributes(out, ({n: column[block][kept[block]] for n, column in columns.items()} for block in blocks))
    _write_shards(corpus, kept, new, out)
    by_doi = int(np.count_nonzero(duplicates.by_doi))
    return {
        "read": len(corpus),
        "kept": len(new["key"]),
        "dropped": {"duplicate_doi": by_doi, "duplicate_title_and_year": len(duplicates.rows) - by_doi},
        "duplicate_groups": len(np.unique(duplicates.kept)),
        "references": int(new["n_outbound"].sum(dtype=np.int64)),
        "references_in_corpus": int(edges["outgoing"].sum()),
        "prefilter": prefilter(new, PrefilterConfig())[1],
    }


def _renumber(papers: int, duplicates: Duplicates, merge: bool) -> _Renumbering:
    kept = np.ones(papers, bool)
    kept[duplicates.rows] = False
    of = (np.cumsum(kept, dtype=np.int64) - 1).astype(np.uint32)
    of[duplicates.rows] = of[duplicates.kept] if merge else NOWHERE
    order = np.argsort(of[duplicates.rows], kind="stable") if merge else slice(0)
    return _Renumbering(of, kept, duplicates.rows[order])


def _rewrite(graph: Graph, renumbering: _Renumbering, lists: GrowingLists, name: str) -> None:
    """Append one direction of the graph under the new rows."""
    of, kept, merged = renumbering
    into = of[merged]
    with Progress(len(of), f"corpus: {name} without duplicates", "papers") as progress:
        for start in range(0, len(of), _BLOCK):
            rows = start + np.flatnonzero(kept[start : start + _BLOCK])
            progress.add(min(_BLOCK, len(of) - start))
            if not len(rows):
                continue
            first, last = int(of[rows[0]]), int(of[rows[-1]])
            rows = np.concatenate([rows, merged[slice(*np.searchsorted(into, [first, last + 1]))]])
            place, neighbours = graph.of_many(rows)
            owner, neighbour = of[rows[place]], of[neighbours]
            stays = (neighbour != NOWHERE) & (neighbour != owner)
            pairs = np.unique(owner[stays].astype(np.uint64) << np.uint64(32) | neighbour[stays])
            owner = (pairs >> np.uint64(32)).astype(np.uint32) - first
            lists.append(np.bincount(owner, minlength=last + 1 - first), pairs.astype(np.uint32))


def _write_shards(corpus: Corpus, kept: npt.NDArray[np.bool_], new: Mapping[str, Any], out: Workdir) -> None:
    kept_rows = np.flatnonzero(kept)
    for number, start in enumerate(range(0, max(len(kept_rows), 1), SHARD_ROWS)):
        name, rows = f"papers-{number:05d}.arrow", slice(start, start + SHARD_ROWS)
        if out.done(name):
            continue
        table = corpus.take(kept_rows[rows], ["paper_id", "title", "abstract", "year"])
        columns = dict(zip(table.column_names, table.columns, strict=True))
        columns |= {name: pa.array(new[name][rows]) for name in ("n_outbound", "n_inbound")}
        columns["fields"] = field_lists(new["fields"][rows])
        out.arrow(name, pa.table([columns[field.name] for field in PAPERS], schema=PAPERS), PAPERS)
