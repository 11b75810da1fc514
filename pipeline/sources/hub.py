"""Data sets of the Hugging Face hub, by huggingface_hub."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pipeline.core.errors import StageError
from pipeline.sources.download import Catalogue
from pipeline.sources.remote import SECONDS, Remote, endpoint_of, reason_of, seconds_of, within

_T = TypeVar("_T")


class Hub:
    """A hub; StageError, with a remedy, for all that its library raises.

    Args:
        endpoint: its address; None: ``HF_ENDPOINT`` or the official one. The user's token goes to these two alone.
        remedy: what else a user can do.
    """

    def __init__(self, endpoint: str | None, remedy: str) -> None:
        from huggingface_hub import HfApi, constants
        from huggingface_hub.utils.tqdm import disable_progress_bars

        disable_progress_bars()
        address = endpoint_of(endpoint or constants.ENDPOINT)
        self._api: Any = HfApi(endpoint=address, token=False if endpoint else None)
        self._remedy = remedy

    def list_files(self, dataset: str, revision: str) -> tuple[str, list[Remote]]:
        """Return the commit of a branch (or commit) of a data set ``ORGANISATION/NAME``, and its visible files there.

        Names of files are theirs in the data set.
        """
        options = {"revision": revision, "files_metadata": True, "timeout": SECONDS / 2}

        def ask() -> tuple[str, list[Remote]]:
            info = self._api.dataset_info(dataset, **options)
            found = [file for file in info.siblings if not f"/{file.rfilename}".count("/.")]
            place = dataset, info.sha
            return info.sha, [
                Remote(file.rfilename, (*place, file.rfilename), file.size, sha256=file.lfs and file.lfs.sha256)
                for file in found
            ]

        return self._asked(f"the list of files of data set {dataset}", SECONDS, ask)

    def catalogue(self, name: str, remotes: list[Remote]) -> Catalogue:
        """Return listed files as a release."""
        if not remotes:
            raise StageError(f"the hub lists no files of {name}", "Check --endpoint and HF_ENDPOINT")
        return Catalogue(name, remotes, self._get)

    def _get(self, remote: Remote, path: Path, report: Callable[[int], None]) -> Remote:
        dataset, commit, file = remote.source
        folder = path.with_name(f"{path.name}.hub")
        options = {"repo_type": "dataset", "revision": commit, "local_dir": folder}

        def fetch() -> str:
            return str(self._api.hf_hub_download(dataset, file, **options))

        Path(self._asked(remote.name, seconds_of(remote.bytes), fetch)).replace(path)
        report(path.stat().st_size)
        return remote

    def _asked(self, what: str, seconds: float, function: Callable[[], _T]) -> _T:
        import httpx

        try:
            return within(seconds, what, function)
        except (OSError, ValueError, LookupError, TypeError, AttributeError, httpx.HTTPError) as error:
            raise StageError(f"{what} does not come from the hub ({reason_of(error)})", self._remedy) from error
