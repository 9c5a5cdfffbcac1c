"""The audit log: which events get a line, where lines go, and what happens when they cannot be written."""

import json
import os
import re

import pytest

from headrace.telemetry import audit
from headrace.telemetry.audit import AuditFile, AuditLog, AuditUnwritable, Caller, Repeats, read_events
from headrace.testing.clock import FakeClock

ALICE = Caller("User:alice", "127.0.0.1:1", "app", "SASL_SSL")


def open_log(path, max_bytes=1 << 20, files=3, events=audit.EVERY_EVENT, clock=None):
    return AuditLog(AuditFile(path, max_bytes, files), events, clock or FakeClock())


def deny(log, name="orders", caller=ALICE):
    resources = [{"type": "topic", "name": name}]
    log.record_often(audit.DENIALS, audit.DENIAL, audit.DENIED, caller, (caller.principal, name), resources=resources)


def test_an_event_is_a_line_of_json_with_who_and_when(tmp_path):
    log = open_log(tmp_path / "audit.log")
    log.record(audit.LOGIN, audit.OK, ALICE._replace(client_id=None), mechanism="PLAIN")
    (line,) = (tmp_path / "audit.log").read_text().splitlines()  # before it is closed
    event = json.loads(line)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", event.pop("time"))
    assert event == {
        "event": "login",
        "outcome": "ok",
        "principal": "User:alice",
        "client": "127.0.0.1:1",
        "listener": "SASL_SSL",
        "mechanism": "PLAIN",
    }


def test_names_of_clients_make_no_lines_of_their_own_and_are_cut(tmp_path):
    log = open_log(tmp_path / "audit.log")
    settings = {"z" * 30_000: "1"}
    log.record(audit.LOGIN, audit.OK, ALICE._replace(client_id='x"}\n{"event":"forged"}' + "y" * 1000), **settings)
    (event,) = read_events(tmp_path / "audit.log")
    assert max(map(len, event)) == audit.MAX_TEXT + 1
    assert event["client_id"].startswith('x"}\n{')
    assert len(event["client_id"]) == audit.MAX_TEXT + 1


def test_the_file_is_its_owners_alone_and_so_are_those_set_aside(tmp_path):
    path = tmp_path / "new" / "audit.log"
    log = open_log(path, max_bytes=4096, files=3)
    for number in range(200):
        log.record(audit.CHANGE, audit.OK, ALICE, number=number)
    assert path.parent.stat().st_mode & 0o777 == 0o700
    names = sorted(each.name for each in path.parent.iterdir())
    assert names == ["audit.log", "audit.log.1", "audit.log.2"]
    assert {each.stat().st_mode & 0o777 for each in path.parent.iterdir()} == {0o600}
    assert all(each.stat().st_size <= 4096 for each in path.parent.iterdir())
    numbers = [event["number"] for event in read_events(path)]
    assert numbers == list(range(numbers[0], 200))  # the oldest are gone, and nothing between
    log.close()


def test_one_file_alone_is_begun_anew(tmp_path):
    log = open_log(tmp_path / "audit.log", max_bytes=4096, files=1)
    for number in range(100):
        log.record(audit.CHANGE, audit.OK, ALICE, number=number)
    assert [each.name for each in tmp_path.iterdir()] == ["audit.log"]
    assert [event["number"] for event in read_events(tmp_path / "audit.log")][-1] == 99


def test_a_file_that_others_could_read_is_closed_to_them_and_a_link_is_refused(tmp_path):
    path = tmp_path / "audit.log"
    path.write_text("")
    path.chmod(0o644)
    open_log(path)
    assert path.stat().st_mode & 0o777 == 0o600
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(AuditUnwritable, match=r"cannot be written .*: name another file"):
        open_log(tmp_path / "link")


@pytest.mark.parametrize("is_moved", [True, False])
def test_a_file_that_somebody_moves_away_or_removes_is_begun_anew(tmp_path, is_moved):
    path = tmp_path / "audit.log"
    log = open_log(path)
    log.record(audit.CHANGE, audit.OK, ALICE, number=0)
    path.rename(tmp_path / "moved") if is_moved else path.unlink()
    log.record(audit.CHANGE, audit.OK, ALICE, number=1)
    assert [event["number"] for event in read_events(path)] == [1]
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_line_that_was_torn_spoils_no_other(tmp_path):
    path = tmp_path / "audit.log"
    path.write_text('{"time":"2026-01-01T00:00:00.000Z","event":"cha')
    log = open_log(path)
    log.record(audit.CHANGE, audit.OK, ALICE, number=1)
    assert [event["number"] for event in read_events(path)] == [1]


