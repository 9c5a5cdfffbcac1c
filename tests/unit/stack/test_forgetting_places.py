"""Views and checkpoints as places where somebody is forgotten."""

import zipfile
from pathlib import Path

from headrace.forgetting.key_store import MemoryKeyStore
from headrace.forgetting.keyring import Keyring
from headrace.forgetting.search import Needles
from headrace.stack.forgetting.files import CheckpointPlace
from headrace.stack.forgetting.place import Subject
from headrace.stack.forgetting.views import UnknownViews, ViewPlace, views_of
from headrace.stores.sqlite.view import sqlite
from headrace.testing.contracts.keys import MASTER
from headrace.testing.contracts.view import batch, row


def subject_of(keys: Keyring, name: str) -> Subject:
    return Subject(name, keys, frozenset(keys.key_ids(name)))


def test_rows_of_views_are_counted_and_searched_page_by_page(tmp_path: Path) -> None:
    keys, store = Keyring(MemoryKeyStore(), MASTER), sqlite(tmp_path / "views.db")
    sealed = keys.seal_value("Ada", subject="7", field="post")
    rows = [row(number, f"post {number}") for number in range(1500)]
    store.write(batch(store, 0, [*rows, row(1501, sealed), row(1502, "by Ada herself")]))
    place = ViewPlace("feed", store, "")
    (found,) = place.forget(subject_of(keys, "7"), dry=False)
    assert (found.outcome, found.count) == ("unreadable", 1)
    (hit,) = place.search(Needles(["nobody", "Ada"]))
    assert (hit.where, hit.value) == ("row 1502 by its key", 2)
    (none,) = ViewPlace("unknown", store, "").forget(subject_of(keys, "7"), dry=False)
    assert none.outcome == "nothing there"


def test_a_file_that_cannot_be_loaded_is_reported(tmp_path: Path) -> None:
    (tmp_path / "views.py").write_text("import nothing_of_that_name\n")
    (place,) = views_of("views", tmp_path / "views.py", "")
    assert isinstance(place, UnknownViews)
    (found,) = place.forget(subject_of(Keyring(MemoryKeyStore(), MASTER), "7"), dry=False)
    assert found.outcome == "could not be"


def test_checkpoints_are_searched_also_in_archives_and_across_chunks(tmp_path: Path) -> None:
    state, code = tmp_path / "state", tmp_path / "jobs.py"
    place = CheckpointPlace("pipelines.a", code, state)
    who = subject_of(Keyring(MemoryKeyStore(), MASTER), "7")
    assert [one.outcome for one in place.forget(who, dry=False)] == ["nothing there"]
    (state / "deep").mkdir(parents=True)
    (state / "deep" / "1.delta").write_bytes(b"x" * ((1 << 20) - 2) + "Ada Łovelace".encode() + b"x" * 100)
    with zipfile.ZipFile(state / "2.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("inside", '{"name":"ADA \\u0141ovelace"}' + " " * 1000)
    (state / "3.json").write_bytes("Ada Łovelace".encode("utf-16-le"))
    assert {hit.where for hit in place.search(Needles(["Ada Łovelace"]))} == {"deep/1.delta", "2.zip", "3.json"}
    code.write_text("def job(rows):\n    return rows\n")
    assert [one.outcome for one in place.forget(who, dry=False)] == ["unreadable"]
    code.write_text("from headrace.pipelines.sealed import open_columns\n")
    (told,) = place.forget(who, dry=False)
    assert told.outcome == "could not be"
    assert "headrace pipeline reset" in told.why
