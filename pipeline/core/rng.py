"""Random numbers: one generator for each (seed, purpose, item), no global one."""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt


def _key(seed: int, purpose: str, item: object) -> bytes:
    return hashlib.sha256(f"{seed}\x1f{purpose}\x1f{item}".encode()).digest()


def generator(seed: int, purpose: str, item: object = "") -> np.random.Generator:
    """Return the random generator of an item and a purpose."""
    return np.random.Generator(np.random.Philox(key=int.from_bytes(_key(seed, purpose, item)[:16], "little")))


def priorities(keys: npt.NDArray[np.uint64], seed: int, purpose: str, item: object = "") -> npt.NDArray[np.uint64]:
    """Return pseudo-random uint64 priorities of uint64 keys: salted SplitMix64.

    The N smallest priorities are a uniform sample without replacement that depends on the keys alone, not on their
    order, their number or the workers. A sample of smaller N is a subset of one of larger N. Samples of another seed,
    purpose or item (field, sample number) are independent.
    """
    salt = np.frombuffer(_key(seed, purpose, item)[:16], dtype=np.uint64)
    with np.errstate(over="ignore"):
        mixed: npt.NDArray[np.uint64] = (keys ^ salt[0]) + np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed = (mixed ^ (mixed >> np.uint64(31))) + salt[1]
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
    return mixed


def smallest(values: npt.NDArray[np.uint64], count: int) -> npt.NDArray[np.int64]:
    """Return the positions of the ``count`` smallest values, sorted by (value, position)."""
    chosen = np.arange(len(values))
    if 0 < count < len(values):
        chosen = np.flatnonzero(values <= np.partition(values, count - 1)[count - 1])
    return chosen[np.argsort(values[chosen], kind="stable")[:count]]
