"""The measure itself works: a real Kafka starts, serves, stops, and its own tool reads what it wrote."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from peers.java import PeerError
from peers.kafka.broker import running_kafka
from peers.kafka.tools import check_index_sanity, check_indexes, dump_files, dump_log

pytestmark = pytest.mark.java


def _create(servers, topic):
    admin = AdminClient({"bootstrap.servers": servers})  # held by name: collected, it takes its requests with it
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)


def _produce(servers, topic, values):
    producer = Producer({"bootstrap.servers": servers})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(30) == 0


def _consume(servers, topic, count):
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "reader"})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    messages = consumer.consume(count, timeout=30)
    consumer.close()
    assert [message.error() for message in messages] == [None] * count
    return [message.value() for message in messages]


def test_the_shared_broker_serves_a_client(real_kafka):
    _create(real_kafka, "served")
    _produce(real_kafka, "served", [b"one", b"two", b"three"])
    assert _consume(real_kafka, "served", 3) == [b"one", b"two", b"three"]


def test_a_broker_starts_again_on_its_data_and_its_tool_reads_them(kafka_jars, tmp_path):
    # A killed broker may register again only when its old session has run out; 9 s by default.
    with running_kafka(tmp_path, properties={"broker.session.timeout.ms": "3000"}) as kafka:
        _create(kafka.bootstrap_servers, "kept")
        _produce(kafka.bootstrap_servers, "kept", [b"one", b"two"])
        address, before = kafka.bootstrap_servers, kafka.pid
        kafka.kill()
        assert not kafka.is_running
        kafka.start()
        assert kafka.bootstrap_servers == address
        assert kafka.pid != before
        _produce(kafka.bootstrap_servers, "kept", [b"three"])
        assert _consume(kafka.bootstrap_servers, "kept", 3) == [b"one", b"two", b"three"]
    assert not kafka.is_running

    files = [path for path in (kafka.log_dir / "kept-0").iterdir() if path.suffix in (".log", ".index", ".timeindex")]
    dumps = dump_files(files)
    assert [dump.complaints for dump in dumps.values()] == [()] * 3
    (log,) = (dump for path, dump in dumps.items() if path.suffix == ".log")
    assert [record.value for record in log.records] == ["one", "two", "three"]


_TWO_TOOLS = """
from peers.kafka import tools_jvm
from peers.kafka.tools import run_tool
offsets = "org.apache.kafka.tools.GetOffsetShell"
failed = run_tool(offsets, "--nonsense", check=False)
shown = run_tool(offsets, "--version")
print(tools_jvm.ToolsJvm._shared._process.pid, failed.returncode, failed.stdout == "", "nonsense" in failed.stderr)
print(shown.returncode, shown.stdout, shown.stderr == "")
"""


def test_tools_share_a_jvm_but_not_what_they_say_and_it_ends_with_their_process(kafka_jars):
    ran = subprocess.run([sys.executable, "-c", _TWO_TOOLS], capture_output=True, text=True, timeout=60, check=True)
    pid, *failed = ran.stdout.splitlines()[0].split()
    assert failed == ["1", "True", "True"]
    assert re.match(r"0 4\.\d+\.\d+.*True", ran.stdout.partition("\n")[2], re.DOTALL)
    assert not Path(f"/proc/{pid}").exists()


def test_a_broker_that_cannot_start_shows_what_it_said(kafka_jars, tmp_path):
    with (
        pytest.raises(PeerError, match=r"(?s)status \d.*num\.network\.threads"),
        running_kafka(tmp_path, properties={"num.network.threads": "0"}),
    ):
        pass


def test_the_written_directory_is_what_was_asked_of_kafka(kafka_written):
    for name, topic in kafka_written.topics.items():
        kept = [record for record in topic.written if record not in topic.gone]
        assert list(topic.records) == kept, name
        assert topic.partitions == len({record.partition for record in topic.written}), name
    assert len(kafka_written.log_files("segments")) > 5
    assert len(kafka_written.log_files("idempotent", suffix=".snapshot")) > 1
    assert kafka_written.log_files("transactions", suffix=".txnindex")
    assert {bytes(r.value).split()[0] for r in kafka_written.topics["transactions"].gone} == {b"aborted"}
    assert (kafka_written.log_dir / ".kafka_cleanshutdown").exists()


def test_the_compacted_topic_was_cleaned(kafka_written):
    topic = kafka_written.topics["compacted"]
    active = max(int(path.stem) for path in kafka_written.log_files("compacted"))
    newest = {record.key: record.offset for record in topic.written}
    cleaned = [record for record in topic.records if record.offset < active]
    newest_cleaned = {record.key: record.offset for record in topic.written if record.offset < active}
    assert [record.offset for record in cleaned] == sorted(newest_cleaned.values())
    assert any(record.value is None for record in cleaned), "a tombstone is kept until its time is over"
    assert len(topic.gone) > len(topic.written) / 2
    assert set(newest) == {record.key for record in topic.records}


def test_the_dump_tool_agrees_with_what_was_returned(kafka_written):
    topic = kafka_written.topics["codec-zstd"]
    dump = dump_log(kafka_written.log_files("codec-zstd", 1)[0])
    assert dump.complaints == ()
    assert dump.gaps == ()
    assert {batch.codec for batch in dump.batches} == {"zstd"}
    told = [(r.offset, r.timestamp_ms, r.key, r.value, r.header_keys) for r in dump.records]
    assert told == [
        (r.offset, r.timestamp_ms, _text(r.key), _text(r.value), tuple(name for name, _ in r.headers))
        for r in topic.records
        if r.partition == 1
    ]


def _text(data):
    return None if data is None else data.decode()


def test_the_dump_tool_finds_no_fault_with_any_file(kafka_written):
    suffixes = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
    folders = [
        kafka_written.partition_dir(t.name, p) for t in kafka_written.topics.values() for p in range(t.partitions)
    ]
    dumps = dump_files(path for folder in folders for path in folder.iterdir() if path.suffix in suffixes)
    assert {path: dump.complaints for path, dump in dumps.items() if dump.complaints} == {}
    assert {path.parent.name for path, dump in dumps.items() if dump.gaps} == {"compacted-0"}
    markers = [r.end_transaction for dump in dumps.values() for r in dump.records if r.end_transaction]
    assert set(markers) == {"COMMIT", "ABORT"}


def test_faults_are_told_of_the_file_that_has_them(kafka_written, tmp_path):
    copy = kafka_written.copy_to(tmp_path / "copy")
    sound, torn, rotten, *_ = copy.log_files("segments")
    torn.write_bytes(torn.read_bytes()[:-7])
    data = bytearray(rotten.read_bytes())
    data[100] ^= 1
    rotten.write_bytes(data)
    dumps = dump_files([sound, torn, rotten], deep=False, data=False)
    assert dumps[sound].complaints == ()
    assert "invalid bytes at the end" in dumps[torn].complaints[0]
    assert "isvalid: false" in dumps[rotten].complaints[0]

    sound_index, _, _, wrong, *_ = copy.log_files("segments", suffix=".index")
    assert wrong.stat().st_size
    wrong.write_bytes(b"\x00\x00\x00\x05" + wrong.read_bytes()[4:])
    checked = check_indexes([sound_index, wrong])
    assert checked[sound_index].complaints == ()
    assert any("Mismatches" in line for line in checked[wrong].complaints)
    assert check_index_sanity([sound_index])[sound_index].complaints == ()
