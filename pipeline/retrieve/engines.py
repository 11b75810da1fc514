"""Approximate indexes of Faiss by name, without loading Faiss."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pipeline.core.config import pairs
from pipeline.core.errors import InputError

INDEXES = ("faiss", "faiss-gpu")
"""What names of indexes begin with, before a colon."""


@dataclass(frozen=True)
class IndexSettings:
    """Settings that decide the results of an approximate search, such as ``IVF4096,Flat`` of ``faiss.index_factory``.

    ``options`` are of ``faiss.ParameterSpace``, such as ``nprobe=32``. By default HNSW's efSearch is the number of
    candidates fetched: the depth and what is excluded; other defaults are Faiss's. ``gpu``: searched on a GPU,
    whose results may differ.
    """

    factory: str
    options: str = ""
    gpu: bool = False

    @property
    def name(self) -> str:
        """The name that :func:`parse_settings` reads."""
        return ":".join(filter(None, [INDEXES[self.gpu], self.factory, self.options]))

    @property
    def slug(self) -> str:
        """The name as a part of a folder's name."""
        return re.sub(r"[^A-Za-z0-9_.+=,-]+", "-", self.name)[:60]


def parse_settings(text: str) -> IndexSettings | None:
    """Return the settings of an index, such as ``faiss:HNSW32`` or ``faiss:IVF4096,Flat:nprobe=32``.

    An optional second colon starts the options. A name without a colon is none of an index: None.

    Raises:
        InputError: it is no index of Faiss, or an option is not ``name=number``.
    """
    kind, colon, rest = text.partition(":")
    if not colon:
        return None
    factory, _, options = rest.partition(":")
    values = list(pairs(options)) if options else []
    if kind not in INDEXES or not factory.strip():
        raise InputError(f"there is no search engine {text!r}", "Write faiss:IVF4096,Flat:nprobe=32 or faiss:HNSW32")
    for piece, key, value in values:
        if not (re.fullmatch(r"[A-Za-z_]+", key) and re.fullmatch(r"\d+(\.\d+)?", value)):
            raise InputError(f"{piece!r} in {text!r} is not an option", "Write name=number, such as nprobe=32")
    return IndexSettings(
        "".join(factory.split()), ",".join(f"{key}={value}" for _, key, value in values), kind == INDEXES[True]
    )
