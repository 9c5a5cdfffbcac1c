"""`headrace produce` against a broker: what it writes, where, and what it says about it."""

import json
import os
import subprocess
from functools import partial

import pytest

from headrace import Broker
from headrace.records.partitioning import partition_of_key
from tests.integration.cli_runs import COMMAND, assert_one_sentence, assert_wrong_call, run_cli


@pytest.fixture(scope="module")
def broker():
    with Broker(durability="os") as broker:
        yield broker


@pytest.fixture
def headrace(broker):
    run = partial(run_cli, bootstrap=broker.bootstrap_servers)
    run("topic", "create", "orders", "--partitions", 3)
    yield run
    run("topic", "delete", "orders", "--yes")


def everything(headrace):
    return headrace("tail", "orders", "--no-follow", "--json").json_lines


def test_values_from_the_command_line(headrace):
    run = headrace("produce", "orders", "one", "--key", "k", "--header", "a=1", "--header", "a=x=2")
    where = partition_of_key(b"k", 3)
    assert run.out == f"wrote 1 record to orders, partition {where}, offset 0\n"
    (record,) = everything(headrace)
    assert (record["key"], record["value"], record["partition"]) == ("k", "one", where)
    assert record["headers"] == [["a", "1"], ["a", "x=2"]]
    run = headrace("produce", "orders", "two", "three", "--partition", 1, "--timestamp", "2026-05-01", "--json")
    assert run.json["records"] == 2
    assert [partition["partition"] for partition in run.json["partitions"]] == [1]
    assert {record["timestamp"] for record in everything(headrace)[:2]} == {1_777_593_600_000}


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_lines_from_standard_input_with_every_compression(headrace, codec):
    lines = [f"line {number} ü" for number in range(5000)]
    run = headrace("produce", "orders", "--compression", codec, "--json", stdin="\n".join(lines) + "\n")
    assert run.json["records"] == 5000
    assert sorted(record["value"] for record in everything(headrace)) == sorted(lines)


def test_many_lines_without_a_key_are_spread_and_lose_nothing(headrace):
    run = headrace("produce", "orders", "--json", stdin="".join(f"{number}\n" for number in range(200_000)))
    assert run.json["records"] == 200_000
    assert len(run.json["partitions"]) == 3
    values = sorted(int(record["value"]) for record in everything(headrace))
    assert values == list(range(200_000))


def test_the_last_line_needs_no_end_and_an_empty_line_is_a_value(headrace):
    assert headrace("produce", "orders", "--partition", 0, "--json", stdin="a\n\r\n\nb").json["records"] == 4
    assert [record["value"] for record in everything(headrace)] == ["a", "", "", "b"]


def test_bytes_that_are_no_text_are_written_as_they_are(headrace):
    headrace("produce", "orders", "--key-separator", "=", stdin=b"\xff=\x00\xfe=\n")
    (record,) = everything(headrace)
    assert record["key"] == {"$base64": "/w=="}
    assert record["value"] == {"$base64": "AP49"}
    assert "0xff  0x00fe3d" in headrace("tail", "orders", "--no-follow").out


def test_key_and_value_in_a_line(headrace):
    headrace("produce", "orders", "--key-separator", "::", stdin="k1::v1\nk2::v2::more\n::empty key\n")
    assert {record["key"]: record["value"] for record in everything(headrace)} == {
        "k1": "v1",
        "k2": "v2::more",
        "": "empty key",
    }


def test_json_lines_and_back(headrace):
    lines = [
        {"key": "a", "value": {"cents": 5}, "headers": {"x": "y"}, "timestamp": 1000},
        {"key": "a", "value": None},
        {"value": "text", "partition": 2},
    ]
    run = headrace("produce", "orders", "--json-lines", stdin="\n".join(map(json.dumps, lines)) + "\n\n")
    assert run.code == 0
    written = everything(headrace)
    assert {record["value"] for record in written} == {'{"cents":5}', None, "text"}

    headrace("topic", "create", "copy", "--partitions", 3)
    tail = headrace("tail", "orders", "--no-follow", "--json")
    assert headrace("produce", "copy", "--json-lines", stdin=tail.out).code == 0
    copied = headrace("tail", "copy", "--no-follow", "--json").json_lines
    headrace("topic", "delete", "copy", "--yes")
    assert [{**record, "topic": "orders"} for record in copied] == written


