"""The spelling of settings in messages for users of Python: keyword arguments, where errors write options."""

from __future__ import annotations

import re
from collections.abc import Callable
from inspect import signature
from typing import Any

from pipeline.corpus.poolconfig import SETTINGS
from pipeline.sources.registry import all_options


def of(*functions: Callable[..., Any]) -> Callable[[str], str]:
    """Return what replaces options in a message by keywords: of functions, pools and sources."""
    parameters = {*(name for function in functions for name in signature(function).parameters), *all_options()}
    keyword_of = {name.replace("_", "-"): name for name in parameters} | {"model": "systems"}
    keyword_of |= {setting.option: setting.name for setting in SETTINGS.values()}

    def keyword(match: re.Match[str]) -> str:
        return keyword_of.get(match[1], match[0].rstrip("=")) + match[2]

    def spelled(text: str) -> str:
        command = re.search(r"mdcr [a-z]+(?: --?\S+)+.*", text)  # stays a command
        end = command.start() if command else len(text)
        return re.sub(r"(?<![^\s'])--([a-z][a-z-]*)(=?)", keyword, text[:end]) + text[end:]

    return spelled
