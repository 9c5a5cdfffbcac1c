"""Who makes the archive of classes, who uses it, and that a torn one is never used."""

import os
import subprocess

import pytest

from headrace.pipelines.spark.java import Java
from headrace.pipelines.spark.launch import archive_flags, find_claim


@pytest.fixture
def java(tmp_path, monkeypatch):
    """A Java that maps an archive if it holds the word whole, as a real one does if it has its header."""
    program = tmp_path / "java"
    program.write_text('#!/bin/sh\ngrep -q whole "${1#*=}"\n')
    program.chmod(0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("HEADRACE_SPARK_ARCHIVE", raising=False)
    return Java(program, "17", 17)


def test_one_makes_it_the_others_do_without_and_the_next_uses_it(java, tmp_path):
    folder = tmp_path / "cache" / "headrace" / "spark"
    assert archive_flags(java, "k", "/jars/*")[0] == f"-XX:ArchiveClassesAtExit={folder}/k.jsa-partial"
    assert archive_flags(java, "k", "/jars/*") == []
    (folder / "k.jsa-partial").write_text("who")  # still being written, or torn
    assert archive_flags(java, "k", "/jars/*") == []
    (folder / "k.jsa-partial").write_text("whole")
    assert archive_flags(java, "k", "/jars/*")[0] == f"-XX:SharedArchiveFile={folder}/k.jsa"
    assert archive_flags(java, "k", "/jars/*")[0] == f"-XX:SharedArchiveFile={folder}/k.jsa"
    assert archive_flags(java, "other key", "/jars/*")[0].startswith("-XX:ArchiveClassesAtExit=")


def test_it_can_be_switched_off_or_only_be_used(java, monkeypatch, tmp_path):
    for choice in ("0", "use"):
        monkeypatch.setenv("HEADRACE_SPARK_ARCHIVE", choice)
        assert archive_flags(java, "k", "/jars/*") == []
    folder = tmp_path / "cache" / "headrace" / "spark"
    folder.mkdir(parents=True)
    (folder / "k.jsa").write_text("whole")
    assert archive_flags(java, "k", "/jars/*")[0] == f"-XX:SharedArchiveFile={folder}/k.jsa"


def test_two_sessions_find_a_new_archive_at_once(java, tmp_path):
    """The Java that looks whether it is whole is also the other session, which gives it its name meanwhile."""
    folder = tmp_path / "cache" / "headrace" / "spark"
    folder.mkdir(parents=True)
    (folder / "k.jsa-partial").write_text("whole")
    java.program.write_text(f"#!/bin/sh\nmv {folder}/k.jsa-partial {folder}/k.jsa\n")
    assert archive_flags(java, "k", "/jars/*")[0] == f"-XX:SharedArchiveFile={folder}/k.jsa"
    assert not (folder / "k.claim").exists()


def test_one_that_was_killed_is_followed_by_another(java):
    """As when a stack is ended at once: the next session makes the archive, not the first of the next day."""
    made = archive_flags(java, "k", "/jars/*")
    claim = find_claim(made)
    running = subprocess.Popen(["sleep", "60"])
    claim.write_text(str(running.pid))
    assert archive_flags(java, "k", "/jars/*") == []
    running.kill()
    running.wait()
    assert archive_flags(java, "k", "/jars/*") == made
    assert archive_flags(java, "k", "/jars/*") == []  # its JVM is not started yet
    assert find_claim(["-Xshare:auto"]) is None


def test_those_that_were_not_used_for_longest_make_room(java, tmp_path):
    """Each environment has an archive of its own, of some 150 MB."""
    folder = tmp_path / "cache" / "headrace" / "spark"
    folder.mkdir(parents=True)
    for age, name in enumerate(("e.jsa", "d.jsa-partial", "c.jsa", "b.jsa", "a.jsa")):
        (folder / name).write_text("whole")
        os.utime(folder / name, (age, age))
    (folder / "d.claim").write_text("999999999")  # its JVM has written it and ended
    running = subprocess.Popen(["sleep", "60"])
    (folder / "f.claim").write_text(str(running.pid))
    (folder / "f.jsa-partial").write_text("who")
    archive_flags(java, "e", "/jars/*")  # the oldest, but in use
    archive_flags(java, "new", "/jars/*")
    running.kill()
    running.wait()
    assert sorted(one.name for one in folder.glob("*.jsa*")) == ["a.jsa", "b.jsa", "e.jsa", "f.jsa-partial"]
