"""Which Java is taken, and what is said about one that will not do."""

import os

import pytest

from headrace.pipelines.spark.java import JavaUnfit, find_java, parse_version


@pytest.mark.parametrize(
    ("text", "version", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime …', "17.0.15", 17),
        ('java version "1.8.0_401"\nJava(TM) SE …', "1.8.0_401", 8),
        ('openjdk version "21" 2023-09-19', "21", 21),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "25-ea" 2025-09-16', "25-ea", 25),
    ],
)
def test_the_version_is_read_from_what_java_prints(text, version, major):
    assert parse_version(text) == (version, major)


@pytest.mark.parametrize("text", ["", "bash: java: not found", 'version "seventeen"'])
def test_what_is_no_version_is_none(text):
    assert parse_version(text) is None


def fake_java(folder, body):
    """A program called java that says what a test wants: another Java than this machine's is not to be had."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)
    return folder


def test_java_home_comes_before_the_path(tmp_path):
    home = fake_java(tmp_path / "home", """echo 'openjdk version "21.0.2" 2024-01-16' >&2""")
    other = fake_java(tmp_path / "other", """echo 'openjdk version "17.0.1" 2024-01-16' >&2""")
    path = f"{other}/bin{os.pathsep}{os.defpath}"
    assert find_java({"JAVA_HOME": str(home), "PATH": path}).major == 21
    found = find_java({"PATH": path})
    assert (found.major, found.program) == (17, other / "bin" / "java")


def test_no_java_at_all_is_one_sentence_with_the_remedy(tmp_path):
    with pytest.raises(JavaUnfit, match="JAVA_HOME is not set and PATH has no java: install a Java 17 or newer"):
        find_java({"PATH": str(tmp_path)})


def test_a_java_home_without_java_is_named(tmp_path):
    with pytest.raises(JavaUnfit, match=f"JAVA_HOME is {tmp_path}, where there is no bin/java"):
        find_java({"JAVA_HOME": str(tmp_path), "PATH": os.defpath})


def test_an_old_java_is_named_with_its_version_and_place(tmp_path):
    home = fake_java(tmp_path, """echo 'java version "1.8.0_401"' >&2""")
    with pytest.raises(
        JavaUnfit, match=r"needs Java 17 or newer, and .*/bin/java \(from JAVA_HOME\) is Java 1.8.0_401"
    ):
        find_java({"JAVA_HOME": str(home)})


def test_a_java_that_fails_is_quoted(tmp_path):
    home = fake_java(tmp_path, "echo 'Error: could not find libjava.so' >&2; exit 6")
    with pytest.raises(JavaUnfit, match=r"does not print its version \(Error: could not find libjava"):
        find_java({"JAVA_HOME": str(home)})
