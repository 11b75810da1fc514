"""Batches of texts in fixed shapes, which the length of a text alone decides. No torch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple


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
