"""ASPIRE's contextual sentence vectors (Mysore et al. 2022): one vector a sentence, of the last layer.

As the authors' released code computes them: title, separator and sentences are tokenised apart and joined, cut to 500
tokens, then framed by [CLS] and [SEP]; a sentence's vector is the mean of its tokens, and the title's tokens belong to
none. What that code leaves open is settled here: a sentence that was cut away wholly has no vector (its paper counts as
truncated); a paper without any sentence left has one vector, the mean of its title's tokens and their separator.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

from pipeline.corpus.reader import Text
from pipeline.encode.reading import Span, Tokens
from pipeline.encode.sentences import split_sentences
from pipeline.encode.spec import AspireSpec, Role


class SentenceReader:
    """Several vectors a text: one a sentence.

    Args:
        spec: the most tokens.
        tokenizer: a fast tokenizer.
    """

    def __init__(self, spec: AspireSpec, tokenizer: Any) -> None:
        self._most, self._tokenizer = spec.max_tokens, tokenizer

    def __call__(self, texts: Sequence[Text], role: Role) -> Tokens:
        """Return the tokens of texts: an ad-hoc query is sentences without a title."""
        if role == "query":
            return self.read([(None, split_sentences(text.title)) for text in texts])
        return self.read([(text.title, split_sentences(text.abstract)) for text in texts])

    def read(self, papers: Sequence[tuple[str | None, Sequence[str]]]) -> Tokens:
        """Return the tokens of papers whose sentences are known: title (None: there is none) and sentences."""
        separator = f" {self._tokenizer.sep_token} "
        pieces = [([] if title is None else [title + separator]) + list(sentences) for title, sentences in papers]
        flat = [piece for each in pieces for piece in each]
        encoded = iter(self._ids(flat))
        tokens = Tokens([], [], [])
        for (title, _), each in zip(papers, pieces, strict=True):
            parts = list(islice(encoded, len(each)))
            ids, spans = self._join(parts)
            tokens.ids.append([self._tokenizer.cls_token_id, *ids, self._tokenizer.sep_token_id])
            sentences = spans[0 if title is None else 1 :]
            tokens.spans.append(sentences or spans[:1] or [(0, 1)])
            tokens.cut.append(len(ids) < sum(map(len, parts)))
        return tokens

    def _join(self, parts: Sequence[list[int]]) -> tuple[list[int], list[Span]]:
        """Return the ids of the parts as far as they go, and where each part with a token left lies behind [CLS]."""
        ids: list[int] = []
        spans: list[Span] = []
        for part in parts:
            kept = part[: self._most - len(ids)]
            if kept:
                spans.append((1 + len(ids), 1 + len(ids) + len(kept)))
            ids += kept
        return ids, spans

    def _ids(self, pieces: list[str]) -> list[list[int]]:
        if not pieces:
            return []
        encoding = self._tokenizer(
            pieces, add_special_tokens=False, return_attention_mask=False, return_token_type_ids=False, verbose=False
        )
        ids: list[list[int]] = encoding["input_ids"]
        return ids
