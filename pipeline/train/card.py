"""Model card of a trained model: data, leakage, scores, recipe and use."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pipeline.core.config import canonical, counted
from pipeline.core.task import Inputs
from pipeline.encode.spec import Model

if TYPE_CHECKING:
    from pipeline.train.stage import TrainConfig


def card(name: str, base: Model, config: TrainConfig, inputs: Inputs, counts: Mapping[str, Any]) -> str:
    """Return the card as Markdown."""
    sections = [
        "---\nlibrary_name: sentence-transformers\ntags: [scientific-documents, citation-recommendation]\n---",
        f"# {name}",
        f"{base.name}, trained further as `{config.settings.architecture}` by `mdcr train`. {_use(config)}",
        "## Data\n\n" + "\n".join(f"- {line}" for line in _data(inputs, counts)),
        "## Leakage\n\n" + _leakage(inputs),
        "## Scores\n\n" + _scores(inputs, counts),
        "## Recipe\n\n```json\n" + json.dumps(canonical(config), indent=2) + "\n```",
    ]
    return "\n\n".join(sections) + "\n"


def _use(config: TrainConfig) -> str:
    if config.settings.architecture in ("cls", "lora"):
        return "It is a folder of sentence-transformers; `MODEL=/path/to/it` takes it."
    return (
        "`MODEL=/path/to/it` takes its vectors for proximity; `config_sentence_transformers.json` says how they are "
        "read. Other tools do not read this."
    )


def _data(inputs: Inputs, counts: Mapping[str, Any]) -> list[str]:
    lines = [f"{name}: {counted(count, 'example')}" for name, count in counts["examples"].items()]
    if "triplets" in inputs:
        triplets, queries = inputs["triplets"].manifest, inputs["queries"].manifest
        fields = ", ".join(f"{field} {count:,}" for field, count in queries.counts["queries_by_field"].items())
        lines += [
            f"triplets `{inputs['triplets'].name}`, recipe {triplets.config['recipe']}",
            f"corpus `{inputs['corpus'].name}`",
            f"{counted(queries.counts['queries'], 'query')} ({fields})",
        ]
    return lines


def _leakage(inputs: Inputs) -> str:
    if "queries" not in inputs:
        return "The training sets are those of SciRepEval. `mdcr study scirepeval` looks up its test papers in them."
    manifest = inputs["queries"].manifest
    until, counts = manifest.config["until"], manifest.counts
    years = f"No paper or citation is later than {until}. " if until else "Papers of all years were read. "
    return (
        f"{years}The queries of pools of the workspace ({counts['pools']}) and the papers of exclusion lists are in no "
        f"triplet: {counted(counts['dropped_left_out'], 'paper')} that would have been. Pools that were drawn later "
        "are not known. The base may have been trained on other citations."
    )


def _scores(inputs: Inputs, counts: Mapping[str, Any]) -> str:
    losses = counts["loss"]
    text = f"Loss {losses[0][1]:.4f} at step {losses[0][0]}, {losses[-1][1]:.4f} at step {losses[-1][0]}."
    if counts["map"]:
        by_step = dict(map(tuple, counts["map"]))
        text += (
            f" MAP on the validation pool `{inputs['pool'].name}`: {by_step[0]:.2%} before training, "
            f"{by_step[counts['best_step']]:.2%} at step {counts['best_step']}, which is the step that was kept."
        )
    return text
