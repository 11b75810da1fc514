"""The 19 fields of the Microsoft Academic Graph that MDCR evaluates (Medić & Šnajder 2022, table 5)."""

from __future__ import annotations

from pipeline.core.errors import InputError, nearest

MAG_FIELDS = (
    "Art",
    "Biology",
    "Business",
    "Chemistry",
    "Computer Science",
    "Economics",
    "Engineering",
    "Environmental Science",
    "Geography",
    "Geology",
    "History",
    "Materials Science",
    "Mathematics",
    "Medicine",
    "Philosophy",
    "Physics",
    "Political Science",
    "Psychology",
    "Sociology",
)

FIELD_BIT = {name: bit for bit, name in enumerate(MAG_FIELDS)}
"""Bit of each field in the ``fields`` mask of a corpus's attributes."""


def parse_field(text: str) -> str:
    """Return the field of a text in any case, with spaces, ``-`` or ``_`` between words."""
    folded = {name.casefold(): name for name in MAG_FIELDS}
    key = " ".join(text.replace("-", " ").replace("_", " ").casefold().split())
    if key in folded:
        return folded[key]
    raise InputError(f"there is no field {text!r}", nearest(text, MAG_FIELDS))
