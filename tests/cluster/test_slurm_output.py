"""Reading what Slurm prints. The records are those of a Slurm 22.05 with slurmdbd."""

from __future__ import annotations

import pytest

from pipeline.cluster.slurm import TaskState, format_numbers, from_sacct, from_scontrol, parse_numbers

SACCT = """\
3|PENDING|0:0|None assigned|Dependency
1_0|COMPLETED|0:0|n1|None
1_1|FAILED|2:0|n1|None
1_2|FAILED|0:9|n1|None
1_3|CANCELLED by 0|0:0|n1|None
2_3|RUNNING|0:0|n2|JobArrayTaskLimit
2_[6,9%1]|PENDING|0:0|None assigned|JobArrayTaskLimit
4_[5-7]|PENDING|0:0|None assigned|Dependency
"""

SCONTROL = (
    "JobId=9 ArrayJobId=1 ArrayTaskId=3 JobName=k.sh UserId=root(0) GroupId=root(0) MCS_label=N/A Priority=4294901759"
    " Nice=0 Account=root QOS=normal JobState=CANCELLED Reason=None Dependency=(null) Requeue=1 Restarts=2 BatchFlag=1"
    " Reboot=0 ExitCode=0:15 RunTime=00:00:02 TimeLimit=00:10:00 TimeMin=N/A NodeList=n1 BatchHost=n1 NumNodes=1"
    " Command=/a b/JobState=FAILED WorkDir=/tmp\n"
    "JobId=2 ArrayJobId=2 ArrayTaskId=6,9%1 ArrayTaskThrottle=1 JobName=k.sh JobState=PENDING Reason=Resources"
    " Dependency=(null) Requeue=1 Restarts=0 ExitCode=0:0 RunTime=00:00:00 ReqNodeList=(null) ExcNodeList=(null)"
    " NodeList= SchedNodeList=n1 NumNodes=1\n"
)


def test_accounting() -> None:
    states = list(from_sacct(SACCT))
    assert [(s.job, s.task, s.state, s.exit_code, s.signal) for s in states] == [
        (3, None, "PENDING", 0, 0),
        (1, 0, "COMPLETED", 0, 0),
        (1, 1, "FAILED", 2, 0),
        (1, 2, "FAILED", 0, 9),
        (1, 3, "CANCELLED", 0, 0),
        (2, 3, "RUNNING", 0, 0),
        (2, 6, "PENDING", 0, 0),
        (2, 9, "PENDING", 0, 0),
        (4, 5, "PENDING", 0, 0),
        (4, 6, "PENDING", 0, 0),
        (4, 7, "PENDING", 0, 0),
    ]
    assert [s.finished for s in states] == [False, *[True] * 4, *[False] * 6]
    assert (states[0].node, states[1].node, states[1].reason) == ("", "n1", "")


def test_controller() -> None:
    cancelled, *waiting = from_scontrol(SCONTROL)
    assert cancelled == TaskState(1, 3, "CANCELLED", "", 0, 15, "n1", 2)
    assert [(s.job, s.task, s.state, s.reason, s.node) for s in waiting] == [
        (2, 6, "PENDING", "Resources", ""),
        (2, 9, "PENDING", "Resources", ""),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("7", [7]), ("0-3,7", [0, 1, 2, 3, 7]), ("2-5%1", [2, 3, 4, 5]), ("0-6:3,9%20", [0, 3, 6, 9])],
)
def test_task_numbers(text: str, expected: list[int]) -> None:
    assert list(parse_numbers(text)) == expected
    assert list(parse_numbers(format_numbers(expected))) == expected
    assert format_numbers([7, 3, 0, 1, 2, 3]) == "0-3,7"
    assert format_numbers(range(1000)) == "0-999"
