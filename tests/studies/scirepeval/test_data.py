"""The table of tasks, the published layouts, and files that are bad."""

from __future__ import annotations

import csv
import dataclasses
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import AutoTokenizer

from pipeline.core.errors import InputError
from pipeline.corpus.reader import Text
from pipeline.encode.registry import resolve
from pipeline.encode.spec import TransformerSpec
from pipeline.encode.tokenise import TextTokeniser, render
from pipeline.studies.scirepeval import authors
from pipeline.studies.scirepeval.data import load_judged, load_labelled, queries
from pipeline.studies.scirepeval.layout import Folder, document, read_doc
from pipeline.studies.scirepeval.outcomes import GROUPS, average, difference, outcomes
from pipeline.studies.scirepeval.scoring import Settings, score
from pipeline.studies.scirepeval.steps import alone, encoders, multi_format
from pipeline.studies.scirepeval.tasks import FORMATS, Entry, choose, entries
from tests.encode.tiny import save_bert
from tests.shared import SHARED, real
from tests.studies.scirepeval.published import CONFIGURATIONS, JUDGED, PAPERS, TEXTS, TRAIN, paper, write

TASKS = entries()


def _figures(entry: Entry, value: float) -> list[Any]:
    draws = np.full(10, value)
    names = entry.measures if entry.kind in ("proximity", "search", "triplets") else ("a", "b")
    return outcomes(entry, [(name, value, draws, 9) for name in names])


def test_the_table_has_the_tasks_of_the_paper() -> None:
    editions = Counter(edition for entry in TASKS.values() for edition in entry.editions)
    assert editions == {24: 24, 25: 25}
    of_paper = {name: entry for name, entry in TASKS.items() if 24 in entry.editions}
    assert sum(entry.in_train for entry in of_paper.values()) == 8
    found = [each for entry in of_paper.values() for each in _figures(entry, 0.5 + entry.in_train / 4)]
    means = [average(found, group) for group in GROUPS]
    assert [mean and mean.figures for mean in means] == [7, 20, 27]
    assert means[2] is not None
    assert means[2].value == pytest.approx((7 * 0.75 + 20 * 0.5) / 27)


@pytest.mark.realdata
def test_the_published_averages_are_of_7_and_20_figures() -> None:
    real("scirepeval-sample")
    with (SHARED / "reference" / "scirepeval_table2_averages.csv").open() as lines:
        for row in csv.DictReader(lines):
            mean = (7 * float(row["in_train"]) + 20 * float(row["out_of_train"])) / 27
            assert mean == pytest.approx(float(row["average"]), abs=0.1 + 1e-9), row["model"]  # rounded figures


def test_two_systems_are_compared_over_figures() -> None:
    chosen = {name: TASKS[name] for name in ("mesh", "search", "scidocs_cite", "cite_prediction")}
    first, second = ([each for e in chosen.values() for each in _figures(e, value)] for value in (0.7, 0.5))
    mean, p, better = difference(first, second, 13)
    assert (mean.figures, better) == (4, 4)  # citation prediction is not averaged
    assert mean.value == pytest.approx(0.2)
    assert p == 2 / 2**4
    with pytest.raises(InputError, match="same tasks"):
        difference(first, second[:2], 13)


def test_formats_name_encoders_and_unknown_names_are_refused() -> None:
    from pipeline.encode.registry import names, part_names, published

    for row in multi_format().values():
        assert {part for each in FORMATS for part in part_names(row[each])} <= set(names())
    assert set(encoders("lsa")) == set(FORMATS)
    codes = multi_format()["specter2_mtl_ctrl"]
    printed = [published(codes[name])["scirepeval-codes.in-train-search"] for name in (*FORMATS[:3], "query")]
    assert printed == [73.4, 72.6, 76.1, 78.5]
    with pytest.raises(InputError, match="'serch'.*'search'"):
        choose(["serch"])


