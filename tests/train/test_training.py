"""``mdcr train``: what a run leaves, how it goes on after a kill, and what it refuses."""

from __future__ import annotations

import itertools
import json
import math
import shutil
import tomllib
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets  # type: ignore[import-untyped]
import pytest
import torch
from transformers import TrainerState

from pipeline.api import Workspace
from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError
from pipeline.core.progress import Progress
from pipeline.core.rng import generator
from pipeline.core.runner import Runner
from pipeline.core.workdir import Workdir
from pipeline.encode import registry
from pipeline.encode.kinds import Transformer
from pipeline.studies.scirepeval.tasks import Folder
from pipeline.train import trainer
from pipeline.train.architectures import Architecture
from pipeline.train.examples import Examples, Writer
from pipeline.train.objectives import Objective
from pipeline.train.recipe import Recipe, formats_entry, systems
from pipeline.train.stage import model_folder, train_task
from pipeline.train.tasks import stratified, task_examples, task_of
from tests.builders import made_up_paper, make_corpus
from tests.cli.run import mdcr
from tests.encode.tiny import save_bert
from tests.shared import real
from tests.train.world import CPU, SETTINGS

POOL = {"year": 2015, "size": "60", "queries": "4", "samples": 1}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a workspace with a corpus of 300 papers."""
    root = tmp_path_factory.mktemp("training")
    pairs = {(int(a), int(b)) for a, b in generator(1, "graph").integers(0, 300, (2400, 2))}
    papers = [{**made_up_paper(n), "abstract": f"{made_up_paper(n)['abstract']} " * 9} for n in range(300)]
    make_corpus(root, papers, [(f"{a:05d}", f"{b:05d}") for a, b in sorted(pairs)])
    save_bert(root / "tiny", positions=64)
    return root


def content(made: Artifact) -> dict[str, bytes]:
    folder = model_folder(made)
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def recipe(root: Path, **changes: Any) -> Recipe:
    settings = replace(SETTINGS, batch=8, micro_batch=8, epochs=1, examples=0, checkpoints=3, learning_rate=1e-3)
    drawn = {"until": 2012, "queries": 16}
    values = {"name": "mine", "base": str(root / "tiny"), "corpus": "tiny", "triplets": "specter", "draw": drawn}
    values |= {"tasks": (), "input": "", "validation": POOL}
    return Recipe(**{**vars(settings), **values, **changes})


def test_a_run_goes_on_after_a_kill_and_ends_as_if_there_was_none(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(root, tmp_path / "other")
    workspace, other = (Workspace(Runner(place, CPU)) for place in (root, tmp_path / "other"))
    whole = workspace.runner.make(train_task(workspace, recipe(root)))
    steps = whole.manifest.counts["steps"]
    told, seen = trainer._Monitor.on_step_end, []

    def kill(self: Any, *args: Any, **kwargs: Any) -> None:
        told(self, *args, **kwargs)
        seen.append(1)
        if len(seen) == 7:
            raise KeyboardInterrupt

    task = train_task(other, recipe(root))
    monkeypatch.setattr(trainer._Monitor, "on_step_end", kill)
    with pytest.raises(KeyboardInterrupt):
        other.runner.make(task)
    work = other.runner.work_folder(task) / "scratch" / "training"
    assert list(work.glob("checkpoint-*/trained.safetensors"))
    (work / "checkpoint-6666").mkdir()  # cut off by the kill
    again = Workspace(Runner(tmp_path / "other", CPU)).runner.make(task)
    assert len(seen) < 7 + steps
    assert again.manifest.counts == whole.manifest.counts
    assert content(again) == content(whole)
    assert content(whole)["model.safetensors"] != (root / "tiny" / "model.safetensors").read_bytes()

    folder, counts = model_folder(whole), whole.manifest.counts
    (learnt, until) = whole.manifest.provenance["training"]["mine"]
    assert (learnt, until) == ("citations: triplets specter-tiny-to-2012-16, from tiny", 2012)
    assert folder.name == "mine"
    assert counts["map"][0][0] == 0
    assert len(counts["loss"]) == steps
    pool = workspace.pool("tiny", split="validation", sample=1, **{k: v for k, v in POOL.items() if k != "samples"})
    for name, at in ((root / "tiny", 0), (folder, counts["best_step"])):
        scores = workspace.evaluate(pool, f"{name}:max_length={SETTINGS.max_length}")
        measured = scores.filter(measure="map")["value"].mean()
        assert dict(map(tuple, counts["map"]))[at] == pytest.approx(measured, abs=2e-3), at
    assert "Paper number" not in (folder / "README.md").read_text()
    assert json.loads((folder / "config_sentence_transformers.json").read_text())["template"] == "title-sep-abstract"
    (entry,) = tomllib.loads(formats_entry("mine", systems("cls", folder))).values()
    assert entry == dict.fromkeys(("classification", "regression", "proximity", "search", "query"), str(folder))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"base": "lsa"}, "not a transformer"),
        ({"triplets": ""}, "must have triplets or tasks"),
        ({"name": "a/b"}, "not a name for a model"),
        ({"tasks": ("fos",), "input": "EMPTY"}, "no training files of task fos"),
        ({"triplets": "scincl"}, "no recipe of triplets 'scincl'"),
        ({"micro_batch": 4096}, "at least micro_batch = 4096 examples"),
        ({"base": "BROKEN"}, "cannot be loaded"),
        ({"max_length": 4096}, r"max_length must be at most the 64 of .*tiny, got 4096"),
        *(({"learning_rate": value}, "learning_rate must be") for value in (0.0, math.nan, 1e5)),
    ],
)
def test_a_wrong_recipe_is_refused_in_a_line(root: Path, tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    (tmp_path / "empty").mkdir()
    if changes.get("base") == "BROKEN":
        broken = save_bert(tmp_path / "broken", positions=64)
        (broken / "model.safetensors").write_bytes(b"no weights")
        changes = {"base": str(broken)}
    changes = {**changes, **({"input": str(tmp_path / "empty")} if "input" in changes else {})}
    workspace = Workspace(Runner(root, CPU))
    given = {"validation": {}, **changes}
    with pytest.raises(InputError, match=said):
        workspace.runner.make(train_task(workspace, recipe(root, **given)))


def test_the_recipe_of_the_project_is_complete_and_its_dry_run_writes_nothing(root: Path) -> None:
    changes = [f"base={root / 'tiny'}", "draw={until=2012, queries=8}", "max_length=16", "micro_batch=8", "batch=8"]
    words = ["train", "train_past", "--corpus", "tiny", *(word for change in changes for word in ("--set", change))]
    pool = "validation={year=2014, size=50, queries=4}"
    before = {path: path.lstat().st_mtime_ns for path in root.rglob("*")}
    dry = mdcr(root, *words, "--set", pool, "--dry-run")
    assert dry.returncode == 0, dry.stderr
    assert [line.split()[:2] for line in dry.stdout.splitlines()][-1] == ["make", "train"]
    assert {path: path.lstat().st_mtime_ns for path in root.rglob("*")} == before
    made = mdcr(root, *words, "--set", pool, "--set", "precision=float32")  # fewer steps than were foreseen
    assert made.returncode == 0, made.stderr
    assert (Path(made.stdout.strip()) / "modules.json").is_file()
    assert "[train_past]" in made.stderr


@pytest.mark.realdata
def test_published_samples_are_training_sets_of_their_formats(tmp_path: Path) -> None:
    folder = Folder(real("scirepeval-sample"))

    class Tokenizer:
        sep_token, eos_token = "[SEP]", ""

    writer = Writer(Transformer(checkpoint="", revision="", template="fields-sep"), Tokenizer(), coded=True)
    made = {
        name: task_examples(task_of(name), folder, writer, Workdir(tmp_path), 0, 1)
        for name in ("mesh", "fos", "same_author", "search", "cite_prediction")
    }
    assert [examples.goal for examples in made.values()] == ["classes", "labels", *["triplet"] * 3]
    mesh, fos = made["mesh"].data[0], made["fos"].data[0]
    assert mesh["paper"].startswith("[CLF] ")
    assert 0 <= mesh["label"] < made["mesh"].outputs
    assert len(fos["label"]) == made["fos"].outputs
    assert sum(fos["label"]) >= 1
    search, authors = made["search"].data[0], made["same_author"].data
    assert search["query"].startswith("[QRY] ")
    assert "[SEP]" not in search["query"]
    assert search["positive"].startswith("[PRX] ")
    assert len(authors) == 40 * 5
    assert len({(row["query"], row["positive"]) for row in authors}) > 40


def test_the_first_step_has_a_rate_and_the_schedules_are_those_of_the_paper_and_its_code() -> None:
    def rates(steps: int, **changes: Any) -> list[float]:
        settings = replace(SETTINGS, **changes)
        return [trainer.rate(finished, settings, steps) for finished in range(steps)]

    assert rates(8, warmup=4) == pytest.approx(
        [1 / 4, 2 / 4, 3 / 4, 1, *(math.sqrt(4 / step) for step in (5, 6, 7, 8))]
    )
    assert rates(6, warmup=2, schedule="linear") == pytest.approx([1 / 2, 1, 4 / 5, 3 / 5, 2 / 5, 1 / 5])
    assert rates(2, warmup=0) == pytest.approx([math.sqrt(10_000 / 10_001), math.sqrt(10_000 / 10_002)])


def test_a_training_that_diverges_ends_with_a_line(tmp_path: Path) -> None:
    monitor = trainer._Monitor(Progress(1, "train", "steps"), Workdir(tmp_path), validated=False)
    with pytest.raises(InputError, match="the training diverges: its loss is .* at step 0"):
        monitor.on_log(None, TrainerState(), None, {"loss": math.nan})
    monitor.on_log(None, TrainerState(), None, {"loss": 1.0})


def test_examples_keep_the_shares_of_classes_and_labels() -> None:
    classes = [["a"]] * 700 + [["b"]] * 200 + [["c"]] * 99 + [["rare"]]
    chosen = stratified(classes, 100, 1, "mesh")
    assert Counter(name for (name,), one in zip(classes, chosen, strict=True) if one) == {"a": 70, "b": 20, "c": 10}
    assert stratified(classes, 100, 2, "mesh").tolist() != chosen.tolist()
    labels = [["x", "y"] if n % 10 == 0 else ["x"] if n % 2 else ["y", "z"] for n in range(1_000)]
    drawn = [names for names, one in zip(labels, stratified(labels, 200, 1, "fos"), strict=True) if one]
    assert len(drawn) == 200
    shares, totals = (Counter(itertools.chain.from_iterable(names)) for names in (drawn, labels))
    assert all(abs(shares[name] - total / 5) <= 2 for name, total in totals.items())
    assert stratified(labels, 5_000, 1, "fos").all()


def test_the_losses_of_tasks_are_summed_and_heads_begin_as_the_authors_do(tmp_path: Path) -> None:
    base = save_bert(tmp_path / "tiny", positions=64)
    architecture = Architecture("cls", registry.resolve(str(base)), 16, 1)
    examples = Examples("mesh", "classes", ("classification",), datasets.Dataset.from_dict({}), 500)
    one, three = (Objective(architecture, examples, replace(SETTINGS, head_dropout=0.5), tasks) for tasks in (1, 3))
    dropout, linear = one.head
    assert dropout.p == 0.5
    assert float(linear.weight.std()) == pytest.approx(0.02, rel=0.1)
    assert not linear.bias.any()
    three.load_state_dict(one.state_dict())
    features = architecture.model.preprocess(["w1 w2"])
    losses = [loss.eval()([dict(features)], torch.tensor([3])) for loss in (one, three)]
    assert losses[1].item() == pytest.approx(3 * losses[0].item())
