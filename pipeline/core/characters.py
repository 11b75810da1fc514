"""Tables of what the text rules do to single characters, for compiled code.

A text of characters that are each in a normal form, of no combining class, and compose with none before them, is in
that form as a whole (Unicode Standard Annex 15, section 9); only such characters get an answer here.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache

import numpy as np
import numpy.typing as npt

ODD, PLAIN, SPACE = range(3)
"""Classes of characters: those whose text another reader must normalise, those taken as they are, white space."""

UNKNOWN = 0xFFFF
"""Where a character has no entry in :func:`title_forms`."""

_TITLE_FORMS = 0x3000


@lru_cache(maxsize=1)
def classes() -> npt.NDArray[np.uint8]:
    """Return the class of each code point of the basic plane under :func:`pipeline.core.text.normalise`, uint8."""
    found = np.full(0x10000, PLAIN, np.uint8)
    for code in range(0x300, 0x10000):
        character = chr(code)
        if unicodedata.combining(character) or not unicodedata.is_normalized("NFC", character):
            found[code] = ODD
            continue
        decomposed = unicodedata.decomposition(character)
        if decomposed and decomposed[0] != "<":
            found[int(decomposed.split()[-1], 16)] = ODD
    found[0x1100:0x1200] = ODD  # Hangul letters compose by rule, not by table
    found[0xD800:0xE000] = ODD  # surrogates
    for code in range(0x10000):
        if chr(code).isspace():
            found[code] = SPACE
    return found


@lru_cache(maxsize=1)
def title_forms() -> npt.NDArray[np.uint16]:
    """Return what :func:`pipeline.core.text.same_title_form` makes of each code point under 12,288, uint16.

    An entry is the code point that remains, 0 where none does, :data:`UNKNOWN` where the rule must be asked.
    """
    forms = np.full(_TITLE_FORMS, UNKNOWN, np.uint16)
    for code in np.flatnonzero(classes()[:_TITLE_FORMS] != ODD).tolist():
        character = chr(code)
        form = "".join(filter(str.isalnum, character.casefold()))
        if unicodedata.is_normalized("NFKC", character) and len(form) < 2 and form < chr(_TITLE_FORMS):
            forms[code] = ord(form or "\0")
    return forms
