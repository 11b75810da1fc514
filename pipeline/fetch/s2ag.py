"""The Datasets API of Semantic Scholar: releases, their datasets, and signed addresses of the files.

https://api.semanticscholar.org/api-docs/datasets
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import httpx

from pipeline.core.errors import InputError, StageError, nearest
from pipeline.fetch.remote import Remote, Wait, ask, bare, plain_name

ENDPOINT = "https://api.semanticscholar.org/datasets/v1"
DATASETS = ("papers", "abstracts", "citations")
"""The datasets a corpus is built from."""


class S2agCatalogue:
    """One release of the Datasets API.

    Args:
        session: the HTTP client.
        release: ``latest``, or a date such as ``2026-09-17``.
        api_key: the key that lists of files require; it is sent to the API, never to the storage.
        datasets: names of the datasets.
        endpoint: address of the API.
        wait: sleeps between attempts.

    Raises:
        InputError: there is no such release or dataset, or the key is refused.
    """

    def __init__(
        self,
        session: httpx.Client,
        release: str,
        api_key: str | None,
        datasets: Sequence[str] = DATASETS,
        endpoint: str = ENDPOINT,
        wait: Wait = time.sleep,
    ) -> None:
        self._session, self._endpoint, self._wait = session, endpoint.rstrip("/"), wait
        self._key = _checked_key(api_key or "")
        self._headers = {"x-api-key": self._key} if self._key else {}
        self._lock = threading.Lock()
        self._current: dict[str, Remote] = {}
        described = self._get(f"release/{quote(release, safe='')}", release)
        self.release = plain_name(_read(described, "release_id", str))
        offered = [_read(each, "name", str) for each in _read(described, "datasets", list)]
        for dataset in datasets:
            if dataset not in offered:
                raise InputError(f"release {self.release} has no dataset {dataset!r}", nearest(dataset, offered))
        self._datasets = tuple(datasets)

    @property
    def name(self) -> str:
        """Name of the release."""
        return f"s2ag-{self.release}"

    def files(self) -> list[Remote]:
        """Return the files of the datasets, as ``DATASET/FILE``."""
        with self._lock:
            for dataset in self._datasets:
                self._list(dataset)
            return list(self._current.values())

    def renewed(self, remote: Remote) -> Remote:
        """Return the file with a freshly signed address; one list renews all files of its dataset."""
        with self._lock:
            if self._current[remote.name].url == remote.url:
                self._list(remote.name.partition("/")[0])
            if remote.name not in self._current:
                raise StageError(f"release {self.release} no longer lists {remote.name}", "Fetch another release")
            return self._current[remote.name]

    def _list(self, dataset: str) -> None:
        answer = self._get(f"release/{self.release}/dataset/{dataset}", self.release)
        try:
            names = [PurePosixPath(unquote(urlsplit(url).path)).name for url in _read(answer, "files", list)]
        except (TypeError, ValueError, AttributeError) as error:
            raise StageError(
                f"the list of {dataset} of {self.release} holds no addresses", "Try again later"
            ) from error
        if len(set(names)) < len(names) or not names:
            raise StageError(
                f"the list of {dataset} of {self.release} is empty or names a file twice", "Try again later"
            )
        for name in [name for name in self._current if name.startswith(f"{dataset}/")]:
            del self._current[name]
        for name, url in zip(names, answer["files"], strict=True):
            self._current[f"{dataset}/{name}"] = Remote(f"{dataset}/{name}", url)

    def _get(self, path: str, release: str) -> dict[str, Any]:
        url = f"{self._endpoint}/{path}"
        answer = ask(self._session, url, self._headers, wait=self._wait)
        if answer.status_code in (401, 403):
            raise InputError(
                f"{bare(url)} refused the request ({self._message(answer)})",
                "Give a key in S2_API_KEY or with --api-key-file; they are free at "
                "https://www.semanticscholar.org/product/api",
            )
        if answer.status_code == 404 and path.startswith("release/") and "/dataset/" not in path:
            listed = ask(self._session, f"{self._endpoint}/release/", self._headers, wait=self._wait)
            try:
                known = [str(each) for each in listed.json()] if listed.status_code == 200 else []
            except (TypeError, ValueError):
                known = []
            raise InputError(f"there is no release {release!r}", f"{nearest(release, known)}; or ask for latest")
        if answer.status_code != 200:
            raise StageError(
                f"{bare(url)} answered HTTP {answer.status_code} ({self._message(answer)})", "Try again later"
            )
        try:
            found = answer.json()
        except (ValueError, RecursionError) as error:
            raise StageError(f"{bare(url)} did not answer with JSON ({error})", "Try again later") from error
        if not isinstance(found, dict):
            raise StageError(f"{bare(url)} answered with a {type(found).__name__}, not an object", "Try again later")
        return found

    def _message(self, answer: httpx.Response) -> str:
        """Return what the server says of an error, without the key if it repeats that."""
        try:
            values = answer.json()
        except (ValueError, RecursionError):
            return f"HTTP {answer.status_code}"
        text = values.get("message") or values.get("error") if isinstance(values, dict) else None
        return str(text or f"HTTP {answer.status_code}").replace(self._key or "\0", "...")


def _checked_key(text: str) -> str:
    """Return a key without the white space around it; the message of the error does not show it."""
    key = text.strip()
    if not all("!" <= character <= "~" for character in key):
        raise InputError("the API key holds a character that is not printable ASCII", "Copy it again, alone")
    return key


def _read(values: Any, name: str, kind: type) -> Any:
    found = values.get(name) if isinstance(values, dict) else None
    if not isinstance(found, kind):
        raise StageError(f"the Datasets API answered without {name!r}", "Try again later")
    return found
