"""One vector a sentence: ASPIRE (Mysore et al. 2022), which reads whole texts, and ``sentences:encoder=minilm``.

As in ASPIRE's released code, title, separator and sentences are tokenised separately, joined, cut to 500 tokens, and
enclosed in [CLS] and [SEP]. A sentence's vector is the mean of its tokens; the title has no vector. Two cases are ours:
a sentence that is cut completely has no vector (its paper counts as truncated), and a paper without sentences has one
vector, the mean of its title and separator tokens.

``sentences`` encodes the sentences of an abstract as separate texts (Reimers and Gurevych 2019). A paper without
sentences has the vector of its title.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np

from pipeline.core.text import Sentences
from pipeline.corpus.reader import Text
from pipeline.encode.base import Composite, Encoded, in_order, totals
from pipeline.encode.kinds import Aspire
from pipeline.encode.model import Role
from pipeline.encode.tokenise import Span, Tokens

_ABBREVIATIONS = frozenset(
    re.findall(
        r"\S+",
        """al approx ca cf def dept dr e.g ed eds eq eqs etc fig figs i.e inc jr lem ltd max min mr mrs ms no nos pp
        prof prop ref refs resp sec sp spp sr st tab thm univ var viz vol vs""",
    )
)
_END = re.compile(r"""[.!?]+["'”’)\]]*\s+(?=["'“‘(\[$]*([^\W_]))""")
_LAST_WORD = re.compile(r"[^\s(\[]*$")
_INITIALS = re.compile(r"(?:[A-Z]\.)*[A-Z]")


class SentenceTokeniser:
    """Several vectors a text, one a sentence (a :class:`pipeline.encode.tokenise.Tokeniser`).

    Args:
        model: gives the maximum number of tokens.
        tokenizer: a fast tokenizer.
    """

    def __init__(self, model: Aspire, tokenizer: Any) -> None:
        self._limit, self._tokenizer = model.max_tokens, tokenizer

    def __call__(self, texts: Sequence[Text], role: Role) -> Tokens:
        """Return the tokens of texts; an ad-hoc query has sentences but no title."""
        separator = f" {self._tokenizer.sep_token} "
        if role == "query":
            pieces = [split_sentences(text.title) for text in texts]
        else:
            pieces = [[text.title + separator, *split_sentences(text.abstract)] for text in texts]
        flat = [piece for text_pieces in pieces for piece in text_pieces]
        encoded = iter(self._tokenizer(flat, add_special_tokens=False, verbose=False)["input_ids"] if flat else ())
        tokens = Tokens([], [], [])
        for text_pieces in pieces:
            piece_ids = list(islice(encoded, len(text_pieces)))
            ids, spans = self._join(piece_ids)
            tokens.ids.append([self._tokenizer.cls_token_id, *ids, self._tokenizer.sep_token_id])
            sentences = spans if role == "query" else spans[1:]
            tokens.spans.append(sentences or spans[:1] or [(0, 1)])
            tokens.cut.append(len(ids) < sum(map(len, piece_ids)))
        return tokens

    def _join(self, pieces: Sequence[list[int]]) -> tuple[list[int], list[Span]]:
        """Return the ids of the pieces up to the limit, and the spans, after [CLS], of the pieces that have tokens."""
        ids: list[int] = []
        spans: list[Span] = []
        for piece in pieces:
            kept = piece[: self._limit - len(ids)]
            if kept:
                spans.append((1 + len(ids), 1 + len(ids) + len(kept)))
            ids += kept
        return ids, spans


class SentencesEncoder(Composite):
    """Encodes the sentences of a text as separate texts; queries and papers alike."""

    def prepare(self, texts: Sequence[Text], role: Role = "paper") -> tuple[list[int], Any]:
        """Return the number of sentences of each text, and all sentences prepared for the encoder."""
        split = [split_sentences(text.title if role == "query" else text.abstract) or [text.title] for text in texts]
        sentences = [Text(sentence, "") for sentences in split for sentence in sentences]
        return [len(sentences) for sentences in split], self._parts[0].prepare(sentences)

    def finish(self, prepared: tuple[list[int], Any]) -> Iterator[Encoded]:
        """Yield all vectors at once; raises as :func:`pipeline.encode.base.in_order`."""
        counts, sentences = prepared
        batches = list(self._parts[0].finish(sentences))
        positions, vectors = in_order(batches, self.dimension)
        yield Encoded(np.repeat(np.arange(len(counts)), counts)[positions], vectors, len(counts), *totals(batches))


def split_sentences(text: str) -> list[str]:
    """Return the non-empty sentences of a text, stripped of white space.

    Sentences of a release (:class:`pipeline.core.text.Sentences`) stay as they are. Otherwise a sentence ends at a run
    of ``.``, ``!`` or ``?`` (with closing quotes and brackets) before white space and a digit or a letter that is not
    lower-case (after opening quotes and brackets), unless the word before a single full stop is an abbreviation or
    initials. On the 4,205 abstracts of CSFCube with given sentences, boundaries have precision 0.999 and recall 0.979
    (sentencex: 0.987, 0.976; pysbd: 0.964, 0.967); most misses follow "i.e." and "e.g.".
    """
    if isinstance(text, Sentences):
        return list(text.given)
    sentences = []
    start = 0
    for end in _END.finditer(text):
        if not end[1].islower() and not _abbreviated(text[start : end.start()], text[end.start() : end.end()]):
            sentences.append(text[start : end.end()].strip())
            start = end.end()
    sentences.append(text[start:].strip())
    return [sentence for sentence in sentences if sentence]


def _abbreviated(before: str, end: str) -> bool:
    if end.rstrip() != ".":
        return False
    match = _LAST_WORD.search(before)
    word = match[0] if match else ""
    return word.casefold() in _ABBREVIATIONS or _INITIALS.fullmatch(word) is not None
