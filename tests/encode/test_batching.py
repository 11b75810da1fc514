"""Every text is in one batch, no batch breaks the budget, and the order of the texts changes nothing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pipeline.encode.batching import padding_share, token_batches

_TEXTS = st.lists(st.lists(st.integers(0, 3), max_size=12), max_size=40)


@given(_TEXTS, st.integers(1, 60))
def test_batches(tokens: list[list[int]], budget: int) -> None:
    batches = token_batches(tokens, budget)
    assert sorted(position for batch in batches for position in batch) == list(range(len(tokens)))
    for batch in batches:
        width = max(len(tokens[position]) for position in batch)
        assert len(tokens[batch[0]]) == width
        assert len(batch) == 1 or len(batch) * max(1, width) <= budget
    widths = [len(tokens[batch[0]]) for batch in batches]
    assert widths == sorted(widths, reverse=True)


@given(_TEXTS, st.integers(1, 60), st.randoms())
def test_order_changes_nothing(tokens: list[list[int]], budget: int, chance) -> None:  # type: ignore[no-untyped-def]
    shuffled = tokens.copy()
    chance.shuffle(shuffled)
    one, other = token_batches(tokens, budget), token_batches(shuffled, budget)
    assert [[tokens[p] for p in batch] for batch in one] == [[shuffled[p] for p in batch] for batch in other]


def test_some_of_the_texts() -> None:
    assert token_batches([[1], [1, 2], [1, 2, 3]], 4, [0, 2]) == [[2], [0]]


def test_padding_of_real_lengths_is_small() -> None:
    tokens = [[0] * (20 + (number * 7919) % 490) for number in range(4096)]
    batches = token_batches(tokens, 8192)
    padded = sum(len(batch) * len(tokens[batch[0]]) for batch in batches)
    assert padding_share(sum(map(len, tokens)), padded) < 0.03
    assert padding_share(0, 0) == 0
