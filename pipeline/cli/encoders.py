"""``mdcr models`` and ``mdcr plan``: the encoders, and the cost of embedding."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from pipeline.cli import options as read
from pipeline.cli.output import print_rows
from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError, StageError, require_known
from pipeline.core.progress import say
from pipeline.core.resources import Resources
from pipeline.core.rng import generator
from pipeline.core.text import printable
from pipeline.core.workspace import corpus_names, find_corpus
from pipeline.corpus.poolconfig import SETTINGS, PoolConfig
from pipeline.corpus.reader import Corpus, Text
from pipeline.encode import kinds, names, registry
from pipeline.encode.spec import AspireSpec, Precision, TransformerSpec
from pipeline.sources.synthetic import Synthetic
from pipeline.stages.systems import encoder_names, parse_precision, uses

_HEADLINES = ("dataset-200k", "fields", "benchmark", "scirepeval", "scifact")

_SAMPLE = 2_048
"""Papers sampled for probing."""

_STAND_IN_NOTE = "random weights of a BERT-base: not in the cache"


def models(options: argparse.Namespace) -> None:
    """List the encoders, or show the details of one."""
    what = options.what or "list"
    encoders = {encoder.name: encoder for encoder in registry.known_models()}
    require_known(what, ("list", *encoders), f"mdcr models {what} is unknown")
    chosen = list(encoders.values()) if what == "list" else [encoders[what]]
    if options.json or what == "list":
        print_rows("models", [_record(encoder) if options.json else _row(encoder) for encoder in chosen], options)
    else:
        _print_details(*chosen)


def _row(encoder: registry.KnownModel) -> dict[str, str]:
    """Return the row of an encoder, with one published figure of each main experiment."""
    published = encoder.published.items()
    figures = [next((item for item in published if item[0].startswith(f"{name}.")), None) for name in _HEADLINES]
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


def _print_details(encoder: registry.KnownModel) -> None:
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
    runner = read.runner(options)
    if options.probe <= 0:
        raise InputError(f"--probe must be more than 0 seconds, got {options.probe:g}", "Leave it out for 5")
    precision = parse_precision(options.precision)
    has_corpus = options.corpus or len(corpus_names(runner.root, studies=False)) == 1
    corpus = find_corpus(runner.root, options.corpus) if has_corpus else None
    sums = uses(options.model, "wsum")
    corpus_size = len(Corpus(corpus)) if corpus else None
    papers = {size: _papers(pools, corpus_size) for size, pools in _pools(options, corpus, sums=sums).items()}
    encoders = encoder_names(options.model)
    if not encoders:
        raise InputError(f"--model={options.model} names no encoder", "Name one, such as scincl")
    source = f"texts of {corpus.name}" if corpus else "texts of the synthetic release: no corpus was named"
    say(f"probing {', '.join(encoders)}, {options.probe:g} seconds each, on {source}")
    texts = sample_texts(corpus)
    rows = list(estimates(encoders, precision, papers, texts, runner.resources, options.probe))
    print_rows("plan", rows, options)


def _pools(options: argparse.Namespace, corpus: Artifact | None, *, sums: bool) -> dict[str, list[PoolConfig]]:
    """Return the pools that ``mdcr eval`` draws with the same options by size; of several sizes, also all together.

    ``sums``: add the validation pool of each field and size, on which weights of sums are chosen.
    """
    pools = read.selection(options).configs(corpus)
    pools += [replace(pool, split="validation") for pool in pools if sums and pool.sample == 1]
    sizes = dict.fromkeys(pool.size for pool in pools)
    by_size = {SETTINGS["size"].typed(size): [pool for pool in pools if pool.size == size] for size in sizes}
    return by_size | ({"together": pools} if len(by_size) > 1 else {})


def _papers(pools: Sequence[PoolConfig], corpus_size: int | None) -> int:
    """Return the approximate number of distinct papers in some pools; each is embedded once.

    ``corpus_size`` counts papers; None: unknown, so that sizes are added. Candidates count as drawn from the whole
    corpus; pools of one field overlap more in fact. All samples of a field have the same query papers.
    """
    sizes = [pool.size for pool in pools]
    queries = {(pool.field, pool.split): pool.queries for pool in pools}
    if "all" in sizes or "all" in queries.values():
        if corpus_size is None:
            raise InputError(
                "--size=all and --queries=all must have a corpus", "Name one with --corpus, or give a number"
            )
        return corpus_size
    counts = [int(count) for count in (*sizes, *queries.values())]
    if corpus_size is None:
        return sum(counts)
    return round(corpus_size * (1 - math.prod(1 - min(count / corpus_size, 1) for count in counts)))


def sample_texts(corpus: Artifact | None) -> list[Text]:
    """Return up to :data:`_SAMPLE` texts of a corpus, or of the synthetic release, in random order."""
    rng = generator(13, "plan")
    if corpus is None:
        release = Synthetic(_SAMPLE, 13)
        papers = next(iter(release.read(release.parts()[0]))).papers
        columns = (papers.column(name).to_pylist() for name in ("title", "abstract"))
        texts = [Text(title or "", abstract or "") for title, abstract in zip(*columns, strict=True)]
    else:
        reader = Corpus(corpus)
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

    Each model is probed for some ``seconds`` on ``texts``, a sample in random order.
    """
    from pipeline.encode.probe import probe, probe_stand_in

    for name in encoders:
        try:
            model = registry.resolve(name, precision)
            if not kinds.find(model.spec.kind).accelerated:
                note = "vectors made elsewhere" if model.place else "fitted on the corpus: minutes, not hours"
                yield {"model": name, "note": f"{note}; not probed"}
                continue
            cost, note = probe(model, texts, resources, seconds), "its own weights"
        except StageError:
            names = registry.part_names(name)
            spec = _stand_in_spec(names[0], precision)
            cost, note = probe_stand_in(spec, texts, resources, seconds).times(len(names)), _STAND_IN_NOTE
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
                "note": note,
            }


def _stand_in_spec(name: str, precision: str | None) -> TransformerSpec | AspireSpec:
    """Return the specification of an encoder without local weights: of its own kind, or of a transformer."""
    compute = dict(names.parse_one(name).options).get("compute", precision or "float32")
    kind = kinds.find(registry.kind_of(name))
    spec: type[TransformerSpec | AspireSpec] = kind.spec if kind.takes("checkpoint") else TransformerSpec
    return spec("", "", compute=cast("Precision", kinds.checked_choice("compute", compute)))
