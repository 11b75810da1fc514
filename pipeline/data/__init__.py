"""What comes with the project: recipes, published figures, the papers of the demo."""

from pathlib import Path

DATA = Path(__file__).parent
"""Folder of all of it."""
