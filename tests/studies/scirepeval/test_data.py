"""The table of tasks, the published layouts, and files that are bad."""

from __future__ import annotations

import dataclasses
import gzip
import itertools
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
from transformers import AutoTokenizer

from pipeline.core.errors import CorruptError, InputError
from pipeline.corpus.reader import Text
from pipeline.encode import names
from pipeline.encode.kinds import Transformer
from pipeline.encode.registry import resolve
from pipeline.encode.tokenise import TextTokeniser, render
from pipeline.studies.scirepeval.data import load_authors, load_judged, load_labelled, queries
from pipeline.studies.scirepeval.report import GROUPS, counted_figures, differences, means
from pipeline.studies.scirepeval.scoring import FiguresConfig, score
from pipeline.studies.scirepeval.study import encoders, multi_format, single_encoder
from pipeline.studies.scirepeval.tasks import FORMATS, Entry, Folder, entries, read_doc
from tests.encode.tiny import save_bert
from tests.shared import real
from tests.studies.scirepeval.published import CONFIGURATIONS, JUDGED, PAPERS, TEXTS, TOPICS, TRAIN, paper, write

TASKS = entries()


def _figures(tasks: Iterable[Entry], **values: float) -> pl.DataFrame:
    """Return figures of systems, each the same in all tasks, and a quarter more in tasks that were trained on."""
    parts = []
    for (system, value), entry in itertools.product(values.items(), tasks):
        names = entry.measures if entry.kind in ("proximity", "search", "triplets") else ("a", "b")
        figure = {"value": value + entry.in_train / 4, "items": 9, "draws": [value] * 10}
        figures = counted_figures(entry, pl.DataFrame([{"figure": name, **figure} for name in names]))
        parts.append(figures.with_columns(system=pl.lit(system)))
    return pl.concat(parts)


def test_the_table_has_the_tasks_of_the_paper() -> None:
    editions = Counter(edition for entry in TASKS.values() for edition in entry.editions)
    assert editions == {24: 24, 25: 25}
    of_paper = [entry for entry in TASKS.values() if 24 in entry.editions]
    assert sum(entry.in_train for entry in of_paper) == 8
    averages = means(_figures(of_paper, a=0.5, b=0.25))
    rows = averages.filter(system="a", format="")
    assert rows["group"].to_list() == list(GROUPS)
    assert rows["figures"].to_list() == [7, 20, 27]
    assert rows["value"].to_list() == pytest.approx([0.75, 0.5, (7 * 0.75 + 20 * 0.5) / 27])


def test_two_systems_are_compared_over_figures() -> None:
    tasks = [TASKS[name] for name in ("mesh", "search", "scidocs_cite", "cite_prediction")]
    (row,) = differences(_figures(tasks, a=0.7, b=0.5), "b", 13).to_dicts()
    assert (row["figures"], row["better"]) == (4, 4)  # citation prediction is not averaged
    assert row["value"] == pytest.approx(0.2)
    assert differences(_figures(tasks[-1:], a=0.7, b=0.5), "b", 13).is_empty()
    assert row["p"] == 2 / 2**3  # both figures of the SciDocs ranking flip together


def test_formats_name_encoders() -> None:
    for row in multi_format().values():
        assert {inner.base for kind in FORMATS for inner in names.walk(row[kind])} <= {*names.entries(), "mean"}
    assert set(encoders("lsa")) == set(FORMATS)


def _score(entry: Entry, folder: Folder) -> None:
    """Evaluate a task on random vectors."""
    random = np.random.default_rng(1)
    vectors = {size: random.normal(size=(size, 4)).astype(np.float32) for size in range(PAPERS + 1)}
    figures, _ = score(FiguresConfig(entry, 1, 5), folder, lambda keys, _: vectors[len(keys)], 1)
    assert all(0 <= abs(value) <= 1 for _, value, *_ in figures)


def test_queries_of_another_dimension_than_papers_are_refused(tmp_path: Path) -> None:
    folder, config = Folder(write(tmp_path, ("trec_covid",))), FiguresConfig(TASKS["trec_covid"], 1, 5)
    with pytest.raises(InputError, match="vectors of 4 components, as papers have, got 3"):
        score(config, folder, lambda keys, role: np.ones((len(keys), 4 if role == "paper" else 3), np.float32), 1)


