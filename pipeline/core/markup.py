"""Plain text of texts with markup: HTML and JATS tags, entities, LaTeX accents and commands."""

from __future__ import annotations

import functools
import html
import logging
import re
from contextlib import suppress

_INNER = ".{1,1000}?"  # bounded, so that formulas without an end take no square of time
_MATH = re.compile(rf"(\$\${_INNER}\$\$|(?<!\\)\$(?! )[^$]+?(?<![\\ ])\$|\\\({_INNER}\\\)|\\\[{_INNER}\\\])", re.DOTALL)
_ARGUMENT = r"\s*(?:\{\\?[^\W\d_]+\}|\\?[^\W\d_])"
_COMMAND = re.compile(
    rf"""\\(?:[`'^"~=.]{_ARGUMENT}                        # \'e, \"{{u}}, \'{{\i}}
    |[bcdHkrtuv](?:\{{\\?\w+\}}|\s+\\?[^\W\d_](?!\w))     # \c{{c}}, \v s
    |[a-zA-Z]+\*?(?:\[[^\[\]{{}}]*\])?(?:\{{[^{{}}\\]*\}})*  # \emph{{word}}, \alpha
    |[-$&%\#_{{}} ,;:!])""",
    re.VERBOSE,
)
_DROPPED = re.compile(r"\\(?:[a-z]*cite[a-z]*|ref|eqref|label|footnotemark|vspace|hspace|noindent|item|begin|end)\b")
_SWITCHES = re.compile(r"\\(?:bf|it|em|rm|sf|sl|sc|tt|small|large|bfseries|itshape|textstyle)\b\s*")
_MAX_NESTED = 8
_NAME = re.compile(r"\\([a-zA-Z]+)\*?")
_BRACES = str.maketrans("\x01\x02", "{}", "{}")
_UNLISTED = {r"\{": "\x01", r"\}": "\x02", r"\textless": "<", r"\textgreater": ">", r"\textbar": "|"}
"""Commands that pylatexenc does not know, and braces that stay."""


_INLINE = "a|abbr|b|big|bold|cite|em|emph|ext-link|font|i|inf|it|italic|monospace|roman|s|sans-serif|sc|scp|small"
_INLINE += "|span|strike|strong|styled-content|sub|sup|tt|u|underline|xref"
_BLOCK = "abstract|abstracttext|br|break|div|h[1-6]|hr|label|li|list|list-item|ol|p|sec|subtitle|title|ul"
_MATHML = "inline-formula|disp-formula|math|semantics|annotation|mfenced|mfrac|mi|mn|mo|mover|mrow|mspace|msqrt|mstyle"
_MATHML += "|msub|msubsup|msup|mtable|mtd|mtext|mtr|munder|munderover"
_ATTRIBUTES = r"""(?:\s+[\w:.-]+\s*=\s*(?:"[^"]*"|'[^']*'|[^\s<>"']+))*\s*/?"""
_SPACE = "(?:[a-z][a-z0-9]*:)?"  # jats, mml, ns4, ...
_INLINE_TAG = re.compile(rf"</?{_SPACE}(?:{_INLINE}|{_MATHML}){_ATTRIBUTES}>", re.IGNORECASE)
_BLOCK_TAG = re.compile(rf"</?{_SPACE}(?:{_BLOCK}){_ATTRIBUTES}>", re.IGNORECASE)
_ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[a-zA-Z][a-zA-Z0-9]{1,31});")
_MAX_ESCAPES = 3
_BRACKET = re.compile(r"\\(?:textbackslash)?text(less|greater)(?:\{\})?")
"""``<`` and ``>`` of LaTeX, also escaped twice, as some exports have them."""


def plain_text(text: str) -> str:
    """Return text without tags, entities and LaTeX commands; formulas, unknown tags and commands stay as they are.

    Entities are decoded up to three times (``&amp;lt;sub&amp;gt;``). Tags of blocks become spaces.
    """
    for _ in range(_MAX_ESCAPES if "&" in text else 0):
        before, text = text, _ENTITY.sub(lambda match: html.unescape(match[0]), text)
        if text == before:
            break
    text = _BRACKET.sub(lambda match: "<" if match[1] == "less" else ">", text) if "\\text" in text else text
    if "<" in text:
        text = _BLOCK_TAG.sub(" ", _INLINE_TAG.sub("", text))
    return plain_latex(text) if "\\" in text else text


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

    logging.getLogger("pylatexenc").setLevel(logging.CRITICAL)  # it warns of commands that lack arguments
    if _DROPPED.match(command):
        return ""
    if (plain := _UNLISTED.get(command.removesuffix("{}"))) is not None:
        return plain
    name = _NAME.match(command)
    known = not name or get_default_latex_context_db().get_macro_spec(name[1]) is not None
    if known and not (name and name[1] in ("href", "url")):
        with suppress(AttributeError, LookupError, TypeError, ValueError):  # of fewer arguments than it needs
            plain = str(LatexNodes2Text(math_mode="verbatim", keep_comments=True).latex_to_text(command))
            if "%s" not in plain:  # the place of an argument that lacks
                return plain
    return command.rpartition("{")[2].rstrip("}") if "{" in command else command
