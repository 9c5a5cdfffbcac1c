"""What others read: the log, the state, what processes use; and the lock that keeps a second supervisor out."""

import io
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.stack import state_file
from headrace.stack.errors import AlreadyRunning, StackError
from headrace.stack.journal import Journal
from headrace.stack.lines import plain, read_line
from headrace.stack.overview import member_row, pace
from headrace.stack.state_file import MemberState, StackState, hold_lock
from headrace.stack.usage import Process, Usage, parse_stat, process_of, usage_of


def test_a_line_of_our_log_is_read_as_one() -> None:
    said = read_line('{"time": "t", "level": "warning", "event": "sink waits", "sink": "cache", "pause_s": 0.2}')
    assert (said.sentence, said.level, said.problem) == ("sink waits sink=cache pause_s=0.2", "warning", None)
    refused = read_line("headrace: port 9092 is taken")
    assert (refused.sentence, refused.level, refused.problem) == ("port 9092 is taken", "error", "port 9092 is taken")
    assert read_line("just a text").sentence == "just a text"
    assert read_line('{"half": ').sentence == '{"half":'


def test_a_line_cannot_move_the_cursor() -> None:
    assert plain("a\x1b[31mred\x1b[0m\x07\tb\r\n") == "ared    b"


def test_the_log_names_its_sources() -> None:
    out = io.StringIO()
    journal = Journal(out, ["broker", "cdc.shop"], as_json=False, has_colours=False)
    journal.write(0, "broker", "ready")
    journal.write(61_000, "cdc.shop", "is running", "info", {"per_s": 1})
    journal.write(61_000, "cdc.shop", "", "info", {"per_s": 2})  # only for programs
    assert out.getvalue() == "00:00:00 broker   │ ready\n00:01:01 cdc.shop │ is running\n"


def test_the_log_has_colours_in_a_terminal_and_lines_of_json_for_programs() -> None:
    out = io.StringIO()
    Journal(out, ["a"], as_json=False, has_colours=True).write(0, "a", "bad", "error")
    assert "\x1b[31mbad\x1b[0m" in out.getvalue()
    out = io.StringIO()
    Journal(out, ["a"], as_json=True, has_colours=True).write(0, "a", "bad", "error", {"n": 1})
    assert json.loads(out.getvalue()) == {
        "time": "1970-01-01T00:00:00.000Z", "source": "a", "level": "error", "event": "bad", "facts": {"n": 1},
    }  # fmt: skip


def own_state(**changes: object) -> StackState:
    own = process_of(os.getpid())
    assert own is not None
    members = (MemberState("broker", "broker", "running", 7), MemberState("topics", "topics", "done"))
    state = StackState(own.pid, own.began_ticks, 5, "headrace.toml", "127.0.0.1:9092", members)
    return replace(state, **changes)  # type: ignore[arg-type]


def test_commands_find_the_broker_of_a_stack_only_while_it_runs(tmp_path: Path) -> None:
    assert state_file.running_bootstrap(tmp_path) == ""
    state_file.path_in(tmp_path).parent.mkdir(parents=True)
    state_file.write(tmp_path, own_state(bootstrap="127.0.0.1:9393"))
    assert state_file.running_bootstrap(tmp_path) == "127.0.0.1:9393"
    state_file.write(tmp_path, own_state(bootstrap="127.0.0.1:9393", began_ticks=1))
    assert state_file.running_bootstrap(tmp_path) == ""
    state_file.path_in(tmp_path).write_text("half of")
    assert state_file.running_bootstrap(tmp_path) == ""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with hold_lock(tmp_path):
        return tmp_path


def test_a_state_is_read_as_it_was_written(folder: Path) -> None:
    assert state_file.read(folder) is None
    state_file.write(folder, own_state())
    assert state_file.read(folder) == own_state()
    assert own_state().is_fine


def test_a_state_whose_supervisor_is_gone_is_down(folder: Path) -> None:
    state_file.write(folder, own_state(began_ticks=1))  # the number of our process, but not our process
    found = state_file.read(folder)
    assert found is not None
    assert [(one.phase, one.pid) for one in found.members] == [("down", None), ("done", None)]
    assert not found.is_fine


def test_a_state_that_cannot_be_read_says_how_to_mend_it(folder: Path) -> None:
    state_file.path_in(folder).write_text("{")
    with pytest.raises(StackError, match="start the stack anew with headrace up"):
        state_file.read(folder)


def test_only_one_holds_the_lock_and_a_killed_one_does_not(tmp_path: Path) -> None:
    script = "from headrace.stack.state_file import hold_lock; from pathlib import Path; import time\n"
    script += f"with hold_lock(Path({str(tmp_path)!r})): print('held', flush=True); time.sleep(600)"
    other = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    with other, other.stdout:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(AlreadyRunning, match=rf"already runs \(pid {other.pid}\)"), hold_lock(tmp_path):
            pass
        other.kill()
        other.wait()
    with hold_lock(tmp_path):
        pass


def test_a_process_is_read_whatever_its_name() -> None:
    fields = ["S", "7", *["0"] * 9, "150", "50", *["0"] * 6, "4242", "0", "3", *["0"] * 5]
    found = parse_stat(f"42 (a (b) c) {' '.join(fields)}")
    assert (found.pid, found.parent, found.began_ticks) == (42, 7, 4242)
    assert found.cpu_s == pytest.approx(200 / os.sysconf("SC_CLK_TCK"))
    assert found.memory_bytes == 3 * os.sysconf("SC_PAGE_SIZE")
    assert process_of(2**22 + 1) is None


def test_a_process_is_counted_with_its_descendants() -> None:
    every = [Process(1, 0, 9, 900, 0), Process(2, 1, 1, 10, 0), Process(3, 2, 2, 20, 0), Process(4, 3, 4, 40, 0)]
    assert usage_of([2, 99], every) == {2: Usage(7, 70, 3)}


def test_the_pace_of_a_pipeline_is_that_of_its_jobs() -> None:
    jobs = {"job a.out": {"per_s": 2.0, "lag_records": 5, "lag_ms": 10}, "job b.out": {"per_s": 1.0, "lag_ms": 30}}
    assert pace(jobs) == (3.0, 5, 30)
    assert pace({"url": "x"}) == (None, None, None)
    row = member_row(
        MemberState("p", "pipelines", "running", 2, facts=jobs), {2: Usage(1, 5, 1)}, {2: Usage(2, 9, 1)}, 4
    )
    assert (row.cpu_share, row.memory_bytes, row.per_s) == (0.25, 9, 3.0)
