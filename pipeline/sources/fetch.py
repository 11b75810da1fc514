"""Fetch a release of Semantic Scholar: several files at a time, with deadlines, checked before they get their names."""

from __future__ import annotations

import functools
import json
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar
from urllib.parse import quote, unquote, urlsplit

import httpx
import msgspec

from pipeline.core import files
from pipeline.core.errors import CorruptError, InputError, StageError, require_known
from pipeline.core.parallel import unordered
from pipeline.core.progress import Progress, say, span
from pipeline.core.text import without_credentials
from pipeline.sources.base import UNFINISHED
from pipeline.sources.content import read_blocks
from pipeline.sources.s2ag import DATASETS

_T = TypeVar("_T")

ENDPOINT = "https://api.semanticscholar.org/datasets/v1"
"""The Datasets API: https://api.semanticscholar.org/api-docs/datasets."""

RECORD = "release.json"

SECONDS = 60.0
"""Time limit of an answer, however slowly it comes."""

_SLOWEST = 20_000
"""Bytes a second, below which a file counts as not sent."""

_ATTEMPTS, _MAX_ANSWER = 6, 8 * 2**20
"""Attempts of a request to the API, and bytes of its answer; the longest listings have a few hundred kilobytes."""

_FILE_ATTEMPTS = 4

_TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Status codes after which the same request may succeed."""

_REMEDY = "Check the network and --endpoint, or try again later"


@dataclass(frozen=True)
class Catalogue:
    """The listing of a release.

    Attributes:
        name: of the release, such as ``s2ag-2026-09-17``, and of its folder.
        files: those to fetch, in order, as ``DATASET/FILE``.
        address: returns the address of a file.
    """

    name: str
    files: Sequence[str]
    address: Callable[[str], str]


class _Dataset(msgspec.Struct):
    name: str


class _Described(msgspec.Struct):
    release_id: str
    datasets: list[_Dataset]


class _Listing(msgspec.Struct):
    files: list[str]


class _Refusal(msgspec.Struct):
    message: str | None = None
    error: str | None = None


def catalogue(
    release: str, api_key: str | None, datasets: Iterable[str] = DATASETS, endpoint: str = ENDPOINT
) -> Catalogue:
    """Return the files of a release of the Datasets API.

    Args:
        release: ``latest``, or a date such as ``2026-09-17``.
        api_key: sent to the API alone, not to the storage.
        datasets: their names.
        endpoint: address of the API.

    Raises:
        InputError: there is no such release or dataset, or the key is refused.
        StageError: the API cannot be reached, or does not answer as documented.
    """
    api = _Api(endpoint, api_key)
    described = api.get(f"release/{quote(release, safe='')}", _Described)
    name, offered = _plain_name(described.release_id), [dataset.name for dataset in described.datasets]
    names = list[str]()
    for dataset in datasets:
        require_known(dataset, offered, f"release {name} has no dataset {dataset!r}")
        names += [f"{_plain_name(dataset)}/{_plain_name(file)}" for file in api.addresses(name, dataset)]
    return Catalogue(f"s2ag-{name}", names, functools.partial(_address, api, name))


def _address(api: _Api, release: str, file: str) -> str:
    """Return the present address of a file; that of the listing may have expired."""
    dataset, _, name = file.partition("/")
    url = api.addresses(release, dataset).get(name)
    if url is None:
        raise StageError(f"release {release} no longer lists {file}", "Fetch another release")
    return url


def _plain_name(name: str) -> str:
    """Return a server's name of a release, folder or file; InputError unless it is plain, visible and short."""
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.=+ -]{0,199}", name):
        raise InputError(f"the server's name {name!r} is not allowed", "Report it")
    return name


class _Api:
    def __init__(self, endpoint: str, api_key: str | None) -> None:
        self._endpoint, self._key = endpoint.rstrip("/"), (api_key or "").strip()
        if not all("!" <= character <= "~" for character in self._key):
            raise InputError("the API key must be printable ASCII", "Copy it again")

    def addresses(self, release: str, dataset: str) -> dict[str, str]:
        """Return the signed addresses of the files of a dataset by file name; they expire after some hours."""
        urls = self.get(f"release/{release}/dataset/{dataset}", _Listing).files
        try:
            listed = {PurePosixPath(unquote(urlsplit(url).path)).name: url for url in urls}
        except ValueError:
            listed = {}
        if len(listed) < len(urls) or not listed:
            what = f"the list of {dataset} of {release} is empty, has a file twice or a malformed address"
            raise StageError(what, "Try again later")
        return listed

    def get(self, path: str, kind: type[_T]) -> _T:
        """Return a decoded answer."""
        url = f"{self._endpoint}/{path}"
        address, (status, content) = _public(url), ask(url, {"x-api-key": self._key} if self._key else {})
        refusal = _decoded(content, _Refusal) or _Refusal()
        message = (refusal.message or refusal.error or f"HTTP {status}").replace(self._key or "\0", "...")
        if status in (401, 403):
            raise InputError(
                f"{address} refused the request ({message})",
                "Give a key in S2_API_KEY or with --api-key-file; they are free at "
                "https://www.semanticscholar.org/product/api",
            )
        if status == 404:
            raise InputError(f"{address} is not there ({message})", "Ask for --release latest")
        values = _decoded(content, kind) if status == 200 else None
        if values is None:
            problem = "did not answer as documented" if status == 200 else f"answered HTTP {status} ({message})"
            raise StageError(f"{address} {problem}", _REMEDY)
        return values


