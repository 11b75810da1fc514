"""Decorator of compiled kernels.

Loading Numba takes half a second, so import this module, and modules with kernels, only where kernels are called.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba

_Function = TypeVar("_Function", bound=Callable[..., Any])


def compiled(function: _Function) -> _Function:
    """Compile a kernel at its first call and cache the machine code on disk; divisions follow NumPy, not Python.

    Numba recompiles when the kernel's own file changes. After editing a kernel that other modules call, remove their
    ``__pycache__/*.nb*``.
    """
    kernel: _Function = numba.njit(cache=True, nogil=True, error_model="numpy")(function)
    return kernel
