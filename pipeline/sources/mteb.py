"""Retrieval and reranking tasks of MTEB (Muennighoff et al. 2023), read with the installed package ``mteb``.

The package maps tasks to data sets, and reads documents, queries, judgements, instructions and lists to rerank from a
copy of the data set's repository on the Hugging Face hub.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml

from pipeline.core.config import file_name
from pipeline.core.errors import InputError, nearest, require_known
from pipeline.core.install import optional
from pipeline.core.text import normalise
from pipeline.sources import options
from pipeline.sources.base import QuerySet, check_files, fingerprint
from pipeline.sources.judgements import judged_queries, read_judgements
from pipeline.sources.papers import Document, FileRelease, Paper, papers_of
from pipeline.sources.records import Tally, converted, numbered
from pipeline.sources.triples import id_of

_PART = "documents"
"""Name of a task's only part."""


def task_names(text: str) -> list[str]:
    """Return the task names in a comma-separated text, each once."""
    return list(dict.fromkeys(filter(None, map(str.strip, text.split(",")))))


def find_task(name: str) -> Any:
    """Return a task of the installed package, without data.

    Raises:
        InputError: the package is not installed, or has no such text retrieval or reranking task.
    """
    mteb = optional("mteb", f"task {name}")
    try:
        task = mteb.get_task(name)
    except KeyError as error:
        suggestion = f"{error.args[0]}".removeprefix("KeyError: ")
        raise InputError(f"mteb {mteb.__version__} has no task {name!r}", suggestion) from error
    if not hasattr(task, "ignore_identical_ids") or task.metadata.modalities != ["text"]:
        raise InputError(f"{name} must retrieve or rerank texts, got {task.metadata.type}", "Choose another task")
    return task


@dataclass(frozen=True)
class Mteb(FileRelease, options.Mteb):
    """A task, with one split and one subset of its data set."""

    source = "mteb"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.task:
            raise InputError("source mteb must have a task, got none", "Name it like --task SCIDOCS")
        task, subfolder = find_task(self.task), self.folder / folder_of(self.task)
        subsets = task.metadata.hf_subsets
        chosen = self.subset or (subsets[0] if len(subsets) == 1 else "")
        if chosen not in subsets:
            got = f"got {self.subset!r}" if self.subset else f"which has {len(subsets)}"
            raise InputError(f"--subset must be one of {self.task}, {got}", nearest(self.subset, subsets))
        values = {"subset": chosen, "judged": self.judged or task.eval_splits[0]}
        for name, value in {**values, "folder": subfolder if subfolder.is_dir() else self.folder}.items():
            object.__setattr__(self, name, value)

    def files(self) -> list[Path]:
        """Return all files of the data set that are not hidden; InputError if the folder has none."""
        paths = [path for path in sorted(self.folder.rglob("*")) if path.is_symlink() or not path.is_dir()]
        paths = [path for path in paths if not any(name[0] == "." for name in path.relative_to(self.folder).parts)]
        check_files(paths)
        if not paths:
            raise InputError(f"{self.folder} holds no data of {self.task}", _command(self.task, self.folder))
        return paths

    def identity(self) -> Mapping[str, Any]:
        """Return the files' checksums, task, split and subset, and whether identical ids are ignored."""
        return {
            "files": fingerprint(self.files(), self.folder),
            "revision": "",
            **{name: getattr(self, name) for name in ("task", "judged", "subset")},
            "ignore_identical_ids": find_task(self.task).ignore_identical_ids,
        }

    def parts(self) -> Sequence[str]:
        """Return the only part."""
        return [_PART]

    def papers(self, tally: Tally) -> Iterator[Paper]:
        """Yield the documents as papers without year, field or references."""
        return papers_of(converted(numbered(self._data()["corpus"], tally), Document, tally))

    def queries(self) -> QuerySet | None:
        """Return the judged queries, with instructions appended, their judgements and their candidate lists.

        Raises:
            InputError: no judged query has a text, a query is not a text, or a grade not a whole number.
        """
        data, tally = self._data(), Tally(self.folder / "queries", self)
        texts = {}
        for query in data["queries"]:
            wrong = [text for text in (query.get("text"), query.get("instruction") or "") if not isinstance(text, str)]
            if wrong:
                raise InputError(f"queries of {self.task} must be texts, got {wrong[0]!r:.60}", "Choose another")
            text = " ".join(filter(None, (query["text"], query.get("instruction"))))
            texts[str(query["id"])] = normalise(tally.cut(text))
        qrels, top_ranked = data["relevant_docs"], data.get("top_ranked")
        grades = {pair: grade for _, pair, grade in read_judgements(qrels)}
        ranked = {query: self._listed(query, top_ranked) for query in texts if query in qrels} if top_ranked else {}
        return judged_queries(qrels, texts, grades, tally, ranked=ranked)

    def _listed(self, query: str, top_ranked: Mapping[str, Any]) -> list[str]:
        listed = top_ranked.get(query) or []
        if isinstance(listed, str):
            raise InputError(f"the candidates of query {query!r} must be a list, got {listed!r:.60}", "Choose another")
        return [id_of(paper, f"the candidates of query {query!r}") for paper in listed]

    def _data(self) -> Mapping[str, Any]:
        return _load_data(self.folder, self.task, self.judged, self.subset)


