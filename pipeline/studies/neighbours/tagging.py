"""Part-of-speech tags by HanTa (Wartena 2019), a hidden Markov model of words whose English model comes with it."""

from __future__ import annotations

import functools
import importlib.metadata
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.core import files
from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError
from pipeline.core.install import pip_extra
from pipeline.core.manifest import Counts
from pipeline.core.parallel import unordered
from pipeline.core.progress import Progress
from pipeline.core.resources import Resources
from pipeline.core.task import Inputs, Task
from pipeline.core.workdir import Workdir
from pipeline.corpus.reader import Corpus, Text
from pipeline.encode.aspire import split_sentences
from pipeline.studies.neighbours.words import (
    ADJECTIVE,
    ADVERB,
    DETERMINER,
    MARK,
    NOUN,
    NUMBER,
    OTHER,
    PRONOUN,
    VERB,
    Words,
    is_english,
    tokens,
)

FOLDER = "corpora/tags"

TAGS = pa.schema([pa.field("title", pa.large_string()), pa.field("abstract", pa.large_string())])
"""Tags of a corpus shard, ``tags-00000.arrow``, in row order; null for a paper without an English abstract."""

PHRASES = pa.schema([pa.field("phrase", pa.large_string(), nullable=False)])
"""The top half of the noun phrases in the abstracts of a corpus, ``phrases.arrow``, sorted.

The score of a phrase is its occurrences times log2(1 + (N - n + 0.5) / (n + 0.5)), where n of N abstracts have it; of
equal phrases, most of which occur once, the first in the alphabet count.
"""

_MODEL = "morphmodel_en.pgz"
_LONGEST = 40
"""Characters of a token that the tagger may see: its time grows with the square of the length."""
_TOGETHER = 1_024
"""Papers that a worker tags at a time."""

_CLASSES = {"NN": NOUN, "NP": NOUN, "AJ": ADJECTIVE, "AV": ADVERB, "AT": DETERMINER, "CR": NUMBER}
_TAGS = {**dict.fromkeys(("PNP", "PNX", "PNI", "DPS"), PRONOUN), "DT0": DETERMINER}


@dataclass(frozen=True)
class TagsConfig:
    """What decides tags beside the corpus: tagger and version, and the version of our rules for tokens and classes."""

    tagger: str
    rules: int = 1


def tags_task(corpus: Artifact) -> Task:
    """Return the task that tags titles and abstracts of a corpus, once for all studies of it.

    Raises:
        InputError: the tagger is not installed.
    """
    try:
        version = importlib.metadata.version("HanTa")
    except importlib.metadata.PackageNotFoundError as error:
        raise InputError("the tagger HanTa must be installed", pip_extra("neighbours")) from error

    def run(inputs: Inputs, out: Workdir, resources: Resources) -> Counts:
        opened = Corpus(inputs["corpus"])
        tag_block = functools.partial(_tag_block, inputs["corpus"].path)
        with Progress(len(opened), "tag", "papers") as progress:
            for shard, (start, end) in enumerate(zip(opened.starts[:-1], opened.starts[1:], strict=True)):
                if not out.done(tags_name(shard)):
                    blocks = [range(first, min(first + _TOGETHER, end)) for first in range(start, end, _TOGETHER)]
                    found = {}
                    for block, tags in unordered(tag_block, blocks, resources.workers):
                        found[block.start] = tags
                        progress.add(len(block))
                    tagged = chain.from_iterable(found[first] for first in sorted(found))
                    rows = [dict(zip(TAGS.names, each or (None, None), strict=True)) for each in tagged]
                    out.arrow(tags_name(shard), pa.Table.from_pylist(rows, TAGS), TAGS)
        return _choose_phrases(opened, out)

    config = TagsConfig(f"HanTa {version}")
    return Task("tags", 2, FOLDER, corpus.manifest.slug, config, {"corpus": corpus}, run)


def _tag_block(corpus: Path, rows: range) -> list[tuple[str, str] | None]:
    return tag_papers([text for texts in Corpus(Artifact.open(corpus)).texts(np.array(rows)) for text in texts])


def _choose_phrases(corpus: Corpus, out: Workdir) -> Counts:
    counts: Counter[str] = Counter()
    abstracts_with: Counter[str] = Counter()
    tagged = 0
    for shard in range(corpus.shards):
        abstracts = corpus.shard(shard).column("abstract")
        tags = files.read_arrow(out.path / tags_name(shard)).column("abstract")
        for text, tag in zip(abstracts.to_pylist(), tags.to_pylist(), strict=True):
            if tag is not None:
                tagged += 1
                phrases = [phrase for _, phrase in Words(text, tag).phrases]
                counts.update(phrases)
                abstracts_with.update(set(phrases))

    def score(phrase: str) -> float:
        having = abstracts_with[phrase]
        return counts[phrase] * math.log2(1 + (tagged - having + 0.5) / (having + 0.5))

    top = sorted(counts, key=lambda phrase: (-score(phrase), phrase))[: len(counts) // 2]
    out.arrow("phrases.arrow", pa.table([sorted(top)], PHRASES), PHRASES)
    return {"read": len(corpus), "tagged": tagged, "not_english": len(corpus) - tagged, "phrases": len(counts)}


def tags_name(shard: int) -> str:
    """Return the name of the file with the tags of a corpus shard."""
    return f"tags-{shard:05d}.arrow"


@functools.lru_cache(maxsize=1)
def top_phrases(tags: Path) -> frozenset[str]:
    """Return the top half of the noun phrases of a corpus (:data:`PHRASES`)."""
    return frozenset(Artifact.open(tags).arrow("phrases.arrow").column("phrase").to_pylist())


def tag(text: str) -> str:
    """Return one letter of :mod:`pipeline.studies.neighbours.words` for each token of a text.

    The tagger's tags are those of the British National Corpus (C5). Verbs include forms of *be* and modals, pronouns
    possessives (*our*), determiners articles and *this, all, some*; *which* and *not* are other
    """
    found: list[str] = []
    for sentence in split_sentences(text):
        if found_tokens := tokens(sentence):
            seen = [token if len(token) <= _LONGEST else "x" for token in found_tokens]
            found += map(_letter, found_tokens, _tagger().tag_sent(seen, taglevel=0))
    return "".join(found)


def tag_papers(texts: Sequence[Text]) -> list[tuple[str, str] | None]:
    """Return the tags of title and abstract of each paper; None for a paper without an English abstract."""
    return [(tag(text.title), tag(text.abstract)) if is_english(text.abstract) else None for text in texts]


def _letter(word: str, tag: str) -> str:
    if not any(map(str.isalnum, word)):
        return MARK
    if word.isdecimal():
        return NUMBER
    if len(word) > _LONGEST:
        return OTHER
    return VERB if tag[0] == "V" else _TAGS.get(tag) or _CLASSES.get(tag[:2], OTHER)


@functools.cache
def _tagger() -> Any:
    from HanTa.HanoverTagger import HanoverTagger

    return HanoverTagger(_MODEL)
