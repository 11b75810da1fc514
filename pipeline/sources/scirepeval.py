"""SciRepEval (Singh et al. 2023): the published files on the Hugging Face hub; its study reads them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import quote

import httpx
import msgspec

from pipeline.core.errors import InputError, StageError, nearest
from pipeline.sources.remote import Remote, ask, plain_name

REPOSITORIES = {"scirepeval": "evaluation", "scirepeval_test": r"train|test(_hard|_soft)?(_qrel)?|(reviewer_)?metadata"}
"""Data sets of the organisation ``allenai``, and the splits that an evaluation reads."""

_ENDINGS = r"([-.]\S*|/\S*)?\.(parquet|jsonl|jsonl\.gz|json|csv)"
_BRANCHES = ("main", "refs/convert/parquet")
"""The first that holds data files counts: a data set of scripts has its files on the second."""


class _Lfs(msgspec.Struct):
    sha256: str


class _File(msgspec.Struct):
    rfilename: str
    size: int | None = None
    lfs: _Lfs | None = None


class _Listing(msgspec.Struct):
    sha: str
    siblings: list[_File] = []


class SciRepEvalCatalogue:
    """The files of both data sets, as ``DATASET/CONFIGURATION/FILE``.

    Without ``configurations`` all are fetched; with ``train`` the training splits too, which leak checks read.
    ``endpoint`` is the hub's address; None: its own, or that of ``HF_ENDPOINT``.
    """

    def __init__(
        self,
        session: httpx.Client,
        configurations: Sequence[str] = (),
        train: bool = False,
        endpoint: str | None = None,
    ) -> None:
        from huggingface_hub.constants import ENDPOINT

        commits, self._files, offered = [], list[Remote](), set[str]()
        for dataset, splits in REPOSITORIES.items():
            wanted = re.compile(rf"([^/]+)/({splits}{'|train' if train else ''}){_ENDINGS}")
            for branch in _BRANCHES:
                listing = _listing(session, endpoint or ENDPOINT, dataset, branch)
                files = [(file, match[1]) for file in listing.siblings if (match := wanted.fullmatch(file.rfilename))]
                if files:
                    break
            commits.append(listing.sha)
            offered |= {configuration for _, configuration in files}
            folder = f"{endpoint or ENDPOINT}/datasets/allenai/{dataset}/resolve/{quote(listing.sha, safe='')}"
            for file, configuration in files:
                if not configurations or configuration in configurations:
                    url, sha256 = f"{folder}/{quote(file.rfilename)}", file.lfs.sha256 if file.lfs else None
                    self._files.append(Remote(f"{dataset}/{file.rfilename}", url, file.size, sha256=sha256))
        for name in configurations:
            if name not in offered:
                raise InputError(f"the hub has no configuration {name!r} of SciRepEval", nearest(name, offered))
        if not self._files:
            raise StageError("the hub lists no files of SciRepEval", "Check --endpoint and HF_ENDPOINT")
        self.name = plain_name(f"scirepeval-{'-'.join(commit[:7] for commit in commits)}")

    def files(self) -> list[Remote]:
        """Return the files."""
        return self._files

    def renewed(self, remote: Remote) -> Remote:
        """Return the file: its address names a commit and does not expire."""
        return remote


def _listing(session: httpx.Client, endpoint: str, dataset: str, branch: str) -> _Listing:
    url = f"{endpoint}/api/datasets/allenai/{dataset}/revision/{quote(branch, safe='')}?blobs=True"
    try:
        answer = ask(session, url, patient=False)
        if answer.status_code == httpx.codes.OK:
            return msgspec.json.decode(answer.content, type=_Listing)
        problem = f"HTTP {answer.status_code}"
    except (StageError, msgspec.DecodeError, UnicodeError, RecursionError) as error:
        problem = error.what if isinstance(error, StageError) else f"its answer is not a listing: {error}"
    raise StageError(
        f"data set allenai/{dataset} cannot be listed on the hub ({problem})",
        f"Where there is a network: hf download allenai/{dataset} --repo-type dataset --local-dir FOLDER/{dataset}, "
        f"for each of {' and '.join(REPOSITORIES)}; then mdcr study scirepeval --input FOLDER",
    )
