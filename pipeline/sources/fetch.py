"""Fetch the files of a release by HTTP: several at a time, with deadlines, checked before they get their names."""

from __future__ import annotations

import functools
import hashlib
import json
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent import futures
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import httpx

from pipeline.core import files
from pipeline.core.errors import CorruptError, InputError, StageError
from pipeline.core.progress import Progress, say, span
from pipeline.core.text import without_credentials
from pipeline.sources.base import UNFINISHED
from pipeline.sources.content import read_blocks
from pipeline.sources.records import open_parquet

_T = TypeVar("_T")

RECORD = "release.json"

SECONDS = 60.0
"""Time limit of an answer, however slowly it comes."""

_SLOWEST = 20_000
"""Bytes a second, below which a file counts as not sent."""

_ATTEMPTS, _MAX_ANSWER = 6, 8 * 2**20
"""Attempts of a request to an API, and bytes of its answer; the longest listings have a few hundred kilobytes."""

_FILE_ATTEMPTS = 4

_TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Status codes after which the same request may succeed."""

_ENDPOINT = "Check the network and --endpoint"


@dataclass(frozen=True)
class Remote:
    """A file to fetch: path below the folder, what finds it at its publisher, size and checksums if they are listed."""

    name: str
    source: Any = None
    bytes: int | None = None
    md5: str | None = None
    sha256: str | None = None

    def __post_init__(self) -> None:
        for name in self.name.split("/"):
            plain_name(name)
        if self.bytes is not None and not 0 <= self.bytes < 2**62:
            raise InputError(f"the server's size of {self.name} is {str(self.bytes)[:30]} bytes", "Check --endpoint")


@dataclass(frozen=True)
class Catalogue:
    """A publisher's listing of a release.

    Attributes:
        name: of the release, such as ``s2ag-2026-09-17``, and of its folder.
        files: those to fetch, in order.
        address: returns the address of a file and the headers to send; in threads.
        stated: the publisher's number of rows by table.
    """

    name: str
    files: Sequence[Remote]
    address: Callable[[Remote], tuple[str, Mapping[str, str]]]
    stated: Mapping[str, int] = field(default_factory=dict)


def plain_name(name: str) -> str:
    """Return a server's name of a release, folder or file; InputError unless it is plain, visible and short."""
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.=+ -]{0,199}", name):
        raise InputError(f"the server's name {name!r} is not allowed", "Report it")
    return name


def endpoint_of(url: str) -> str:
    """Return an address of HTTP without a slash at its end; InputError for another text."""
    try:
        parts = httpx.URL(url)
        if parts.scheme not in ("http", "https") or not parts.host.encode("idna") or parts.port == 0:
            raise ValueError
    except (httpx.InvalidURL, ValueError) as error:  # of names of hosts too
        what = f"--endpoint must be an address of HTTP, got {public_url(url)!r}"
        raise InputError(what, "Write --endpoint=https://HOST/PATH") from error
    return url.rstrip("/")


def public_url(url: str) -> str:
    """Return an address without its query, which may have a signature, and without user and password."""
    return without_credentials(url.partition("?")[0])


def reason_of(error: BaseException) -> str:
    """Return what a library says of a failure, as one line without credentials."""
    said = without_credentials(str(error)).partition("\n\n")[0]
    return " ".join(re.sub(r"[?]\S*", "", f"{type(error).__name__}: {said}").split())[:300]


def within(seconds: float, what: str, function: Callable[[], _T]) -> _T:
    """Return ``function()``; StageError if it takes longer, when its thread is left and ends with this process."""
    answer: futures.Future[_T] = futures.Future()

    def run() -> None:
        try:
            answer.set_result(function())
        except BaseException as error:  # noqa: BLE001  # raised below
            answer.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    try:
        return answer.result(seconds)
    except TimeoutError as error:
        raise StageError(f"{what} did not come in {span(seconds)}", "Try again later, or check --endpoint") from error


def _in_time(chunks: Iterable[bytes], seconds: float, what: str) -> Iterator[bytes]:
    """Yield what arrives; StageError once it takes longer."""
    end = time.monotonic() + seconds
    for chunk in chunks:
        if time.monotonic() > end:
            raise StageError(f"{what} did not come in {span(seconds)}", "Try again later, or check --endpoint")
        yield chunk


def sleep(seconds: float) -> None:
    """Sleep."""
    threading.Event().wait(seconds)


