"""Runs in a folder that worker processes share: right if there, asked for elsewhere if not, bounded, and cleaned up."""

import os
import subprocess
import sys
from pathlib import Path

from headrace.pipelines.keyed.shelf import VARIABLE, Shelf, Shelved, put_shelf_before, shared_shelf


class Counted(dict):
    """A store that counts how often it is asked."""

    asked = 0

    def get(self, identity):
        self.asked += 1
        return self[identity]

    def put(self, identity, data):
        self[identity] = data

    def remove(self, identity):
        del self[identity]


def test_what_one_worker_wrote_another_reads_without_asking_the_store(tmp_path):
    store = Counted()
    Shelved(store, Shelf(tmp_path)).put("a", b"run")
    assert Shelved(store, Shelf(tmp_path)).get("a") == b"run"
    assert store.asked == 0
    assert store == {"a": b"run"}


def test_what_is_not_on_the_shelf_is_asked_for_once(tmp_path):
    store = Counted(a=b"run")
    runs = Shelved(store, Shelf(tmp_path))
    assert [runs.get("a"), runs.get("a")] == [b"run", b"run"]
    assert store.asked == 1


def test_a_run_that_is_removed_is_gone_from_both(tmp_path):
    store = Counted()
    runs = Shelved(store, Shelf(tmp_path))
    runs.put("a", b"run")
    runs.remove("a")
    assert store == {}
    assert Shelf(tmp_path).get("a") is None


def test_the_shelf_is_bounded_and_keeps_the_newest(tmp_path):
    shelf = Shelf(tmp_path, limit_bytes=1000)
    for number in range(40):
        shelf.put(str(number), bytes(100))
        os.utime(tmp_path / str(number), (number, number))
    held = {int(file.name) for file in tmp_path.iterdir()}
    assert len(held) <= 12
    assert set(range(32, 40)) <= held


def test_a_shelf_that_cannot_be_written_is_as_if_there_were_none(tmp_path):
    store = Counted()
    runs = Shelved(store, Shelf(tmp_path / "gone"))
    runs.put("a", b"run")
    assert runs.get("a") == b"run"
    runs.remove("a")
    assert store == {}


def test_workers_have_a_shelf_as_long_as_their_parent_lives(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv(VARIABLE, raising=False)
    assert isinstance(put_shelf_before(Counted()), Counted)
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    left = tmp_path / f"headrace-runs-{ended.pid}-left"
    left.mkdir()
    monkeypatch.setenv(VARIABLE, "")
    with shared_shelf():
        folder = Path(os.environ[VARIABLE])
        assert folder.stat().st_mode & 0o077 == 0
        assert isinstance(put_shelf_before(Counted()), Shelved)
        assert not left.exists()
    assert not folder.exists()
