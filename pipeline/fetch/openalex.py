"""The public bucket of OpenAlex, read without a signature through the REST interface of S3."""

from __future__ import annotations

import re
import threading
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from urllib.parse import quote, urlencode

import httpx

from pipeline.core.errors import InputError, StageError, nearest
from pipeline.core.text import integer
from pipeline.fetch.remote import Remote, Wait, ask, bare, plain_name
from pipeline.sources.openalex_layout import Listed, read_manifest

ENDPOINT = "https://openalex.s3.amazonaws.com"

_PAGES = 10_000
"""Pages of the longest listing that is read, ten million objects."""

_NAMESPACE = "{http://s3.amazonaws.com/doc/2006-03-01/}"

FORMATS = {
    "jsonl": (("data/jsonl/works/",), ()),
    "parquet": (("data/parquet/works/",), ()),
    "legacy": (
        ("legacy-data/works/", "data/works/"),
        ("legacy-data/merged_ids/works/", "data/merged_ids/works/"),
    ),
}
"""By format: folders of works and of merged ids in the bucket; the first that exists counts. The layout until 2025
(``legacy``) moved in 2026; later ones have no merged ids."""


@dataclass(frozen=True)
class S3Object:
    """One object of a listing."""

    key: str
    bytes: int
    etag: str
    modified: str


def list_objects(
    session: httpx.Client, bucket: str, prefix: str, *, page: int = 1_000, wait: Wait = time.sleep
) -> Iterator[S3Object]:
    """Yield the objects below a prefix, page after page (ListObjectsV2).

    Args:
        session: the HTTP client.
        bucket: address of the bucket.
        prefix: start of their keys.
        page: objects a request.
        wait: sleeps between attempts.

    Raises:
        StageError: the answer is not a listing.
    """
    query = {"list-type": "2", "prefix": prefix, "max-keys": str(page)}
    tokens = set[str]()
    where = bare(bucket)
    for _ in range(_PAGES):
        answer = ask(session, f"{bucket}/?{urlencode(query)}", wait=wait)
        if answer.status_code != 200:
            raise StageError(f"{where} does not list {prefix} (HTTP {answer.status_code})", "Check --endpoint")
        try:
            root = ET.fromstring(answer.content)  # noqa: S314  # expat refuses entity bombs since 2.4.1
            if not root.tag.endswith("ListBucketResult"):
                raise ValueError(root.tag)
            for each in root.iter(f"{_NAMESPACE}Contents"):
                key, size, etag, modified = (
                    each.findtext(f"{_NAMESPACE}{name}", "") for name in ("Key", "Size", "ETag", "LastModified")
                )
                yield S3Object(key, integer(size), etag, modified)
        except (ET.ParseError, ValueError) as error:
            raise StageError(
                f"{where} did not answer with a listing of {prefix} ({error})", "Check --endpoint"
            ) from error
        token = root.findtext(f"{_NAMESPACE}NextContinuationToken")
        if not token:
            return
        if token in tokens:
            raise StageError(f"{where} repeats a page of its listing of {prefix}", "Check --endpoint")
        tokens.add(token)
        query["continuation-token"] = token
    raise StageError(f"{where} lists {prefix} on more than {_PAGES:,} pages", "Check --endpoint")


class OpenAlexCatalogue:
    """One format of the snapshot in the bucket; the bucket has one snapshot at a time.

    Args:
        session: the HTTP client.
        kind: one of :data:`FORMATS`.
        endpoint: address of the bucket.
        wait: sleeps between attempts.

    Raises:
        InputError: the format is unknown or not in the bucket.
    """

    def __init__(
        self,
        session: httpx.Client,
        kind: str,
        endpoint: str = ENDPOINT,
        wait: Wait = time.sleep,
    ) -> None:
        if kind not in FORMATS:
            raise InputError(f"there is no format {kind!r} of the snapshot", nearest(kind, FORMATS))
        self._session, self._endpoint, self._wait, self._format = session, endpoint.rstrip("/"), wait, kind
        self._lock = threading.Lock()
        works, merged = FORMATS[kind]
        self._found = self._first(works)
        if not self._found:
            raise InputError(f"{bare(endpoint)} holds no {kind} works", f"Choose another of {', '.join(FORMATS)}")
        self._merged = self._first(merged)

    @property
    def name(self) -> str:
        """Name of the snapshot: its format and the date of its newest file."""
        return plain_name(f"openalex-{self._format}-{max(each.modified for each in self._found)[:10]}")

    def files(self) -> list[Remote]:
        """Return the files of works, their manifest and the merged ids, under their names in the bucket."""
        manifests = [each for each in self._found if PurePosixPath(each.key).name in ("manifest", "manifest.json")]
        listed = {name: entry for each in manifests for name, entry in self._manifest(each).items()}
        remotes = [self._remote(each) for each in (*self._merged, *self._found)]
        return [
            replace(each, sha256=listed[name].sha256) if (name := each.name.rpartition("works/")[2]) in listed else each
            for each in remotes
        ]

    def renewed(self, remote: Remote) -> Remote:
        """Return the file if it is unchanged.

        Raises:
            InputError: the snapshot was replaced by the next one.
        """
        with self._lock:
            there = {
                each.key: self._remote(each)
                for each in list_objects(self._session, self._endpoint, remote.name, wait=self._wait)
            }
        if remote.name not in there or there[remote.name].bytes != remote.bytes:
            raise InputError(
                f"{remote.name} is not in the bucket any more: the snapshot was replaced while it was being fetched",
                "Run the same command again: it fetches the new one, into a folder of its own",
            )
        return remote

    def _first(self, prefixes: tuple[str, ...]) -> list[S3Object]:
        for prefix in prefixes:
            found = list(list_objects(self._session, self._endpoint, prefix, wait=self._wait))
            kept = [each for each in found if re.search(r"(\.gz|\.parquet|/manifest|/manifest\.json)$", each.key)]
            if any(each.key.endswith((".gz", ".parquet")) for each in kept):
                return kept
        return []

    def _remote(self, each: S3Object) -> Remote:
        tag = each.etag.strip('"')
        md5 = tag if re.fullmatch(r"[0-9a-f]{32}", tag) else None
        return Remote(each.key, f"{self._endpoint}/{quote(each.key)}", each.bytes, md5)

    def _manifest(self, each: S3Object) -> dict[str, Listed]:
        answer = ask(self._session, f"{self._endpoint}/{quote(each.key)}", wait=self._wait)
        if answer.status_code != 200:
            raise StageError(f"{each.key} cannot be read (HTTP {answer.status_code})", "Try again later")
        return read_manifest(answer.content, each.key)
