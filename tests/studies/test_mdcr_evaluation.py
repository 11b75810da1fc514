"""Systems and score files on a benchmark in the published layout, against pytrec_eval and plain definitions."""

from __future__ import annotations

import json
import os
import runpy
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import pytrec_eval

import pipeline as interface
from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError
from pipeline.core.schema import RANKING
from pipeline.core.task import Task
from pipeline.corpus.pool import Pool
from pipeline.corpus.reader import Corpus
from pipeline.measure.inputs import pairs
from pipeline.stages.bm25 import bm25_ranking_task, terms_tasks
from pipeline.stages.search import read_ranking
from pipeline.stages.systems import parse_systems
from pipeline.studies.mdcr.evaluation import benchmark_pools, complete_task, opened, rank
from pipeline.studies.mdcr.layout import TRUE, candidates_of, read_lists, write_paper
from pipeline.studies.mdcr.lists import Lists
from tests.builders import made_up_paper, make_corpus, make_pool
from tests.cli.run import flags, mdcr, mdcr_json, one_line_error

MEASURES = {"map": "map", "ndcg": "ndcg", "recall_5": "recall@5"}
TYPES = ("bm25", "graph", "random")
Content = dict[str, dict[str, dict[str, list[str]]]]


def random_lists(seed: int) -> Content:
    """Return lists of two fields that share a query; some candidates stand twice, once as positive."""
    chance = np.random.default_rng(seed)
    ids = [f"{number:05d}" for number in range(60)]

    def query(name: str) -> dict[str, list[str]]:
        others = chance.permutation([each for each in ids if each != name]).tolist()
        found = {each: others[start : start + 6] for each, start in zip(TYPES, (0, 6, 12), strict=True)}
        return found | {TRUE: others[17 : 17 + chance.integers(1, 6)]}  # the first may be of type random too

    return {field: {name: query(name) for name in names} for field, names in (("Art", ids[:6]), ("Physics", ids[4:9]))}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a benchmark with a test split."""
    folder = tmp_path_factory.mktemp("published")
    (folder / "mdcr_test.json").write_text(json.dumps(random_lists(1)))
    papers = [made_up_paper(number) for number in range(60)]
    papers[17] |= {"title": "Zebra", "abstract": ""}  # shares no term with any query
    lines = (write_paper(each["paper_id"], each["title"], each["abstract"]) for each in papers)
    (folder / "mdcr_test_data.jsonl").write_text("".join(lines))
    return folder


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("workspace")


def by_pytrec_eval(lists: Content, scores: dict[str, float]) -> dict[str, dict[str, float]]:
    """Return the measures of each field and their mean, as the authors' evaluation computes them."""
    found: dict[str, dict[str, float]] = {}
    for field, queries in lists.items():
        qrels = {q: {c: int(c in by_type[TRUE]) for c in candidates_of(by_type)} for q, by_type in queries.items()}
        run = {q: {c: float(scores[f"{q}_{c}"]) for c in judged} for q, judged in qrels.items()}
        each = pytrec_eval.RelevanceEvaluator(qrels, {"map", "ndcg", "recall_5"}).evaluate(run).values()
        found[field] = {ours: float(np.mean([e[theirs] for e in each])) for theirs, ours in MEASURES.items()}
    found["AVG"] = {name: float(np.mean([found[field][name] for field in lists])) for name in MEASURES.values()}
    return found


def agrees(rows: list[dict[str, Any]], expected: dict[str, dict[str, float]]) -> None:
    assert [row["field"] for row in rows] == list(expected)
    for row in rows:
        for name, value in expected[row["field"]].items():
            assert row[name] == pytest.approx(value, abs=5e-7)


@pytest.mark.parametrize("seed", range(6))
def test_score_files_score_as_trec_eval(workspace: Path, tmp_path: Path, seed: int) -> None:
    lists = random_lists(seed)
    chance = np.random.default_rng(seed)
    (tmp_path / "mdcr_val.json").write_text(json.dumps(lists))
    keys = {f"{q}_{c}" for queries in lists.values() for q, by_type in queries.items() for c in candidates_of(by_type)}
    drawn = [1.0, 1.0 + 1e-12, 2, -3.5, 1e30] if seed % 2 else chance.normal(size=40)
    scores = {key: float(value) for key, value in zip(sorted(keys), chance.choice(drawn, len(keys)), strict=True)}
    (tmp_path / "scores.json").write_text(json.dumps(scores))
    arguments = flags(f"score --benchmark {tmp_path} --split val --scores {tmp_path / 'scores.json'}")
    agrees(mdcr_json(workspace, *arguments)["scores"], by_pytrec_eval(lists, scores))
    table = mdcr(workspace, *arguments).stdout
    assert f"{100 * by_pytrec_eval(lists, scores)['AVG']['ndcg']:.4f}" in table


