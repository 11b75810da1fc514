"""Stage ``fit``: what an encoder learns from a corpus before it encodes.

A fit does not checkpoint: after a kill it starts again. The fit of LSA, the only one, reads at most 20,000 papers by
default, of at most 64 million characters, and takes about 6 seconds of one core, whatever the size of the corpus.
"""

from __future__ import annotations

from pipeline.core.artifact import Artifact
from pipeline.core.manifest import Counts
from pipeline.core.resources import Resources
from pipeline.core.task import Inputs, Task
from pipeline.core.workdir import Workdir
from pipeline.core.workspace import FITS
from pipeline.corpus.reader import Corpus
from pipeline.encode import kinds
from pipeline.encode.spec import Model


def fit_task(corpus: Artifact, model: Model) -> Task | None:
    """Return the task that fits ``model`` on a corpus; None for a model that needs no fit."""
    fit = kinds.find(model.spec.kind).fit
    if fit is None:
        return None

    def run(inputs: Inputs, out: Workdir, _resources: Resources) -> Counts:
        return fit(model.spec, Corpus(inputs["corpus"]), out)

    return Task("fit", 3, FITS, f"{corpus.manifest.slug}-{model.slug}", model.spec, {"corpus": corpus}, run)
