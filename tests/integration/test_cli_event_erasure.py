"""`headrace events chain|verify|redact|archive|retain` on a file: what it prints and refuses, and how it exits."""

import sqlite3
from pathlib import Path

import pytest

from headrace.eventsourcing import NewEvent, StreamAppend, open_store
from headrace.eventsourcing.archives import read_archive
from headrace.eventsourcing.model import Snapshot
from headrace.eventsourcing.sqlite_store import sqlite
from tests.integration.cli_runs import assert_one_sentence, assert_wrong_call, run_cli


@pytest.fixture
def path(tmp_path: Path) -> Path:
    store = sqlite(tmp_path / "shop.db")
    for name in ("order-7", "order-8"):
        events = [NewEvent("noted", b'{"note":"%d"}' % number, time_ms=number) for number in range(5)]
        store.append([StreamAppend(name, events)])
    store.write_snapshot("order-7", Snapshot(4, "fold", b"{}"))
    store.close()
    return tmp_path / "shop.db"


@pytest.fixture
def url(path: Path) -> str:
    return f"sqlite:///{path}"


def test_a_store_is_chained_and_verified(url: str, path: Path, tmp_path: Path) -> None:
    assert (
        "0 events as they were chained, 10 not chained yet, and there are no links"
        in run_cli("events", "verify", url).out
    )
    mark = run_cli("events", "chain", url).out.strip()
    assert mark.startswith("1:10:")
    (tmp_path / "shop.link").write_text(mark + "\n")
    assert run_cli("events", "chain", url, "--json").json == {"link": mark, "chained": 0}
    found = run_cli("events", "verify", url, "--against", tmp_path / "shop.link", "--json").json
    assert (found["intact"], found["chained"], found["unchained"], found["link"]) == (True, 10, 0, mark)
    with sqlite3.connect(path) as db:
        db.execute("UPDATE headrace_events SET type = 'other' WHERE position = 3")
        db.execute("DELETE FROM headrace_events WHERE position = 9")
    db.close()
    done = run_cli("events", "verify", url, "--against", mark)
    assert done.code == 1
    assert "changed: event 3 of stream 'order-7' (position 3) is not as it was when link 1 was made" in done.out
    assert "removed: event 4 of stream 'order-8' (position 9) is not there any more" in done.out
    assert "TAMPERED WITH" in done.out
    found = run_cli("events", "verify", url, "--json")
    assert found.code == 1
    assert [(each["kind"], each["position"]) for each in found.json["findings"]] == [
        ("changed", 3), ("removed", 9), ("gap", 10)
    ]  # fmt: skip


def test_an_event_is_redacted(url: str, path: Path) -> None:
    run_cli("events", "chain", url)
    done = run_cli("events", "redact", url, "order-7", 3, "--reason", "a name", "--by", "ann", "--yes", "--json").json
    assert done == {"stream": "order-7", "version": 3, "trace": 6, "repeat": False}
    assert run_cli("events", "redact", url, "order-7", 3, "--reason", "x", "--yes", "--json").json["repeat"]
    assert b'{"note":"2"}' not in path.read_bytes().split(b"order-8")[0]
    found = run_cli("events", "verify", url)
    assert found.code == 0
    assert "redacted by ann: event 3 of 'order-7': a name" in found.out
    [shown] = run_cli("events", "show", url, "order-7", "--from", 3, "--to", 3, "--json").json_lines
    assert list(shown["data"]) == ["headrace:redacted"]
    assert_one_sentence(run_cli("events", "redact", url, "order-7", 9, "--reason", "x", "--yes"), "has no event 9")
    assert_wrong_call(run_cli("events", "redact", url, "order-7", 2, "--yes"), "--reason")
    assert_wrong_call(run_cli("events", "redact", url, "order-7", 2, "--reason", "x"), "give --yes")


def test_events_are_archived_and_retained(url: str, tmp_path: Path) -> None:
    folder = tmp_path / "archives"
    folder.mkdir()
    done = run_cli("events", "archive", url, "order-7", "--below", 4, "--to", folder, "--yes", "--json").json
    assert (done["first"], done["last"], done["trace"]) == (1, 3, 6)
    assert [each.version for each in read_archive(Path(done["archive"]))] == [1, 2, 3]
    refused = run_cli("events", "archive", url, "order-8", "--below", 4, "--to", folder, "--yes")
    assert_one_sentence(refused, "stream 'order-8' has no snapshot")
    assert_wrong_call(
        run_cli("events", "archive", url, "order-8", "--below", 4, "--yes"), "either --to FOLDER or --delete"
    )
    done = run_cli("events", "retain", url, "--category", "order", "--keep", 1, "--delete", "--yes")
    assert done.code == 1
    assert "deleted: events 4 to 4 of 'order-7'; the trace is event 7" in done.out
    assert "stream 'order-8' has no snapshot" in done.err
    more = ("--newer", "1d", "--delete", "--without-state", "--yes", "--json")
    done = run_cli("events", "retain", url, "--stream", "order-8", *more)
    assert (done.code, done.err) == (0, "")
    assert (done.code, done.json_lines[0]["last"]) == (0, 5)
    store = open_store(url)
    assert [(each.stream, each.version) for each in store.read()] == [
        ("order-7", 5), ("order-7", 6), ("order-7", 7), ("order-8", 6)
    ]  # fmt: skip
    store.close()
    assert "archived by" in run_cli("events", "verify", url).out


def test_what_is_not_a_link(url: str) -> None:
    assert_wrong_call(run_cli("events", "verify", url, "--against", "abc"), "'abc' is not a link")
