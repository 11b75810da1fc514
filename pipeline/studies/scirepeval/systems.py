"""Systems of the study: an encoder for each format of task."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from pathlib import Path

from pipeline.core.errors import InputError
from pipeline.encode import names, registry
from pipeline.encode.spec import Model, TransformerSpec
from pipeline.encode.views import whole
from pipeline.studies.scirepeval.tasks import FORMATS, Format

Encoders = Mapping[Format, Model]
_TEMPLATE = "fields-sep"
"""How the published evaluation makes a text, for any transformer."""


def multi_format(more: str = "") -> dict[str, dict[str, str]]:
    """Return the table ``formats.toml``, with the rows of another file of its kind.

    Raises:
        InputError: the file cannot be read, or a row lacks an encoder.
    """
    table: dict[str, dict[str, str]] = {}
    for path in (Path(__file__).with_name("formats.toml"), *([Path(more).expanduser()] if more else [])):
        try:
            table |= tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise InputError(
                f"formats must be a TOML file, got {path} ({error})", "Write it like formats.toml"
            ) from error
    for name, row in table.items():
        if not isinstance(row, dict) or not {*FORMATS} <= row.keys() <= {*FORMATS, "query", "published"}:
            raise InputError(f"system {name} must have an encoder for each of {', '.join(FORMATS)}, got {row}", "")
    return table


def encoders(name: str, more: str = "") -> Encoders:
    """Return the encoder of each format: one in all, unless ``formats.toml`` or the file ``more`` says otherwise.

    Raises:
        InputError: there is no such encoder, or it has several vectors a paper.
    """
    row = multi_format(more).get(name, dict.fromkeys(FORMATS, name))
    models = {kind: whole(registry.resolve(row[kind], template=_TEMPLATE)) for kind in FORMATS}
    for model in models.values():
        if model.several:
            raise InputError(f"an encoder must have one vector a paper, got {model.name}", "Choose another encoder")
    if "query" in row:
        models["search"] = dataclasses.replace(models["search"], query=row["query"])
    return models


def alone(name: str) -> Encoders:
    """Return one encoder for all texts, ad-hoc queries too, whatever encodes those otherwise."""
    model = whole(registry.resolve(name, template=_TEMPLATE))
    prefix = model.spec.paper_prefix.strip() if isinstance(model.spec, TransformerSpec) else ""
    typed = names.one(name)
    query = str(dataclasses.replace(typed, options=(*typed.options, ("query_prefix", prefix)))) if prefix else ""
    return dict.fromkeys(FORMATS, dataclasses.replace(model, query=query, passage_prefix=None))
