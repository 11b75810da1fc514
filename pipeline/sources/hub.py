"""Listings of data sets on the Hugging Face hub."""

from __future__ import annotations

from urllib.parse import quote

import httpx
import msgspec

from pipeline.core.errors import StageError
from pipeline.sources.remote import Remote, ask, decoded


class _Lfs(msgspec.Struct):
    sha256: str


class _File(msgspec.Struct):
    rfilename: str
    size: int | None = None
    lfs: _Lfs | None = None


class Listing(msgspec.Struct):
    """The files of the commit ``sha``."""

    sha: str
    siblings: list[_File] = []


class HubFiles:
    """A catalogue of files of the hub (:class:`pipeline.sources.remote.Catalogue`); their addresses do not expire."""

    def __init__(self, name: str, files: list[Remote]) -> None:
        self.name, self._files = name, files

    def files(self) -> list[Remote]:
        """Return the files of the data set that are wanted, with size and checksum."""
        return self._files

    def renewed(self, remote: Remote) -> Remote:
        """Return the file unchanged: its address names a commit."""
        return remote


def hub_address(endpoint: str | None) -> str:
    """Return the hub's address: ``endpoint``, else ``HF_ENDPOINT``, else the official one."""
    from huggingface_hub.constants import ENDPOINT

    return endpoint or ENDPOINT


def list_files(session: httpx.Client, endpoint: str, dataset: str, revision: str, remedy: str) -> Listing:
    """Return the listing of a data set ``ORGANISATION/NAME`` at a commit or branch; StageError if that fails."""
    url = f"{endpoint}/api/datasets/{dataset}/revision/{quote(revision, safe='')}?blobs=True"
    try:
        answer = ask(session, url, patient=False)
        if answer.status_code == httpx.codes.OK and (listing := decoded(answer.content, Listing)):
            return listing
        is_ok = answer.status_code == httpx.codes.OK
        problem = "its answer is not a listing" if is_ok else f"HTTP {answer.status_code}"
    except StageError as error:
        problem = error.what
    raise StageError(f"data set {dataset} cannot be listed on the hub ({problem})", remedy)


def remote_file(endpoint: str, dataset: str, listing: Listing, file: _File, name: str) -> Remote:
    """Return a file of a listing, to be fetched as ``name``."""
    folder = f"{endpoint}/datasets/{dataset}/resolve/{quote(listing.sha, safe='')}"
    return Remote(name, f"{folder}/{quote(file.rfilename)}", file.size, sha256=file.lfs.sha256 if file.lfs else None)
