"""The 32 classes of textual neighbours (Singh & Singh 2022, table 1): one table of name, category and edits.

A class edits the title, the abstract or both; without an edit a text stays as it is. An edit without anything to change
returns the text; a paper that a class leaves unchanged has no neighbour of this class.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline.studies import kit
from pipeline.studies.neighbours import tagging as pos
from pipeline.studies.neighbours.tagging import Words, tokens


@dataclass(frozen=True)
class Paper:
    """A paper whose neighbours are made, with the top half of the corpus's noun phrases."""

    title: Words
    abstract: Words
    top: Collection[str]

    @property
    def text(self) -> kit.Text:
        """Title and abstract, unchanged."""
        return kit.Text(self.title.text, self.abstract.text)


Edit = Callable[[Words, Paper, np.random.Generator], str]
"""Returns the edited text of a title or abstract."""

CATEGORIES = ("LL-HS", "LO-HS", "LL-PS", "LO-PS", "LO-DS")
"""Lossless (LL) or lossy (LO); highly (HS), partially (PS) similar or dissimilar (DS) in meaning."""


@dataclass(frozen=True)
class NeighbourClass:
    """A class of neighbours, of one of :data:`CATEGORIES`: edits of ``abstract`` and ``title``; None leaves it."""

    name: str
    category: str
    abstract: Edit | None = None
    title: Edit | None = None

    def neighbour(self, paper: Paper, paper_id: str, seed: int) -> kit.Text:
        """Return the neighbour of a paper: its own text if the class has nothing to change.

        Random choices depend on id, seed and class.
        """
        rng = kit.generator(seed, f"neighbour {self.name}", paper_id)
        title = self.title(paper.title, paper, rng) if self.title else paper.title.text
        abstract = self.abstract(paper.abstract, paper, rng) if self.abstract else paper.abstract.text
        return kit.Text(title, abstract)


def _sentences(order: Callable[[list[str]], list[str]]) -> Edit:
    return lambda words, _paper, _rng: " ".join(order(words.sentences))


def _rotate(sentences: list[str]) -> list[str]:
    half = len(sentences) // 2
    return sentences[half:] + sentences[:half]


def _sort(longest_first: bool) -> Edit:
    return _sentences(lambda sentences: sorted(sentences, key=lambda text: len(tokens(text)), reverse=longest_first))


def _shuffle(words: Words, _paper: Paper, rng: np.random.Generator) -> str:
    return " ".join(words.sentences[position] for position in rng.permutation(len(words.sentences)))


def _delete_third(third: int) -> Edit:
    def edit(words: Words, _paper: Paper, _rng: np.random.Generator) -> str:
        size = len(words.sentences) // 3
        if not size:
            return words.text
        return " ".join(words.sentences[: third * size] + words.sentences[(third + 1) * size :])

    return edit


def _delete(tags: str) -> Edit:
    return lambda words, _paper, _rng: words.without(words.positions(tags))


