"""``mdcr models`` and ``mdcr plan``: the encoders, and the cost of embedding."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from pipeline.cli import options as read
from pipeline.cli.output import print_rows
from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError, nearest
from pipeline.core.progress import say
from pipeline.core.text import printable
from pipeline.core.workspace import corpus_names, find_corpus
from pipeline.corpus.poolconfig import PoolConfig
from pipeline.corpus.reader import Corpus
from pipeline.encode import registry
from pipeline.stages.systems import encoder_names, parse_precision, uses

_HEADLINES = ("dataset-200k", "fields", "benchmark", "scirepeval", "scifact")


def models(options: argparse.Namespace) -> None:
    """List the encoders, or show the details of one."""
    what = options.what or "list"
    encoders = {encoder.name: encoder for encoder in registry.known_models()}
    if what == "list":
        rows = [_record(encoder) if options.json else _row(encoder) for encoder in encoders.values()]
        print_rows("models", rows, options)
    elif what in encoders:
        _show(encoders[what], options)
    else:
        raise InputError(f"mdcr models {what} is unknown", nearest(what, ("list", *encoders)))


def _row(encoder: registry.KnownModel) -> dict[str, str]:
    """Return the row of an encoder, with one published figure of each main experiment."""
    published = encoder.published.items()
    figures = [next((f for f in published if f[0].startswith(f"{name}.")), None) for name in _HEADLINES]
    return {
        "model": encoder.name,
        "here": "yes" if encoder.available else "no",
        "source": " + ".join(filter(None, (encoder.source, encoder.adapter))) or "fitted on the corpus",
        "revision": encoder.revision[:12] or "-",
        "licence": encoder.licence or "-",
        "published": ", ".join(f"{figure[0]} {registry.as_printed(figure[1])}" for figure in figures if figure) or "-",
    }


def _record(encoder: registry.KnownModel) -> dict[str, Any]:
    return {
        **_row(encoder),
        "revision": encoder.revision,
        "published": dict(encoder.published),
        "exclusions": list(encoder.exclusions),
        "folder": str(encoder.folder or ""),
        "recipe": dict(encoder.recipe),
    }


def _show(encoder: registry.KnownModel, options: argparse.Namespace) -> None:
    if options.json:
        print_rows("models", [_record(encoder)], options)
        return
    values = {**_row(encoder), "revision": encoder.revision or "-", "folder": str(encoder.folder or "-")}
    values |= {"training queries": " ".join(encoder.exclusions) or "-", "published": "" if encoder.published else "-"}
    for name, value in values.items():
        print(printable(f"{name:18}{value}".rstrip()))
    for name, value in encoder.recipe.items():
        print(printable(f"{name:18} {value!r}"))
    for name, figure in encoder.published.items():
        print(f"  {name:32}{registry.as_printed(figure):>8}")


def plan(options: argparse.Namespace) -> None:
    """Estimate time, disk and memory of embedding pools."""
    from pipeline.stages import plan as stage

    runner = read.runner(options)
    precision = parse_precision(options.precision)
    named = options.corpus or len(corpus_names(runner.root, studies=False)) == 1
    corpus = find_corpus(runner.root, options.corpus) if named else None
    sums = uses(options.model, "wsum")
    sizes = [_papers(pools, len(Corpus(corpus)) if corpus else None) for pools in _pools(options, corpus, sums=sums)]
    names = encoder_names(options.model)
    if not names:
        raise InputError(f"--model={options.model} names no encoder", "Name one, such as scincl")
    source = f"texts of {corpus.name}" if corpus else "texts of the synthetic release: no corpus was named"
    say(f"probing {', '.join(names)}, {options.probe:g} seconds each, on {source}")
    texts = stage.sample_texts(corpus)
    rows = list(stage.plan(names, precision, sizes, texts, runner.resources, options.probe))
    print_rows("plan", rows, options)


def _pools(options: argparse.Namespace, corpus: Artifact | None, *, sums: bool) -> Iterator[list[PoolConfig]]:
    """Yield the pools that ``mdcr eval`` draws with the same options, size by size.

    ``sums``: with the validation pool of each field and size, on which weights are chosen.
    """
    drawn = read.selection(options).configs(corpus)
    drawn += [replace(pool, split="validation") for pool in drawn if sums and pool.sample == 1]
    for size in dict.fromkeys(pool.size for pool in drawn):
        yield [pool for pool in drawn if pool.size == size]


def _papers(pools: Sequence[PoolConfig], whole: int | None) -> int:
    """Return about how many distinct papers some pools have, which are embedded once each; at most the corpus.

    Candidates are counted as drawn from the whole corpus, so pools of a field share more than this says. Query papers
    of one field are the same in all of its samples. A corpus smaller than a pool is used for its texts alone.
    """
    draws = [pool.size for pool in pools]
    queries = {(pool.field, pool.split): pool.queries for pool in pools}
    if "all" in draws or "all" in queries.values():
        if whole is None:
            raise InputError(
                "--size=all and --queries=all must have a corpus", "Name one with --corpus, or give a number"
            )
        return whole
    counts = [int(count) for count in (*draws, *queries.values())]
    if whole is None or max(map(int, draws)) > whole:
        return sum(counts)
    return round(whole * (1 - math.prod(1 - min(count / whole, 1) for count in counts)))
