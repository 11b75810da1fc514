"""Data sets of the Hugging Face hub: what a commit or a branch of one holds."""

from __future__ import annotations

from urllib.parse import quote

import httpx
import msgspec

from pipeline.core.errors import StageError
from pipeline.sources.remote import Remote, ask


class _Lfs(msgspec.Struct):
    sha256: str


class _File(msgspec.Struct):
    rfilename: str
    size: int | None = None
    lfs: _Lfs | None = None


class Listing(msgspec.Struct):
    """The files of one commit, ``sha``."""

    sha: str
    siblings: list[_File] = []


class HubFiles:
    """A catalogue of files of the hub (:class:`pipeline.sources.remote.Catalogue`); their addresses do not expire."""

    def __init__(self, name: str, files: list[Remote]) -> None:
        self.name, self._files = name, files

    def files(self) -> list[Remote]:
        """Return the files."""
        return self._files

    def renewed(self, remote: Remote) -> Remote:
        """Return the file: its address names a commit."""
        return remote


def endpoint_of(given: str | None) -> str:
    """Return the hub's address: as given, or its own, or that of ``HF_ENDPOINT``."""
    from huggingface_hub.constants import ENDPOINT

    return given or ENDPOINT


def list_files(session: httpx.Client, endpoint: str, dataset: str, revision: str, remedy: str) -> Listing:
    """Return the files of a data set ``ORGANISATION/NAME`` at a commit or branch; StageError if it cannot be listed."""
    url = f"{endpoint}/api/datasets/{dataset}/revision/{quote(revision, safe='')}?blobs=True"
    try:
        answer = ask(session, url, patient=False)
        if answer.status_code == httpx.codes.OK:
            return msgspec.json.decode(answer.content, type=Listing)
        problem = f"HTTP {answer.status_code}"
    except (StageError, msgspec.DecodeError, UnicodeError, RecursionError) as error:
        problem = error.what if isinstance(error, StageError) else f"its answer is not a listing: {error}"
    raise StageError(f"data set {dataset} cannot be listed on the hub ({problem})", remedy)


def remote(endpoint: str, dataset: str, listing: Listing, file: _File, place: str) -> Remote:
    """Return a file of a listing as what to fetch into ``place``."""
    folder = f"{endpoint}/datasets/{dataset}/resolve/{quote(listing.sha, safe='')}"
    return Remote(place, f"{folder}/{quote(file.rfilename)}", file.size, sha256=file.lfs.sha256 if file.lfs else None)
