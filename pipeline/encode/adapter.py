"""Bottleneck adapters on a transformer, and fusions of them (Singh et al. 2023), through the package ``adapters``."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import torch

from pipeline.core.errors import InputError, MdcrError
from pipeline.core.install import pip_extra
from pipeline.encode import hub

_PROBE = tuple(range(1, 9))
"""Token ids that every model has, for checking that the adapter changes the output."""

_AGAIN = "Download it again"


def activate(network: Any, folder: Path) -> None:
    """Load the adapter in ``folder``, or the fusion and its adapters, into ``network`` and activate it.

    Raises:
        InputError: the package is not installed, the adapter does not fit the network, or it changes nothing.
    """
    try:
        import adapters
        from adapters.loading import AdapterFusionLoader
    except ImportError as error:
        raise InputError("adapters need the package adapters", pip_extra("specter2")) from error
    plain, report = _states(network), {"missing_keys": list[str]()}
    logger = logging.getLogger("adapters")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        adapters.init(network)
        if (folder / hub.FUSION.config).is_file():
            for part in hub.fused(folder):
                with hub.covered(part, hub.ADAPTER) as place:
                    network.load_adapter(str(place), load_as=part.name, loading_info=report)
            with hub.covered(folder, hub.FUSION) as place:
                AdapterFusionLoader(network).load(str(place), loading_info=report, set_active=True)
        else:
            with hub.covered(folder, hub.ADAPTER) as place:
                network.load_adapter(str(place), set_active=True, loading_info=report)
    except MdcrError:
        raise
    except Exception as error:  # malformed files make the library raise errors of every class
        raise InputError(f"the adapter in {folder} does not fit the model ({error})", "Check its model") from error
    finally:
        logger.setLevel(level)
    if report["missing_keys"]:
        raise InputError(f"the adapter in {folder} must have weights of {report['missing_keys'][0]}, got none", _AGAIN)
    if network.active_adapters is None or torch.equal(_states(network), plain):
        raise InputError(f"the adapter in {folder} changes nothing", _AGAIN)


def _states(network: Any) -> torch.Tensor:
    ids = torch.tensor([_PROBE])
    with torch.inference_mode():
        states: torch.Tensor = network.eval()(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
    return states
