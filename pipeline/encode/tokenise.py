"""From texts to tokens, and to the tokens that are pooled into each vector.

The text templates are those of the model cards (SPECTER: Cohan et al. 2020; SciNCL: Ostendorff et al. 2022; SPECTER2
and control codes: Singh et al. 2023; sentence-transformers: Reimers and Gurevych 2019; E5: Wang et al. 2022). This
module does not import torch, so that worker processes start quickly.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any, NamedTuple

import numpy as np
from tokenizers.normalizers import Lowercase
from tokenizers.normalizers import Sequence as Steps

from pipeline.core import parallel
from pipeline.core.csr import slices
from pipeline.core.errors import InputError, StageError
from pipeline.corpus.reader import TEXT_CHARS, Text
from pipeline.encode.spec import FIELD_MARK, Role, TransformerSpec

Span = tuple[int, int]
"""First token of those a vector is the mean of, and the one behind the last."""


class Tokens(NamedTuple):
    """Texts as a transformer reads them.

    Attributes:
        ids: token ids of each text, special ones included.
        spans: of each text, the tokens of each of its vectors.
        cut: which texts were longer than the encoder reads.
        types: of each pair of texts, which of the two each token belongs to; empty for single texts.
    """

    ids: list[list[int]]
    spans: list[list[Span]]
    cut: list[bool]
    types: Sequence[Sequence[int]] = ()


Tokeniser = Callable[[Sequence[Text], Role], Tokens]
"""Returns the tokens of texts, in their order; it can be sent to another process."""


class TextTokeniser:
    """One string and one vector a text (a :class:`Tokeniser`).

    Args:
        spec: template, prefixes, length and pooling.
        tokenizer: a fast tokenizer.

    Raises:
        InputError: the tokenizer splits a control code, so that its position would hold something else.
    """

    def __init__(self, spec: TransformerSpec, tokenizer: Any) -> None:
        self._spec, self._tokenizer = spec, lower_cased(tokenizer) if spec.lower_case else tokenizer
        single = re.fullmatch(r"cls|position:(\d+)", spec.pooling)
        self._position = int(single[1] or 0) if single else None
        for prefix in (spec.paper_prefix, spec.query_prefix):
            length = len(tokenizer(prefix, add_special_tokens=False)["input_ids"])
            if self._position and prefix and length != self._position:
                raise InputError(
                    f"{prefix!r} is {length} tokens of {spec.checkpoint or 'the model'}, but position {self._position} "
                    "is pooled",
                    "Use a model whose tokenizer knows the control code as one token",
                )

    def __call__(self, texts: Sequence[Text], role: Role) -> Tokens:
        """Return the tokens of texts, in their order."""
        separator = self._tokenizer.sep_token or ""
        tokens = Tokens([], [], [])
        sizes = np.array([len(text.title) + len(text.abstract) for text in texts], np.int64)
        for some in slices(sizes, len(texts), TEXT_CHARS):  # a call keeps the tokens that it cuts off
            encoding = self._tokenizer(
                [render(text, role, self._spec, separator) for text in texts[some]],
                truncation=True,
                max_length=self._spec.max_length,
                return_attention_mask=False,
                return_token_type_ids=False,
            )
            tokens.ids.extend(encoding["input_ids"])
            tokens.spans.extend([self._span(len(ids))] for ids in encoding["input_ids"])
            tokens.cut.extend(bool(encoded.overflowing) for encoded in encoding.encodings)
        return tokens

    def _span(self, length: int) -> Span:
        if self._position is None:
            return 0, length
        position = min(self._position, length - 1)
        return position, position + 1


def render(text: Text, role: Role, spec: TransformerSpec, separator: str) -> str:
    """Return the one string an encoder reads.

    Args:
        text: title and abstract, or an ad-hoc query as title.
        role: an ad-hoc query is its raw text, with its prefix.
        spec: template and prefixes.
        separator: the tokenizer's separator token.
    """
    if role == "query":
        return spec.query_prefix + text.title
    if spec.template == "title-sep-abstract":
        return spec.paper_prefix + text.title + separator + text.abstract
    if spec.template == "fields-sep":
        fields = map(str.strip, (text.title, *text.abstract.split(FIELD_MARK)))
        return spec.paper_prefix + f" {separator} ".join(field for field in fields if field)
    return spec.paper_prefix + " ".join(part for part in text if part)


def lower_cased(tokenizer: Any) -> Any:
    """Have a fast tokenizer lower-case text first, unless its own normalisation does, and return it."""
    normalizer = tokenizer.backend_tokenizer.normalizer
    steps = list(normalizer) if isinstance(normalizer, Steps) else [normalizer] if normalizer else []
    if not any(isinstance(step, Lowercase) for step in steps):
        tokenizer.backend_tokenizer.normalizer = Steps([Lowercase(), *steps])
    return tokenizer


class TokeniserPool:
    """A tokeniser in several worker processes, for devices that would wait for a single one.

    Args:
        tokenise: what each process runs.
        workers: how many processes.
    """

    def __init__(self, tokenise: Tokeniser, workers: int) -> None:
        self._workers = workers
        self._pool = ProcessPoolExecutor(workers, get_context("spawn"), _start, (tokenise, os.getpid()))

    def __call__(self, texts: Sequence[Text], role: Role) -> Tokens:
        """Return the tokens of texts, in their order.

        Raises:
            StageError: a process was killed.
        """
        size = max(1, -(-len(texts) // self._workers))
        pieces = [list(texts[start : start + size]) for start in range(0, len(texts), size)]
        tokens = Tokens([], [], [])
        try:
            with parallel.signals_held():
                parts = self._pool.map(_run, pieces, [role] * len(pieces))
            for part in parts:
                tokens.ids.extend(part.ids)
                tokens.spans.extend(part.spans)
                tokens.cut.extend(part.cut)
        except BrokenProcessPool as error:
            raise StageError(
                "a process that tokenises was killed, perhaps for lack of memory",
                "Run the same command again, with fewer --workers",
            ) from error
        return tokens


_tokenise: Tokeniser | None = None


def _start(tokenise: Tokeniser, parent: int) -> None:
    """Keep a worker process's tokeniser; the process uses one core, and ends when its parent does."""
    global _tokenise
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    parallel.follow(parent)
    _tokenise = tokenise


def _run(texts: Sequence[Text], role: Role) -> Tokens:
    if _tokenise is None:
        raise RuntimeError("this process has no tokeniser")
    return _tokenise(texts, role)
