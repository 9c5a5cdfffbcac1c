"""Running the command line as a shell would: its input, its output, its exit code."""

import io
import json
import logging
import sys
from typing import NamedTuple

from headrace.cli.main import main

COMMAND = [sys.executable, "-m", "headrace.cli.main"]


class Run(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)

    @property
    def json_lines(self):
        return [json.loads(line) for line in self.out.splitlines()]


def run_cli(*arguments, bootstrap=None, stdin=""):
    """Run one command to its end, in this process: it starts in no time, and what it does is the same."""
    options = ["--bootstrap", bootstrap] if bootstrap else []
    given = io.BytesIO(stdin.encode() if isinstance(stdin, str) else stdin)
    out, err = io.BytesIO(), io.BytesIO()
    kept = sys.argv, sys.stdin, sys.stdout, sys.stderr
    logger = logging.getLogger("headrace")
    kept_logger = logger.handlers, logger.level, logger.propagate
    sys.argv = ["headrace", *map(str, arguments), *options]
    streams = [io.TextIOWrapper(stream, "utf-8") for stream in (given, out, err)]  # one that is collected closes
    sys.stdin, sys.stdout, sys.stderr = streams
    try:
        main()
        code = 0
    except SystemExit as end:
        code = end.code or 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        sys.argv, sys.stdin, sys.stdout, sys.stderr = kept
        logger.handlers, logger.level, logger.propagate = kept_logger
    return Run(code, out.getvalue().decode(), err.getvalue().decode())


def assert_one_sentence(run, *words):
    """Exit code 1, nothing on standard output, and one line on standard error without a traceback."""
    assert run.code == 1, run
    assert run.out == ""
    assert run.err.startswith("headrace: ")
    assert run.err.count("\n") == 1
    for word in words:
        assert word in run.err


def assert_wrong_call(run, *words):
    """Exit code 2, nothing on standard output, and click's usage with our sentence below it."""
    assert run.code == 2, run
    assert run.out == ""
    assert run.err.startswith("Usage: ")
    assert "Traceback" not in run.err
    for word in words:
        assert word in run.err
