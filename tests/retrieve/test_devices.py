"""The steps of a search on a GPU, on a device with values that refuses operands in main memory as a GPU does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from pipeline.core.csr import Groups
from pipeline.retrieve import exact
from pipeline.retrieve.base import Metric
from tests.retrieve.cases import METRICS, exclusions, expected, make_case, same, search
from tests.retrieve.reference import brute_force

_MOVES = (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default)


class OnDevice(torch.Tensor):
    """A tensor that says it is on the device ``meta``; ``values`` are in main memory."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, values: torch.Tensor) -> OnDevice:
        strides = values.stride(), values.storage_offset()
        return torch.Tensor._make_wrapper_subclass(cls, values.shape, *strides, dtype=values.dtype, device="meta")

    def __init__(self, values: torch.Tensor) -> None:
        self.values = values

    @classmethod
    def __torch_dispatch__(cls, operation: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        here = [isinstance(tensor, OnDevice) for tensor in tensors]
        scalars = [tensor.dim() == 0 for tensor in tensors]
        if operation not in _MOVES and any(here) and not all(map(max, here, scalars)):
            raise RuntimeError(f"{operation} mixes devices")
        if (device := kwargs.get("device")) is not None:
            kwargs["device"] = "cpu"
        plain, options = tree_map_only(OnDevice, lambda tensor: tensor.values, (args, kwargs))
        result = operation(*plain, **options)
        there = any(here) if device is None else torch.device(device).type == "meta"
        return tree_map_only(torch.Tensor, OnDevice, result) if there else result


class Device(TorchDispatchMode):
    """Makes tensors of the device ``meta`` with values."""

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return OnDevice.__torch_dispatch__(operation, types, args, kwargs)


@pytest.fixture(autouse=True)
def _on_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "device_of", lambda _name, _operations: torch.device("meta"))


@pytest.mark.parametrize("metric", METRICS)
def test_a_search_mixes_no_devices(metric: Metric) -> None:
    case = make_case("duplicates", candidates=160, queries=3, dimension=5)
    with Device():
        ranking = case.search(metric, 5, size=60)
    assert same(ranking, expected(case, metric, 5))
    with Device(), pytest.raises(RuntimeError, match="mixes devices"):
        torch.ones(3, device="meta") + torch.ones(3)


def test_a_search_by_the_best_pair_mixes_no_devices() -> None:
    case = make_case("random", candidates=40, queries=4, dimension=5)
    rows, queries = np.repeat(case.rows[:20], 2), Groups(np.array([0, 1, 4]), case.queries)
    excluded = exclusions([[7], []])
    with Device():
        ranking = search(queries, [(rows, case.vectors)], "l2", 5, excluded)
    assert same(ranking, brute_force(queries, rows, case.vectors, "l2", 5, excluded))