@pytest.mark.parametrize("system", ["bm25", "lsa", "rrf(bm25,lsa)"])
def test_systems_agree_with_their_score_file(workspace: Path, folder: Path, tmp_path: Path, system: str) -> None:
    file = tmp_path / "scores.json"
    index = "field" if system.startswith("rrf") else "corpus"
    command = flags(f"eval --benchmark {folder} --model {system} --export-scores {file} --bm25-index {index}")
    result = mdcr(workspace, *command)
    assert ("pairs have another score in each field" in result.stderr) == (index == "field")
    evaluated = mdcr_json(workspace, *command)
    scores = json.loads(file.read_text())
    expected = by_pytrec_eval(read_lists(folder, "test"), scores)  # type: ignore[arg-type]
    agrees(mdcr_json(workspace, *flags(f"score --benchmark {folder} --scores {file}"))["scores"], expected)
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for row in evaluated["tables"]["fields"]:
        found[row["field"]][row["measure"]] = row["value"]
    if index == "corpus":  # the score of a pair is the same in both fields
        for field, values in expected.items():
            assert found[field] == pytest.approx(values, abs=5e-7)
    assert {row["type"] for row in evaluated["tables"]["types"]} == set(TYPES)


def write_split(folder: Path, split: str, lists: Content, first: int) -> Content:
    """Write a split whose papers are numbered from ``first``, and return its lists."""

    def moved(paper: str) -> str:
        return f"{int(paper) + first:05d}"

    own = {
        field: {moved(q): {t: list(map(moved, ids)) for t, ids in each.items()} for q, each in queries.items()}
        for field, queries in lists.items()
    }
    (folder / f"mdcr_{split}.json").write_text(json.dumps(own))
    papers = map(made_up_paper, range(first, first + 60))
    lines = (write_paper(each["paper_id"], each["title"], each["abstract"]) for each in papers)
    (folder / f"mdcr_{split}_data.jsonl").write_text("".join(lines))
    return own


def test_weights_of_a_sum_are_those_of_the_validation_split(workspace: Path, tmp_path: Path) -> None:
    """The best tenths on ``val``, by pytrec_eval on sums of scaled scores, give the figures of ``test``."""
    folder, name = tmp_path / "both", "wsum(bm25,lsa)"
    folder.mkdir()
    test = write_split(folder, "test", random_lists(1), 0)
    command = flags(f"eval --benchmark {folder} --model {name}")
    assert f"{name} has its weights from split val, got no mdcr_val.json" in one_line_error(mdcr(workspace, *command))
    val = write_split(folder, "val", random_lists(5), 100)
    assert f"{name} has its weights from split val" in one_line_error(mdcr(workspace, *command, "--split", "val"))
    scaled: dict[tuple[str, str], dict[str, float]] = {}
    for split, lists in (("val", val), ("test", test)):
        for system in ("bm25", "lsa"):
            file = tmp_path / "scores.json"
            mdcr_json(
                workspace, *flags(f"eval --benchmark {folder} --split {split} --model {system} --export-scores {file}")
            )
            scores = json.loads(file.read_text())
            for queries in lists.values():
                for query, by_type in queries.items():
                    own = {f"{query}_{each}": scores[f"{query}_{each}"] for each in candidates_of(by_type)}
                    least, spread = min(own.values()), max(own.values()) - min(own.values())
                    scaled.setdefault((split, system), {}).update({k: (v - least) / spread for k, v in own.items()})

    def precision(split: str, lists: Content, weight: float) -> float:
        one, other = scaled[split, "bm25"], scaled[split, "lsa"]
        return by_pytrec_eval(lists, {k: weight * one[k] + (1 - weight) * other[k] for k in one})["AVG"]["map"]

    result = mdcr(workspace, *command)
    found = {
        row["field"]: row["value"]
        for row in mdcr_json(workspace, *command)["tables"]["fields"]
        if row["measure"] == "map"
    }
    for field in ("Art", "Physics"):
        grid = [precision("val", {field: val[field]}, n / 10) for n in range(11)]
        best = int(np.argmax(grid)) / 10
        assert found[field] == pytest.approx(precision("test", {field: test[field]}, best), abs=5e-7)
        assert f"{best:g} bm25, {1 - best:g} lsa ({field})" in " ".join(result.stdout.split())
    write_split(folder, "val", random_lists(5), 0)
    assert "00000 of Art" in one_line_error(mdcr(workspace, *command))


