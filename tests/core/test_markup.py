from __future__ import annotations

import pytest

from pipeline.core.markup import plain_latex, plain_text
from pipeline.core.text import normalise, same_title_form

SPELLINGS = (
    "CO<sub>2</sub> in <i>Sphagnum</i> peat of bogs",
    "CO2 in Sphagnum peat of bogs",
    "CO&lt;sub&gt;2&lt;/sub&gt; in Sphagnum peat of bogs",
    r"{CO$_2$} in \textit{Sphagnum} peat of bogs",
    "<jats:title>CO<jats:sub>2</jats:sub> in <em class='x'>Sphagnum</em><br/>peat&#32;of bogs</jats:title>",
)


def test_spellings_of_one_title_are_one() -> None:
    assert len({same_title_form(plain_text(title)) for title in SPELLINGS}) == 1


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("&amp;lt;i&amp;gt;x&amp;lt;/i&amp;gt; R&amp;D, R&D a&parameter", "x R&D, R&D a&parameter"),
        ("p &lt; 0.05, a <b and c> d, x<y>z", "p < 0.05, a <b and c> d, x<y>z"),
        ("<ns4:p>One.</ns4:p><AbstractText Label='A' NlmCategory='B'>Two</AbstractText>", "One. Two"),
        ("<mml:math xmlns:mml='m'><mml:mi>x</mml:mi></mml:math>y", "xy"),
        ("caf&eacute; &#233;&#xe9;&nbsp;x", "café éé x"),
        ("the set {1, 2} of $x_{i}$", "the set {1, 2} of $x_{i}$"),
        (r"Erd\H{o}s \& \emph{others} of 10\,000", "Erdős & others of 10 000"),
        (r"\textlessi\textgreater E.\textless/i\textgreater p \textbackslashtextless 0.05", "E. p < 0.05"),
    ],
)
def test_markup_becomes_plain_text(text: str, plain: str) -> None:
    assert normalise(plain_text(text)) == plain


def test_every_command_has_a_text_with_any_number_of_arguments() -> None:
    commands = "frac sqrt textit emph href url texorpdfstring underset overset binom footnote title author stackrel"
    for name in commands.split():
        for arguments in ("", "{}", "{a}", "{a}{b}", "{a}{b}{c}", "[x]{a}"):
            assert "{" not in plain_latex(rf"\{name}{arguments}")
    assert plain_latex(r"\href{http://a}{b} \texorpdfstring{c}") == "b c"


@pytest.mark.parametrize(
    ("latex", "plain"),
    [
        (r"{\'{E}}t{\'e} na\"{\i}ve \L{}ukasz \v s \c{c}", "Été naïve Łukasz š ç"),
        (r"\emph{a \textbf{b\'e}} \citep{x}c \unknown{d} C:\temp", "a bé c d C:\\temp"),
        (r"\alpha decay of {CO$_2$}, 50\% \{x\} \href{http://a}{b}", "α decay of CO$_2$, 50% {x} b"),
        (r"\(\alpha\) and $\beta$ stay, $5 too", r"\(\alpha\) and $\beta$ stay, $5 too"),
        ("R&D ~5% #1", "R&D ~5% #1"),
    ],
)
def test_latex_becomes_plain_text(latex: str, plain: str) -> None:
    assert plain_latex(latex) == plain
