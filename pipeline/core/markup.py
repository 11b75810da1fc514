"""Plain text of texts with markup: LaTeX accents and commands."""

from __future__ import annotations

import functools
import re

_MATH = re.compile(r"(\$\$.+?\$\$|(?<!\\)\$(?! )[^$]+?(?<![\\ ])\$|\\\(.+?\\\)|\\\[.+?\\\])", re.DOTALL)
_ARGUMENT = r"\s*(?:\{\\?[^\W\d_]+\}|\\?[^\W\d_])"
_COMMAND = re.compile(
    rf"""\\(?:[`'^"~=.]{_ARGUMENT}                        # \'e, \"{{u}}, \'{{\i}}
    |[bcdHkrtuv](?:\{{\\?\w+\}}|\s+\\?[^\W\d_](?!\w))     # \c{{c}}, \v s
    |[a-zA-Z]+\*?(?:\[[^\[\]{{}}]*\])?(?:\{{[^{{}}\\]*\}})*  # \emph{{word}}, \alpha
    |[-$&%\#_{{}} ])""",
    re.VERBOSE,
)
_DROPPED = re.compile(r"\\(?:[a-z]*cite[a-z]*|ref|eqref|label|footnotemark|vspace|hspace|noindent|item|begin|end)\b")
_SWITCHES = re.compile(r"\\(?:bf|it|em|rm|sf|sl|sc|tt|small|large|bfseries|itshape|textstyle)\b\s*")
_MAX_NESTED = 8
_NAME = re.compile(r"\\([a-zA-Z]+)\*?")
_BRACES = str.maketrans("\x01\x02", "{}", "{}")
_UNLISTED = {r"\{": "\x01", r"\}": "\x02", r"\textless": "<", r"\textgreater": ">", r"\textbar": "|"}
"""Commands that pylatexenc does not know, and braces that stay."""


def plain_latex(text: str) -> str:
    """Return text with LaTeX accents and commands as plain text; formulas and unknown commands stay as they are."""
    if not any(mark in text for mark in "\\{}"):
        return text
    pieces = _MATH.split(text)
    pieces[::2] = map(_without_commands, pieces[::2])
    return "".join(pieces)


def _without_commands(text: str) -> str:
    text = _SWITCHES.sub("", text)
    for _ in range(_MAX_NESTED):  # commands within commands: the innermost first
        before, text = text, _COMMAND.sub(lambda match: _of_command(match[0]), text)
        if text == before:
            break
    return text.translate(_BRACES)


@functools.lru_cache(maxsize=65_536)
def _of_command(command: str) -> str:
    """Return the plain text of one command with its arguments."""
    from pylatexenc.latex2text import LatexNodes2Text, get_default_latex_context_db  # type: ignore[import-untyped]

    if _DROPPED.match(command):
        return ""
    if (plain := _UNLISTED.get(command.removesuffix("{}"))) is not None:
        return plain
    name = _NAME.match(command)
    known = not name or get_default_latex_context_db().get_macro_spec(name[1]) is not None
    if not known or (name and name[1] in ("href", "url")):
        return command.rpartition("{")[2].rstrip("}") if "{" in command else command
    return str(LatexNodes2Text(math_mode="verbatim", keep_comments=True).latex_to_text(command))
