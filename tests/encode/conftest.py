"""A small BERT, and a cache of the hub without a network."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.encode.tiny import save_bert


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a BERT that no test changes."""
    return save_bert(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty Hugging Face cache, the only place of models."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return tmp_path / "cache"
