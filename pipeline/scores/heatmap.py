"""A table of figures over two settings: as text with the best marked, and as a drawing."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipeline.scores.figures import FORMATS, WIDTH, drawing, save

_WIDTH = 100


@dataclass(frozen=True, eq=False)
class ParameterGrid:
    """Figures over two settings, named ``row_name`` and ``column_name``, with the values ``rows`` and ``columns``.

    Attributes:
        values: fractions, float64 ``[rows, columns]``.
        note: text below.
    """

    title: str
    row_name: str
    column_name: str
    rows: Sequence[float]
    columns: Sequence[float]
    values: npt.NDArray[np.float64]
    note: str

    @property
    def best(self) -> tuple[int, int]:
        """Row and column of the greatest value, the first of equals."""
        row, column = np.unravel_index(int(self.values.argmax()), self.values.shape)
        return int(row), int(column)


def render_heatmap(shown: ParameterGrid) -> str:
    """Return the table as text, in percent, the best value marked with ``*``."""
    corner = f"{shown.row_name} \\ {shown.column_name}"
    lines = [shown.title, "", corner + "".join(f"{value:>8g}" for value in shown.columns)]
    lines.append("-" * len(lines[-1]))
    for i, value in enumerate(shown.rows):
        texts = [f"{100 * v:.2f}{'*' if (i, j) == shown.best else ' '}" for j, v in enumerate(shown.values[i])]
        lines.append((f"{value:g}".rjust(len(corner)) + "".join(text.rjust(8) for text in texts)).rstrip())
    return "\n".join([*lines, "", textwrap.fill(shown.note, _WIDTH)]) + "\n"


def save_heatmap(shown: ParameterGrid, folder: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Draw a heat map and return the files written."""
    folder.mkdir(parents=True, exist_ok=True)
    with drawing() as figure_class:
        figure = figure_class(figsize=(WIDTH, 2.8), layout="constrained")
        axes = figure.subplots()
        image = axes.imshow(100 * shown.values, cmap="cividis", aspect="auto", origin="lower")
        axes.set_xticks(range(len(shown.columns)), [f"{value:g}" for value in shown.columns])
        axes.set_yticks(range(len(shown.rows)), [f"{value:g}" for value in shown.rows])
        axes.set_xlabel(shown.column_name)
        axes.set_ylabel(shown.row_name)
        row, column = shown.best
        axes.plot([column], [row], marker="o", ms=9, mfc="none", mec="white", mew=1.2)
        figure.colorbar(image, ax=axes, label="MAP (%)")
        return save(figure, folder / "grid", formats, f"{shown.title}. {shown.note}")
