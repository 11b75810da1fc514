"""The work of stage ``embed``: the shards of one segment, each of which any process can embed."""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.core.artifact import published
from pipeline.core.manifest import Counts
from pipeline.core.resources import Resources
from pipeline.core.task import Facts, Inputs, Job
from pipeline.core.workdir import Workdir
from pipeline.corpus.pool import Pool
from pipeline.corpus.reader import Corpus, Rows, Text
from pipeline.encode import kinds
from pipeline.encode.base import Encoder
from pipeline.encode.progress import EmbedProgress
from pipeline.encode.segment import read_rows, shard_name, shard_number, write_rows
from pipeline.encode.shards import ShardWriter
from pipeline.encode.spec import Model, Role
from pipeline.encode.store import VectorStore

_MOST_CHARACTERS = 3_000
"""Of a text that count as work: 512 tokens are rarely more."""


@dataclass(frozen=True)
class Embedding:
    """The work of one segment, a unit a corpus shard (:class:`pipeline.core.task.Sharded`).

    Attributes:
        model: the encoder.
        role: what it takes the texts for.
    """

    model: Model
    role: Role
    sequential = True
    accelerated = True

    def plan(self, inputs: Inputs, out: Workdir, spread: bool) -> Mapping[str, int]:  # noqa: ARG002
        """List the papers of the segment: those no other segment of its store has."""
        if not out.done("rows.arrow"):
            texts = CorpusTexts(Corpus(inputs["corpus"]), self.role)
            folder = out.path.parent
            others = (s for s in published(folder) if s.manifest.inputs["pool"] != inputs["pool"].id)
            missing = VectorStore(folder, others).missing(self.wanted(inputs))
            write_rows(out, missing, texts.shards(missing))
        numbers, counts = np.unique(read_rows(out)[1], return_counts=True)
        return dict(zip(map(shard_name, numbers.tolist()), counts.tolist(), strict=True))

    def devices(self, resources: Resources) -> list[str]:
        """Return the devices the model can be loaded on."""
        return kinds.devices(self.model, resources)

    def work(self, jobs: Sequence[Job], resources: Resources) -> Facts:
        """Embed some shards of the segment, on one device."""
        ((inputs, out, units),) = jobs
        texts = CorpusTexts(Corpus(inputs["corpus"]), self.role)
        rows, owners = read_rows(out)
        shards = [shard_number(unit) for unit in sorted(units)]
        device = self.devices(resources)[0]

        @functools.cache
        def encoder() -> Encoder:
            here = dataclasses.replace(resources, device=device)
            return kinds.find(self.model.spec.kind).load(self.model, inputs.get("fit"), here)

        index = device.partition(":")[2]
        title = f"embed {self.model.name}" + (f" on {device}" if index else "")
        with (
            EmbedProgress(title, texts.work(rows[np.isin(owners, shards)]), int(index or 0)) as bar,
            ShardWriter(out, texts, encoder, self.role, self.model.spec.storage, bar) as writer,
        ):
            for number in shards:
                writer.write(number, rows[owners == number])
        if not encoder.cache_info().currsize:
            return {}
        return {**encoder().describe(), **bar.facts(), "seconds": writer.seconds()}

    def finish(self, inputs: Inputs, out: Workdir, resources: Resources, facts: Sequence[Facts]) -> Counts:  # noqa: ARG002
        """Count what the segment holds."""
        checkpoint = self.model.checkpoint.hub if self.model.checkpoint else ""
        out.note(model=self.model.name, checkpoint=checkpoint, **_joined(facts))
        wanted = len(self.wanted(inputs))
        rows, shards = read_rows(out)
        return {
            "wanted": wanted,
            "present": wanted - len(rows),
            "embedded": len(rows),
            **_totals(out.counts(shard_name(number)) for number in np.unique(shards).tolist()),
        }

    def wanted(self, inputs: Inputs) -> Rows:
        """Return the rows of the pool that need vectors."""
        pool = Pool(inputs["pool"], Corpus(inputs["corpus"]))
        if self.role == "query":
            return pool.query_rows
        return np.union1d(pool.candidates, pool.query_rows) if pool.queries_are_papers else pool.candidates


class CorpusTexts:
    """The texts of a corpus in one role, by row."""

    def __init__(self, corpus: Corpus, role: Role) -> None:
        self.corpus, self._role = corpus, role

    def shards(self, rows: Rows) -> npt.NDArray[np.integer]:
        """Return the corpus shard of each row; query texts are one shard."""
        if self._role == "query":
            return np.zeros(len(rows), np.uint16)
        return np.searchsorted(self.corpus.starts, rows, "right") - 1

    def __call__(self, rows: Rows) -> list[Text]:
        """Return the texts of rising rows."""
        if self._role == "query":
            return [Text(text, "") for text in self.corpus.query_texts.column("text").take(rows).to_pylist()]
        return [text for block in self.corpus.texts(rows) for text in block]

    def label(self, row: int) -> str:
        """Return the id of a paper or query."""
        if self._role == "query":
            return str(self.corpus.query_texts.column("query_id")[row].as_py())
        return self.corpus.ids(np.array([row]))[0]

    def work(self, rows: Rows) -> npt.NDArray[np.float64]:
        """Return the characters of each text that an encoder may read."""
        if self._role == "query":
            return np.ones(len(rows))
        attributes = self.corpus.attributes
        found = attributes["title_chars"][rows].astype(np.float64) + attributes["abstract_chars"][rows]
        counted: npt.NDArray[np.float64] = np.minimum(found + 1, _MOST_CHARACTERS)
        return counted


def _totals(counted: Iterable[Counts]) -> dict[str, int]:
    totals = {"tokens": 0, "padded": 0, "truncated": 0}
    for counts in counted:
        for name in totals:
            totals[name] += counts.get(name, 0)
    return totals


def _joined(facts: Sequence[Facts]) -> dict[str, Any]:
    """Return the facts of all processes: the first one's, with the mean rate of each process added up."""
    found = [each for each in facts if each]
    joined: dict[str, Any] = dict(found[0]) if found else {}
    joined.pop("process", None)
    turns = Counter(each.get("process") for each in found)
    for name in ("documents_per_second", "tokens_per_second"):
        if name in joined:
            joined[name] = round(sum(each.get(name, 0.0) / turns[each.get("process")] for each in found), 2)
    if len(turns) > 1:
        joined["processes"] = len(turns)
    return joined
