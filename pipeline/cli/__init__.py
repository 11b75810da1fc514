"""The command ``mdcr``."""

from pipeline.cli.main import main

__all__ = ["main"]
