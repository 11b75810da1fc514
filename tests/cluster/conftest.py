from __future__ import annotations

from tests.cluster.ray_host import ray_cluster, ray_host
from tests.cluster.slurm_host import slurm_host

__all__ = ["ray_cluster", "ray_host", "slurm_host"]