@pytest.mark.parametrize("hub", [True, False])
def test_published_layouts_are_read(tmp_path: Path, hub: bool) -> None:
    folder = Folder(write(tmp_path, tuple(CONFIGURATIONS), hub=hub))
    whole = [entry for entry in TASKS.values() if folder.state(entry) == "whole"]
    assert {entry.name for entry in whole} == {name for name in TASKS if 24 in TASKS[name].editions} - {
        "cite_prediction"
    }
    for entry in whole:
        _score(dataclasses.replace(entry, few_shot=()), folder)
    for name, classes in (("drsm", 3), ("biomimicry", 2), ("fos", 4)):  # fos: three topics, and odd or not
        data = load_labelled(TASKS[name], folder)
        assert data.train_labels.shape == (len(data.train), classes) == (TRAIN, classes)
        assert data.test_labels.shape == (len(data.test), classes) == (PAPERS - TRAIN, classes)
    assert queries(TASKS["trec_covid"], folder) == {f"q{n}": f"{topic} study" for n, topic in enumerate(TOPICS)}
    judged = load_judged(TASKS["reviewers"], folder)
    assert judged.groups["r0"] == ["p10", "p13", "p16", "p19"]
    assert judged.keys.counts["papers"] == PAPERS
    of_query = judged.pairs.filter(query="p0")
    assert of_query["grade"].to_list() == [1, 0, 0, 1, 0, 0]
    assert of_query["soft"].to_list() == [1, 0, 1, 1, 0, 1]


@pytest.mark.realdata
def test_tasks_are_those_of_the_published_configuration() -> None:
    of_texts = {entry.meta: entry for entry in TASKS.values() if entry.in_train}
    for row in json.loads(gzip.decompress((real("scirepeval-sample") / "tasks_config.json.gz").read_bytes())):
        entry = of_texts.pop(row["dataset"]["name"])
        assert list(entry.fields) == row.get("input_fields", ["title", "abstract"])
        assert entry.several_labels == row.get("multi_label", False)
        if entry.format == "classification":
            assert entry.label == row["labels_field"]
    assert not of_texts


def test_fields_that_are_there_are_joined_by_the_separator() -> None:
    row = {**paper(1), "title": "T", "abstract": "A", "venue": "Journal", "year": 1964.0}
    short, long = (read_doc(row, TASKS[name].fields, name) for name in ("trec_covid", "search"))
    assert short.key.partition("~")[0] == long.key.partition("~")[0] == "p1"
    assert short.key != long.key
    model = Transformer(checkpoint="org/model", revision="abc", template="fields-sep", paper_prefix="[PRX] ")
    marks = SimpleNamespace(sep_token="[SEP]", eos_token="")  # noqa: S106
    for changes, expected in (
        ({}, "T [SEP] A [SEP] Journal [SEP] 1964"),
        ({"abstract": None}, "T [SEP] Journal [SEP] 1964"),
        ({"title": "", "year": None}, "A [SEP] Journal"),
        ({"abstract": "", "venue": "", "year": float("nan")}, "T"),
        ({"title": "", "abstract": None, "venue": "", "year": None}, ""),
    ):
        doc = read_doc(row | changes, TASKS["search"].fields, "search")
        assert render(Text(doc.title, doc.abstract), "paper", model, marks) == f"[PRX] {expected}"


def test_every_transformer_reads_the_published_text(tmp_path: Path) -> None:
    bert = save_bert(tmp_path / "bert")
    (mean,) = set(encoders(f"mean({bert}:compute=float16,{bert})").values())
    models = [encoders(str(bert))["search"], single_encoder(str(bert))["search"], *mean.parts]
    assert [model.template for model in models] == ["fields-sep"] * 4  # type: ignore[attr-defined]
    assert resolve(models[0].name).identity == models[0].identity != resolve(str(bert)).identity
    (own,) = set(encoders(f"{bert}:template=title-space-abstract").values())
    assert own.template == "title-space-abstract"  # type: ignore[attr-defined]
    tokenizer = AutoTokenizer.from_pretrained(bert)
    tokens = TextTokeniser(models[0], tokenizer)([Text("w1", ""), Text("", "w2")], "paper").ids  # type: ignore[arg-type]
    assert tokenizer.batch_decode(tokens) == ["[CLS] w1 [SEP]", "[CLS] w2 [SEP]"]


LABELS, TRAIN_LABELS = (JUDGED.format("{}", split) for split in ("test", "train"))


