from __future__ import annotations

from tests.cli.conftest import own, tiny
from tests.cluster.slurm_host import slurm_host
from tests.encode.stub import stub

__all__ = ["own", "slurm_host", "stub", "tiny"]
