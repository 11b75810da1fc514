"""The Datasets API of Semantic Scholar: releases, their datasets, and signed addresses of the files.

https://api.semanticscholar.org/api-docs/datasets
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

import httpx

from pipeline.core.errors import InputError, StageError, nearest
from pipeline.fetch.remote import Remote, Wait, ask, bare

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
        self._headers = {"x-api-key": api_key} if api_key else {}
        self._lock = threading.Lock()
        self._current: dict[str, Remote] = {}
        described = self._get(f"release/{release}", release)
        self.release: str = _read(described, "release_id", str)
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
        names = [PurePosixPath(unquote(urlsplit(url).path)).name for url in _read(answer, "files", list)]
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
                f"{url} refused the request ({_message(answer)})",
                "Give a key with --api-key or in S2_API_KEY; they are free at "
                "https://www.semanticscholar.org/product/api",
            )
        if answer.status_code == 404 and path == f"release/{release}":
            listed = ask(self._session, f"{self._endpoint}/release/", self._headers, wait=self._wait)
            known = listed.json() if listed.status_code == 200 else []
            raise InputError(f"there is no release {release!r}", f"{nearest(release, known)}; or ask for latest")
        if answer.status_code != 200:
            raise StageError(f"{bare(url)} answered HTTP {answer.status_code} ({_message(answer)})", "Try again later")
        try:
            found = answer.json()
        except ValueError as error:
            raise StageError(f"{url} did not answer with JSON ({error})", "Try again later") from error
        if not isinstance(found, dict):
            raise StageError(f"{url} answered with a {type(found).__name__}, not an object", "Try again later")
        return found


def _read(values: Any, name: str, kind: type) -> Any:
    found = values.get(name) if isinstance(values, dict) else None
    if not isinstance(found, kind):
        raise StageError(f"the Datasets API answered without {name!r}", "Try again later")
    return found


def _message(answer: httpx.Response) -> str:
    try:
        values = answer.json()
    except ValueError:
        return f"HTTP {answer.status_code}"
    text = values.get("message") or values.get("error") if isinstance(values, dict) else None
    return str(text or f"HTTP {answer.status_code}")
