"""SciRepEval (Singh et al. 2023): the published files on the Hugging Face hub; its study reads them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pipeline.core.errors import InputError, StageError, nearest
from pipeline.sources.remote import Remote, plain_name

REPOSITORIES = {"scirepeval": "evaluation", "scirepeval_test": r"train|test(_hard|_soft)?(_qrel)?|(reviewer_)?metadata"}
"""Data sets of the organisation ``allenai``, and the splits that an evaluation reads."""

_ENDINGS = r"([-.]\S*|/\S*)?\.(parquet|jsonl|jsonl\.gz|json|csv)"
_BRANCHES = ("main", "refs/convert/parquet")
"""The first that holds data files counts: a data set of scripts has its files on the second."""


class SciRepEvalCatalogue:
    """The files of both data sets, as ``DATASET/CONFIGURATION/FILE``.

    Args:
        configurations: which to fetch; empty: all.
        train: also fetch the training splits of the texts, which leak checks read.
        endpoint: address of the hub; None: its own, or that of ``HF_ENDPOINT``.

    Raises:
        StageError: the hub cannot be reached.
        InputError: the hub has no such configuration.
    """

    def __init__(self, configurations: Sequence[str] = (), train: bool = False, endpoint: str | None = None) -> None:
        from huggingface_hub import HfApi, hf_hub_url
        from huggingface_hub.errors import HfHubHTTPError

        commits, self._files, offered = [], list[Remote](), set[str]()
        for dataset, splits in REPOSITORIES.items():
            wanted = re.compile(rf"([^/]+)/({splits}{'|train' if train else ''}){_ENDINGS}")
            for branch in _BRANCHES:
                try:
                    info = HfApi(endpoint).dataset_info(f"allenai/{dataset}", revision=branch, files_metadata=True)
                except (HfHubHTTPError, OSError) as error:
                    status = getattr(getattr(error, "response", None), "status_code", type(error).__name__)
                    raise StageError(
                        f"data set allenai/{dataset} cannot be listed on the hub ({status})",
                        f"Where there is a network: hf download allenai/{dataset} --repo-type dataset --local-dir "
                        f"FOLDER/{dataset}, for each of {' and '.join(REPOSITORIES)}; then "
                        "mdcr study scirepeval --input FOLDER",
                    ) from error
                listed = [(file, m[1]) for file in info.siblings or () if (m := wanted.fullmatch(file.rfilename))]
                if listed:
                    break
            commits.append(str(info.sha))
            offered |= {configuration for _, configuration in listed}
            for file, configuration in listed:
                if not configurations or configuration in configurations:
                    name = file.rfilename
                    url = hf_hub_url(
                        f"allenai/{dataset}", name, repo_type="dataset", revision=info.sha, endpoint=endpoint
                    )
                    sha256 = file.lfs.sha256 if file.lfs else None
                    self._files.append(Remote(f"{dataset}/{name}", url, file.size, sha256=sha256))
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
