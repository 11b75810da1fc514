"""``mdcr models`` and ``mdcr plan``: which encoders there are, and what embedding would take."""

from __future__ import annotations

import argparse

from pipeline.cli import options as read
from pipeline.cli.show import print_rows
from pipeline.core.errors import InputError, nearest
from pipeline.core.progress import say
from pipeline.core.workspace import corpus_names, find_corpus
from pipeline.corpus.reader import Corpus
from pipeline.encode import lock, registry
from pipeline.stages.selection import parse_sizes
from pipeline.stages.systems import PRECISIONS, encoders, parse_systems

_ACTIONS = ("list", "lock")
_DEFAULT_SIZE = "200k"


def models(options: argparse.Namespace) -> None:
    """List the encoders known, or lock their revisions.

    Raises:
        InputError: there is no such action.
    """
    read.runner(options)
    if options.action not in _ACTIONS:
        raise InputError(f"mdcr models {options.action} is unknown", nearest(options.action, _ACTIONS))
    if options.action == "lock":
        _lock(options)
        return
    rows = []
    for each in registry.listings():
        row = {
            "model": each.name,
            "here": "yes" if each.available else "no",
            "source": each.source or "fitted on the corpus",
            "revision": each.revision[:12] or "-",
            "licence": each.licence or "-",
            "published": ", ".join(f"{name} {value:g}" for name, value in each.published.items()) or "-",
        }
        rows.append(
            {
                **row,
                "revision": each.revision,
                "published": dict(each.published),
                "exclusions": list(each.exclusions),
                "folder": str(each.folder or ""),
            }
            if options.json
            else row
        )
    print_rows("models", rows, options)


def _lock(options: argparse.Namespace) -> None:
    found = lock.resolve(registry.repositories())
    if not options.dry_run:
        lock.write(found)
    rows = [
        {"hub": each.hub, "asked": each.asked, "commit": each.commit or "unknown", "from": each.origin or "-"}
        for each in found
    ]
    print_rows("locked", rows, options)
    unknown = sum(not each.commit for each in found)
    say(f"{len(found) - unknown} of {len(found)} locked in {lock.FILE}")
    if unknown:
        say(f"{unknown} are neither in the cache nor to be had: the hub cannot be reached, or does not know them")


def plan(options: argparse.Namespace) -> None:
    """Estimate time, disk and memory of embedding pools.

    Raises:
        InputError: a model, size or precision is unknown.
    """
    from pipeline.stages import plan as stage

    runner = read.runner(options)
    if options.precision is not None and options.precision not in PRECISIONS:
        raise InputError(f"--precision {options.precision!r} is unknown", nearest(options.precision, PRECISIONS))
    known = corpus_names(runner.root)
    corpus = find_corpus(runner.root, options.corpus) if options.corpus or len(known) == 1 else None
    whole = len(Corpus(corpus)) if corpus else None
    sizes = [_papers(size, options.samples or 1, whole) for size in parse_sizes(options.size or _DEFAULT_SIZE)]
    names = [model.name for model in encoders(parse_systems(options.model))]
    source = f"texts of {corpus.name}" if corpus else "texts of the synthetic release: no corpus was named"
    say(f"probing {len(names)} encoders, {options.probe:g} seconds each, on {source}")
    precision = PRECISIONS[options.precision] if options.precision else None
    texts = stage.sample_texts(corpus)
    rows = list(stage.plan(names, precision, sizes, texts, runner.resources, options.probe))
    print_rows("plan", rows, options)


def _papers(size: int | str, samples: int, whole: int | None) -> int:
    """Return how many papers several samples of one size hold together, on average; a paper is embedded once."""
    if isinstance(size, str):
        if whole is None:
            raise InputError("--size all needs a corpus", "Name one with --corpus, or give a number")
        return whole
    if whole is None:
        return size * samples
    return round(whole * (1 - (1 - min(1.0, size / whole)) ** samples))
