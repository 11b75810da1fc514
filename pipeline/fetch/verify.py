"""Checking that a fetched file is complete."""

from __future__ import annotations

import hashlib
from pathlib import Path

from pipeline.core import files
from pipeline.core.errors import CorruptError
from pipeline.fetch.remote import Remote
from pipeline.sources.lines import read_blocks
from pipeline.sources.parquet import open_parquet


def check(path: Path, remote: Remote, md5: str | None) -> dict[str, object]:
    """Check a file by the strongest means available, and return what was checked.

    These are, in order: the SHA-256 of the listing, the MD5 of the listing or the server, the checksums inside a gzip
    file, the footer of a Parquet file.

    Args:
        path: the file.
        remote: its entry in the listing.
        md5: from the server, 32 hex digits.

    Raises:
        CorruptError: a check fails.
    """
    size = path.stat().st_size
    if remote.bytes is not None and size != remote.bytes:
        raise CorruptError(f"{remote.name} has {size:,} bytes, the listing says {remote.bytes:,}")
    if remote.sha256:
        return {"bytes": size, "sha256": _same(remote, "SHA-256", files.sha256(path), remote.sha256)}
    if expected := remote.md5 or md5:
        with path.open("rb") as handle:
            found = hashlib.file_digest(handle, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
        return {"bytes": size, "md5": _same(remote, "MD5", found, expected)}
    if path.suffix == ".gz":
        for _ in read_blocks(path):
            pass
        return {"bytes": size, "checked": "gzip"}
    if path.suffix == ".parquet":
        open_parquet(path)
        return {"bytes": size, "checked": "parquet"}
    return {"bytes": size}


def _same(remote: Remote, kind: str, found: str, expected: str) -> str:
    if found != expected.lower():
        raise CorruptError(f"{remote.name} has {kind} {found}, and should have {expected}")
    return found