def _decoded(content: bytes, kind: type[_T]) -> _T | None:
    """Return the value of JSON from outside; None if it is not of type ``kind``."""
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _public(url: str) -> str:
    """Return an address without its query, which may have a signature, and without user and password."""
    return without_credentials(url.partition("?")[0])


def _reason(error: BaseException) -> str:
    """Return what a library says of a failure, as one line without credentials."""
    said = without_credentials(str(error)).partition("\n\n")[0]
    return " ".join(re.sub(r"[?]\S*", "", f"{type(error).__name__}: {said}").split())[:300]


def _in_time(chunks: Iterable[bytes], seconds: float, what: str) -> Iterator[bytes]:
    """Yield what arrives; StageError once it takes longer."""
    end = time.monotonic() + seconds
    for chunk in chunks:
        if time.monotonic() > end:
            raise StageError(f"{what} did not come in {span(seconds)}", _REMEDY)
        yield chunk


def sleep(seconds: float) -> None:
    """Sleep."""
    threading.Event().wait(seconds)


def ask(url: str, headers: Mapping[str, str]) -> tuple[int, bytes]:
    """Return status and body of the answer to a small GET, which follows no redirect.

    Raises:
        StageError: the server cannot be reached, fails repeatedly, or sends more than 8 MiB, or at a crawl.
    """
    address = _public(url)
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
        except (httpx.ConnectError, httpx.UnsupportedProtocol, httpx.InvalidURL, UnicodeError) as error:
            raise StageError(f"{address} cannot be reached: {_reason(error)}", _REMEDY) from error
        except httpx.RequestError as error:
            problem = _reason(error)
        if attempt < _ATTEMPTS:
            say(f"{address}: {problem}; the next attempt is in {span(seconds)}")
            sleep(seconds)
    raise StageError(f"{address} gave no answer in {_ATTEMPTS} attempts ({problem})", _REMEDY)


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
        InputError: the folder has another release.
        StageError: a server cannot be reached or refuses, or the disk is too small; the next run fetches what is
            missing.
        CorruptError: a file fails its check each time.
    """
    unfinished = folder / UNFINISHED
    for record in (folder / RECORD, unfinished / RECORD):
        if isinstance(known := files.read_json(record), dict) and known.get("release") != catalogue.name:
            what = f"{folder} must be empty or have {catalogue.name}, got {str(known.get('release'))[:80]}"
            raise InputError(what, "Choose another folder with --output")
    unfinished.mkdir(parents=True, exist_ok=True)
    files.write_text(unfinished / RECORD, json.dumps({"release": catalogue.name}))
    missing = [name for name in catalogue.files if not (folder / name).is_file()]
    with Progress(len(missing), f"fetch {catalogue.name}", "files") as progress:
        for _ in unordered(functools.partial(_fetch, catalogue, folder), missing, connections):
            progress.add(1)
    sizes = {name: {"bytes": (folder / name).stat().st_size} for name in sorted(catalogue.files)}
    content = {"release": catalogue.name, "files": sizes}
    files.write_text(folder / RECORD, json.dumps(content, indent=1) + "\n")
    shutil.rmtree(unfinished)
    return content


def _fetch(catalogue: Catalogue, folder: Path, name: str) -> None:
    """Fetch a file, from its beginning if it fails, and give it its name once it is checked."""
    path, partial = folder / name, folder / UNFINISHED / name
    for place in (path, partial):
        place.parent.mkdir(parents=True, exist_ok=True)
    with files.disk_errors(folder):
        for attempt in range(1, _FILE_ATTEMPTS + 1):
            try:
                _write(catalogue.address(name), name, partial)
                _check(partial, name)
                break
            except (InputError, StageError) as error:
                if attempt == _FILE_ATTEMPTS:
                    raise
                say(f"{error.what}: it is fetched again")
                sleep(5.0 * attempt)
        files.sync(partial)
        partial.replace(path)


def _write(url: str, name: str, path: Path) -> None:
    """Write a file to a path; StageError if it does not come whole, or the disk is too small."""
    try:
        with _answer(url, {}, follow_redirects=True) as response, path.open("wb") as handle:
            length = response.headers.get("Content-Length", "")
            if response.status_code != 200 or not re.fullmatch("[0-9]{1,18}", length):
                problem = f"HTTP {response.status_code}" if response.status_code != 200 else "it states no length"
                raise StageError(f"{name} does not come ({problem})", _REMEDY)
            if int(length) > (free := files.free_bytes(path.parent)):
                what = f"{name} has {int(length):,} bytes, the disk {free:,} free"
                raise StageError(what, "Choose another --output")
            for chunk in _in_time(response.iter_raw(), SECONDS + int(length) / _SLOWEST, name):
                handle.write(chunk)
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
        raise StageError(f"{name} does not come ({_reason(error)})", _REMEDY) from error


def _check(path: Path, name: str) -> None:
    """Raise CorruptError if a file ``.gz`` is none, or differs from the checksums in it."""
    if path.suffix == ".gz":
        with path.open("rb") as handle:
            if (head := handle.read(40))[:2] != b"\x1f\x8b":
                raise CorruptError(f"{name} must be a gzip file, got {head!r}", "Try again later")
        for _ in read_blocks(path):
            pass