def corpus_of(workspace: Path) -> Artifact:
    (folder,) = (workspace / "corpora").glob("published*-test-*")
    return Artifact.open(folder)


def test_types_are_measured_alone(workspace: Path, folder: Path) -> None:
    """The restriction to a type equals trec_eval on lists of the positives and that type."""
    here = interface.open(workspace)
    mdcr_json(workspace, *flags(f"eval --benchmark {folder} --model bm25,lsa"))
    corpus, lists = corpus_of(workspace), read_lists(folder, "test")
    for ranked in rank(here, corpus, benchmark_pools(corpus, "test", lists), "bm25,lsa", "field"):
        own, ranking = opened(here, corpus, ranked)
        names, papers = own.pool.query_ids(), own.pool.corpus.ids(ranking.row)
        scores = {
            f"{names[q]}_{c}": s for q, c, s in zip(ranking.query.tolist(), papers, ranking.score.tolist(), strict=True)
        }
        for name in TYPES:
            part = {
                q: {t: ids for t, ids in each.items() if t in (name, TRUE)} for q, each in lists[ranked.field].items()
            }
            expected = by_pytrec_eval({ranked.field: part}, scores)["AVG"]
            values = own.values(ranking, tuple(MEASURES.values()), {name}).mean(axis=1)
            assert values == pytest.approx(list(expected.values()), abs=5e-7)


@pytest.mark.parametrize("index", ["query", "corpus"])
def test_bm25_with_another_index(workspace: Path, folder: Path, index: str) -> None:
    """It ranks as a pool of the list alone, or of all lists; candidates without a shared term are last."""
    here = interface.open(workspace)
    mdcr_json(workspace, *flags(f"eval --benchmark {folder} --model bm25 --bm25-index {index}"))
    corpus, lists = corpus_of(workspace), read_lists(folder, "test")
    reader = Corpus(corpus)
    (zebra,) = reader.rows_of(["00017"])
    lasts = 0
    for ranked in rank(here, corpus, benchmark_pools(corpus, "test", lists), "bm25", index):
        own, ranking = opened(here, corpus, ranked)
        for number, query in enumerate(own.pool.query_ids()):
            listed = candidates_of(lists[ranked.field][query])
            every = {
                each for queries in lists.values() for by_type in queries.values() for each in candidates_of(by_type)
            }
            among = sorted(listed if index == "query" else every)
            alone = make_pool(
                workspace, corpus, [query], among, qrels=[], slug="alone", field="Art", sample=1, split="test"
            )
            task = bm25_ranking_task(corpus, alone, terms_tasks(corpus, alone), k1=0.9, b=0.4, depth=100)
            expected = read_ranking(here.runner.make(task))
            own_rows, mine = reader.rows_of(sorted(listed)), ranking.query == number
            kept = np.isin(expected.row, own_rows)
            assert ranking.row[mine][: kept.sum()].tolist() == expected.row[kept].tolist()
            assert ranking.score[mine][: kept.sum()].tolist() == expected.score[kept].tolist()
            rest = ranking.row[mine][kept.sum() :].tolist()
            assert rest == sorted(rest, reverse=True)
            assert set(ranking.row[mine].tolist()) == set(own_rows.tolist())
            lasts += int(zebra) in rest
    assert lasts


