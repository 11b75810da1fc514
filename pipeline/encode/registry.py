"""Encoders by name: the entries of ``models.toml``, any model of the hub, any folder. Nothing here imports torch."""

from __future__ import annotations

import dataclasses
import functools
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.core.errors import InputError, nearest
from pipeline.encode import hub, kinds
from pipeline.encode.spec import Model

_HUB_PREFIX = "hf:"
_NO_OPTION = ("checkpoint", "folder", "hub", "kind", "package")
"""What resolving finds out, and what would make another model of a name."""


@dataclass(frozen=True)
class Listing:
    """One known model as ``mdcr models`` and ``mdcr doctor`` show it.

    Attributes:
        name: what users call it.
        source: hub id, installed package, or empty for a model without weights.
        folder: where its weights are on this machine; None where they are not, or where it has none.
        revision: commit in the local cache, or the one ``models.toml`` asks for.
        available: whether it can be used without a network.
        licence: licence of the weights.
    """

    name: str
    source: str
    folder: Path | None
    revision: str
    available: bool
    licence: str


def names() -> list[str]:
    """Return the names of the models known."""
    return list(_entries())


def resolve(text: str, precision: str | None = None) -> Model:
    """Return the encoder a user means.

    Args:
        text: a name of ``models.toml``, ``hf:ORGANISATION/NAME`` or a folder, each with options behind a colon where
            they shall differ from the entry: ``scincl:compute=bfloat16,storage=float16``.
        precision: compute precision of models that have one and whose own options do not say; None for the entry's.

    Raises:
        InputError: there is no such model, the folder holds none, or an option is wrong.
        StageError: it has to be looked up on the hub, which cannot be reached.
    """
    base, options = _split(text)
    entry = _entry(base)
    kind = kinds.find(entry.pop("kind", "transformer"))
    if precision is not None and any(field.name == "compute" for field in dataclasses.fields(kind.spec)):
        options.setdefault("compute", precision)
    differing = {key: value for key, value in options.items() if str(entry.get(key, "")).lower() != value}
    name = base + (":" if differing else "") + ",".join(f"{key}={differing[key]}" for key in sorted(differing))
    return kind.resolve(name, {**entry, **options})


def listings() -> list[Listing]:
    """Return every model known, with what of it is on this machine; the network is not asked."""
    return [_listing(name, entry) for name, entry in _entries().items()]


def _listing(name: str, entry: Mapping[str, Any]) -> Listing:
    licence, revision = entry.get("licence", ""), entry.get("revision", "main")
    if "hub" not in entry:
        return Listing(name, "", None, "", available=True, licence=licence)
    package = entry.get("package", "")
    folder = hub.packaged(package) if package else None
    if folder:
        return Listing(name, package, folder, "", available=bool(hub.weights(folder)), licence=licence)
    found = hub.cached(entry["hub"], revision)
    adapter = entry.get("adapter", "")
    adapted = not adapter or _whole(hub.cached(adapter, entry.get("adapter_revision", "main"), hub.ADAPTER))
    if found and _whole(found) and adapted:
        return Listing(name, entry["hub"], found.folder, found.revision, available=True, licence=licence)
    return Listing(name, entry["hub"], None, revision, available=False, licence=licence)


def _whole(checkpoint: hub.Checkpoint | None) -> bool:
    return checkpoint is not None and bool(hub.weights(checkpoint.folder, checkpoint.layout))


def _entries() -> dict[str, Mapping[str, Any]]:
    entries = dict(_file())
    for kind in kinds.registered():
        entries |= {name: {"kind": kind.name, **entry} for name, entry in kind.models.items()}
    return entries


@functools.cache
def _file() -> dict[str, Mapping[str, Any]]:
    return tomllib.loads(Path(__file__).with_name("models.toml").read_text(encoding="utf-8"))


def _entry(base: str) -> dict[str, Any]:
    entries = _entries()
    if base in entries:
        return dict(entries[base])
    if base.startswith(_HUB_PREFIX):
        return {"hub": base.removeprefix(_HUB_PREFIX)}
    folder = Path(base).expanduser()
    if folder.is_dir():
        return {"folder": str(folder)}
    if "/" in base or base.startswith("~"):
        raise InputError(f"there is no model folder {base!r}", "A model of the hub is written hf:ORGANISATION/NAME")
    raise InputError(
        f"there is no model {base!r}", f"{nearest(base, entries)}; or give hf:ORGANISATION/NAME or a folder"
    )


def _split(text: str) -> tuple[str, dict[str, str]]:
    match = re.fullmatch(r"(.+?):(\w+\s*=.*)", text)
    if match is None or Path(text).is_dir():
        return text, {}
    base, options = match[1], dict[str, str]()
    for piece in match[2].split(","):
        key, _, value = (part.strip() for part in piece.partition("="))
        if not key or not value or key in _NO_OPTION:
            raise InputError(f"{piece!r} in {text!r} is no option", f"Write it like {base}:compute=bfloat16")
        options[key] = value
    return base, options
