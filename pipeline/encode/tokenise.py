"""Texts as tokens, with the span of tokens to pool into each vector, and batches in fixed shapes. No torch.

The length of a text alone decides the shape of its batch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from pipeline.core.csr import slices
from pipeline.core.errors import InputError
from pipeline.corpus.reader import TEXT_CHARS, Text
from pipeline.encode.kinds import Transformer
from pipeline.encode.model import Role
from pipeline.encode.recipes import render

Span = tuple[int, int]
"""Start and end of the tokens that are pooled into one vector."""


class Tokens(NamedTuple):
    """Texts as a transformer reads them.

    Attributes:
        ids: token ids of each text, special ones included.
        spans: spans of each text, one a vector.
        cut: whether each text was truncated.
        prompt: length of the prompt, in tokens, that all texts begin with.
    """

    ids: list[list[int]]
    spans: list[list[Span]]
    cut: list[bool]
    prompt: int = 0


Tokeniser = Callable[[Sequence[Text], Role], Tokens]
"""Function from texts to their tokens, in their order."""


class TextTokeniser:
    """One string and one vector a text; raise InputError if a control code is no single token."""

    def __init__(self, model: Transformer, tokenizer: Any) -> None:
        self._model, self._tokenizer = model, tokenizer
        one_token = re.fullmatch(r"cls|position:(\d+)", model.pooling)
        self._position = int(one_token[1] or 0) if one_token else None
        for prefix in (model.paper_prefix, model.query_prefix):
            length = len(tokenizer(prefix, add_special_tokens=False)["input_ids"])
            if self._position and prefix and length != self._position:
                raise InputError(
                    f"{prefix!r} is {length} tokens of {model.checkpoint or 'the model'}, but position "
                    f"{self._position} is pooled",
                    "Use a model whose tokenizer knows the control code as one token",
                )

    def __call__(self, texts: Sequence[Text], role: Role) -> Tokens:
        """Return the tokens of texts, in their order."""
        tokens = Tokens([], [], [], prompt=self._prompt_length(role))
        sizes = np.array([len(text.title) + len(text.abstract) for text in texts], np.int64)
        for block in slices(sizes, len(texts), TEXT_CHARS):  # the tokenizer keeps truncated tokens during a call
            encoding = self._tokenizer(
                [render(text, role, self._model, self._tokenizer) for text in texts[block]],
                truncation=True,
                max_length=self._model.max_length,
                return_attention_mask=False,
                return_token_type_ids=False,
            )
            tokens.ids.extend(encoding["input_ids"])
            tokens.spans.extend([self._span(len(ids))] for ids in encoding["input_ids"])
            tokens.cut.extend(bool(encoded.overflowing) for encoded in encoding.encodings)
        return tokens

    def _prompt_length(self, role: Role) -> int:
        """Return the tokens of the prompt and of special tokens before it, as sentence-transformers counts them."""
        prefix = self._model.query_prefix if role == "query" else self._model.paper_prefix
        ids = self._tokenizer(prefix)["input_ids"] if prefix else []
        return len(ids) - (bool(ids) and ids[-1] in self._tokenizer.all_special_ids)

    def _span(self, length: int) -> Span:
        if self._position is None:
            return 0, length
        position = min(self._position, length - 1)
        return position, position + 1


class Batch(NamedTuple):
    """Positions of texts, at most ``rows``, that are computed together, padded to ``width`` tokens."""

    texts: list[int]
    rows: int
    width: int


def shape_of(length: int, budget: int, longest: int) -> tuple[int, int]:
    """Return rows and width of the batch of a text of ``length`` tokens.

    Batches of several texts have at most ``budget`` tokens, padding included. Their width exceeds the length by less
    than a sixteenth or by less than 8, and is at most ``longest``.
    A text that fills the budget is a batch of its own length.
    """
    step = max(8, 1 << max(length - 1, 1).bit_length() >> 5)
    width = min(-(-max(length, 1) // step) * step, longest)
    rows = budget // width
    return (rows, width) if rows > 1 else (1, max(length, 1))


def token_batches(
    tokens: Sequence[Sequence[int]], budget: int, longest: int, among: Iterable[int] | None = None
) -> list[Batch]:
    """Split texts into batches of fixed shapes (:func:`shape_of`), longest texts first.

    A batch of several has some padding: models compute otherwise without any, which neighbours must not decide.

    Args:
        tokens: token ids of texts.
        budget: tokens of a batch.
        longest: maximum tokens of a text.
        among: positions of the texts to split; all by default.
    """
    chosen = range(len(tokens)) if among is None else among
    batches: list[Batch] = []
    for position in sorted(chosen, key=lambda text: (-len(tokens[text]), tokens[text])):
        rows, width = shape_of(len(tokens[position]), budget, longest)
        room = max(rows - (len(tokens[position]) == width), 1)  # texts without padding come first
        if not batches or batches[-1][1:] != (rows, width) or len(batches[-1].texts) >= room:
            batches.append(Batch([], rows, width))
        batches[-1].texts.append(position)
    return batches
