"""Entry of ``mdcr``: parse, run one command, turn errors into exit codes."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from pipeline.cli.arguments import parser
from pipeline.core.errors import MdcrError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``mdcr`` and return its exit code: 0 done, 1 failed, 2 bad input or configuration, 3 drift."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    options = parser().parse_args(words)
    options.words = words
    from pipeline.cli.commands import run

    try:
        run(options)
    except MdcrError as error:
        print(f"mdcr: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("mdcr: stopped; the same command resumes where it stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return 0
    return 0
