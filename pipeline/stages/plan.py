"""``mdcr plan``: estimates of what embedding a pool takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np

from pipeline.core.artifact import Artifact
from pipeline.core.errors import StageError
from pipeline.core.resources import Resources
from pipeline.core.rng import generator
from pipeline.corpus.reader import Corpus, Text
from pipeline.encode import kinds, names, registry
from pipeline.encode.spec import AspireSpec, Precision, TransformerSpec
from pipeline.sources.synthetic import Synthetic

_SAMPLE = 2_048
"""Papers whose texts are sampled."""

_STAND_IN = "random weights of a BERT-base: not in the cache"


def sample_texts(corpus: Artifact | None, seed: int = 13) -> list[Text]:
    """Return texts in random order, of a corpus or of the synthetic release."""
    chance = generator(seed, "plan")
    if corpus is None:
        release = Synthetic(_SAMPLE, seed)
        papers = next(iter(release.read(release.parts()[0]))).papers
        columns = (papers.column(name).to_pylist() for name in ("title", "abstract"))
        texts = [Text(title or "", abstract or "") for title, abstract in zip(*columns, strict=True)]
    else:
        opened = Corpus(corpus)
        rows = np.sort(chance.choice(len(opened), min(_SAMPLE, len(opened)), replace=False))
        texts = [text for block in opened.texts(rows) for text in block]
    texts = [text for text in texts if text.abstract] or texts
    return [texts[number] for number in chance.permutation(len(texts))]


def plan(
    encoders: Sequence[str],
    precision: str | None,
    papers: Sequence[int],
    texts: Sequence[Text],
    resources: Resources,
    seconds: float,
) -> Iterator[dict[str, Any]]:
    """Yield one estimate a model and number of papers.

    Each model is probed for some seconds on ``texts``, a sample in random order.
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
            parts = registry.part_names(name)
            spec = _stand_in_spec(parts[0], precision)
            cost, note = probe_stand_in(spec, texts, resources, seconds).times(len(parts)), _STAND_IN
        for count in papers:
            yield {
                "model": name,
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
    """Return the specification of an encoder whose weights are not here: its own, or that of a transformer."""
    asked = dict(names.one(name).options).get("compute", precision or "float32")
    kind = kinds.find(registry.kind_of(name))
    spec: type[TransformerSpec | AspireSpec] = kind.spec if kind.takes("checkpoint") else TransformerSpec
    return spec("", "", compute=cast("Precision", kinds.checked_choice("compute", asked)))
