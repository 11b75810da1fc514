"""Decorators of compiled kernels.

Loading Numba takes half a second: import this module, and modules of kernels, where a kernel is called.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba

_Function = TypeVar("_Function", bound=Callable[..., Any])


def compiled(function: _Function) -> _Function:
    """Compile a kernel at its first call and keep the machine code on disk; divisions follow NumPy, not Python.

    Numba recompiles when the kernel's own file changes. After editing a kernel that other modules call, remove their
    ``__pycache__/*.nb*``.
    """
    kernel: _Function = numba.njit(cache=True, nogil=True, error_model="numpy")(function)
    return kernel
