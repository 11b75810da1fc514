"""Texts as words with part-of-speech tags of HanTa (Wartena 2019), a hidden Markov model trained on English."""

from __future__ import annotations

import functools
import importlib.metadata
import math
import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.studies import kit

NOUN, ADJECTIVE, VERB, ADVERB, PRONOUN, DETERMINER, NUMBER, MARK, OTHER = "NJVRPDC.X"
"""One letter for each class of words; a mark is a token without a letter or digit."""

ENGLISH = 0.05
"""Smallest share of the ten function words among the words of an English abstract."""

TAGS = pa.schema([pa.field("title", pa.large_string()), pa.field("abstract", pa.large_string())])
"""Tags of a corpus shard, ``tags-00000.arrow``, in row order; null for papers without an English abstract, empty for
papers that are not drawn."""

PHRASES = pa.schema([pa.field("phrase", pa.large_string(), nullable=False)])
"""The top half of the noun phrases in the abstracts of a corpus, ``phrases.arrow``, sorted; empty if papers are drawn.

The score of a phrase is its number of occurrences times log2(1 + (N - n + 0.5) / (n + 0.5)), where n of N abstracts
have it. Ties, mostly of phrases that occur once, are in alphabetical order.
"""

_TOKEN = re.compile(r"\w+(?:[-'’.]\w+)*|[^\w\s]")
_PHRASE = re.compile(rf"[{ADJECTIVE}{NOUN}]+{NOUN}")
_WORD = re.compile(r"[^\W\d_]+")
_FUNCTION_WORDS = frozenset(["the", "of", "and", "a", "in", "to", "is", "we", "for", "that"])

_MODEL = "morphmodel_en.pgz"
_LONGEST = 40
"""Maximum length of a token passed to the tagger, whose time grows with the square of the length."""
_BLOCK = 1_024
"""Number of papers that a worker tags at a time."""

_CLASSES = {"NN": NOUN, "NP": NOUN, "AJ": ADJECTIVE, "AV": ADVERB, "AT": DETERMINER, "CR": NUMBER}
_TAGS = {**dict.fromkeys(("PNP", "PNX", "PNI", "DPS"), PRONOUN), "DT0": DETERMINER}


def tokens(text: str) -> list[str]:
    """Return the tokens of a text: words, with inner hyphens, apostrophes and points, and single marks."""
    return _TOKEN.findall(text)


def is_english(abstract: str) -> bool:
    """Whether at least :data:`ENGLISH` of an abstract's words are *the, of, and, a, in, to, is, we, for, that*."""
    words = _WORD.findall(abstract.casefold())
    return bool(words) and sum(word in _FUNCTION_WORDS for word in words) >= ENGLISH * len(words)


@dataclass(frozen=True)
class Words:
    """A text with one letter for each of its :func:`tokens`."""

    text: str
    tags: str

    @functools.cached_property
    def tokens(self) -> list[str]:
        """Words and marks of the text, in order (:func:`tokens`)."""
        return tokens(self.text)

    @functools.cached_property
    def sentences(self) -> list[str]:
        """The sentences (:func:`pipeline.encode.aspire.split_sentences`)."""
        return kit.split_sentences(self.text)

    @functools.cached_property
    def phrases(self) -> list[tuple[range, str]]:
        """The noun phrases, as positions of tokens and lower-case text.

        A noun phrase is a maximal run of two or more adjectives and nouns that ends in a noun.
        """
        spans = (range(*match.span()) for match in _PHRASE.finditer(self.tags))
        return [(span, " ".join(self.tokens[position] for position in span).casefold()) for span in spans]

    def positions(self, tags: str) -> list[int]:
        """Return the positions of the tokens that have one of ``tags``."""
        return [position for position, tag in enumerate(self.tags) if tag in tags]

    def edited(self, changes: Mapping[int, str]) -> str:
        """Return the text with tokens replaced, by position; white space becomes single spaces."""
        positions = count()
        text = _TOKEN.sub(lambda match: changes.get(next(positions), match[0]), self.text)
        return " ".join(text.split())

    def without(self, positions: Collection[int]) -> str:
        """Return the text without the tokens at ``positions``."""
        return self.edited(dict.fromkeys(positions, ""))


@dataclass(frozen=True)
class TagsConfig:
    """Settings of tags: the tagger, the version of our rules, and the tagged ``papers`` with an English abstract.

    ``seed`` is that of their draw; None: all are tagged, and noun phrases are counted.
    """

    tagger: str
    rules: int = 1
    papers: kit.Count = field(default="all", metadata=kit.OMIT_DEFAULT)
    seed: int | None = field(default=None, metadata=kit.OMIT_DEFAULT)