@pytest.mark.parametrize(
    ("task", "file", "rows", "said"),
    [
        ("cite_count", LABELS, [{"paper_id": "p42", "label": None}], "paper 'p42' of task cite_count must be a number"),
        ("fos", LABELS, [{"paper_id": "p42", "label": "[" * 10**5}], "'p42' of task fos must be given"),
        ("drsm", LABELS, [{"paper_id": "p999", "label": "a"}], "drsm must have test papers, got none"),
        ("drsm", LABELS, [{"id": "p42", "label": "a"}], "must have a column 'paper_id', got id, label"),
        ("trec_covid", LABELS, [{"query_id": "q0", "cand_id": "p10", "score": 0.5}], "grade of query 'q0'"),
        ("trec_covid", LABELS, [{"query_id": "q0", "cand_id": "p10", "score": 0}], "must have a query with a positive"),
        (
            "biomimicry",
            TEXTS.format("{}", "evaluation"),
            [{"title": "no id"}],
            "paper of task biomimicry must have one",
        ),
        ("drsm", TRAIN_LABELS, [{"paper_id": "p1", "label": "a"}], "drsm: the training papers must .* two classes"),
        ("biomimicry", TRAIN_LABELS, [{"paper_id": "p1", "label": 2}], "biomimicry must have two classes, got 3"),
        ("cite_count", TRAIN_LABELS, [{"paper_id": "p1", "label": 1}] * 2, "at least 3 training papers, got 2"),
    ],
)
def test_bad_rows_name_the_task_and_the_id(tmp_path: Path, task: str, file: str, rows: list[Any], said: str) -> None:
    folder = Folder(write(tmp_path, changes={file.format(task): rows}))
    with pytest.raises(InputError, match=said):
        _score(TASKS[task], folder)


def test_unreadable_files_are_refused(tmp_path: Path) -> None:
    folder = Folder(write(tmp_path, hub=False))
    (tmp_path / "scirepeval_test/scidocs_cite/test_qrel.jsonl").write_text('{"query_id": "p1", "sco')
    with pytest.raises(InputError, match="is not a readable row"):
        load_judged(TASKS["scidocs_cite"], folder)
    texts = tmp_path / "scirepeval/drsm/evaluation.jsonl"
    texts.unlink()
    texts.with_suffix(".json").write_text("{}")
    with pytest.raises(InputError, match="paper of task drsm must have one of"):
        load_labelled(TASKS["drsm"], folder)
    signatures = tmp_path / "s2and/tiny/tiny_signatures.json"
    for text, said in (
        (json.dumps({"s0-0": {"paper_id": "p0", "author_info": {}}}), "'s0-0' of task s2and must have a block"),
        ("[", "cannot be read as JSON"),
        ("[" * 10**5, "cannot be read as JSON"),
    ):
        signatures.write_text(text)
        with pytest.raises((CorruptError, InputError), match=said):
            load_authors(TASKS["s2and"], folder, Counter())


def test_stated_rules_are_counted(tmp_path: Path) -> None:
    rows = [{"paper_id": f"p{n}", "label": [] if n == 45 else [n % 3]} for n in range(40, 60)]
    judgements = (("q0", 10, 1), ("q1", 12, 1), ("q0", 11, 0), ("q0", 11, 2))
    twice = [{"query_id": query, "cand_id": f"p{paper}", "score": score} for query, paper, score in judgements]
    parts = {JUDGED.format("fos", "train"): rows[:12], LABELS.format("fos"): rows}
    folder = Folder(write(tmp_path, changes={**parts, LABELS.format("trec_covid"): twice}))
    assert load_labelled(TASKS["fos"], folder).counts["papers_without_label"] == 2
    judged = load_judged(TASKS["trec_covid"], folder)
    assert judged.keys.counts["judgements_repeated"] == 1
    expected = [("q0", "p10", 1), ("q0", "p11", 0), ("q1", "p12", 1)]  # the first of two counts
    assert judged.pairs.rows() == expected  # each query's together


def test_ids_without_a_text_are_left_out_and_counted(tmp_path: Path) -> None:
    labels = [{"paper_id": paper, "label": paper[-1]} for paper in ("p40", "p41", "p999", "p42")]
    pairs = [("q0", "p10", 1), ("q0", "p999", 1), ("q9", "p10", 1), ("q1", "q0", 1)]
    judged = [dict(zip(("query_id", "cand_id", "score"), pair, strict=True)) for pair in pairs]
    papers = [dict(zip(("query_id", "cand_id", "score"), pair, strict=True)) for pair in [*pairs, ("p1", "p2", 1)]]
    changes = {LABELS.format("drsm"): labels, LABELS.format("trec_covid"): judged}
    folder = Folder(write(tmp_path, changes={**changes, LABELS.format("scidocs_cite"): papers}))
    drsm = load_labelled(TASKS["drsm"], folder)
    assert (drsm.counts["labels_without_text"], drsm.counts["test"], len(drsm.test_labels)) == (1, 3, 3)
    for name, left_out, kept in (("trec_covid", 3, ("q0", "p10", 1)), ("scidocs_cite", 4, ("p1", "p2", 1))):
        found = load_judged(TASKS[name], folder)
        assert found.pairs.rows() == [kept]
        assert (found.keys.counts["judgements_without_text"], found.keys.counts["judgements"]) == (left_out, 1)


def test_a_task_of_one_item_has_no_interval() -> None:
    figures = pl.DataFrame({"figure": ["ndcg"], "value": [0.5], "items": [1], "draws": [[0.5, 0.5]]})
    assert counted_figures(TASKS["trec_covid"], figures).select("low", "high").row(0) == (None, None)
