"""Configuration and identity.

An artifact's identity is the hash of its stage, the stage's version, its configuration and the identities of its
inputs. Execution (workers, device, paths) is not part of it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeVar

from pipeline.core.errors import InputError, require_known

SHORT_ID = 12
"""Hex digits of an identity in folder names."""

OMIT_DEFAULT = {"omit_default": True}
"""Metadata of a field that is part of the identity only if it differs from its default."""

_C = TypeVar("_C")


def canonical(value: Any) -> Any:
    """Return plain JSON data, the same for equal values; raise TypeError for a type without such data (path, set)."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise TypeError(f"{value} has no stable spelling in a configuration")
        return value
    if isinstance(value, list | tuple):
        return [canonical(item) for item in value]
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise TypeError("a mapping in a configuration needs strings as keys")
        return {key: canonical(value[key]) for key in sorted(value)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = ((f, getattr(value, f.name)) for f in dataclasses.fields(value))
        return {f.name: canonical(v) for f, v in fields if not (f.metadata.get("omit_default") and v == f.default)}
    raise TypeError(f"{type(value).__name__} has no stable spelling; give a str, number, tuple or dataclass")


def digest(value: Any) -> str:
    """Return the SHA-256 of the canonical JSON of ``value``, 64 hex digits."""
    text = json.dumps(canonical(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def identity(stage: str, version: int, config: Any, inputs: Mapping[str, str]) -> str:
    """Return the identity of an artifact, 64 hex digits."""
    return digest({"stage": stage, "version": version, "config": config, "inputs": dict(inputs)})


def file_name(text: str, *, kept: str = "", gap: str = "-", most: int = 100) -> str:
    """Return a text from data as a safe part of the name of a file or folder, perhaps empty.

    ASCII letters, digits and ``kept`` characters stay; runs of others become a ``gap``. The name neither starts nor
    ends with a ``gap``, ``.``, ``-`` or ``_``. A longer name keeps its last ``most`` characters.
    """
    ends = f"{gap}._-"
    return re.sub(rf"[^A-Za-z0-9{re.escape(kept)}]+", gap, text).strip(ends)[-most:].strip(ends)


def folder_name(slug: str, identity: str) -> str:
    """Return the name of an artifact's folder."""
    return f"{slug}-{identity[:SHORT_ID]}"


def changed_fields(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return ``"field: old -> new"`` for the fields in which two canonical configurations differ."""
    return [
        f"{key}: {json.dumps(old.get(key))} -> {json.dumps(new.get(key))}"
        for key in sorted({*old, *new})
        if old.get(key) != new.get(key)
    ]


def from_mapping(cls: type[_C], values: Mapping[str, Any]) -> _C:
    """Return a configuration dataclass with ``values``; raise InputError for an unknown key."""
    names = [field.name for field in dataclasses.fields(cls) if field.init]  # type: ignore[arg-type]
    for key in values:
        require_known(key, names, f"{cls.__name__} has no setting {key!r}")
    return cls(**{key: tuple(value) if isinstance(value, list) else value for key, value in values.items()})


def parse_count(text: str, name: str) -> int:
    """Return a positive count from text such as ``200k``, ``1.5M`` or ``380``."""
    match = re.fullmatch(r"(\d[\d_]*(?:\.\d+)?)([kKmMgG]?)", text.strip())
    if match:
        number = float(match[1].replace("_", "")) * 1000 ** " kmg".index(match[2].lower() or " ")
        if number == int(number) and number > 0:
            return int(number)
    raise InputError(f"{name} must be a whole number of at least 1, got {text!r}", "Write it like 200k, 1.5M or 380")


def parse_bytes(text: str) -> int:
    """Return an amount of memory in bytes from text such as ``4G``, ``500M`` (powers of 1024) or plain bytes."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kKmMgGtT]?)i?[bB]?", text.strip())
    if not match or float(match[1]) <= 0:
        raise InputError(f"memory {text!r} is not an amount", "Write it like 4G or 500M")
    return int(float(match[1]) * 1024 ** " kmgt".index(match[2].lower() or " "))


def pairs(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield the pieces of a text such as ``k1=1.2,b=0.75`` with their keys and values, which may be empty."""
    for piece in text.split(","):
        key, _, value = (part.strip() for part in piece.partition("="))
        yield piece, key, value


def format_count(number: int) -> str:
    """Return a count as users type it: 200000 -> ``200k``, 1500000 -> ``1.5M``, 78081 -> ``78081``."""
    for letter, unit in (("M", 1_000_000), ("k", 1_000)):
        if number >= unit and number % (unit // 10) == 0:
            return f"{number / unit:g}{letter}"
    return str(number)


def counted(number: int | Literal["all"], noun: str) -> str:
    """Return a count with its noun, in the singular or with a regular plural: ``1 query``, ``2,000 queries``."""
    plural = f"{noun[:-1]}ies" if re.search("[^aeiou]y$", noun) else f"{noun}s"
    return f"{number if number == 'all' else format(number, ',')} {noun if number == 1 else plural}"


def values_of(value: Any, key: str) -> Iterator[Any]:
    """Yield all values of a key in nested settings."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            if name == key:
                yield inner
            else:
                yield from values_of(inner, key)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from values_of(inner, key)
