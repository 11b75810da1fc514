"""Training by the trainer of sentence-transformers; after a kill it resumes from its last checkpoint.

A micro-batch has examples of one task. Tasks alternate, and gradients accumulate over a multiple of all tasks, so an
optimiser step has equally many examples of all tasks (Singh et al. 2023, section 4.2). It takes one GPU.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from datasets import DatasetDict  # type: ignore[import-untyped]
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.base.sampler import BatchSamplers, MultiDatasetBatchSamplers
from torch import nn
from torch.optim.lr_scheduler import LambdaLR
from transformers import (
    EarlyStoppingCallback,
    PrinterCallback,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    set_seed,
)

from pipeline.core import files
from pipeline.core.errors import InputError, StageError
from pipeline.core.progress import Progress
from pipeline.core.resources import Resources
from pipeline.core.workdir import Workdir
from pipeline.encode.network import torch_device
from pipeline.train.architectures import Architecture
from pipeline.train.examples import Examples
from pipeline.train.objectives import Objective
from pipeline.train.recipe import Settings
from pipeline.train.validation import PoolEvaluator

_CHECKPOINT = "checkpoint-"
_WEIGHTS = "trained.safetensors"
_STATE = "trainer_state.json"
_BEFORE = "before.json"
"""MAP before the first step."""
_LOGGED = 50
"""Number of points of the loss curve."""
EPSILON = 1e-8
"""Of AdamW, as in the paper; weights do not decay."""

_FOREIGN = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""Variables of ``torchrun``, which a job may hold; with ``ACCELERATE_*`` they would decide batches and precision."""

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class _Trainer(SentenceTransformerTrainer):
    """Trainer with our schedule, whose checkpoints hold the trained weights alone, heads included."""

    settings: Settings
    lr_scheduler: LambdaLR | None

    def create_scheduler(self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None) -> LambdaLR:
        """Return the schedule of the settings (:func:`rate`)."""
        if self.lr_scheduler is None:
            factor = partial(rate, settings=self.settings, steps=num_training_steps)
            self.lr_scheduler = LambdaLR(optimizer or self.optimizer, factor)
            self._created_lr_scheduler = True
        return self.lr_scheduler

    def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
        """Write no model card, since it would quote texts."""

    def _trained(self) -> dict[str, torch.Tensor]:
        parameters = nn.ModuleDict(self.loss).named_parameters()
        return {name: weight for name, weight in parameters if weight.requires_grad}

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:  # noqa: ARG002
        folder = Path(output_dir or self.args.output_dir)
        folder.mkdir(parents=True, exist_ok=True)
        save_file({name: weight.detach().contiguous() for name, weight in self._trained().items()}, folder / _WEIGHTS)

    def _load_from_checkpoint(self, checkpoint_path: str) -> None:
        saved = load_file(Path(checkpoint_path) / _WEIGHTS)
        with torch.no_grad():
            for name, weight in self._trained().items():
                weight.copy_(saved[name])

    def _load_best_model(self) -> None:
        self._load_from_checkpoint(str(Path(self.args.output_dir, Path(self.state.best_model_checkpoint).name)))


class _Monitor(TrainerCallback):  # type: ignore[misc]
    """Counts steps, records checkpoints, measures MAP at the end of each epoch, and ends a training that diverges."""

    def __init__(self, progress: Progress, work: Workdir, *, validated: bool) -> None:
        self._progress, self._work, self._validated = progress, work, validated

    def on_epoch_end(self, _: Any, state: TrainerState, control: TrainerControl, **__: Any) -> None:
        measured = {entry["step"] for entry in state.log_history if "eval_map" in entry}
        if self._validated and state.global_step not in measured:
            control.should_evaluate = control.should_save = True

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self._progress.add(1)

    def on_save(self, _: Any, state: TrainerState, __: Any, **___: Any) -> None:
        self._work.finish_folder(f"{_CHECKPOINT}{state.global_step}")

    def on_log(self, _: Any, state: TrainerState, __: Any, logs: Mapping[str, Any], **___: Any) -> None:
        if not math.isfinite(logs.get("loss", 0.0)):
            raise _diverged(f"its loss is {logs['loss']} at step {state.global_step}")


def rate(finished: int, settings: Settings, steps: int) -> float:
    """Return the learning rate of the step after ``finished`` ones, as a share of the peak; the first is not 0.

    An inverse square root without warm-up falls as after 10,000 steps.
    """
    step, warmup = finished + 1, settings.warmup
    if step <= warmup:
        return step / warmup
    if settings.schedule == "linear":
        return max(steps + 1 - step, 0) / max(steps + 1 - warmup, 1)
    scale = warmup or 10_000
    return math.sqrt(scale / (step - warmup + scale))


def _diverged(what: str) -> InputError:
    return InputError(f"the training diverges: {what}", "Set a smaller learning_rate, or clip = 1.0")


