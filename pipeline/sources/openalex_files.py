"""Files of an OpenAlex snapshot: its manifest, and the public bucket."""

from __future__ import annotations

import re
from functools import partial
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

import msgspec

from pipeline.core.errors import CorruptError, InputError, StageError, require_known
from pipeline.sources.fetch import Catalogue, Remote, ask, endpoint_of, plain_name, public_url, reason_of, within

FORMATS = {
    "jsonl": ("data/jsonl/works",),
    "parquet": ("data/parquet/works",),
    "legacy": ("legacy-data/works", "data/works"),
}
"""Folders of works in the bucket by format; the first existing one is used. The layout until 2025 (``legacy``) moved in
2026."""

MANIFESTS = ("manifest.json", "manifest")


class Listed(msgspec.Struct, rename={"bytes": "content_length", "records": "record_count"}):
    """A manifest's entry of one file."""

    bytes: int | None = None
    records: int | None = None
    sha256: str | None = None


class _Entry(msgspec.Struct):
    url: str
    meta: Listed = msgspec.field(default_factory=Listed)


class _Manifest(msgspec.Struct):
    files: list[_Entry] | None = None
    entries: list[_Entry] | None = None


def read_manifest(text: bytes, where: str) -> dict[str, Listed]:
    """Return the entries of a manifest by path below the folder of works; CorruptError if it is not a manifest.

    Both layouts are read: ``entries`` (until 2025) and ``files`` (since 2026), with paths or ``s3://`` addresses.
    """
    try:
        manifest = msgspec.json.decode(text, type=_Manifest)
        entries = manifest.entries if manifest.files is None else manifest.files
        if entries is None:
            raise msgspec.ValidationError("it lists no files")
        return {entry.url.rpartition("works/")[2]: entry.meta for entry in entries}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptError(f"{where} is not a manifest of OpenAlex works ({error!r})", "Fetch it again") from error


ENDPOINT = "https://openalex.s3.amazonaws.com"

_LISTING_SECONDS, _MAX_OBJECTS = 600.0, 1_000_000
_LISTED = re.compile(r".*(\.gz|\.parquet|/manifest|/manifest\.json)")
"""Names of data files and manifests."""


def catalogue(kind: str, endpoint: str = ENDPOINT) -> Catalogue:
    """Return the files of works and their manifest in the current snapshot, by their names in S3.

    Args:
        kind: one of :data:`FORMATS`.
        endpoint: address of the bucket.

    Raises:
        InputError: the bucket has no such works.
        StageError: the bucket cannot be reached, or refuses.
    """
    require_known(kind, FORMATS, f"there is no format {kind!r} of the snapshot")
    endpoint = endpoint_of(endpoint)
    works = _first_listed(endpoint, FORMATS[kind])
    if not works:
        raise InputError(f"{public_url(endpoint)} holds no {kind} works", f"Choose another of {', '.join(FORMATS)}")
    sha256_of: dict[str, str | None] = {}
    for key in (key for key in works if PurePosixPath(key).name in MANIFESTS):
        _, manifest = ask(f"{endpoint}/{quote(key)}", {})
        sha256_of |= {name: entry.sha256 for name, entry in read_manifest(manifest, key).items()}
    remotes = [
        Remote(key, found["e_tag"], found["size"], sha256=sha256_of.get(key.rpartition("works/")[2]))
        for key, found in works.items()
    ]

    def address(remote: Remote) -> tuple[str, dict[str, str]]:
        return f"{endpoint}/{quote(remote.name)}", {"If-Match": remote.source} if remote.source else {}

    date = max(found["last_modified"] for found in works.values())
    return Catalogue(plain_name(f"openalex-{kind}-{date:%Y-%m-%d}"), remotes, address)


def _first_listed(endpoint: str, folders: tuple[str, ...]) -> dict[str, Any]:
    """Return what obstore says of the data files and manifests of the first folder that has data, by name."""
    import obstore
    from obstore.exceptions import BaseError
    from obstore.store import S3Store

    bucket = S3Store(
        "openalex",
        endpoint=endpoint,
        virtual_hosted_style_request=True,  # the address has the bucket's name
        skip_signature=True,
        region="us-east-1",
        client_options={"allow_http": True, "timeout": "60 seconds"},
        retry_config={"max_retries": 6},
    )

    def listed(folder: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for chunk in obstore.list(bucket, folder, chunk_size=1_000):
            found |= {each["path"]: each for each in chunk if _LISTED.fullmatch(each["path"])}
            if len(found) > _MAX_OBJECTS:
                raise ValueError(f"it has more than {_MAX_OBJECTS:,} objects")
        return dict(sorted(found.items()))

    for folder in folders:
        what = f"the listing of {folder}"
        try:
            found = within(_LISTING_SECONDS, what, partial(listed, folder))
        except (BaseError, ValueError, OSError) as error:
            raise StageError(
                f"{what} does not come ({reason_of(error)})", "Check the network and --endpoint"
            ) from error
        if any(key.endswith((".gz", ".parquet")) for key in found):
            return found
    return {}