def ask(url: str, headers: Mapping[str, str]) -> tuple[int, bytes]:
    """Return status and body of the answer to a small GET, which follows no redirect.

    Raises:
        StageError: the server cannot be reached, fails repeatedly, or sends more than 8 MiB, or at a crawl.
    """
    address = public_url(url)
    for attempt in range(1, _ATTEMPTS + 1):
        body, seconds = bytearray(), 2.0**attempt
        try:
            with _answer(url, headers) as response:
                for chunk in _in_time(response.iter_raw(), SECONDS, f"the answer of {address}"):
                    body += chunk
                    if len(body) > _MAX_ANSWER:
                        raise StageError(f"{address} answered with more than 8 MiB", "Check --endpoint")
            if response.status_code not in _TRANSIENT:
                return response.status_code, bytes(body)
            problem, asked = f"HTTP {response.status_code}", response.headers.get("Retry-After", "")
            seconds = max(seconds, min(float(asked), 300.0) if re.fullmatch("[0-9]{1,9}", asked) else 0.0)
        except (httpx.ConnectError, httpx.InvalidURL) as error:
            raise StageError(f"{address} cannot be reached: {reason_of(error)}", _ENDPOINT) from error
        except httpx.RequestError as error:
            problem = reason_of(error)
        if attempt < _ATTEMPTS:
            say(f"{address}: {problem}; the next attempt is in {span(seconds)}")
            sleep(seconds)
    raise StageError(f"{address} gave no answer in {_ATTEMPTS} attempts ({problem})", _ENDPOINT)


def _answer(url: str, headers: Mapping[str, str], **options: Any) -> Any:
    return httpx.stream("GET", url, headers={"Accept-Encoding": "identity", **headers}, timeout=SECONDS, **options)


def fetch_release(catalogue: Catalogue, folder: Path, *, connections: int = 4) -> dict[str, Any]:
    """Fetch the missing files of a release into ``folder``; write ``release.json`` there and return its content.

    Until its end the folder has a folder ``.fetching`` with the files that are not complete or checked.

    Args:
        catalogue: the release.
        folder: to be made; it may have files of an earlier run.
        connections: files fetched at a time.

    Raises:
        InputError: the disk is too small, or the folder has another release.
        StageError: a server cannot be reached or refuses; the next run fetches what is missing.
        CorruptError: a file fails its check each time.
    """
    unfinished = folder / UNFINISHED
    for record in (folder / RECORD, unfinished / RECORD):
        if isinstance(known := files.read_json(record), dict) and known.get("release") != catalogue.name:
            what = f"{folder} must be empty or have {catalogue.name}, got {str(known.get('release'))[:80]}"
            raise InputError(what, "Choose another folder with --output")
    paths = {remote.name: folder / remote.name for remote in catalogue.files}
    missing = [each for each in catalogue.files if not _holds(paths[each.name], each.bytes)]
    needed, free = sum(remote.bytes or 0 for remote in missing), files.free_bytes(folder)
    if needed > free:
        what = f"{catalogue.name} needs {needed / 2**30:,.0f} GiB more, but {folder} has {free / 2**30:,.0f} GiB free"
        raise InputError(what, "Choose another folder with --output")
    unfinished.mkdir(parents=True, exist_ok=True)
    files.write_text(unfinished / RECORD, json.dumps({"release": catalogue.name}))
    _fetch_all(catalogue, missing, folder, connections)
    sizes = {name: {"bytes": path.stat().st_size} for name, path in sorted(paths.items())}
    content: dict[str, Any] = {"release": catalogue.name, "files": sizes}
    content |= {"stated": dict(catalogue.stated)} if catalogue.stated else {}
    files.write_text(folder / RECORD, json.dumps(content, indent=1) + "\n")
    shutil.rmtree(unfinished)
    return content


def _holds(path: Path, size: int | None) -> bool:
    return path.is_file() and size in (None, path.stat().st_size)


def _fetch_all(catalogue: Catalogue, missing: Sequence[Remote], folder: Path, connections: int) -> None:
    """Fetch files, several at a time, and stop at the first that fails."""
    sizes, lock, stop = [remote.bytes for remote in missing], threading.Lock(), threading.Event()
    total = None if None in sizes else sum(filter(None, sizes))
    with Progress(total, f"fetch {catalogue.name}", "B") as progress, futures.ThreadPoolExecutor(connections) as pool:

        def report(count: int) -> None:
            if stop.is_set():
                raise futures.CancelledError
            with lock:
                progress.add(count)

        running = [pool.submit(_fetch, catalogue, remote, folder, report) for remote in missing]
        try:
            done, _ = futures.wait(running, return_when=futures.FIRST_EXCEPTION)
        finally:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
        for error in (future.exception() for future in done):
            if error and not isinstance(error, futures.CancelledError):
                raise error


def _fetch(catalogue: Catalogue, remote: Remote, folder: Path, report: Callable[[int], None]) -> None:
    """Fetch a file, from its beginning if it fails, and give it its name once it is checked."""
    path, partial = folder / remote.name, folder / UNFINISHED / remote.name
    for place in (path, partial):
        place.parent.mkdir(parents=True, exist_ok=True)
    with files.disk_errors(folder):
        for attempt in range(1, _FILE_ATTEMPTS + 1):
            partial.unlink(missing_ok=True)
            try:
                check(partial, _write(catalogue, remote, partial, report))
                break
            except (InputError, StageError) as error:
                if attempt == _FILE_ATTEMPTS:
                    raise
                say(f"{error.what}: it is fetched again")
                report(-partial.stat().st_size if partial.exists() else 0)
                sleep(5.0 * attempt)
        files.sync(partial)
        partial.replace(path)