@pytest.mark.parametrize(
    ("name", "fails"), [("bm25", False), ("rrf(bm25,bm25:k1=2,b=1)", False), ("lsa", True), ("rrf(bm25,lsa)", True)]
)
def test_a_pair_without_a_score(tmp_path: Path, name: str, fails: bool) -> None:
    corpus = make_corpus(tmp_path, 60)
    (pool,) = benchmark_pools(corpus, "test", {"Art": random_lists(3)["Art"]})
    here = interface.open(tmp_path)
    lists = Lists(Pool(here.runner.make(pool), Corpus(corpus)))
    kept = lists.pairs()[:-1]

    def write(_inputs: Any, out: Any, _resources: Any) -> dict[str, Any]:
        query, row = (kept >> np.uint64(32)).astype(np.uint32), kept.astype(np.uint32)
        rank = np.arange(len(kept)) - np.searchsorted(query, query) + 1
        out.arrow(
            "ranking.arrow",
            pa.table([query, row, 1 / rank.astype(np.float32), rank.astype(np.uint16)], RANKING),
            RANKING,
        )
        return {}

    ranking = Task("search", 1, "runs/rankings", "some", {"name": name}, {"pool": pool}, write)
    (system,) = parse_systems(name)
    task = complete_task(corpus, pool, ranking, system)
    last = lists.pairs()[-1:]
    query, (paper,) = lists.pool.query_ids()[-1], lists.pool.corpus.ids(last.astype(np.uint32))
    if fails:
        with pytest.raises(InputError, match=f"query {query} and candidate {paper} of Art"):
            here.runner.make(task)
        return
    complete = read_ranking(here.runner.make(task))
    assert pairs(complete.query[-1:], complete.row[-1:]) == last
    assert complete.score[-1] == 0


PAIR = "00000_"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda scores: scores.pop(next(iter(scores))), "00000 and candidate"),
        (lambda scores: scores.update({next(iter(scores)): float("nan")}), PAIR),
        (lambda scores: scores.update({next(iter(scores)): float("inf")}), PAIR),
        (lambda scores: scores.update({next(iter(scores)): 10**400}), PAIR),
        (lambda scores: scores.update({next(iter(scores)): "0.5"}), PAIR),
        (lambda scores: scores.update({next(iter(scores)): True}), PAIR),
        (lambda scores: scores.update({next(iter(scores)): None}), PAIR),
        (lambda scores: scores.update({"00000_99999": 0.5}), "00000_99999"),
    ],
)
def test_bad_score_files_are_one_line(workspace: Path, folder: Path, tmp_path: Path, change: Any, named: str) -> None:
    lists = read_lists(folder, "test")
    scores: dict[str, Any] = {
        f"{q}_{c}": 0.5 for queries in lists.values() for q, by_type in queries.items() for c in candidates_of(by_type)
    }
    change(scores)
    (tmp_path / "scores.json").write_text(json.dumps(scores))
    line = one_line_error(mdcr(workspace, *flags(f"score --benchmark {folder} --scores {tmp_path / 'scores.json'}")))
    assert named in line


def test_a_pair_twice_in_a_score_file_is_named(workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "mdcr_test.json").write_text('{"Art": {"1": {"true": ["2"]}}}')
    (tmp_path / "scores.json").write_text('{"1_2": 0.5, "1_2": 0.25}')
    line = one_line_error(mdcr(workspace, *flags(f"score --benchmark {tmp_path} --scores {tmp_path / 'scores.json'}")))
    assert "scores.json must have each key once, got '1_2' twice" in line


