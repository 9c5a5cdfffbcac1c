"""What a session is given, where, and how it is overridden; the command that starts its JVM."""

from pathlib import Path

import pytest

from headrace.pipelines.errors import PipelineError
from headrace.pipelines.spark.launch import MAIN_CLASS, is_plain, parse_answer, parse_launcher_output, with_flags
from headrace.pipelines.spark.settings import (
    DAEMON,
    JAVA_OPTIONS,
    is_local,
    log_settings_file,
    merge_settings,
    settings_for,
    threads_of,
)


def settings(master, state_dir=None):
    return settings_for(master, cores=8, python="/py", log_file=Path("/log.properties"), state_dir=state_dir)


@pytest.mark.parametrize(
    ("master", "local"),
    [
        ("local", True),
        ("local[*]", True),
        ("local[2]", True),
        ("local[2,3]", True),
        ("spark://host:7077", False),
        ("k8s://https://host", False),
        ("yarn", False),
        ("local-cluster[1,1,1024]", False),
    ],
)
def test_masters_are_told_apart(master, local):
    assert is_local(master) is local


@pytest.mark.parametrize("master", ["", "local[0]", "local[x]", "localhost:7077", "http://host"])
def test_what_is_no_master_is_refused(master):
    with pytest.raises(PipelineError, match="is not a Spark master"):
        is_local(master)


def test_a_task_for_each_core():
    assert [threads_of(m, 8) for m in ("local", "local[*]", "local[3]")] == [1, 8, 3]
    assert settings("local[*]")["spark.sql.shuffle.partitions"] == "8"


def test_a_cluster_gets_only_what_holds_everywhere(tmp_path):
    cluster = settings("spark://host:7077", tmp_path)
    assert cluster["spark.sql.session.timeZone"] == "UTC"
    assert cluster["spark.sql.streaming.stateStore.providerClass"].endswith("RocksDBStateStoreProvider")
    assert cluster["spark.sql.streaming.checkpointLocation"] == f"file://{tmp_path}/checkpoints"
    local_only = {"spark.driver.host", "spark.sql.shuffle.partitions", "spark.pyspark.python", DAEMON, JAVA_OPTIONS}
    assert not local_only & cluster.keys()


def test_nothing_local_listens_beyond_loopback():
    local = settings("local[2]")
    assert {local["spark.driver.host"], local["spark.driver.bindAddress"]} == {"127.0.0.1"}
    assert local["spark.ui.enabled"] == "false"


def test_every_default_can_be_overridden():
    local = settings("local[2]")
    for name in local.keys() - {JAVA_OPTIONS}:
        assert merge_settings(local, {name: "other"})[name] == "other"
    assert merge_settings(local, {"spark.ui.enabled": True})["spark.ui.enabled"] == "true"


def test_java_options_are_added_and_win():
    assert merge_settings({JAVA_OPTIONS: "-Da=1"}, {JAVA_OPTIONS: "-Da=2"})[JAVA_OPTIONS] == "-Da=1 -Da=2"


def test_a_setting_that_is_not_sparks_is_refused():
    with pytest.raises(PipelineError, match=r"'shuffle\.partitions' in conf is not a Spark setting"):
        merge_settings({}, {"shuffle.partitions": 2})


def test_the_command_is_read_from_the_launcher():
    command = parse_launcher_output(b"\0\n/usr/bin/java\0-cp\0/a b/*\0" + MAIN_CLASS.encode() + b"\0pyspark-shell\0")
    assert command == ["/usr/bin/java", "-cp", "/a b/*", MAIN_CLASS, "pyspark-shell"]
    assert with_flags([*command[:1], "--add-modules=jdk.incubator.vector", *command[1:]], ["-Xshare:auto"]) == [
        *("/usr/bin/java", "-Xshare:auto", "-cp", "/a b/*", MAIN_CLASS)
    ]


def test_the_gateways_answer_is_read():
    assert parse_answer(b"\0\0\x12\x34\0\0\0\x06secret") == (0x1234, "secret")


@pytest.mark.parametrize("name", ["SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS"])
def test_an_installation_with_settings_of_its_own_is_left_to_sparks_scripts(name, tmp_path):
    assert is_plain({}, tmp_path)
    assert not is_plain({name: "x"}, tmp_path)
    (tmp_path / "conf").mkdir()
    assert is_plain({}, tmp_path)
    (tmp_path / "conf" / "spark-defaults.conf").touch()
    assert not is_plain({}, tmp_path)


def test_the_log_settings_are_written_once(tmp_path):
    file = log_settings_file(tmp_path)
    first = file.stat().st_ino
    assert log_settings_file(tmp_path).stat().st_ino == first
    assert [path.name for path in tmp_path.iterdir()] == [file.name]
