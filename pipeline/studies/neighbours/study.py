"""The study, as registered."""

from __future__ import annotations

from pipeline.studies.base import Study
from pipeline.studies.neighbours.findings import findings
from pipeline.studies.neighbours.plan import Recipe, batches

STUDY = Study("neighbours", "title queries and 32 classes of textual neighbours", Recipe, batches, findings)