def test_a_tombstone(headrace):
    headrace("produce", "orders", "--tombstone", "--key", "gone")
    (record,) = everything(headrace)
    assert (record["key"], record["value"]) == ("gone", None)


def test_nothing_to_write(headrace):
    assert headrace("produce", "orders").out == "wrote nothing: there was no input\n"


def test_slow_lines_are_written_as_they_come(headrace, broker):
    command = [*COMMAND, "produce", "orders", "--partition", "0", "--bootstrap", broker.bootstrap_servers]
    follow = [*COMMAND, "tail", "orders", "--from", "earliest", "--json", "--bootstrap", broker.bootstrap_servers]
    with (
        subprocess.Popen(follow, stdout=subprocess.PIPE) as tail,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as produce,
    ):
        for value in ("one", "two"):
            os.write(produce.stdin.fileno(), value.encode() + b"\n")
            assert json.loads(tail.stdout.readline())["value"] == value
        produce.stdin.close()
        assert produce.wait(30) == 0
        tail.terminate()


def test_a_topic_that_takes_little_gets_small_batches(headrace):
    headrace("topic", "alter", "orders", "--config", "max.message.bytes=2000")
    run = headrace("produce", "orders", "--json", stdin="".join(f"value {number}\n" for number in range(3000)))
    assert run.json["records"] == 3000
    values = sorted(int(record["value"].split()[1]) for record in everything(headrace))
    assert values == list(range(3000))
    run = headrace("produce", "orders", stdin="small\n" + "x" * 5000 + "\n")
    assert_one_sentence(run, "max.message.bytes=2000")


@pytest.mark.parametrize(
    ("arguments", "stdin", "words"),
    [
        (["ordrs", "v"], "", ["topic 'ordrs' does not exist"]),
        (["ordrs"], "v\n", ["topic 'ordrs' does not exist"]),
        (["orders", "v", "--partition", "7"], "", ["no partition 7: it has partitions 0 to 2"]),
        (["orders", "--key-separator", ":"], "a:b\nc\n", ["line 2 of the input", "':'", "nothing was written"]),
        (["orders", "--json-lines"], '{"value": 1}\nnonsense\n', ["line 2 of the input", "nothing was written"]),
        (["orders", "--json-lines"], '{"value": 1, "partition": 9}\n', ["no partition 9", "nothing was written"]),
        (["orders", "--json-lines"], b'{"value": "\xff"}\n', ["line 1 of the input", "not UTF-8"]),
    ],
)
def test_bad_input_writes_nothing(headrace, arguments, stdin, words):
    assert_one_sentence(headrace("produce", *arguments, stdin=stdin), *words)
    assert everything(headrace) == []
    assert [topic["topic"] for topic in headrace("topic", "list", "--json").json] == ["orders"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["Missing argument"]),
        (["orders", "v", "--header", "novalue"], ["'novalue' is not NAME=VALUE"]),
        (["orders", "v", "--timestamp", "soon"], ["'soon' is not a time"]),
        (["orders", "v", "--compression", "brotli"], ["brotli"]),
        (["orders", "v", "--partition", "-1"], ["--partition"]),
        (["orders", "v", "--json-lines"], ["for standard input"]),
        (["orders", "--tombstone"], ["takes a --key"]),
        (["orders", "--key-separator", ""], ["takes a text"]),
    ],
)
def test_wrong_calls_write_nothing(headrace, arguments, words):
    assert_wrong_call(headrace("produce", *arguments), *words)
    assert everything(headrace) == []


def test_a_compacted_topic_wants_keys(headrace):
    headrace("topic", "alter", "orders", "--config", "cleanup.policy=compact")
    assert_one_sentence(headrace("produce", "orders", "v"), "no key", "orders-")
