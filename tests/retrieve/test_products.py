"""Products of whole numbers are exact, and used only where the processor has instructions for them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from pipeline.core.resources import Resources
from pipeline.retrieve import exact
from pipeline.retrieve.base import no_exclusions
from pipeline.retrieve.dense import products
from pipeline.retrieve.engines import dense_engine
from pipeline.retrieve.exact import ExactEngine
from tests.retrieve.cases import same

LONG = 1e13
"""Operations of a search for which any product pays."""


@pytest.fixture
def processor(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Yield what changes the processor's instructions; what was found out about the real one is forgotten."""
    products.wholes.cache_clear()
    yield monkeypatch
    monkeypatch.undo()
    products.wholes.cache_clear()


@pytest.mark.parametrize("dimension", [*range(1, 71), 127, 128, 1_000])
def test_whole_numbers_of_any_shape(dimension: int) -> None:
    rng = np.random.default_rng(dimension)
    shapes = [(1, 1), (1, 40), (40, 1), (17, 33), (3, 130), *rng.integers(1, 41, (12, 2)).tolist()]
    for number, (m, n) in enumerate(shapes):
        a, b = (rng.integers(-127, 128, (count + 3, dimension)).astype(np.int8)[3:] for count in (m, n))
        if number % 3 == 0:
            a[0], b[-1] = 127, -127
        expected = a.astype(np.int32) @ b.T.astype(np.int32)
        assert (products.product(a, b) == expected).all()
        assert (products.product(a, b, np.full((m, n), 7, np.int32)) == expected).all()


@pytest.mark.parametrize(
    ("instructions", "kinds"),
    [
        ((), (False, False)),
        (("avx512_bf16",), (True, False)),
        (("avx512_bf16", "avx512_vnni"), (True, True)),
        (("amx_bf16", "avx512_bf16"), (True, False)),
        (("amx_bf16", "avx512_bf16", "amx_int8", "avx512_vnni"), (True, False)),
    ],
)
def test_processors_are_asked_for_what_they_are_fast_at(
    instructions: tuple[str, ...], kinds: tuple[bool, bool], processor: pytest.MonkeyPatch
) -> None:
    if "avx512_vnni" in instructions:
        processor.setattr(products, "_by_torch", products._by_numpy)  # this one may have no such instructions
    processor.setattr(products, "instructions", lambda: frozenset(instructions))
    engine = dense_engine("exact", Resources(memory=1 << 30, workers=1, device="cpu"), LONG)
    assert isinstance(engine, ExactEngine)
    assert (engine.low, engine.whole) == kinds


@pytest.mark.parametrize("vendor", ["GenuineIntel", "AuthenticAMD"])
@pytest.mark.parametrize("shape", [(1, 1, 1), (17, 130, 65), (380, 70, 768)])
def test_float32_is_as_exact_by_either_library(
    vendor: str, shape: tuple[int, int, int], processor: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    processor.setattr(products, "_processor", lambda: {"vendor_id": vendor})
    by_torch, asked = products._by_torch, []
    processor.setattr(products, "_by_torch", lambda *given: (asked.append(vendor), by_torch(*given))[1])
    m, n, d = shape
    rng = np.random.default_rng(d)
    a, b = (rng.standard_normal((count, d), np.float32) for count in (m, n))
    room = np.full((m + 2, n), np.float32(7))
    found = products.product(a, b, room[:m])
    exact = a.astype(np.float64) @ b.T.astype(np.float64)
    lengths = np.linalg.norm(a, axis=1)[:, None] * np.linalg.norm(b, axis=1)
    assert found.base is room
    assert asked == (["GenuineIntel"] if vendor == "GenuineIntel" else [])
    assert (np.abs(room[:m] - exact) <= d * 2.0**-24 / (1 - d * 2.0**-24) * lengths).all()
    assert (room[m:] == 7).all()


def test_torch_without_exact_products_of_whole_numbers_is_not_used(processor: pytest.MonkeyPatch) -> None:
    processor.setattr(products, "instructions", lambda: frozenset({"avx512_vnni"}))

    def missing(*_: object) -> None:
        raise AttributeError("_int_mm")

    def off_by_one(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> np.ndarray:
        np.matmul(a, b.T, out=out, dtype=np.int32)
        out[-1, -1] += 1
        return out

    a = np.full((2, 5), 127, np.int8)
    for wrong in (missing, off_by_one):
        processor.setattr(products, "_by_torch", wrong)
        products.wholes.cache_clear()
        assert not ExactEngine(LONG).whole
        assert (products.product(a, -a) == -5 * 127**2).all()


def test_more_dimensions_than_whole_numbers_can_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two sums of coordinates that are all as large as they can be are beyond int32: they are multiplied in float32."""
    assert products.MOST_WHOLES * 2 * 127**2 < 2**31 <= (products.MOST_WHOLES + 1) * 2 * 127**2
    dimension = products.MOST_WHOLES * 3
    monkeypatch.setattr(exact, "NEAR", np.inf)
    signs = np.ones((4, dimension), np.float32)
    signs[1:3] *= -1
    signs[2, ::5] *= -1
    found = [
        ExactEngine(low=False, whole=whole).search(
            signs[:1],
            [(np.arange(4, dtype=np.uint32), signs)],
            metric="inner_product",
            depth=3,
            excluded=no_exclusions(1),
            resources=Resources(memory=64 << 20, workers=1, device="cpu"),
        )
        for whole in (False, True)
    ]
    assert same(*found)
    assert found[0].row.tolist() == [3, 0, 2]
