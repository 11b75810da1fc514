from __future__ import annotations

from tests.cluster.slurm_host import slurm_host
from tests.encode.stub import stub

__all__ = ["slurm_host", "stub"]
