"""Bottleneck adapters on a transformer (SPECTER2: Singh et al. 2023), through the package ``adapters``."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import torch

from pipeline.core.errors import InputError

_PROBE = tuple(range(1, 9))
"""Token ids that every model has, for checking that the adapter changes the output."""


def activate(network: Any, folder: Path) -> None:
    """Load the adapter in ``folder`` into ``network`` and activate it.

    Raises:
        InputError: the package is not installed, the adapter does not fit the network, or it changes nothing.
    """
    try:
        import adapters
    except ImportError as error:
        raise InputError("adapters need the package adapters", "pip install 'mdcr-pipeline[specter2]'") from error
    plain = _states(network)
    logger = logging.getLogger("adapters")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        adapters.init(network)
        name = network.load_adapter(str(folder), set_active=True)
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        raise InputError(f"the adapter in {folder} does not fit the model ({error})", "Check its model") from error
    finally:
        logger.setLevel(level)
    if network.active_adapters is None or torch.equal(_states(network), plain):
        raise InputError(f"the adapter {name} in {folder} changes nothing", "Download it again")


def _states(network: Any) -> torch.Tensor:
    ids = torch.tensor([_PROBE])
    with torch.inference_mode():
        states: torch.Tensor = network.eval()(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
    return states
