"""The compiled kernel of attention in bfloat16 on a processor. It takes Numba: import it where it is used."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline.core.compiled import as_bits, as_float, relaxed

_LOG2_E = np.float32(1.4426950408889634)
_LEAST = np.float32(-100)
"""Powers of two below this one count as it: it is nothing beside the greatest weight, which is one."""
_C4, _C3 = np.float32(0.006767083890736103), np.float32(0.05307406559586525)
_C2, _C1, _C0 = np.float32(0.23934108018875122), np.float32(0.6930301785469055), np.float32(0.9999973773956299)
"""Two to the power of ``x``, -1 < x <= 0, as a polynomial: off by 3e-6 of it, where rounding to bfloat16 is by 4e-3."""

_UPPER, _SIGN, _EXPONENT = np.int32(16), np.int32(31), np.int32(23)
_ALL_BUT_SIGN, _ALMOST_HALF, _ONE = np.int32(2**31 - 1), np.int32(2**15 - 1), np.int32(1)
_LOWEST = np.int32(-(2**31))
_NOTHING, _WHOLE = np.float32(0), np.float32(1)


@relaxed
def softmax(scores: Any, scale: Any) -> None:
    """Turn each row of scores into its softmax, in place; a row with a NaN or an infinity becomes NaN.

    Args:
        scores: bfloat16 as uint16, ``[rows, length]``.
        scale: what a score is multiplied by first, float32, more than 0.
    """
    powers = np.empty(scores.shape[1], np.float32)
    factor = scale * _LOG2_E
    for number in range(len(scores)):
        row = scores[number]
        # As whole numbers, with all bits of the negative ones but the sign turned round, floats order as they do.
        greatest = _LOWEST
        for at in range(len(row)):
            word = np.int32(np.int32(row[at]) << _UPPER)
            word = np.int32(word ^ (np.int32(word >> _SIGN) & _ALL_BUT_SIGN))
            greatest = word if word > greatest else greatest
        greatest = np.int32(greatest ^ (np.int32(greatest >> _SIGN) & _ALL_BUT_SIGN))
        shift = as_float(greatest) * factor
        total = _NOTHING
        for at in range(len(row)):
            exponent = as_float(np.int32(np.int32(row[at]) << _UPPER)) * factor - shift
            exponent = _LEAST if exponent < _LEAST else exponent
            whole = np.int32(exponent)
            part = exponent - np.float32(whole)
            power = (((_C4 * part + _C3) * part + _C2) * part + _C1) * part + _C0
            power = as_float(np.int32(as_bits(power) + np.int32(whole << _EXPONENT)))
            powers[at] = power
            total += power
        inverse = _WHOLE / total
        for at in range(len(row)):
            word = as_bits(powers[at] * inverse)
            to_even = np.int32(_ALMOST_HALF + (np.int32(word >> _UPPER) & _ONE))
            row[at] = np.uint16(np.int32(word + to_even) >> _UPPER)
