from __future__ import annotations

from tests.cluster.slurm_host import slurm_host

__all__ = ["slurm_host"]
