"""Texts as words with part-of-speech tags, and papers made of them."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pipeline.corpus.reader import Text
from pipeline.encode.aspire import split_sentences

NOUN, ADJECTIVE, VERB, ADVERB, PRONOUN, DETERMINER, NUMBER, MARK, OTHER = "NJVRPDC.X"
"""One letter for each class of words; a mark is a token without a letter or digit."""

_TOKEN = re.compile(r"\w+(?:[-'’.]\w+)*|[^\w\s]")
_PHRASE = re.compile(rf"[{ADJECTIVE}{NOUN}]+{NOUN}")
_WORD = re.compile(r"[^\W\d_]+")
_FUNCTION_WORDS = frozenset(["the", "of", "and", "a", "in", "to", "is", "we", "for", "that"])

ENGLISH = 0.05
"""Smallest share of the ten function words among the words of an English abstract."""


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
        """The tokens."""
        return tokens(self.text)

    @functools.cached_property
    def sentences(self) -> list[str]:
        """The sentences (:func:`pipeline.encode.aspire.split_sentences`)."""
        return split_sentences(self.text)

    @functools.cached_property
    def phrases(self) -> list[tuple[range, str]]:
        """The noun phrases, as token numbers and lower-case text.

        A noun phrase is a longest run of two or more adjectives and nouns that ends in a noun.
        """
        found = (range(*match.span()) for match in _PHRASE.finditer(self.tags))
        return [(span, " ".join(self.tokens[place] for place in span).casefold()) for span in found]

    def places(self, tags: str) -> list[int]:
        """Return the numbers of the tokens that have one of some tags."""
        return [place for place, tag in enumerate(self.tags) if tag in tags]

    def edited(self, changes: Mapping[int, str]) -> str:
        """Return the text with some tokens, by number, replaced; white space becomes single spaces."""
        pieces, end = [], 0
        for place, match in enumerate(_TOKEN.finditer(self.text)):
            if place in changes:
                pieces += [self.text[end : match.start()], changes[place]]
                end = match.end()
        return " ".join("".join([*pieces, self.text[end:]]).split())

    def without(self, places: Collection[int]) -> str:
        """Return the text without some tokens, by number."""
        return self.edited(dict.fromkeys(places, ""))


@dataclass(frozen=True)
class Paper:
    """A paper whose neighbours are made, with the top half of the corpus's noun phrases."""

    title: Words
    abstract: Words
    top: Collection[str]

    @property
    def text(self) -> Text:
        """Title and abstract as they are."""
        return Text(self.title.text, self.abstract.text)
