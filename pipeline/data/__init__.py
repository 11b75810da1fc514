"""What comes with the project: recipes, published figures, templates of files, the papers of the demo."""

from pathlib import Path

DATA = Path(__file__).parent
"""Folder of all of it."""
