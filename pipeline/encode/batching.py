"""Batches of texts of like length under a budget of tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Tokens = Sequence[int]


def token_batches(tokens: Sequence[Tokens], budget: int, among: Iterable[int] | None = None) -> list[list[int]]:
    """Split texts into batches, longest first, each of at most ``budget`` tokens with its padding.

    Which texts share a batch depends on the set of texts alone, not on their order, so that the vectors do not either.
    A text longer than the budget is a batch of its own.

    Args:
        tokens: token ids of each text.
        budget: tokens a batch may hold, padding included.
        among: positions of the texts to be split; all by default.

    Returns:
        Positions in ``tokens``, batch by batch.
    """
    chosen = range(len(tokens)) if among is None else among
    batches: list[list[int]] = []
    fits = 0
    for position in sorted(chosen, key=lambda p: (-len(tokens[p]), tokens[p])):
        if not batches or len(batches[-1]) >= fits:
            batches.append([])
            fits = max(1, budget // max(1, len(tokens[position])))
        batches[-1].append(position)
    return batches


def padding_share(tokens: int, padded: int) -> float:
    """Return the share of computed tokens that were padding."""
    return 1 - tokens / padded if padded else 0.0
