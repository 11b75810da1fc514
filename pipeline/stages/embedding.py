"""The work of stage ``embed``: the shards of one segment, by this process or by one process a GPU."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.core import progress
from pipeline.core.artifact import Artifact
from pipeline.core.parallel import unordered
from pipeline.core.resources import Resources
from pipeline.core.workdir import Workdir
from pipeline.corpus.reader import Corpus, Rows, Text
from pipeline.encode import kinds
from pipeline.encode.base import Encoder
from pipeline.encode.progress import EmbedProgress
from pipeline.encode.segment import read_rows, shard_name
from pipeline.encode.shards import ShardWriter
from pipeline.encode.spec import Model, Role

_MOST_CHARACTERS = 3_000
"""Of a text that count as work: 512 tokens are rarely more."""


@dataclass(frozen=True)
class Share:
    """What one process embeds.

    Attributes:
        model: the encoder.
        role: what it takes the texts for.
        inputs: folders of the corpus and of the encoder's fit, where it has one.
        out: folder of the segment under construction, with its list of rows.
        resources: device and threads of this process.
        shards: which shards.
        quiet: whether to say nothing.
    """

    model: Model
    role: Role
    inputs: Mapping[str, Path]
    out: Path
    resources: Resources
    shards: tuple[int, ...]
    quiet: bool


def embed_shards(model: Model, role: Role, inputs: Mapping[str, Artifact], out: Workdir, resources: Resources) -> None:
    """Embed every shard that is not finished; several GPUs divide the shards between them."""
    owners = read_rows(out)[1]
    left = [number for number in np.unique(owners).tolist() if not out.done(shard_name(number))]
    if not left:
        return
    devices = kinds.devices(model, resources)
    sizes = {number: int(np.count_nonzero(owners == number)) for number in left}
    paths = {name: inputs[name].path for name in ("corpus", "fit") if name in inputs}
    shares = [
        Share(
            model,
            role,
            paths,
            out.path,
            dataclasses.replace(resources, device=device, workers=max(1, resources.workers // len(devices))),
            shards,
            progress.quiet(),
        )
        for device, shards in zip(devices, divide(sizes, len(devices)), strict=True)
        if shards
    ]
    facts = [found for _, found in unordered(embed_share, shares, len(shares))]
    out.note(**_joined(facts))


def divide(sizes: Mapping[int, int], count: int) -> list[tuple[int, ...]]:
    """Divide shards into ``count`` shares of about equal size: the largest first, each to the smallest share."""
    shares: list[list[int]] = [[] for _ in range(count)]
    for number in sorted(sizes, key=lambda each: (-sizes[each], each)):
        min(shares, key=lambda share: sum(sizes[each] for each in share)).append(number)
    return [tuple(sorted(share)) for share in shares]


def embed_share(share: Share) -> dict[str, Any]:
    """Embed some shards of a segment and return what of this run belongs into provenance."""
    progress.set_quiet(share.quiet)
    inputs = {name: Artifact.open(path) for name, path in share.inputs.items()}
    texts = CorpusTexts(Corpus(inputs["corpus"]), share.role)
    out = Workdir(share.out)
    rows, owners = read_rows(out)

    @functools.cache
    def encoder() -> Encoder:
        return kinds.find(share.model.spec.kind).load(share.model, inputs.get("fit"), share.resources)

    mine = rows[np.isin(owners, share.shards)]
    title = f"embed {share.model.name}" + (f" on {share.resources.device}" if ":" in share.resources.device else "")
    with (
        EmbedProgress(title, texts.work(mine)) as bar,
        ShardWriter(out, texts, encoder, share.role, share.model.spec.storage, bar) as writer,
    ):
        for number in share.shards:
            writer.write(number, rows[owners == number])
    if not encoder.cache_info().currsize:
        return {}
    return {**encoder().describe(), **bar.facts(), "seconds": writer.seconds()}


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


def _joined(facts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the facts of all processes: the first one's, with rates added up."""
    found = [each for each in facts if each]
    joined: dict[str, Any] = dict(found[0]) if found else {}
    for name in ("documents_per_second", "tokens_per_second"):
        if name in joined:
            joined[name] = round(sum(each.get(name, 0.0) for each in found), 2)
    if len(found) > 1:
        joined["processes"] = len(found)
    return joined
