"""Tasks of MTEB from local copies: what we read and score against the package itself. All tests that import it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pipeline.api as mdcr_api
from tests.cli.run import mdcr, mdcr_json, one_line_error
from tests.releases import write_lines

DOCUMENTS, DIMENSION = 60, 6
QUERIES = [*(f"q{number}" for number in range(8)), "d07"]
"""One has the id of a document."""

MEASURES = {"ndcg@10": "ndcg_at_10", "map@1000": "map_at_1000", "recall@100": "recall_at_100", "mrr@10": "mrr_at_10"}

INSTRUCTION = "Given a scientific paper title, retrieve paper abstracts that are cited by the given paper"
"""Of SCIDOCS."""

Tables = Mapping[str, Sequence[Mapping[str, Any]]]


@pytest.fixture(autouse=True)
def datasets_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")


def write_task(folder: Path, tables: Tables, split: str = "test") -> Path:
    """Write the tables of a data set by configuration, and its card, as they are on the hub."""
    configurations = []
    for name, rows in tables.items():
        path = folder / name / f"{split}-00000-of-00001.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(list(rows)), path)
        files = f"[{{split: {split}, path: {path.relative_to(folder)}}}]"
        configurations.append(f"- config_name: {name}\n  data_files: {files}\n")
    (folder / "README.md").write_text(f"---\nconfigs:\n{''.join(configurations)}---\n")
    return folder


def drawn(*, lists: bool = False, instructions: bool = False, seed: int = 3) -> dict[str, list[dict[str, Any]]]:
    """Return a task with graded judgements; every tenth document is the copy of another."""
    chance = np.random.default_rng(seed)
    documents = [f"d{number:02}" for number in range(DOCUMENTS)]
    judged = {query: chance.choice(DOCUMENTS, 6, replace=False) for query in QUERIES}
    listed = {query: {*papers[:4], *chance.choice(DOCUMENTS, 20)} for query, papers in judged.items()}
    tables: dict[str, list[dict[str, Any]]] = {
        "corpus": [{"_id": name, "title": f"Title {name}", "text": f"Text of {name}."} for name in documents],
        "queries": [{"_id": query, "text": f"asks {query}"} for query in [*QUERIES, "unjudged"]],
        "default": [
            {"query-id": query, "corpus-id": documents[paper], "score": grade}
            for query, papers in judged.items()
            for paper, grade in zip(papers, (2, 1, 1, 0, 0, 1), strict=True)
        ],
    }
    if lists:
        rows = [{"query-id": query, "corpus-ids": [documents[i] for i in papers]} for query, papers in listed.items()]
        tables["top_ranked"] = rows
    if instructions:
        tables["instruction"] = [{"query-id": query, "instruction": f"Only {query}."} for query in QUERIES]
    return tables


def write_vectors(folder: Path) -> dict[str, np.ndarray]:
    """Write vectors of documents and of queries, and return them by id of paper or ``asks ID``; copies are equal."""
    chance = np.random.default_rng(9)
    documents = chance.normal(size=(DOCUMENTS, DIMENSION)).astype(np.float32)
    documents[9::10] = documents[8::10]
    asked = chance.normal(size=(len(QUERIES), DIMENSION)).astype(np.float32)
    asked[-1] = documents[7]
    ids = [f"d{number:02}" for number in range(DOCUMENTS)]
    for name, names, vectors in (("documents", ids, documents), ("queries", QUERIES, asked)):
        pq.write_table(pa.table({"id": names, "vector": vectors.tolist()}), folder / f"{name}.parquet")
    return {**dict(zip(ids, documents, strict=True)), **{f"asks {q}": v for q, v in zip(QUERIES, asked, strict=True)}}


def encoder_of(vectors: Mapping[str, np.ndarray]) -> Any:
    """Return a model of mteb that gives each text its vector."""
    from mteb.models.abs_encoder import AbsEncoder

    class Encoder(AbsEncoder):
        mteb_model_meta = None

        def encode(self, inputs: Any, **settings: Any) -> np.ndarray:
            texts = [text for batch in inputs for text in batch["text"]]
            return np.stack([vectors[text if text[:4] == "asks" else text.split()[1]] for text in texts])

    return Encoder()


def by_mteb(name: str, folder: Path, model: Any, **settings: Any) -> dict[str, float]:
    """Return what ``mteb.evaluate`` measures of a model on a local copy of a task."""
    import mteb

    task = mteb.get_task(name)
    place = {**task.metadata.dataset, "path": str(folder)}
    task.metadata = task.metadata.model_copy(update={"dataset": place})
    (result,) = mteb.evaluate(model, task, cache=None, show_progress_bar=False, **settings).task_results
    (scores,) = result.scores["test"]
    return {ours: scores[theirs] for ours, theirs in MEASURES.items()}


def ours(root: Path, corpus: str, system: str, **settings: Any) -> dict[str, float]:
    workspace = mdcr_api.open(root)
    pool = workspace.pool(corpus, **settings)
    frame = workspace.evaluate(pool, system, depth=1000, measures=",".join(MEASURES))
    means = frame.group_by("measure").agg(pl.col("value").mean()).rows()
    return {measure: value for measure, value in means if measure in MEASURES}


def close(values: Mapping[str, float]) -> Any:
    return pytest.approx(values, abs=5e-5)  # the package rounds to five digits


@pytest.mark.parametrize(("task", "kept"), [("SCIDOCS", True), ("ArguAna", False), ("SciDocsRR", True)])
def test_scores_are_those_of_mteb(tmp_path: Path, task: str, kept: bool) -> None:
    """Of a task that ranks all documents, one that ignores the query's own id, and one that reranks lists."""

    lists = task == "SciDocsRR"
    folder = write_task(tmp_path / "data" / task, drawn(lists=lists))
    theirs = by_mteb(task, folder, encoder_of(write_vectors(tmp_path)))
    made = mdcr_json(tmp_path, "corpus", "--source", "mteb", "--task", task, "--input", str(tmp_path / "data"))
    system = f"vectors:{tmp_path}/documents.parquet:queries={tmp_path}/queries.parquet,distance=cosine"
    assert ours(tmp_path, made["corpus"], system) == close(theirs)
    if not lists:  # the query d07 has the vector of the document d07
        assert ours(tmp_path, made["corpus"], system, drop_identical_id=kept) != close(theirs)


