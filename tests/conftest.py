"""What holds for every test."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import settings

from pipeline.core import progress, resources
from tests.cluster.slurm_host import slurm_host as slurm_host  # one Slurm a session
from tests.faults.tally import summary

# One place for compiled kernels, before Numba is loaded: all workers, and the processes that tests start, share it.
os.environ.setdefault("NUMBA_CACHE_DIR", str(Path(__file__).parents[1] / ".pytest_cache" / "numba"))

# Compiled modules are written and read, whatever the environment says: each process of a test would compile again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Before NumPy and torch are loaded: threads of small products wait for each other longer than they take.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

settings.register_profile("here", deadline=None)  # examples may wait for other work on the machine
settings.load_profile("here")

TESTS = Path(__file__).parent

_LONG = """
    test_first_hour test_reproduced train/test_multi_format cluster/test_slurm cluster/test_ray faults/test_memory
    studies/large_scale/test_study studies/facets/test_study studies/neighbours/test_study
    studies/scirepeval/test_study faults/test_kills studies/mdcr/test_systems test_site cli/test_report
    studies/mdcr/test_benchmark core/test_runner faults/test_flips cli/test_ends retrieve/test_bm25
    studies/test_pool_size encode/test_fidelity test_changes cli/test_releases cli/test_process stages/test_encoders
    studies/scirepeval/test_probes corpus/test_golden measure/test_statistics measure/test_differences
    measure/test_estimates measure/test_engines encode/test_reranker encode/test_execution
    studies/mdcr/test_exchange scores/test_plots retrieve/test_java sources/test_synthetic train/test_architectures
    train/test_training test_plugins studies/leaderboard/test_leaderboard faults/test_trainings
    faults/test_attacks faults/test_models
"""
"""The modules that take longest, in this order; ``make test`` leaves out those that ``make quick`` does not have.

pytest-xdist deals modules out whole, so a long one that begins last would keep a core alone.
"""

_QUICK = """
    core/test_config core/test_install core/test_order core/test_parallel core/test_progress core/test_rng
    core/test_text core/test_units core/test_workdir sources/test_beir sources/test_collection sources/test_csfcube
    sources/test_openalex sources/test_s2orc2020 corpus/test_duplicates corpus/test_pools encode/test_lsa
    encode/test_store retrieve/test_canonical retrieve/test_fusion measure/test_differences measure/test_inputs
    measure/test_measures measure/test_statistics measure/test_trec exchange/test_runs stages/test_score
    stages/test_systems scores/test_files scores/test_render scores/test_rows scores/test_summary
    cluster/test_commands studies/test_pool_size studies/neighbours/test_operators studies/scirepeval/test_data
    cli/test_refusals test_docs test_papers
"""
"""The modules of ``make quick``: what takes no more than seconds."""


def paths(names: str) -> list[Path]:
    """Return the files of modules."""
    return [TESTS / f"{name}.py" for name in names.split()]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not read other modules for ``-m quick``: to load them takes longer than its tests."""
    other = collection_path.name.startswith("test_") and collection_path not in paths(_QUICK)
    return True if other and config.option.markexpr == "quick" else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest modules, and mark them ``slow``; mark those of ``make quick``."""
    quick, places = set(paths(_QUICK)), {path: place for place, path in enumerate(paths(_LONG))}
    items.sort(key=lambda item: places.get(item.path, len(places)))
    for item in items:
        if item.path in places.keys() | quick:
            item.add_marker("quick" if item.path in quick else "slow")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what the harness of tests/faults tried."""
    for line in summary(terminalreporter):
        terminalreporter.write_line(line)


@pytest.fixture(autouse=True, scope="session")
def one_worker_and_format() -> Iterator[None]:
    """Have stages take one worker, and figures of studies and reports be SVG, unless a test says more.

    A process that starts costs more than small work, and a figure as PDF and PNG more than most small studies.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resources, "available_cores", lambda: 1)
        for writer in ("studies.run", "cli.results"):
            patch.setattr(f"pipeline.{writer}.FORMATS", ("svg",))
        yield


@pytest.fixture
def plain_ranx() -> Iterator[ModuleType]:
    """Return ranx in plain Python; compiled for the first time, its dictionaries and fusions take a minute."""
    import numba

    def forget() -> None:
        for name in [name for name in sys.modules if name.partition(".")[0] == "ranx"]:
            del sys.modules[name]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(numba.config, "DISABLE_JIT", 1)
        forget()
        yield import_module("ranx")
    forget()


@pytest.fixture
def stub() -> Iterator[None]:
    """Make the model ``stub`` known while a test runs."""
    from tests.encode import stub

    stub.install()
    stub.StubEncoder.encoded, stub.StubEncoder.limit = 0, None
    yield
    del stub.kinds.KINDS["stub"]


@pytest.fixture(autouse=True)
def messages_are_shown() -> None:
    """Undo what a command or a workspace of an earlier test of this process said of its messages."""
    progress.set_quiet(False)