@functools.lru_cache(1)
def _load_data(folder: Path, name: str, split: str, subset: str) -> Mapping[str, Any]:
    """Return corpus, queries, judgements and candidate lists of a task, read by the package from a folder."""
    task = find_task(name)
    datasets = optional("datasets", f"task {name}")
    datasets.disable_progress_bars()
    dataset = {**task.metadata.dataset, "path": str(folder.resolve())}
    task.metadata = task.metadata.model_copy(update={"dataset": dataset})
    task.filter_eval_splits([split])
    if task.metadata.is_multilingual:
        task.filter_languages(None, hf_subsets=[subset])
    try:
        _check_split(datasets, dataset["path"], name, split, subset)
        task.load_data()
        task.convert_v1_dataset_format_to_v2(None)
        data: Mapping[str, Any] = task.dataset[subset][split]
    except (*_REFUSALS, datasets.exceptions.DatasetsError) as error:
        raise InputError(
            f"{folder} cannot be read as split {split!r} of {name} ({type(error).__name__}: {str(error)[:300]})",
            f"{_command(name, folder)}, or give another --judged or --subset",
        ) from error
    return data


_REFUSALS = (
    *(OSError, ValueError, LookupError, TypeError, AttributeError, AssertionError, RuntimeError),
    *(pa.ArrowException, yaml.YAMLError),
)
"""What the packages mteb and datasets raise for data of another shape, beside their own errors."""


def _check_split(datasets: Any, path: str, name: str, split: str, subset: str) -> None:
    """Raise InputError if the split has no judgements; the package would silently use the only existing split."""
    configurations = {"default", "qrels", f"{subset}-qrels"} & {*datasets.get_dataset_config_names(path)}
    splits = {available for config in configurations for available in datasets.get_dataset_split_names(path, config)}
    if splits:
        require_known(split, sorted(splits), f"{name} has no judgements of split {split!r}")


def _command(task: str, folder: Path) -> str:
    """Return the command that fetches a task's data set."""
    dataset = find_task(task).metadata.dataset
    home = folder if folder.name == folder_of(task) else folder / folder_of(task)
    options = f"--repo-type dataset --revision {dataset['revision']} --local-dir {home}"
    return f"Fetch it: hf download {dataset['path']} {options}"


def folder_of(task: str) -> str:
    """Return the folder name of a task's data set."""
    return file_name(task, kept="._-")


def corpus_name(task: str) -> str:
    """Return the corpus name of a task."""
    return folder_of(task).lower()