def tags_task(corpus: kit.Artifact, papers: kit.Count = "all", seed: int | None = None) -> kit.Task:
    """Return the task that tags titles and abstracts of a corpus; with a ``seed``, those of drawn papers only."""
    try:
        version = importlib.metadata.version("HanTa")
    except importlib.metadata.PackageNotFoundError as error:
        raise kit.InputError("the tagger HanTa must be installed", kit.pip_extra("neighbours")) from error

    def run(inputs: kit.Inputs, out: kit.Workdir, resources: kit.Resources) -> kit.Counts:
        reader = kit.Corpus(inputs["corpus"])
        drawn = None if seed is None else _draw_rows(reader, papers, seed)
        tag_block = functools.partial(_tag_block, inputs["corpus"].path, drawn)
        with kit.Progress(len(reader), "tag", "papers") as progress:
            for shard, (start, end) in enumerate(zip(reader.starts[:-1], reader.starts[1:], strict=True)):
                if not out.done(tags_name(shard)):
                    blocks = [range(first, min(first + _BLOCK, end)) for first in range(start, end, _BLOCK)]
                    tagged = {}
                    for block, tags in kit.unordered(tag_block, blocks, resources.workers):
                        tagged[block.start] = tags
                        progress.add(len(block))
                    in_order = chain.from_iterable(tagged[first] for first in sorted(tagged))
                    rows = [dict(zip(TAGS.names, tags or (None, None), strict=True)) for tags in in_order]
                    out.arrow(tags_name(shard), pa.Table.from_pylist(rows, TAGS), TAGS)
        return _write_phrases(reader, out, drawn)

    config = TagsConfig(f"HanTa {version}", papers=papers, seed=seed)
    return kit.Task("tags", 2, "corpora/tags", corpus.manifest.slug, config, {"corpus": corpus}, run)


def draw_papers(keys: npt.NDArray[np.uint64], papers: kit.Count, seed: int) -> npt.NDArray[np.int64]:
    """Return the positions of the papers whose neighbours are queries, given the keys of originals.

    The draw of a smaller number is the start of the draw of a larger one.
    """
    return kit.smallest(kit.priorities(keys, seed, "neighbours"), len(keys) if papers == "all" else papers)


def _draw_rows(corpus: kit.Corpus, papers: kit.Count, seed: int) -> frozenset[int]:
    abstracts = (text for shard in range(corpus.shards) for text in corpus.shard(shard).column("abstract").to_pylist())
    english = np.fromiter(map(is_english, abstracts), bool, len(corpus))
    rows = np.flatnonzero(english & (corpus.attributes["title_chars"] > 0))
    return frozenset(rows[draw_papers(corpus.attributes["key"][rows], papers, seed)].tolist())


def _tag_block(corpus: Path, drawn: Collection[int] | None, rows: range) -> list[tuple[str, str] | None]:
    texts = (text for block in kit.Corpus(kit.Artifact.open(corpus)).texts(np.array(rows)) for text in block)
    return [tag_paper(text, drawn is None or row in drawn) for row, text in zip(rows, texts, strict=True)]


def _write_phrases(corpus: kit.Corpus, out: kit.Workdir, drawn: Collection[int] | None) -> kit.Counts:
    counts: Counter[str] = Counter()
    abstracts_with: Counter[str] = Counter()
    tagged = 0
    for shard in range(corpus.shards):
        abstracts = corpus.shard(shard).column("abstract").to_pylist()
        tags = kit.read_arrow(out.path / tags_name(shard)).column("abstract").to_pylist()
        for text, tag_string in zip(abstracts, tags, strict=True):
            tagged += tag_string is not None
            if tag_string is not None and drawn is None:
                phrases = [phrase for _, phrase in Words(text, tag_string).phrases]
                counts.update(phrases)
                abstracts_with.update(set(phrases))

    def score(phrase: str) -> float:
        frequency = abstracts_with[phrase]
        return counts[phrase] * math.log2(1 + (tagged - frequency + 0.5) / (frequency + 0.5))

    top_phrases = sorted(counts, key=lambda phrase: (-score(phrase), phrase))[: len(counts) // 2]
    out.arrow("phrases.arrow", pa.table([sorted(top_phrases)], PHRASES), PHRASES)
    tag_counts = {"tagged": tagged} if drawn is None else {"tagged": len(drawn), "not_drawn": tagged - len(drawn)}
    return {"read": len(corpus), **tag_counts, "not_english": len(corpus) - tagged, "phrases": len(counts)}


def tags_name(shard: int) -> str:
    """Return the name of the file with the tags of a corpus shard."""
    return f"tags-{shard:05d}.arrow"


@functools.lru_cache(maxsize=1)
def top_phrases(tags: Path) -> frozenset[str]:
    """Return the top half of the noun phrases of a corpus (:data:`PHRASES`)."""
    return frozenset(kit.Artifact.open(tags).arrow("phrases.arrow").column("phrase").to_pylist())


def tag(text: str) -> str:
    """Return one letter (:data:`NOUN` and the others) for each token of a text.

    The tagset of the tagger is that of the British National Corpus (C5). Verbs include forms of *be* and modals,
    pronouns include possessives (*our*), determiners include articles and *this, all, some*; *which* and *not* are
    other.
    """
    tags: list[str] = []
    for sentence in kit.split_sentences(text):
        if words := tokens(sentence):
            tagger_words = [word if len(word) <= _LONGEST else "x" for word in words]
            tags += map(_letter, words, _tagger().tag_sent(tagger_words, taglevel=0))
    return "".join(tags)


def tag_paper(text: kit.Text, needed: bool = True) -> tuple[str, str] | None:
    """Return the tags of title and abstract, empty unless ``needed``; None without an English abstract."""
    if not is_english(text.abstract):
        return None
    return (tag(text.title), tag(text.abstract)) if needed else ("", "")


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
