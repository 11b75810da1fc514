"""A real Slurm on this host, for tests: two nodes, two partitions, nothing outside one temporary folder.

The daemons come from Debian's packages. Where they are absent or cannot be started, tests are skipped with the reason.
"""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

COMMANDS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol", "sinfo", "scancel", "setpriv")

_CONFIG = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
JobAcctGatherParams=OverMemoryKill
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
AccountingStorageType=accounting_storage/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1,sched_min_interval=0,batch_sched_delay=0
SlurmdParameters=config_overrides
ReturnToService=2
SlurmdTimeout=30
KillWait=2
DefMemPerCPU=3500
MinJobAge=300
GresTypes=gpu
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=2 RealMemory=8000
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=2 RealMemory=8000 Gres=gpu:1
PartitionName=main Nodes=n1,n2 Default=YES MaxTime=10
PartitionName=gpu Nodes=n2 MaxTime=10
PartitionName=urgent Nodes=n1 MaxTime=10 PriorityTier=2
"""


class SlurmHost:
    """Slurm's daemons in one folder.

    Attributes:
        config: the configuration; commands find this Slurm by ``SLURM_CONF``.
        env: environment of commands that are to talk to it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / "slurm.conf"
        self.env = os.environ | {"SLURM_CONF": str(self.config)}
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start the daemons and wait until both nodes take jobs."""
        host = socket.gethostname().split(".")[0]
        values = {"host": host, "ports": _free_ports(3), "user": getpass.getuser(), "folder": self.folder}
        self.config.write_text(_CONFIG.format(**values))
        (self.folder / "gres.conf").write_text("NodeName=n2 Name=gpu File=/dev/null\n")
        (self.folder / "munge.key").write_bytes(os.urandom(128))
        (self.folder / "munge.key").chmod(0o400)
        for name in ("state", "spool-n1", "spool-n2"):
            (self.folder / name).mkdir()
        names = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        options = [f"--{option}={self.folder}/munge.{name}" for option, name in names.items()]
        self._spawn("munged", "--foreground", "--force", *options)
        self.until((self.folder / "munge.socket").exists, "munged opens its socket", 10)
        self._spawn("slurmctld", "-D", "-i", "-f", str(self.config))
        self.start_node("n1")
        self.start_node("n2")
        self.until(lambda: self.nodes() == {"n1": "idle", "n2": "idle"}, "both nodes are idle", 30)

    def start_node(self, name: str) -> None:
        """Start a node's daemon."""
        self._spawn("slurmd", "-D", "-N", name, "-f", str(self.config), name=name)

    def lose_node(self, name: str) -> None:
        """End a node as a power cut would: its daemon and whatever it runs, by SIGKILL."""
        daemon = self._daemons.pop(name)
        daemon.kill()
        daemon.wait()
        watchers, watched = self._processes(f"MDCR_SLURM_NODE={name}"), self._processes(f"SLURMD_NODENAME={name}")
        for process in watchers + watched:  # in this order, or a watcher reports that its slice failed
            _kill(process)
        self._ask("scontrol", "update", f"nodename={name}", "state=down", "reason=lost")  # or wait for SlurmdTimeout

    def end(self, job: str) -> None:
        """End the process of a job by SIGKILL."""
        array, _, task = job.partition("_")
        names = [f"SLURM_ARRAY_JOB_ID={array}", f"SLURM_ARRAY_TASK_ID={task}"] if task else [f"SLURM_JOB_ID={array}"]
        for process in self._processes(*names):
            if b"-m" in Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0"):  # not its shell
                _kill(process)

    def nodes(self) -> dict[str, str]:
        """Return the state of each node; empty while the controller does not answer."""
        result = self._ask("sinfo", "--noheader", "--Node", "--format=%N %T")
        return dict(line.split() for line in result.splitlines())

    def until(self, true: Callable[[], object], what: str, seconds: float) -> None:
        """Wait until something is true; fail with the daemons' last words when it does not come about."""
        deadline = time.monotonic() + seconds
        while not true():
            dead = [name for name, daemon in self._daemons.items() if daemon.poll() is not None]
            if dead or time.monotonic() > deadline:
                raise TimeoutError(f"not within {seconds:.0f} s: {what}; ended: {dead or 'none'}\n{self._words()}")
            time.sleep(0.05)

    def stop(self) -> None:
        """End everything that was started, jobs first."""
        if "slurmctld" in self._daemons:
            self._ask("scancel", "--user", getpass.getuser())
        deadline = time.monotonic() + 5
        while self._processes() and time.monotonic() < deadline:
            time.sleep(0.1)
        for daemon in reversed(self._daemons.values()):  # nothing of theirs is kept: killing is enough
            daemon.kill()
            daemon.wait()
        for process in self._processes():
            _kill(process)

    def _spawn(self, *command: str, name: str = "") -> None:
        """Start a daemon that ends with this process, however that ends."""
        mortal, env = ["setpriv", "--pdeathsig", "KILL", *command], self.env | {"MDCR_SLURM_NODE": name}
        with (self.folder / f"{name or command[0]}.out").open("ab") as output:
            self._daemons[name or command[0]] = subprocess.Popen(mortal, stdout=output, stderr=output, env=env)

    def _ask(self, *command: str) -> str:
        try:
            return subprocess.run(command, capture_output=True, text=True, check=False, timeout=10, env=self.env).stdout
        except subprocess.TimeoutExpired:
            return ""

    def _processes(self, *variables: str) -> list[int]:
        """Return the processes of this Slurm's jobs, by the environment they were given."""
        processes, daemons = [], {daemon.pid for daemon in self._daemons.values()}
        wanted = {variable.encode() for variable in (f"SLURM_CONF={self.config}", *variables)}
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                environment = (entry / "environ").read_bytes().split(b"\0")
            except (FileNotFoundError, PermissionError, ProcessLookupError):
                continue
            of_job = any(variable.startswith((b"SLURM_JOB_ID=", b"MDCR_SLURM_NODE=n")) for variable in environment)
            if of_job and int(entry.name) not in daemons and wanted <= set(environment):
                processes.append(int(entry.name))
        return processes

    def _words(self) -> str:
        logs = [*self.folder.glob("*.out"), *self.folder.glob("*.log")]
        return "\n".join(f"== {log.name}\n" + "\n".join(log.read_text().splitlines()[-8:]) for log in sorted(logs))


@pytest.fixture(scope="session")
def slurm_host() -> Iterator[SlurmHost]:
    """Start a Slurm for the session; ``SLURM_CONF`` points to it as long as it runs."""
    if missing := [command for command in COMMANDS if shutil.which(command) is None]:
        packages = "slurmctld slurmd slurm-client munge"
        pytest.skip(f"Slurm is not installed ({', '.join(missing)} missing); on Debian: apt-get install {packages}")
    with tempfile.TemporaryDirectory(prefix="mdcr-slurm-") as name, pytest.MonkeyPatch.context() as patch:
        host = SlurmHost(Path(name))
        patch.setenv("SLURM_CONF", str(host.config))
        with ExitStack() as stack:
            stack.callback(host.stop)
            try:
                host.start()
            except TimeoutError as error:
                pytest.skip(f"Slurm cannot be started here: {error}")
            yield host


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [bound.getsockname()[1] for bound in sockets]


def _kill(process: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)
