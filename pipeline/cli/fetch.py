"""``mdcr fetch``: download a release of Semantic Scholar."""

from __future__ import annotations

import argparse
import itertools
import os
from dataclasses import replace

from pipeline.cli.output import print_json
from pipeline.core.config import counted
from pipeline.core.errors import InputError
from pipeline.core.files import given
from pipeline.core.progress import say
from pipeline.core.workspace import RELEASES
from pipeline.sources.fetch import ENDPOINT, Catalogue, catalogue, fetch_release
from pipeline.sources.s2ag import DATASETS


def fetch(options: argparse.Namespace) -> None:
    """Fetch a release, or list it with ``--dry-run``."""
    datasets = [name for name in map(str.strip, (options.datasets or "").split(",")) if name]
    endpoint = options.endpoint or ENDPOINT
    listed = catalogue(options.release or "latest", _api_key(options), datasets or DATASETS, endpoint)
    if options.first:
        listed = _first_files(listed, options.first)
    name = listed.name + (f"-first-{options.first}" if options.first else "")
    folder = options.output or options.root / RELEASES / name
    if options.dry_run:
        record = {"release": listed.name, "folder": str(folder), "files": listed.files}
        print_json(record) if options.json else print("\n".join(listed.files))
        say(f"{counted(len(listed.files), 'file')} would go into {folder}")
        return
    say(f"fetch {listed.name}: {counted(len(listed.files), 'file')} into {folder}")
    record = {"folder": str(folder), **fetch_release(listed, folder, connections=options.connections)}
    if options.json:
        print_json(record)
        return
    print(folder)
    datasets = sorted({name.partition("/")[0] for name in listed.files})
    for dataset in datasets:
        if dataset.startswith("embeddings-"):
            say(f"next: mdcr eval --corpus NAME --model vectors:{folder / dataset}")
    if "papers" in datasets:
        say(f"next: mdcr corpus --source s2ag --input {folder} --corpus NAME")


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


def _first_files(listed: Catalogue, count: int) -> Catalogue:
    """Return the first ``count`` files of each dataset."""
    groups = itertools.groupby(listed.files, lambda name: name.partition("/")[0])
    return replace(listed, files=[name for _, group in groups for name in itertools.islice(group, count)])