def _delete_random(words: Words, _paper: Paper, rng: np.random.Generator) -> str:
    positions = [position for position, tag in enumerate(words.tags) if tag != pos.MARK]
    return words.without(set(rng.choice(positions, 3 * len(positions) // 10, replace=False).tolist()))


def _delete_phrases(top: bool) -> Edit:
    def edit(words: Words, paper: Paper, _rng: np.random.Generator) -> str:
        spans = (span for span, phrase in words.phrases if not top or phrase in paper.top)
        return words.without({position for span in spans for position in span})

    return edit


def _misspell(words: Words, _paper: Paper, rng: np.random.Generator) -> str:
    changes = {}
    for position in words.positions(pos.NOUN):
        word = words.tokens[position]
        if len(word) >= 4:
            deleted = rng.choice(len(word), 1 if len(word) <= 5 else 2, replace=False)
            changes[position] = "".join(np.delete(list(word), deleted))
    return words.edited(changes)


def _repeat_noun(words: Words, _paper: Paper, rng: np.random.Generator) -> str:
    positions = words.positions(pos.NOUN)
    if not positions:
        return words.text
    noun = words.tokens[int(rng.choice(positions))]
    return words.edited({position: f"{noun} {noun}" for position, token in enumerate(words.tokens) if token == noun})


def _add_nouns(words: Words, paper: Paper, _rng: np.random.Generator) -> str:
    counts = Counter(paper.abstract.tokens[position] for position in paper.abstract.positions(pos.NOUN))
    return " ".join([words.text, *(noun for noun, _ in counts.most_common(len(counts) // 2))])


def _replace_adjectives(words: Words, _paper: Paper, _rng: np.random.Generator) -> str:
    changes = {}
    for position in words.positions(pos.ADJECTIVE):
        word = words.tokens[position]
        if antonym := antonyms().get(word.casefold()):
            changes[position] = antonym[0].upper() + antonym[1:] if word[0].isupper() else antonym
    return words.edited(changes)


def _upper(nouns: bool) -> Edit:
    return lambda words, _paper, _rng: words.edited(
        {index: words.tokens[index].upper() for index, tag in enumerate(words.tags) if (tag == pos.NOUN) == nouns}
    )


def _widen_spaces(words: Words, _paper: Paper, rng: np.random.Generator) -> str:
    characters = list(words.text)
    positions = [position for position, character in enumerate(characters) if character.isspace()]
    for position in rng.choice(positions, len(positions) // 2, replace=False) if positions else ():
        characters[position] = " " * int(rng.integers(2, 6))
    return "".join(characters)


def _keep_nouns(words: Words, _paper: Paper, _rng: np.random.Generator) -> str:
    return " ".join(words.tokens[position] for position in words.positions(pos.NOUN))


def _erase(_words: Words, _paper: Paper, _rng: np.random.Generator) -> str:
    return ""


@functools.cache
def antonyms() -> dict[str, str]:
    """Return the most common WordNet antonym of each adjective that has one; all but names are in lower case."""
    lines = Path(__file__).with_name("antonyms.tsv").read_text(encoding="utf-8").splitlines()
    pairs = (line.partition("\t") for line in lines if not line.startswith("#"))
    return {adjective: antonym for adjective, _, antonym in pairs}


TOP_PHRASES = "T_ADelTopNNPH"
"""The class that needs the noun phrases of the whole corpus."""

_TABLE = (
    NeighbourClass("T_ARot", "LL-PS", _sentences(_rotate)),
    NeighbourClass("T_AShuff", "LL-PS", _shuffle),
    NeighbourClass("T_ASortAsc", "LL-PS", _sort(False)),
    NeighbourClass("T_ASortDesc", "LL-PS", _sort(True)),
    NeighbourClass("T_ADelRand", "LO-PS", _delete_random),
    NeighbourClass("T_ADelADJ", "LO-PS", _delete(pos.ADJECTIVE)),
    NeighbourClass("T_ADelVB", "LO-PS", _delete(pos.VERB)),
    NeighbourClass("T_ADelADV", "LO-PS", _delete(pos.ADVERB)),
    NeighbourClass("T_ADelPR", "LO-PS", _delete(pos.PRONOUN)),
    NeighbourClass("T_ADelNum", "LO-PS", _delete(pos.NUMBER)),
    NeighbourClass(TOP_PHRASES, "LO-PS", _delete_phrases(True)),
    NeighbourClass("T_ADelQ1", "LO-PS", _delete_third(0)),
    NeighbourClass("T_ADelQ2", "LO-PS", _delete_third(1)),
    NeighbourClass("T_ADelQ3", "LO-PS", _delete_third(2)),
    NeighbourClass("T_A_DelNNChar", "LO-PS", _misspell, _misspell),
    NeighbourClass("T_ADelNN", "LO-DS", _delete(pos.NOUN)),
    NeighbourClass("T_ADelNNPH", "LO-DS", _delete_phrases(False)),
    NeighbourClass("TDelNN", "LO-DS", _erase, _delete(pos.NOUN)),
    NeighbourClass("T_ADelNonNNs", "LO-DS", _keep_nouns),
    NeighbourClass("T_ARepADJ", "LO-DS", _replace_adjectives),
    NeighbourClass("T_ADelDT", "LO-HS", _delete(pos.DETERMINER)),
    NeighbourClass("TDelADJ_A", "LO-HS", title=_delete(pos.ADJECTIVE)),
    NeighbourClass("TDelNN_A", "LO-HS", title=_delete(pos.NOUN)),
    NeighbourClass("TDelVB_A", "LO-HS", title=_delete(pos.VERB)),
    NeighbourClass("TDelDT_A", "LO-HS", title=_delete(pos.DETERMINER)),
    NeighbourClass("TRepNNT_A", "LO-HS", title=_repeat_noun),
    NeighbourClass("TRepNNA_A", "LO-HS", title=_add_nouns),
    NeighbourClass("TNNU_A", "LL-HS", title=_upper(True)),
    NeighbourClass("TNonNNU_A", "LL-HS", title=_upper(False)),
    NeighbourClass("T_ANNU", "LL-HS", _upper(True)),
    NeighbourClass("T_ANonNNU", "LL-HS", _upper(False)),
    NeighbourClass("T_A_WS", "LL-HS", _widen_spaces, _widen_spaces),
)
CLASSES = {row.name: row for row in _TABLE}
"""The classes by name, category by category as in the paper."""

ORDERED = sorted(CLASSES, key=lambda name: CATEGORIES.index(CLASSES[name].category))
"""Names of the classes, category by category in the order of :data:`CATEGORIES`."""
