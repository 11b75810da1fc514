"""BLAKE2b with digests of 8 bytes (RFC 7693), compiled: what :func:`hashlib.blake2b` gives, for many short strings."""

from __future__ import annotations

import numpy as np

from pipeline.core.compiled import Bytes, Keys, compiled

_BLOCK = 128
_ROUNDS = 12

_IV = np.array(
    [
        0x6A09E667F3BCC908,
        0xBB67AE8584CAA73B,
        0x3C6EF372FE94F82B,
        0xA54FF53A5F1D36F1,
        0x510E527FADE682D1,
        0x9B05688C2B3E6C1F,
        0x1F83D9ABFB41BD6B,
        0x5BE0CD19137E2179,
    ],
    np.uint64,
)
_PARAMETERS = np.uint64(0x01010008)  # digest of 8 bytes, no key, sequential

_SIGMA = np.array(
    [
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
        [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
        [11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4],
        [7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8],
        [9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13],
        [2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9],
        [12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11],
        [13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10],
        [6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5],
        [10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0],
    ],
    np.uint8,
)


@compiled
def _rotated(word: np.uint64, by: int) -> np.uint64:
    return (word >> np.uint64(by)) | (word << np.uint64(64 - by))


@compiled
def _mixed(
    a: np.uint64, b: np.uint64, c: np.uint64, d: np.uint64, x: np.uint64, y: np.uint64
) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    a = a + b + x
    d = _rotated(d ^ a, 32)
    c = c + d
    b = _rotated(b ^ c, 24)
    a = a + b + y
    d = _rotated(d ^ a, 16)
    c = c + d
    return a, _rotated(b ^ c, 63), c, d


@compiled
def _compress(state: Keys, words: Keys, count: int, last: bool) -> None:
    v0, v1, v2, v3, v4, v5, v6, v7 = state[0], state[1], state[2], state[3], state[4], state[5], state[6], state[7]
    v8, v9, v10, v11 = _IV[0], _IV[1], _IV[2], _IV[3]
    v12, v13, v14, v15 = _IV[4] ^ np.uint64(count), _IV[5], _IV[6], _IV[7]
    if last:
        v14 = ~v14
    for number in range(_ROUNDS):
        s = _SIGMA[number % 10]
        v0, v4, v8, v12 = _mixed(v0, v4, v8, v12, words[s[0]], words[s[1]])
        v1, v5, v9, v13 = _mixed(v1, v5, v9, v13, words[s[2]], words[s[3]])
        v2, v6, v10, v14 = _mixed(v2, v6, v10, v14, words[s[4]], words[s[5]])
        v3, v7, v11, v15 = _mixed(v3, v7, v11, v15, words[s[6]], words[s[7]])
        v0, v5, v10, v15 = _mixed(v0, v5, v10, v15, words[s[8]], words[s[9]])
        v1, v6, v11, v12 = _mixed(v1, v6, v11, v12, words[s[10]], words[s[11]])
        v2, v7, v8, v13 = _mixed(v2, v7, v8, v13, words[s[12]], words[s[13]])
        v3, v4, v9, v14 = _mixed(v3, v4, v9, v14, words[s[14]], words[s[15]])
    state[0] ^= v0 ^ v8
    state[1] ^= v1 ^ v9
    state[2] ^= v2 ^ v10
    state[3] ^= v3 ^ v11
    state[4] ^= v4 ^ v12
    state[5] ^= v5 ^ v13
    state[6] ^= v6 ^ v14
    state[7] ^= v7 ^ v15


@compiled
def digest(data: Bytes, start: int, end: int, work: Keys) -> np.uint64:
    """Return the digest of ``data[start:end]`` as a little-endian number.

    Args:
        data: uint8.
        start: where the string begins.
        end: where it ends.
        work: uint64 ``[24]``, overwritten.
    """
    state, words = work[:8], work[8:]
    for place in range(8):
        state[place] = _IV[place]
    state[0] ^= _PARAMETERS
    done = 0
    while True:
        size = min(end - start - done, _BLOCK)
        for place in range(16):
            words[place] = 0
        for place in range(size):
            words[place >> 3] |= np.uint64(data[start + done + place]) << np.uint64(8 * (place & 7))
        done += size
        last = done == end - start
        _compress(state, words, done, last)
        if last:
            return np.uint64(state[0])
