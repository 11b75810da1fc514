"""How title and abstract become the one string that an encoder reads. No torch.

The named templates are those of the model cards (SPECTER: Cohan et al. 2020; SciNCL: Ostendorff et al. 2022; SPECTER2
and control codes: Singh et al. 2023; sentence-transformers: Reimers and Gurevych 2019; E5: Wang et al. 2022).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pipeline.core.errors import InputError
from pipeline.encode.spec import FIELD_MARK, TEMPLATES, Role, TransformerSpec

if TYPE_CHECKING:
    from pipeline.corpus.reader import Text

_PART = re.compile(r"{(title|abstract|sep|eos)(?:\|([^{}]*))?}")


def render(text: Text, role: Role, spec: TransformerSpec, tokenizer: Any) -> str:
    """Return the one string an encoder reads.

    Args:
        text: title and abstract, or an ad-hoc query as title.
        role: an ad-hoc query is its raw text, with its prefix.
        spec: template and prefixes.
        tokenizer: has the texts of the separator and of the end of a text.
    """
    if role == "query":
        return spec.query_prefix + text.title
    separator = tokenizer.sep_token or ""
    if spec.template == "title-sep-abstract":
        return spec.paper_prefix + text.title + separator + text.abstract
    if spec.template == "title-space-abstract":
        return spec.paper_prefix + " ".join(part for part in text if part)
    fields = [field.strip() for field in (text.title, *text.abstract.split(FIELD_MARK))]
    if spec.template == "fields-sep":
        return spec.paper_prefix + f" {separator} ".join(field for field in fields if field)
    parts = {"title": text.title, "abstract": text.abstract, "sep": separator, "eos": tokenizer.eos_token or ""}
    return spec.paper_prefix + _PART.sub(lambda part: parts[part[1]] or part[2] or "", spec.template)


def check_template(template: str) -> None:
    """Check how a text is made of title and abstract.

    Raises:
        InputError: it is no name of a template, and lacks a part, or has one that there is not.
    """
    parts = re.findall(r"{([a-z]*)", template)
    if template not in TEMPLATES and (
        not {"title", "abstract"} <= {*parts} or re.search("[{}]", _PART.sub("", template))
    ):
        raise InputError(
            f"template {template!r} must be {', '.join(TEMPLATES)}, or text with {{title}} and {{abstract}}",
            "Write it like 'title: {title|none} | text: {abstract}'; {sep} and {eos} are the tokenizer's",
        )
