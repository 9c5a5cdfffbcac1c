"""What of a process's words reaches the one log: a line an event, whatever Spark makes of it."""

from pathlib import Path

from headrace.stack.journal import PartLogs
from headrace.stack.lines import Digest, Said

SPARK = """\
2026-11-15T21:24:09Z error StateStore: Store 17 of enriched.out could not be closed
org.apache.spark.SparkException: [STREAM_FAILED] Query failed: Job aborted due to stage failure: Task 0 in stage 41.0
failed 1 times: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 12, in main
    process()
headrace.client.errors.BrokerUnreachable: cannot reach a broker at 127.0.0.1:9092
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handle(PythonRunner.scala:770)
\tat java.base/java.lang.Thread.run(Thread.java:840)
Caused by: java.lang.IllegalStateException: gone
\t... 12 more
"""
PYTHON = """\
Traceback (most recent call last):
  File "plan_data_source_read.py", line 400, in main
    write(out)
{raised}

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "daemon.py", line 180, in manager
ValueError: I/O operation on closed file
"""


def shown(text: str, digest: Digest | None = None, at_s: float = 10.0) -> list[str]:
    digest = digest or Digest()
    taken = [digest.take(line, at_s) for line in text.splitlines()]
    return [one.sentence if isinstance(one, Said) else one for one in taken if one is not None]


def test_a_failure_of_spark_is_one_line() -> None:
    assert shown(SPARK) == ["StateStore: Store 17 of enriched.out could not be closed"]
    told_by_us = "MicroBatchExecution: Query enriched.out [id = 1] terminated with error"
    assert shown(SPARK.replace("StateStore: Store 17 of enriched.out could not be closed", told_by_us)) == []


def test_the_same_failure_again_is_no_news_for_a_while() -> None:
    digest = Digest()
    assert len(shown(SPARK, digest)) == 1
    assert shown(SPARK.replace("17", "18"), digest, 20.0) == []
    assert len(shown(SPARK.replace("17", "19"), digest, 41.0)) == 1


def test_a_traceback_is_its_last_line_and_what_is_chained_to_it_nothing() -> None:
    assert shown(PYTHON.format(raised="KeyError: 'city'")) == ["KeyError: 'city'"]
    assert shown(PYTHON.format(raised="BrokenPipeError: [Errno 32] Broken pipe")) == []


def test_a_trace_of_java_without_a_line_of_its_log_is_its_first() -> None:
    first = "java.lang.OutOfMemoryError: Java heap space"
    assert shown(f"{first}\n\tat a.b.C.d(C.java:1)\nCaused by: x.y.ZException: no\n\t... 3 more") == [first]


def test_our_own_words_and_those_of_a_users_code_come_through() -> None:
    digest = Digest()
    shown(SPARK, digest, 10.0)
    assert shown('{"event": "starts again", "job": "enriched"}', digest, 10.1) == [
        '{"event": "starts again", "job": "enriched"}'
    ]
    shown(SPARK.replace("enriched", "other"), digest, 10.2)
    assert shown("headrace: it cannot be", digest, 10.2) == ["headrace: it cannot be"]
    shown(SPARK.replace("enriched", "third"), digest, 10.3)
    assert shown("rows: 17", digest, 11.0) == ["rows: 17"]  # a burst has an end
    assert shown("  indented\nrows: 18", digest, 12.0) == ["  indented", "rows: 18"]


def test_lines_of_sparks_log_have_their_level() -> None:
    for line in ("26/11/15 18:20:57 WARN Thing: not so", "2026-11-15T18:20:57Z warn Thing: not so"):
        assert Digest().take(line, 1.0) == Said("Thing: not so", "warning")


def test_what_is_very_long_is_cut() -> None:
    (said,) = shown(f"2026-11-15T21:24:09Z warn Thing: {'x' * 1000}")
    assert len(said) < 260


def test_all_of_it_is_in_a_file_that_does_not_grow_for_ever(tmp_path: Path) -> None:
    logs = PartLogs(tmp_path, largest_bytes=400)
    for number in range(100):
        logs.write("pipelines.shop", f"line {number} \ud800")
    logs.close()
    newest, older = logs.path("pipelines.shop"), logs.path("pipelines.shop").with_suffix(".log.1")
    written = older.read_text() + newest.read_text()
    assert written.endswith("line 99 ?\n")
    assert older.stat().st_size + newest.stat().st_size < 820
    assert newest.stat().st_mode & 0o077 == 0


def test_a_log_that_cannot_be_written_costs_nothing_else(tmp_path: Path) -> None:
    (tmp_path / ".headrace").write_text("a file where the folder should be")
    PartLogs(tmp_path / ".headrace").write("broker", "hello")


def test_the_stack_of_a_call_that_ctrl_c_interrupted_is_for_nobody() -> None:
    wall = [
        "ERROR:root:Exception while sending command.",
        "Traceback (most recent call last):",
        '  File "py4j/clientserver.py", line 535, in send_command',
        "RuntimeError: reentrant call inside <_io.BufferedReader name=8>",
        "ERROR:root:KeyboardInterrupt while sending command.",
        "Traceback (most recent call last):",
        '  File "py4j/java_gateway.py", line 1055, in send_command',
        "KeyboardInterrupt",
        "py4j.protocol.Py4JError: An error occurred while calling o58.sc",
    ]
    assert shown("\n".join(wall)) == []
    assert shown("\n".join([*wall, "headrace: what we say"])) == ["headrace: what we say"]
