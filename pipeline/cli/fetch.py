"""``mdcr fetch``: download a release."""

from __future__ import annotations

import argparse
import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from pipeline.cli.output import print_json
from pipeline.core.config import counted
from pipeline.core.errors import InputError
from pipeline.core.files import given
from pipeline.core.progress import say
from pipeline.core.workspace import RELEASES
from pipeline.sources import mteb, s2ag, scirepeval
from pipeline.sources.fetch import Catalogue, Remote, fetch_release


def fetch(options: argparse.Namespace) -> None:
    """Fetch a release, or list it with ``--dry-run``."""
    records = []
    for catalogue, subfolder in _catalogues(options):
        if options.first:
            catalogue = replace(catalogue, files=_first_files(catalogue.files, options.first), stated={})
        name = "mteb" if subfolder else catalogue.name + (f"-first-{options.first}" if options.first else "")
        folder = (options.output or options.root / RELEASES / name) / subfolder
        if options.dry_run:
            _print_files(catalogue, folder, options)
            continue
        say(f"fetch {catalogue.name}: {counted(len(catalogue.files), 'file')} into {folder}")
        record = fetch_release(catalogue, folder, connections=options.connections)
        records.append({"folder": str(folder), **record})
    for record in records:
        print_json(record) if options.json else print(record["folder"])
    if records and not options.json:
        _print_next(options, folder, [remote.name for remote in catalogue.files])


def _print_next(options: argparse.Namespace, folder: Path, names: Sequence[str]) -> None:
    """Print the command that reads the files fetched."""
    if options.source == "scirepeval":
        say(f"next: mdcr study scirepeval --list --input {folder}")
    elif options.source == "mteb":
        say(f"next: mdcr corpus --source mteb --task {options.task} --input {folder.parent}")
    datasets = {name.partition("/")[0] for name in names}
    for dataset in sorted(dataset for dataset in datasets if dataset.startswith("embeddings-")):
        say(f"next: mdcr eval --corpus NAME --model vectors:{folder / dataset}")
    if "papers" in datasets:
        say(f"next: mdcr corpus --source s2ag --input {folder} --corpus NAME")


def _catalogues(options: argparse.Namespace) -> Iterator[tuple[Catalogue, str]]:
    """Yield each catalogue to fetch, and its subfolder of the release: one for each task of ``mteb``, else empty."""
    datasets = [name for name in map(str.strip, (options.datasets or "").split(",")) if name]
    if options.source == "mteb":
        if not options.task:
            raise InputError("fetch mteb must have a task, got none", "Name it like --task SCIDOCS")
        for task in mteb.task_names(options.task):
            yield mteb.catalogue(task, options.endpoint), mteb.folder_of(task)
    elif options.source == "scirepeval":
        yield scirepeval.catalogue(datasets, bool(options.train), options.endpoint), ""
    else:
        release, endpoint = options.release or "latest", options.endpoint or s2ag.ENDPOINT
        yield s2ag.catalogue(release, _api_key(options), datasets or s2ag.DATASETS, endpoint), ""


def _api_key(options: argparse.Namespace) -> str | None:
    if options.api_key is not None:
        raise InputError(
            "--api-key would show the key to everyone on this machine", "Put it into S2_API_KEY or into --api-key-file"
        )
    if options.api_key_file is None:
        return os.environ.get("S2_API_KEY")
    try:
        return given(options.api_key_file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError, InputError) as error:  # the path is not printed: it may be a key by mistake
        raise InputError("the file of --api-key-file cannot be read as text", "Give the path of a file") from error


def _first_files(remotes: Sequence[Remote], count: int) -> list[Remote]:
    """Return the first ``count`` files of each dataset."""
    groups = itertools.groupby(remotes, lambda remote: remote.name.rpartition("/")[0])
    return [remote for _, group in groups for remote in itertools.islice(group, count)]


def _print_files(catalogue: Catalogue, folder: Path, options: argparse.Namespace) -> None:
    files = [{"name": remote.name, "bytes": remote.bytes} for remote in catalogue.files]
    total = sum(remote.bytes or 0 for remote in catalogue.files)
    if options.json:
        print_json({"release": catalogue.name, "folder": str(folder), "bytes": total or None, "files": files})
        return
    for remote in catalogue.files:
        print(f"{remote.bytes:>15,}  {remote.name}" if remote.bytes else remote.name)
    size = f", {total / 1e9:,.1f} GB" if total else ""
    say(f"{counted(len(files), 'file')}{size} would go into {folder}")
