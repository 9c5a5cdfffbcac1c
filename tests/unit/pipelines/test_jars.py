"""What Ivy is asked for, and when it is not asked."""

import xml.etree.ElementTree as ET
from pathlib import Path

from headrace.pipelines.spark.java import KAFKA_CONNECTOR, cache_folder, fetch_jars, folder_of, ivy_module, jars_here


def test_every_jar_is_asked_for_alone():
    dependencies = ET.fromstring(ivy_module(KAFKA_CONNECTOR)).findall("dependencies/dependency")
    assert [(d.get("org"), d.get("name"), d.get("rev")) for d in dependencies] == [
        (jar.group, jar.name, jar.version) for jar in KAFKA_CONNECTOR
    ]
    assert {d.get("transitive") for d in dependencies} == {"false"}


def test_jars_that_are_here_are_not_fetched_again(tmp_path, monkeypatch):
    folder = folder_of(cache=tmp_path)
    folder.mkdir(parents=True)
    for jar in KAFKA_CONNECTOR[:-1]:
        (folder / jar.file).touch()
    assert jars_here(cache=tmp_path) is None
    (folder / KAFKA_CONNECTOR[-1].file).touch()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))  # no Java: fetching would fail
    assert fetch_jars(cache=tmp_path) == [folder / jar.file for jar in KAFKA_CONNECTOR]


def test_the_cache_is_where_the_platform_keeps_caches():
    assert cache_folder({"XDG_CACHE_HOME": "/x", "HOME": "/home/a"}, "linux") == Path("/x/headrace")
    assert cache_folder({"HOME": "/home/a"}, "linux") == Path("/home/a/.cache/headrace")
    assert cache_folder({"HOME": "/Users/a"}, "darwin") == Path("/Users/a/Library/Caches/headrace")
