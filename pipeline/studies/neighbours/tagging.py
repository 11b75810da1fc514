"""Part-of-speech tags by HanTa (Wartena 2019), a hidden Markov model of words whose English model comes with it."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from pipeline.core.errors import InputError
from pipeline.corpus.reader import Text
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
    is_english,
    tokens,
)

_MODEL = "morphmodel_en.pgz"
_LONGEST = 40
"""Characters of a token that the tagger may see: its time grows with the square of the length."""

_CLASSES = {"NN": NOUN, "NP": NOUN, "AJ": ADJECTIVE, "AV": ADVERB, "AT": DETERMINER, "CR": NUMBER}
_TAGS = {"PNP": PRONOUN, "PNX": PRONOUN, "PNI": PRONOUN, "DPS": PRONOUN, "DT0": DETERMINER}


def tag(text: str) -> str:
    """Return one letter of :mod:`pipeline.studies.neighbours.words` for each token of a text.

    The tagger's tags are those of the British National Corpus (C5). Verbs include forms of *be* and modals, pronouns
    possessives (*our*), determiners articles and *this, all, some*; *which* and *not* are other words.

    Raises:
        InputError: the tagger is not installed.
    """
    found: list[str] = []
    for sentence in split_sentences(text):
        words = tokens(sentence)
        if words:
            seen = [word if len(word) <= _LONGEST else "x" for word in words]
            found += map(_letter, words, _tagger().tag_sent(seen, taglevel=0))
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
    try:
        from HanTa.HanoverTagger import HanoverTagger
    except ImportError as error:
        raise InputError("the tagger HanTa must be installed", "pip install mdcr-pipeline[neighbours]") from error
    return HanoverTagger(_MODEL)
