"""Files of SciRepEval (Singh et al. 2023) on the Hugging Face hub, for its study."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from pipeline.core.errors import require_known
from pipeline.sources.fetch import Catalogue, Hub, Remote, plain_name

REPOSITORIES = {"scirepeval": "evaluation", "scirepeval_test": r"train|test(_hard|_soft)?(_qrel)?|(reviewer_)?metadata"}
"""Data sets of the organisation ``allenai``, and patterns of the splits that an evaluation reads."""

_REMEDY = (
    "Where there is a network: hf download allenai/DATASET --repo-type dataset --local-dir FOLDER/DATASET, for each "
)
_REMEDY += f"DATASET of {' and '.join(REPOSITORIES)}; then mdcr study scirepeval --input FOLDER"
_ENDINGS = r"([-.]\S*|/\S*)?\.(parquet|jsonl|jsonl\.gz|json|csv)"
_BRANCHES = ("main", "refs/convert/parquet")
"""Branches in order of preference; a data set of scripts has its data files on the second."""


def catalogue(configurations: Sequence[str] = (), train: bool = False, endpoint: str | None = None) -> Catalogue:
    """Return the files of both data sets, as ``DATASET/CONFIGURATION/FILE``.

    Empty ``configurations`` mean all; ``train`` adds the training splits, which leak checks read. ``endpoint`` is the
    hub's address; None: ``HF_ENDPOINT`` or the official one.
    """
    hub, commits, remotes, offered = Hub(endpoint, _REMEDY), list[str](), list[Remote](), set[str]()
    for dataset, splits in REPOSITORIES.items():
        pattern = re.compile(rf"([^/]+)/({splits}{'|train' if train else ''}){_ENDINGS}")
        for branch in _BRANCHES:
            commit, listed = hub.list_files(f"allenai/{dataset}", branch)
            found = [(file, match[1]) for file in listed if (match := pattern.fullmatch(file.name))]
            if found:
                break
        commits.append(commit[:7])
        offered |= {configuration for _, configuration in found}
        wanted = [file for file, configuration in found if not configurations or configuration in configurations]
        remotes += [replace(file, name=f"{dataset}/{file.name}") for file in wanted]
    for name in configurations:
        require_known(name, offered, f"the hub has no configuration {name!r} of SciRepEval")
    return hub.catalogue(plain_name(f"scirepeval-{'-'.join(commits)}"), remotes)