@pytest.mark.parametrize(("task", "ignored"), [("SCIDOCS", 0), ("ArguAna", 1)])
def test_the_folder_of_beir_gives_the_pool_of_mteb(tmp_path: Path, task: str, ignored: int) -> None:
    """The query d07 has the id of a document, which one of the two protocols ignores."""
    tables = drawn()
    write_task(tmp_path / "data" / task, tables)
    folder = tmp_path / "beir" / task.lower()
    for name in ("corpus", "queries"):
        write_lines(folder / f"{name}.jsonl", tables[name])
    (folder / "qrels").mkdir()
    rows = ["\t".join(map(str, row.values())) for row in tables["default"]]
    (folder / "qrels" / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *rows]) + "\n")
    workspace, pools = mdcr_api.open(tmp_path), []
    for name, options in (("mteb", {"task": task, "input": tmp_path / "data"}), ("beir", {"input": folder})):
        workspace.build(name, corpus=name, **options)
        pool = workspace.pool(name).pool
        files = pool.artifact.path.glob("*.arrow")
        pools.append({path.name: pa.ipc.open_file(path).read_all().to_pylist() for path in files})
        assert pool.artifact.manifest.counts["excluded_self"] == ignored
    assert pools[0] == pools[1]
    assert len(pools[0]) > 2


def test_subsets_splits_and_instructions(tmp_path: Path) -> None:
    tables = {
        name if name != "default" else "qrels": rows for name, rows in drawn(lists=True, instructions=True).items()
    }
    write_task(tmp_path / "copy", {f"en-{name}": rows for name, rows in tables.items()}, "dev")
    command = ["corpus", "--source", "mteb", "--task", "MIRACLReranking", "--input", str(tmp_path / "copy")]
    assert "--subset must be one of MIRACLReranking" in one_line_error(mdcr(tmp_path, *command))
    command += ["--subset", "en"]
    assert "no judgements of split 'test'" in one_line_error(mdcr(tmp_path, *command, "--judged", "test"))
    made = mdcr_json(tmp_path, *command, "--corpus", "miracl")
    corpus = mdcr_api.open(tmp_path).corpus("miracl")
    assert made["counts"]["queries"] == len(QUERIES)
    texts = dict(zip(*corpus.query_texts.to_pydict().values(), strict=True))
    assert texts == {query: f"asks {query} Only {query}." for query in QUERIES}
    listed = {row["query-id"]: set(row["corpus-ids"]) for row in tables["top_ranked"]}
    pool = mdcr_api.open(tmp_path).pool("miracl").pool
    for number, query in enumerate(pool.query_ids()):
        assert not listed[query] & {*corpus.ids(pool.excluded(number))}
        assert len(pool.excluded(number)) == DOCUMENTS - len(listed[query])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--task SCIDOC", "has no task 'SCIDOC'"),
        ("--task STS12", "STS12 must retrieve or rerank texts"),
        ("--task SCIDOCS --judged dev", "SCIDOCS has no judgements of split 'dev'"),
        ("--judged test", "source mteb must have a task"),
        (
            "--task SciFact",
            "holds no data of SciFact. Fetch it: hf download mteb/scifact --repo-type dataset --rev",
        ),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, options: str, said: str) -> None:
    (tmp_path / "data" / "SciFact").mkdir(parents=True)
    write_task(tmp_path / "data" / "SCIDOCS", drawn())
    command = ["corpus", "--source", "mteb", "--input", str(tmp_path / "data"), *options.split()]
    assert said in one_line_error(mdcr(tmp_path, *command))


def test_predictions_of_mteb_are_audited_as_runs_of_their_model(tmp_path: Path) -> None:
    import mteb

    folder = write_task(tmp_path / "data" / "SCIDOCS", drawn())
    vectors = write_vectors(tmp_path)
    chance, theirs = np.random.default_rng(1), {}
    for name in ("org/exact", "org/noisy"):
        noise = {text: 0.5 * chance.normal(size=DIMENSION) * (name == "org/noisy") for text in vectors}
        encoder = encoder_of({text: vector + noise[text] for text, vector in vectors.items()})
        encoder.mteb_model_meta = mteb.models.ModelMeta.create_empty({"name": name, "revision": "main"})
        predictions = tmp_path / "predictions" / name
        theirs[name] = by_mteb("SCIDOCS", folder, encoder, prediction_folder=predictions)["ndcg@10"]
    command = ["audit", str(tmp_path / "predictions"), "--metric", "ndcg@10"]
    assert "Give --qrels=FILE" in one_line_error(mdcr(tmp_path, *command))
    judged = pl.read_parquet(folder / "default" / "*.parquet")
    judged.write_csv(tmp_path / "qrels.tsv", separator="\t")
    board = mdcr_json(tmp_path, *command, "--qrels", str(tmp_path / "qrels.tsv"))["tables"]["board"]
    assert {row["system"]: row["mean"] for row in board} == close(theirs)