@pytest.mark.parametrize("hub", [True, False])
def test_published_layouts_are_read(tmp_path: Path, hub: bool) -> None:
    folder = Folder(write(tmp_path, tuple(CONFIGURATIONS), hub=hub))
    whole = [entry for entry in TASKS.values() if folder.state(entry) == "whole"]
    assert {entry.name for entry in whole} == {name for name in TASKS if 24 in TASKS[name].editions} - {
        "cite_prediction"
    }
    for entry in whole:
        figures, _ = score(
            dataclasses.replace(entry, few_shot=()),
            folder,
            lambda keys, _: np.random.default_rng(len(keys)).normal(size=(len(keys), 4)).astype(np.float32),
            Settings(1, 5, 1),
        )
        assert all(0 <= abs(figure.value) <= 1 for figure in figures)
    for name, classes in (("drsm", 3), ("biomimicry", 2), ("fos", 5)):  # fos: three topics, and even or not
        data = load_labelled(TASKS[name], folder)
        assert (len(data.train.keys), len(data.test.keys)) == (TRAIN, PAPERS - TRAIN)
        assert len({label for each in data.train.values for label in each}) == min(classes, 4)
    assert queries(TASKS["trec_covid"], folder) == {
        f"q{n}": f"{t} study" for n, t in enumerate(("enzyme", "galaxy", "lattice"))
    }
    judged = load_judged(TASKS["reviewers"], folder)
    assert judged.groups["r0"] == ["p10", "p13", "p16", "p19"]
    assert judged.counts["papers"] == PAPERS
    assert [list(grades["p0"].values()) for grades in (judged.grades, judged.soft)] == [
        [1, 0, 0, 1, 0, 0],
        [1, 0, 1, 1, 0, 1],
    ]


@pytest.mark.realdata
def test_tasks_are_those_of_the_published_configuration() -> None:
    of_texts = {entry.meta: entry for entry in TASKS.values() if entry.in_train}
    for row in document(real("scirepeval-sample") / "tasks_config.json.gz"):
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
    spec = TransformerSpec("org/model", "abc", template="fields-sep", paper_prefix="[PRX] ")
    for changes, expected in (
        ({}, "T [SEP] A [SEP] Journal [SEP] 1964"),
        ({"abstract": None}, "T [SEP] Journal [SEP] 1964"),
        ({"title": "", "year": None}, "A [SEP] Journal"),
        ({"abstract": "", "venue": "", "year": float("nan")}, "T"),
        ({"title": "", "abstract": None, "venue": "", "year": None}, ""),
    ):
        doc = read_doc(row | changes, TASKS["search"].fields, "search")
        assert render(Text(doc.title, doc.abstract), "paper", spec, "[SEP]") == f"[PRX] {expected}"


def test_every_transformer_reads_the_published_text(tmp_path: Path) -> None:
    bert = save_bert(tmp_path / "bert")
    (mean,) = set(encoders(f"mean({bert}:compute=float16,{bert})").values())
    models = [encoders(str(bert))["search"], alone(str(bert))["search"], *mean.parts]
    assert [model.spec.template for model in models] == ["fields-sep"] * 4  # type: ignore[attr-defined]
    assert resolve(models[0].name).spec == models[0].spec != resolve(str(bert)).spec
    (own,) = set(encoders(f"{bert}:template=title-space-abstract").values())
    assert own.spec.template == "title-space-abstract"  # type: ignore[attr-defined]
    tokenizer = AutoTokenizer.from_pretrained(bert)
    tokens = TextTokeniser(models[0].spec, tokenizer)([Text("w1", ""), Text("", "w2")], "paper").ids  # type: ignore[arg-type]
    assert tokenizer.batch_decode(tokens) == ["[CLS] w1 [SEP]", "[CLS] w2 [SEP]"]


LABELS = JUDGED.format("{}", "test")


