"""A benchmark for other tools: BEIR folders, and tasks of mteb."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from pipeline.api import Workspace
from pipeline.core import files
from pipeline.core.errors import InputError
from pipeline.corpus.pool import Pool
from pipeline.corpus.reader import Corpus
from pipeline.exchange.pools import write_pool
from pipeline.studies.mdcr.evaluation import benchmark_pools, corpus_task
from pipeline.studies.mdcr.layout import candidates_of, read_lists
from pipeline.studies.mdcr.lists import field_name

TOP_RANKED, TASKS = "top_ranked.jsonl", "mteb_tasks.py"

_CONFIG = """\
- config_name: top_ranked
  data_files: [{split: test, path: top_ranked.jsonl}]
"""
"""What the data set card of a BEIR folder lacks for reranking."""

_TASKS = '''\
"""Tasks of mteb: reranking of the candidates of each query, a task a field. ``mteb.evaluate(model, tasks())``."""

from pathlib import Path

import mteb
from mteb.abstasks.retrieval import AbsTaskRetrieval


def tasks() -> list[AbsTaskRetrieval]:
    """Return a task for each BEIR folder beside this file."""
    folders = sorted(path.parent for path in Path(__file__).parent.glob("*/top_ranked.jsonl"))
    return [_task(folder) for folder in folders]


def _task(folder: Path) -> AbsTaskRetrieval:
    name = "MDCR" + "".join(word.capitalize() for word in folder.name.split("-"))
    metadata = mteb.TaskMetadata(
        name=name, description="Which of these papers does the query cite? (MDCR)", type="Reranking", category="t2t",
        modalities=["text"], reference=None, eval_splits=["test"],
        dataset={"path": str(folder), "revision": "main"}, eval_langs=["eng-Latn"], main_score="map_at_1000",
        date=None, domains=["Academic", "Written"], task_subtypes=["Scientific Reranking"], license=None,
        annotations_creators="derived", dialect=[], sample_creation="found", bibtex_citation=None,
    )
    return type(name, (AbsTaskRetrieval,), {"metadata": metadata})()
'''


def export_folders(workspace: Workspace, folder: Path, split: str, output: Path) -> Iterator[Path]:
    """Write a BEIR folder for each field, with the candidates of each query, and the tasks that ``mteb`` runs.

    Raises:
        InputError: the benchmark is not of the layout, or two fields have one folder.

    Yields:
        The folder of each field, then the file of the tasks.
    """
    lists = read_lists(folder, split)
    places: dict[str, str] = {}
    for field in lists:
        if (other := places.setdefault(field_name(field), field)) != field:
            raise InputError(f"fields {other!r} and {field!r} must have folders of their own", "Rename one of them")
    corpus = workspace.runner.make(corpus_task(folder, split))
    pools = workspace.make(benchmark_pools(corpus, split, lists))
    for (field, queries), pool in zip(lists.items(), pools, strict=True):
        place = output / field_name(field)
        for path in write_pool(place, Pool(pool, Corpus(corpus))):
            if path.name == "exclusions.tsv":
                path.unlink()  # the candidates of each query say the same
        rows = ({"query-id": query, "corpus-ids": sorted(candidates_of(by_type))} for query, by_type in queries.items())
        files.write_text(place / TOP_RANKED, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
        card = (place / "README.md").read_text(encoding="utf-8")
        files.write_text(place / "README.md", card.replace("dataset_info:\n", f"{_CONFIG}dataset_info:\n", 1))
        yield place
    files.write_text(output / TASKS, _TASKS)
    yield output / TASKS