def _write(catalogue: Catalogue, remote: Remote, path: Path, report: Callable[[int], None]) -> Remote:
    """Write a file to a path, and return it with the size and the MD5 that the server states.

    Raises:
        StageError: the server cannot be reached or refuses, or the disk is too small.
    """
    url, headers = catalogue.address(remote)
    try:
        with _answer(endpoint_of(url), headers, follow_redirects=True) as response:
            if response.status_code in (404, 410, 412):
                remedy = "If the release was replaced, fetch the new one into another folder"
                raise StageError(f"{remote.name} is not there any more (HTTP {response.status_code})", remedy)
            length = response.headers.get("Content-Length", "")
            if response.status_code != 200 or not re.fullmatch("[0-9]{1,18}", length):
                problem = f"HTTP {response.status_code}" if response.status_code != 200 else "it states no length"
                raise StageError(f"{remote.name} does not come ({problem})", _ENDPOINT)
            size, etag = int(length), re.fullmatch(r'"([0-9a-f]{32})"', response.headers.get("ETag", ""))
            if size > (free := files.free_bytes(path.parent)):
                raise StageError(f"{remote.name} has {size:,} bytes, the disk {free:,} free", "Choose another --output")
            with path.open("wb") as handle:
                for chunk in _in_time(response.iter_raw(), SECONDS + size / _SLOWEST, remote.name):
                    report(handle.write(chunk))
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise StageError(f"{remote.name} does not come ({reason_of(error)})", _ENDPOINT) from error
    return replace(remote, bytes=remote.bytes or size, md5=remote.md5 or (etag[1] if etag else None))


def check(path: Path, remote: Remote) -> None:
    """Check a file in the strongest available way; CorruptError if it fails.

    In order: the SHA-256 or the MD5 of the listing, the checksums inside a gzip file, the footer of a Parquet file.
    """
    size = path.stat().st_size
    if remote.bytes is not None and size != remote.bytes:
        raise CorruptError(f"{remote.name} has {size:,} bytes, the listing says {remote.bytes:,}", "Try again later")
    for kind, expected in (("sha256", remote.sha256), ("md5", remote.md5)):
        if expected:
            with path.open("rb") as handle:
                hashed = hashlib.file_digest(handle, functools.partial(hashlib.new, kind, usedforsecurity=False))
            if hashed.hexdigest() != expected.lower():
                what = f"{remote.name} must have {kind.upper()} {expected}, got {hashed.hexdigest()}"
                raise CorruptError(what, "Try again later")
            return
    if path.suffix == ".gz":
        with path.open("rb") as handle:
            if (head := handle.read(40))[:2] != b"\x1f\x8b":
                raise CorruptError(f"{remote.name} must be a gzip file, got {head!r}", "Try again later")
        for _ in read_blocks(path):
            pass
    elif path.suffix == ".parquet":
        open_parquet(path)


class Hub:
    """The Hugging Face hub, whose data sets huggingface_hub lists.

    Args:
        endpoint: its address; None: ``HF_ENDPOINT`` or the official one. The user's token goes to these two alone.
        remedy: what else a user can do.
    """

    def __init__(self, endpoint: str | None, remedy: str) -> None:
        from huggingface_hub import HfApi, constants

        self._endpoint = endpoint_of(endpoint or constants.ENDPOINT)
        self._token = False if endpoint else None
        self._api: Any = HfApi(endpoint=self._endpoint, token=self._token)
        self._remedy = remedy

    def list_files(self, dataset: str, revision: str) -> tuple[str, list[Remote]]:
        """Return the commit of a branch (or commit) of a data set ``ORGANISATION/NAME``, and its visible files there.

        Names of files are theirs in the data set. StageError, with the remedy, for all that the library raises.
        """
        options = {"revision": revision, "files_metadata": True, "timeout": SECONDS / 2}

        def ask() -> tuple[str, list[Remote]]:
            info = self._api.dataset_info(dataset, **options)
            found = [file for file in info.siblings if not f"/{file.rfilename}".count("/.")]
            return info.sha, [
                Remote(
                    file.rfilename, (dataset, info.sha, file.rfilename), file.size, sha256=file.lfs and file.lfs.sha256
                )
                for file in found
            ]

        what = f"the list of files of data set {dataset}"
        try:
            return within(SECONDS, what, ask)
        except (OSError, ValueError, LookupError, TypeError, AttributeError, httpx.HTTPError) as error:
            raise StageError(f"{what} does not come from the hub ({reason_of(error)})", self._remedy) from error

    def catalogue(self, name: str, remotes: list[Remote]) -> Catalogue:
        """Return listed files as a release."""
        from huggingface_hub import hf_hub_url
        from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]  # documented

        if not remotes:
            raise StageError(f"the hub lists no files of {name}", "Check --endpoint and HF_ENDPOINT")
        headers = build_hf_headers(token=self._token)

        def address(remote: Remote) -> tuple[str, dict[str, str]]:
            dataset, commit, file = remote.source
            url = hf_hub_url(dataset, file, repo_type="dataset", revision=commit, endpoint=self._endpoint)
            return url, headers

        return Catalogue(name, remotes, address)
