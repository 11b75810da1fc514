"""``mdcr models`` and ``mdcr plan``: the encoders, and the cost of embedding."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pipeline.cli import options as read
from pipeline.cli.output import print_json, print_rows, print_table
from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError, require_known
from pipeline.core.progress import say
from pipeline.core.resources import Resources
from pipeline.core.rng import generator
from pipeline.core.workspace import find_corpus
from pipeline.corpus.poolconfig import SETTINGS, PoolConfig
from pipeline.corpus.reader import Corpus, Text
from pipeline.encode import hub, kinds, known, registry
from pipeline.scores.tables import Column, Table
from pipeline.stages.systems import encoder_names, parse_precision

_HEADLINES = ("dataset-200k", "fields", "benchmark", "scirepeval", "scifact")

_SAMPLE = 2_048
"""Papers sampled for probing."""


def models(options: argparse.Namespace) -> None:
    """List the encoders, or show the details of one."""
    what = options.what or "list"
    encoders = {encoder.name: encoder for encoder in known.known_models()}
    require_known(what, ("list", *encoders), f"mdcr models {what} is unknown")
    chosen = list(encoders.values()) if what == "list" else [encoders[what]]
    if options.json or what == "list":
        print_rows("models", [_record(encoder) if options.json else _row(encoder) for encoder in chosen], options)
    else:
        _print_details(*chosen)


def _row(encoder: known.KnownModel) -> dict[str, str]:
    """Return the row of an encoder, with one published figure of each main experiment."""
    published = encoder.published.items()
    figures = [next((item for item in published if item[0].startswith(f"{name}.")), None) for name in _HEADLINES]
    return {
        "model": encoder.name,
        "here": "yes" if encoder.available else "no",
        "source": " + ".join(filter(None, (encoder.source, encoder.adapter))) or "fitted on the corpus",
        "revision": encoder.revision[:12] or "-",
        "licence": encoder.licence or "-",
        "published": ", ".join(f"{figure[0]} {known.as_printed(figure[1])}" for figure in figures if figure) or "-",
    }


def _record(encoder: known.KnownModel) -> dict[str, Any]:
    return {
        **_row(encoder),
        "revision": encoder.revision,
        "published": dict(encoder.published),
        "exclusions": list(encoder.exclusions),
        "folder": str(encoder.folder or ""),
        "recipe": dict(encoder.recipe),
    }


def _print_details(encoder: known.KnownModel) -> None:
    values = {**_row(encoder), "revision": encoder.revision or "-", "folder": str(encoder.folder or "-")}
    values |= {"training queries": " ".join(encoder.exclusions) or "-", "published": "" if encoder.published else "-"}
    values |= {f" {name}": repr(value) for name, value in encoder.recipe.items()}
    values |= {f"  {name}": known.as_printed(figure) for name, figure in encoder.published.items()}
    print_table(Table.of("", "", [Column("", "", text=True)], values.items()))


def plan(options: argparse.Namespace) -> None:
    """Print what ``mdcr eval`` would make, and time, disk and memory of the embedding."""
    if options.probe <= 0:
        raise InputError(f"--probe must be more than 0 seconds, got {options.probe:g}", "Leave it out for 5")
    runner = read.runner(options)
    encoders = encoder_names(options.model)
    if not encoders:
        raise InputError(f"--model={options.model} names no encoder", "Name one, such as scincl")
    options.dry_run = True
    with hub.planning():
        tasks = [task for evaluation in read.evaluations(options, runner) for task in evaluation.scores]
        steps = runner.plan(read.feasible(runner, tasks, options))
        record = read.planned(steps, options)
    corpus = find_corpus(runner.root, options.corpus)
    papers = _papers_by_size([step.task.config for step in steps if step.task.stage == "pool"], len(Corpus(corpus)))
    say(f"probing {', '.join(encoders)}, {options.probe:g} seconds each, on texts of {corpus.name}")
    precision, texts = parse_precision(options.precision), sample_texts(corpus)
    rows = list(estimates(encoders, precision, papers, texts, runner.resources, options.probe))
    if options.json:
        print_json({**record, "embedding": rows})
    else:
        print()
        print_rows("embedding", rows, options)


def _papers_by_size(pools: Sequence[PoolConfig], corpus_size: int) -> dict[str, int]:
    """Return the approximate number of distinct papers of the pools of each size; of several sizes, also of all."""
    sizes = dict.fromkeys(pool.size for pool in pools)
    by_size = {SETTINGS["size"].typed(size): [pool for pool in pools if pool.size == size] for size in sizes}
    if len(by_size) > 1:
        by_size["together"] = list(pools)
    return {size: _papers(of_size, corpus_size) for size, of_size in by_size.items()}


def _papers(pools: Sequence[PoolConfig], corpus_size: int) -> int:
    """Return the approximate number of distinct papers in some pools; each is embedded once.

    Candidates count as drawn from the whole corpus of ``corpus_size`` papers; pools of one field overlap more in fact.
    All samples of a field have the same query papers.
    """
    sizes = [pool.size for pool in pools]
    queries = {(pool.field, pool.split): pool.queries for pool in pools}
    if "all" in sizes or "all" in queries.values():
        return corpus_size
    counts = [int(count) for count in (*sizes, *queries.values())]
    return round(corpus_size * (1 - math.prod(1 - min(count / corpus_size, 1) for count in counts)))


def sample_texts(corpus: Artifact) -> list[Text]:
    """Return up to :data:`_SAMPLE` texts of a corpus in random order, those with an abstract if there are any."""
    rng, reader = generator(13, "plan"), Corpus(corpus)
    rows = np.sort(rng.choice(len(reader), min(_SAMPLE, len(reader)), replace=False))
    texts = [text for block in reader.texts(rows) for text in block]
    texts = [text for text in texts if text.abstract] or texts
    return [texts[number] for number in rng.permutation(len(texts))]


def estimates(
    encoders: Sequence[str],
    precision: str | None,
    papers: Mapping[str, int],
    texts: Sequence[Text],
    resources: Resources,
    seconds: float,
) -> Iterator[dict[str, Any]]:
    """Yield an estimate for each model and number of ``papers``, by the size of their pools.

    Each model whose weights are on this machine is probed for some ``seconds`` on ``texts``, a sample in random order.
    """
    from pipeline.encode.probe import probe

    for name in encoders:
        with hub.planning() as absent:
            model = registry.resolve(name, precision)
        if absent or not kinds.find(model.spec.kind).accelerated:
            note = "vectors made elsewhere" if model.place else "fitted on the corpus: minutes, not hours"
            note = f"mdcr eval downloads {', '.join(sorted(absent))} first" if absent else note
            yield {"model": name, "note": f"{note}; not probed"}
            continue
        cost = probe(model, texts, resources, seconds)
        for size, count in papers.items():
            yield {
                "model": name,
                "size": size,
                "papers": count,
                "docs/s": round(cost.documents_per_second, 1),
                "tokens/s": round(cost.documents_per_second * cost.tokens_per_text),
                "tokens_a_paper": round(cost.tokens_per_text),
                "hours": round(cost.seconds(count) / 3600, 2),
                "disk_GB": round(cost.disk(count) / 1e9, 2),
                "memory_GB": round(cost.memory / 1e9, 2),
            }
