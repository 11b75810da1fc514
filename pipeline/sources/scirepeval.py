"""Files of SciRepEval (Singh et al. 2023) on the Hugging Face hub, for its study."""

from __future__ import annotations

import re
from collections.abc import Sequence

import httpx

from pipeline.core.errors import StageError, require_known
from pipeline.sources.hub import HubFiles, hub_address, list_files, remote_file
from pipeline.sources.remote import Remote, plain_name

REPOSITORIES = {"scirepeval": "evaluation", "scirepeval_test": r"train|test(_hard|_soft)?(_qrel)?|(reviewer_)?metadata"}
"""Data sets of the organisation ``allenai``, and patterns of the splits that an evaluation reads."""

_REMEDY = (
    "Where there is a network: hf download allenai/{dataset} --repo-type dataset --local-dir FOLDER/{dataset}, for "
    f"each of {' and '.join(REPOSITORIES)}; then mdcr study scirepeval --input FOLDER"
)
_ENDINGS = r"([-.]\S*|/\S*)?\.(parquet|jsonl|jsonl\.gz|json|csv)"
_BRANCHES = ("main", "refs/convert/parquet")
"""Branches in order of preference; a data set of scripts has its data files on the second."""


def catalogue(
    session: httpx.Client, configurations: Sequence[str] = (), train: bool = False, endpoint: str | None = None
) -> HubFiles:
    """Return the files of both data sets, as ``DATASET/CONFIGURATION/FILE``.

    Empty ``configurations`` mean all; ``train`` adds the training splits, which leak checks read. ``endpoint`` is the
    hub's address; None: ``HF_ENDPOINT`` or the official one.
    """
    address, commits, remotes, offered = hub_address(endpoint), [], list[Remote](), set[str]()
    for dataset, splits in REPOSITORIES.items():
        pattern = re.compile(rf"([^/]+)/({splits}{'|train' if train else ''}){_ENDINGS}")
        for branch in _BRANCHES:
            listing = list_files(session, address, f"allenai/{dataset}", branch, _REMEDY.format(dataset=dataset))
            files = [(file, match[1]) for file in listing.siblings if (match := pattern.fullmatch(file.rfilename))]
            if files:
                break
        commits.append(listing.sha[:7])
        offered |= {configuration for _, configuration in files}
        remotes += [
            remote_file(address, f"allenai/{dataset}", listing, file, f"{dataset}/{file.rfilename}")
            for file, configuration in files
            if not configurations or configuration in configurations
        ]
    for name in configurations:
        require_known(name, offered, f"the hub has no configuration {name!r} of SciRepEval")
    if not remotes:
        raise StageError("the hub lists no files of SciRepEval", "Check --endpoint and HF_ENDPOINT")
    return HubFiles(plain_name(f"scirepeval-{'-'.join(commits)}"), remotes)