def train(
    architecture: Architecture,
    sets: Sequence[Examples],
    settings: Settings,
    work: Workdir,
    resources: Resources,
    evaluator: PoolEvaluator | None = None,
) -> dict[str, Any]:
    """Train and return counts: steps, and the curves of loss and of MAP on the validation pool.

    With a validation pool, the network ends at the checkpoint of the highest MAP. ``work`` holds the checkpoints.

    Raises:
        InputError: a training set is smaller than a micro-batch, the device is missing, or a loss or weight is NaN or
            infinite.
        StageError: memory is exhausted.
    """
    size = min(max(len(task.data) for task in sets), settings.examples or 2**62)
    if size < settings.micro_batch:
        raise InputError(
            f"a training set must have at least micro_batch = {settings.micro_batch} examples, got {size}",
            "Set a smaller micro_batch, or draw more queries",
        )
    data = DatasetDict({task.name: task.repeated(size) for task in sets})
    accumulation = -(-settings.batch // (settings.micro_batch * len(sets))) * len(sets)
    steps = settings.epochs * -(-(size // settings.micro_batch) * len(sets) // accumulation)
    arguments = _arguments(settings, work.path, accumulation, steps, resources, evaluator is not None)
    set_seed(settings.seed)
    losses = {task.name: Objective(architecture, task, settings, len(sets)) for task in sets}
    stopping = [EarlyStoppingCallback(settings.patience)] if evaluator is not None and settings.patience else []
    start = _checkpoint(work)
    with Progress(steps, "train", "steps") as progress:
        progress.add(int(start.name.rpartition("-")[2]) if start else 0)
        monitor = _Monitor(progress, work, validated=evaluator is not None)
        trainer = _Trainer(
            architecture.model,
            arguments,
            train_dataset=data,
            loss=losses,
            evaluator=evaluator,
            callbacks=[monitor, *stopping],
        )
        trainer.settings = settings
        trainer.remove_callback(PrinterCallback)
        before = None
        if evaluator is not None:
            if not work.done(_BEFORE):
                before = evaluator(architecture.model)["map"]
                with work.file(_BEFORE) as (path, _):
                    path.write_text(json.dumps(before), encoding="utf-8")
            before = files.read_json(work.path / _BEFORE)
        try:
            trainer.train(resume_from_checkpoint=str(start) if start else None)
        except (torch.OutOfMemoryError, MemoryError) as error:
            raise StageError(
                f"training has no memory for {settings.micro_batch} texts of {settings.max_length} tokens",
                "Set a smaller micro_batch: the batch stays as large",
            ) from error
    if not all(bool(weight.isfinite().all()) for weight in architecture.model.parameters()):
        raise _diverged("its weights are NaN or infinite")
    counts = {task.name: len(task.data) for task in sets}
    return {**_results(trainer, before), "examples": counts, "examples_of_a_task_an_epoch": size}


def _arguments(
    settings: Settings, folder: Path, accumulation: int, steps: int, resources: Resources, validated: bool
) -> SentenceTransformerTrainingArguments:
    for name in [name for name in os.environ if name in _FOREIGN or name.startswith("ACCELERATE_")]:
        del os.environ[name]
    if resources.device.startswith("cuda:"):
        index = resources.device.partition(":")[2]
        raise InputError(f"--device={resources.device} cannot train", f"Set CUDA_VISIBLE_DEVICES={index}")
    interval = max(1, steps // max(settings.checkpoints, 1))
    in_batch = settings.loss == "in-batch"
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(folder),
        num_train_epochs=settings.epochs,
        per_device_train_batch_size=settings.micro_batch,
        gradient_accumulation_steps=accumulation,
        dataloader_drop_last=True,
        batch_sampler=BatchSamplers.NO_DUPLICATES if in_batch else BatchSamplers.BATCH_SAMPLER,
        multi_dataset_batch_sampler=MultiDatasetBatchSamplers.ROUND_ROBIN,
        learning_rate=settings.learning_rate,
        adam_epsilon=EPSILON,
        max_grad_norm=settings.clip,
        logging_nan_inf_filter=False,
        bf16=settings.precision == "bfloat16",
        use_cpu=torch_device(resources.device).type == "cpu",
        seed=settings.seed,
        logging_steps=max(1, steps // _LOGGED),
        save_strategy="steps",
        save_steps=interval,
        save_total_limit=2,
        eval_strategy="steps" if validated else "no",
        eval_steps=interval if validated else None,
        load_best_model_at_end=validated,
        metric_for_best_model="eval_map" if validated else None,
        greater_is_better=True if validated else None,
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=torch.cuda.is_available(),
    )
    arguments._n_gpu = min(arguments.n_gpu, 1)  # else it would replicate the network on all GPUs
    return arguments


def _checkpoint(work: Workdir) -> Path | None:
    """Return the last finished checkpoint whose best one so far is finished too; None if there is none."""
    finished = {int(path.name.removeprefix(_CHECKPOINT)): path for path in work.path.glob(f"{_CHECKPOINT}*")}
    for _, path in sorted(finished.items(), reverse=True):
        state = files.read_json(path / _STATE) or {}
        best = Path(state.get("best_model_checkpoint") or path).name
        if work.done(path.name) and work.done(best):
            return path
    return None


def _results(trainer: _Trainer, before: float | None) -> dict[str, Any]:
    state = trainer.state
    history: Sequence[Mapping[str, Any]] = state.log_history
    curves = {
        name: [[entry["step"], round(float(entry[key]), 6)] for entry in history if key in entry]
        for name, key in (("loss", "loss"), ("map", "eval_map"))
    }
    curves["map"][:0] = [[0, round(before, 6)]] if before is not None else []
    best = {"best_step": int(state.best_model_checkpoint.rpartition("-")[2])} if state.best_model_checkpoint else {}
    return {"steps": state.global_step, **best, **curves}