@pytest.mark.parametrize("longest", [4, 5])
def test_recall_of_lists_that_fit_in_five_is_scored(
    workspace: Path, folder: Path, tmp_path: Path, longest: int
) -> None:
    """As the authors' evaluation has it, which takes such a field into the mean; a note says that it is 1."""
    lists = random_lists(1)
    for query in lists["Art"].values():
        query.update({TRUE: query[TRUE][:1], **{name: [] for name in TYPES}, "random": query["random"][: longest - 1]})
    benchmark = tmp_path / f"short{longest}"
    benchmark.mkdir()
    (benchmark / "mdcr_test.json").write_text(json.dumps(lists))
    (benchmark / "mdcr_test_data.jsonl").write_bytes((folder / "mdcr_test_data.jsonl").read_bytes())
    file = tmp_path / "scores.json"
    command = flags(f"eval --benchmark {benchmark} --model lsa:dimension=8 --export-scores {file}")
    assert mdcr(workspace, *command).returncode == 0
    expected = by_pytrec_eval(lists, json.loads(file.read_text()))
    found: dict[str, dict[str, float]] = defaultdict(dict)
    shown = mdcr(workspace, *command[:-2])
    assert "recall@5 is 1 by construction in Art" in " ".join(shown.stdout.split())
    for row in mdcr_json(workspace, *command[:-2])["tables"]["fields"]:
        found[row["field"]][row["measure"]] = row["value"]
    for field in ("Art", "Physics"):
        assert found[field] == pytest.approx(expected[field], abs=5e-7)
    assert expected["Art"]["recall@5"] == 1


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("{", "JSON"),
        ("[]", "map fields"),
        ('{"Art": []}', "Art"),
        ('{"Art": {"1": {"true": "2"}}}', "query 1 of Art"),
        ('{"Art": {"1": {"true": [], "bm25": ["2"]}}}', "query 1 of Art"),
        ('{"Art": {"1": {"true": ["2_3"]}, "1_2": {"true": ["3"]}}}', "1_2"),
        ('{"Art": {"00001": {"true": ["99999"]}}}', "99999"),
        ('{"Art": {"1": {"true": ["2", "1"]}}}', "query 1 of Art has itself as candidate"),
        ('{"Art": {"1": {"true": ["2"]}}, "Art": {"1": {"true": ["3"]}}}', "each key once, got 'Art' twice"),
        ('{"Art": {"1": {"true": ["2"]}, "1": {"true": ["3"]}}}', "got '1' of 'Art' twice"),
        ('{"Art": {"1": {"true": ["2"], "true": ["3"]}}}', "got 'true' of 'Art', '1' twice"),
        ('{"Art": {"\\ud800": {"true": ["2"]}}}', "must be a JSON file"),
        (
            '{"Art": ' + "[" * 600 + '{"1": 2, "1": 3}' + "]" * 600 + "}",
            "must have each key once, got '1' of 'Art', '0'",
        ),
    ],
)
def test_bad_layouts_are_one_line(workspace: Path, folder: Path, tmp_path: Path, content: str, named: str) -> None:
    (tmp_path / "mdcr_test.json").write_text(content)
    (tmp_path / "mdcr_test_data.jsonl").write_bytes((folder / "mdcr_test_data.jsonl").read_bytes())
    (tmp_path / "scores.json").write_text("{}")
    how = "eval --model bm25" if "99999" in named else f"score --scores {tmp_path / 'scores.json'}"
    assert named in one_line_error(mdcr(workspace, *flags(f"{how} --benchmark {tmp_path}")))


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("eval --model bm25 --scores x.json", "--benchmark"),
        ("score", "--model"),
        ("study mdcr_eval --input FOLDER --model lsa", "baseline must be one of lsa, got 'bm25'"),
        ("eval --model bm25 --benchmark absent", "mdcr_test_data.jsonl"),
        ("eval --model bm25 --benchmark FOLDER --split dev", "dev"),
        ("eval --model bm25 --benchmark FOLDER --split val", "mdcr_val"),
        ("eval --model bm25 --benchmark FOLDER --field Art", "--field"),
        ("eval --model bm25 --benchmark FOLDER --bm25-index pool", "pool"),
        ("eval --model rrf(bm25,lsa) --benchmark FOLDER --bm25-index query", "fused"),
        ("eval --model bm25,lsa --benchmark FOLDER --export-scores x.json", "bm25, lsa"),
        ("score --model bm25 --benchmark FOLDER --scores x.json", "--model"),
    ],
)
def test_bad_commands_are_one_line(workspace: Path, folder: Path, arguments: str, named: str) -> None:
    assert named in one_line_error(mdcr(workspace, *flags(arguments.replace("FOLDER", str(folder)))))


def test_a_name_from_a_benchmark_is_never_a_path(tmp_path: Path, folder: Path) -> None:
    """Pools and exported folders of fields such as ``/../../x`` stay where those of other fields are."""
    outer = tmp_path / "outer"
    root, benchmark, beir = (outer / "one" / "two" / name for name in ("root", "benchmark", "beir"))
    root.mkdir(parents=True)
    benchmark.mkdir()
    lists = random_lists(1)
    names = ["/../../../../x", "..", "\n\u202e" + "long " * 100, "\u0436"]
    (benchmark / "mdcr_test.json").write_text(json.dumps(dict.fromkeys(names[:-1], lists["Art"])))
    (benchmark / "mdcr_test_data.jsonl").write_bytes((folder / "mdcr_test_data.jsonl").read_bytes())
    before = {path for path in tmp_path.rglob("*") if root not in path.parents}
    rows = mdcr_json(root, *flags(f"eval --benchmark {benchmark} --model bm25"))["tables"]["fields"]
    assert list(dict.fromkeys(row["field"] for row in rows)) == [*sorted(names[:-1]), "AVG"]
    assert {path for path in tmp_path.rglob("*") if root not in path.parents} == before
    assert len(list((root / "corpora" / "pools").glob("*/manifest.json"))) == 3
    command = flags(f"export benchmark --benchmark {benchmark} --output {beir}")
    exported = [Path(path) for path in mdcr_json(root, *command)["exported"]]
    assert {path.parent for path in exported} == {beir}
    assert {path for path in tmp_path.rglob("*") if not {root, beir} & {path, *path.parents}} == before - {root, beir}
    (benchmark / "mdcr_test.json").write_text(json.dumps(dict.fromkeys(names[1:], lists["Art"])))
    assert "must have folders of their own" in one_line_error(mdcr(root, *command))


