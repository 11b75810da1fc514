"""Batches of texts of like length under a budget of tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Tokens = Sequence[int]


def token_batches(
    tokens: Sequence[Tokens], budget: int, among: Iterable[int] | None = None, *, padded: bool = True
) -> list[list[int]]:
    """Split texts into batches, longest first, each of at most ``budget`` tokens.

    Which texts share a batch depends on the set of texts alone, not on their order, so that the vectors do not either.
    A text longer than the budget is a batch of its own.

    Args:
        tokens: token ids of each text.
        budget: tokens a batch may hold.
        among: positions of the texts to be split; all by default.
        padded: whether each text counts as long as the longest of its batch.

    Returns:
        Positions in ``tokens``, batch by batch.
    """
    chosen = range(len(tokens)) if among is None else among
    batches: list[list[int]] = []
    left = 0
    widest = 0
    for position in sorted(chosen, key=lambda p: (-len(tokens[p]), tokens[p])):
        length = max(1, len(tokens[position]))
        cost = widest if padded else length
        if not batches or left < cost:
            batches.append([])
            left, widest = budget, length
            cost = length
        batches[-1].append(position)
        left -= cost
    return batches


def padding_share(tokens: int, padded: int) -> float:
    """Return the share of computed tokens that were padding."""
    return 1 - tokens / padded if padded else 0.0