@pytest.mark.parametrize(
    ("task", "file", "rows", "said"),
    [
        ("cite_count", LABELS, [{"paper_id": "p42", "label": None}], "paper 'p42' of task cite_count must be a number"),
        ("cite_count", LABELS, [{"paper_id": "p42", "label": "NaN"}], "p42.*cite_count.*got 'NaN'"),
        ("cite_count", LABELS, [{"paper_id": "p42", "label": "1_0"}], "p42.*cite_count.*got '1_0'"),
        ("drsm", LABELS, [{"paper_id": "p42", "label": ["a"]}], "'p42' of task drsm must be given"),
        ("fos", LABELS, [{"paper_id": "p42", "label": "[" * 10**5}], "'p42' of task fos must be given"),
        ("drsm", LABELS, [{"paper_id": "p999", "label": "a"}], "'p999' of task drsm must have a text"),
        ("drsm", LABELS, [{"paper_id": "p42", "label": None}], "'p42' of task drsm must be given"),
        ("drsm", LABELS, [{"id": "p42", "label": "a"}], "must have a column 'paper_id', got id, label"),
        (
            "fos",
            "scirepeval_test/{}/test-00000-of-00001.parquet",
            [{"id": "p42", "label": [1]}],
            "must have a column 'paper_id', got id, label",
        ),
        ("trec_covid", LABELS, [{"query_id": "q9", "cand_id": "p10", "score": 1}], "'q9' of task trec_covid"),
        (
            "trec_covid",
            LABELS,
            [{"query_id": "q0", "cand_id": "p10", "score": 0.5}],
            "grade of query 'q0'",
        ),
        ("trec_covid", LABELS, [{"query_id": "q0", "cand_id": "p59", "score": 1}], "'p59' of task trec_covid"),
        ("trec_covid", LABELS, [{"query_id": "q0", "cand_id": "p10", "score": 0}], "must have a query with a positive"),
        (
            "biomimicry",
            TEXTS.format("{}", "evaluation"),
            [{"title": "no id"}],
            "paper of task biomimicry must have one",
        ),
    ],
)
def test_bad_rows_name_the_task_and_the_id(tmp_path: Path, task: str, file: str, rows: list[Any], said: str) -> None:
    folder = Folder(write(tmp_path, changes={file.format(task): rows}))
    with pytest.raises(InputError, match=said):
        score(TASKS[task], folder, lambda keys, _: np.ones((len(keys), 2), np.float32), Settings(1, 10, 1))


def test_unreadable_files_are_refused(tmp_path: Path) -> None:
    folder = Folder(write(tmp_path, hub=False))
    (tmp_path / "scirepeval_test/scidocs_cite/test_qrel.jsonl").write_text('{"query_id": "p1", "sco')
    with pytest.raises(InputError, match="must be a readable row"):
        load_judged(TASKS["scidocs_cite"], folder)
    signatures = tmp_path / "s2and/tiny/tiny_signatures.json"
    signatures.write_text(json.dumps({"s0-0": {"paper_id": "p0", "author_info": {}}}))
    with pytest.raises(InputError, match="'s0-0' of task s2and must have a block"):
        authors.load(TASKS["s2and"], folder, Counter())
    for text in ("[", "[" * 10**5):
        signatures.write_text(text)
        with pytest.raises(InputError, match="cannot be read as JSON"):
            authors.load(TASKS["s2and"], folder, Counter())


def test_stated_rules_are_counted(tmp_path: Path) -> None:
    rows = [{"paper_id": f"p{n}", "label": [] if n == 45 else [n % 3]} for n in range(40, 60)]
    twice = [{"query_id": "q0", "cand_id": f"p{c}", "score": s} for c, s in ((10, 1), (11, 0), (11, 2))]
    parts = {JUDGED.format("fos", "train"): rows[:12], LABELS.format("fos"): rows}
    folder = Folder(write(tmp_path, changes={**parts, LABELS.format("trec_covid"): twice}))
    data = load_labelled(TASKS["fos"], folder)
    assert data.counts["papers_without_label"] == 2
    judged = load_judged(TASKS["trec_covid"], folder)
    assert judged.counts["judgements_repeated"] == 1
    assert judged.grades == {"q0": {"p10": 1, "p11": 0}}  # the first of two counts
    figures, _ = score(
        TASKS["trec_covid"], folder, lambda keys, _: np.eye(len(keys), 3, dtype=np.float32), Settings(1, 9, 1)
    )
    (one,) = outcomes(TASKS["trec_covid"], figures)
    assert one.interval is None  # one query