def test_mteb_runs_the_exported_tasks(
    workspace: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It loads each field with the candidates of each query, and measures what we measure."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    exported = mdcr_json(workspace, *flags(f"export benchmark --benchmark {folder} --output {tmp_path / 'beir'}"))
    assert [Path(path).name for path in exported["exported"]] == ["art", "physics", "mteb_tasks.py"]
    lists, file = read_lists(folder, "test"), tmp_path / "scores.json"
    mdcr_json(workspace, *flags(f"eval --benchmark {folder} --model lsa --export-scores {file}"))
    scores = json.loads(file.read_text())
    expected = by_pytrec_eval(lists, scores)
    for task, (field, queries) in zip(runpy.run_path(exported["exported"][-1])["tasks"](), lists.items(), strict=True):
        task.load_data()
        split = task.dataset["default"]["test"]
        listed = {query: sorted(candidates_of(by_type)) for query, by_type in queries.items()}
        assert {query: sorted(ids) for query, ids in split["top_ranked"].items()} == listed
        run = {query: {each: scores[f"{query}_{each}"] for each in ids} for query, ids in listed.items()}

        class Ours:
            mteb_model_meta = None

            def index(self, *args: object, **settings: object) -> None: ...

            def search(self, queries: object, *, run: Any = run, **settings: object) -> Any:
                return run

        found = task.evaluate(Ours(), "test", encode_kwargs={})["default"]
        assert found["map_at_1000"] == pytest.approx(expected[field]["map"], abs=1e-5)
        assert found["recall_at_5"] == pytest.approx(expected[field]["recall@5"], abs=1e-5)


def test_a_run_of_another_tool_is_scored_on_every_field(workspace: Path, folder: Path, tmp_path: Path) -> None:
    file, run = tmp_path / "scores.json", tmp_path / "theirs.trec"
    mdcr_json(workspace, *flags(f"eval --benchmark {folder} --model lsa --export-scores {file}"))
    scores = json.loads(file.read_text())
    lines = [f"{key.replace('_', ' Q0 ')} 1 {score!r} theirs\n" for key, score in scores.items()]
    run.write_text("".join(lines))
    rows = mdcr_json(workspace, *flags(f"eval --benchmark {folder} --model run:{run}"))["tables"]["fields"]
    expected = by_pytrec_eval(read_lists(folder, "test"), scores)
    assert {row["field"] for row in rows} == set(expected)
    for row in rows:
        assert row["value"] == pytest.approx(expected[row["field"]][row["measure"]], abs=5e-7)
    run.write_text("".join(lines[1:]))
    query, candidate = next(iter(scores)).split("_")
    line = one_line_error(mdcr(workspace, *flags(f"eval --benchmark {folder} --model run:{run}")))
    assert f"query {query} and candidate {candidate}" in line


def test_the_corpus_of_a_study_has_a_name(folder: Path, tmp_path: Path) -> None:
    command = flags(f"eval --benchmark {folder} --model lsa")
    mdcr_json(tmp_path, *command)
    (row,) = mdcr_json(tmp_path, "show", "corpora")["corpora"]
    assert row["artifact"].startswith(f"{row['corpus']}-")
    assert row["papers"] == 60
    manifests = list(tmp_path.rglob("manifest.json"))
    for manifest in manifests:
        os.utime(manifest, (0, 0))
    assert mdcr_json(tmp_path, "gc", "--delete")["unused"] == []
    mdcr_json(tmp_path, *command)
    assert mdcr_json(tmp_path, "show", "corpora")["corpora"] == [row]
    assert "there are 0 corpora" in one_line_error(mdcr(tmp_path, "pool"))  # it is not the only corpus of a user
    (tmp_path / "corpora" / f"{row['corpus']}.name").unlink()
    assert mdcr_json(tmp_path, "gc", "--delete")["unused"]
    assert not list(tmp_path.glob("corpora/*/manifest.json"))