def test_what_could_not_be_written_is_counted_and_said_later(tmp_path):
    path = tmp_path / "audit.log"
    file = AuditFile(path, 1 << 20, 3)
    log = AuditLog(file, clock=FakeClock())
    read_only = os.open(path, os.O_RDONLY)
    writable = os.dup(file._fd)
    os.dup2(read_only, file._fd)
    for number in range(3):
        log.record(audit.CHANGE, audit.OK, ALICE, number=number)  # nobody is stopped by it
    os.dup2(writable, file._fd)
    log.record(audit.CHANGE, audit.OK, ALICE, number=3)
    lost, written = read_events(path)
    assert (lost["event"], lost["count"], written["number"]) == ("lost", 3, 3)
    os.close(read_only)
    os.close(writable)


def test_what_is_alike_gets_one_line_and_the_rest_a_count(tmp_path):
    clock = FakeClock()
    log = open_log(tmp_path / "audit.log", clock=clock)
    for _ in range(1000):
        deny(log)
    deny(log, "payments")
    assert [event["resources"][0]["name"] for event in read_events(tmp_path / "audit.log")] == ["orders", "payments"]
    clock.advance(Repeats.WINDOW_MS)
    log.flush()
    *_, last = read_events(tmp_path / "audit.log")
    assert (last["repeated"], last["resources"], last["principal"]) == (
        999,
        [{"type": "topic", "name": "orders"}],
        "User:alice",
    )
    deny(log)  # a window of its own again
    assert len(list(read_events(tmp_path / "audit.log"))) == 4
    assert log.counts["denial", "denied"] == 1002


def test_a_clock_that_is_set_back_hides_nothing(tmp_path):
    clock = FakeClock()
    log = open_log(tmp_path / "audit.log", clock=clock)
    for _ in range(3):
        deny(log)
        clock.advance(-86_400_000)
    deny(log)
    deny(log)
    assert len(list(read_events(tmp_path / "audit.log"))) == 4  # a line each time, and the last one is counted


def test_the_end_leaves_nothing_uncounted(tmp_path):
    log = open_log(tmp_path / "audit.log")
    for _ in range(5):
        deny(log)
    log.close()
    assert [event.get("repeated") for event in read_events(tmp_path / "audit.log")] == [None, 4]


def test_a_flood_of_what_differs_is_bounded_and_changes_are_not_among_it(tmp_path):
    clock = FakeClock()
    log = open_log(tmp_path / "audit.log", clock=clock)
    for number in range(50_000):
        deny(log, f"made-up-{number}")
    size = (tmp_path / "audit.log").stat().st_size
    assert len(list(read_events(tmp_path / "audit.log"))) == Repeats.BURST
    log.record(audit.CHANGE, audit.OK, ALICE)
    clock.advance(Repeats.WINDOW_MS)
    log.flush()
    *_, change, rest = read_events(tmp_path / "audit.log")
    assert (change["event"], rest["count"], rest["reason"]) == (
        "change",
        50_000 - Repeats.BURST,
        "too many denials to tell apart",
    )
    assert size < 30_000


def test_only_what_was_asked_for_is_written_and_everything_is_counted(tmp_path):
    log = open_log(tmp_path / "audit.log", events=(audit.CHANGES,))
    deny(log)
    assert log.wants(audit.CHANGES)
    assert not log.wants(audit.DENIALS)
    assert list(read_events(tmp_path / "audit.log")) == []
    assert log.counts["denial", "denied"] == 1
    without_file = AuditLog()
    deny(without_file)
    assert without_file.counts["denial", "denied"] == 1


def test_many_resources_are_several_lines(tmp_path):
    log = open_log(tmp_path / "audit.log")
    log.record_resources(audit.CHANGE, audit.OK, ALICE, [{"type": "topic", "name": str(n)} for n in range(250)])
    assert [len(event["resources"]) for event in read_events(tmp_path / "audit.log")] == [100, 100, 50]
