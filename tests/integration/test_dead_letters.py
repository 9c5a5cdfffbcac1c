"""Dead letters of pipelines: one form with those of derived systems, by job, and counted where somebody looks."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from pyspark.sql.types import LongType, StringType, StructType

from headrace import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.admin import create_topic
from headrace.client.cluster import Cluster
from headrace.client.reader import read_records
from headrace.client.writer import NewRecord
from headrace.connect.sync.rebuilding import rebuild
from headrace.connect.sync.registry import make_sink
from headrace.connect.sync.runner import Runner, connector
from headrace.connect.sync.settings import SyncSettings
from headrace.connect.sync.status import status_of
from headrace.connect.sync.verification import verify
from headrace.dead_letters import LetterBox, write_letters
from headrace.delivery.letters import Letter
from headrace.model import TopicPartition
from headrace.pipelines.source.columns import layout_of
from headrace.pipelines.source.options import read_options
from headrace.pipelines.source.planning import Range
from headrace.pipelines.source.reading import read_range
from headrace.records import Header, Record
from headrace.status import DERIVED
from tests.integration.cli_runs import run_cli
from tests.integration.sync_topics import delete, envelope, make_topic, truncate, upsert, write

JOBS = """
from headrace.pipelines import job, topic

@job(inputs={"source": topic("orders", format="json", schema="n long")}, outputs=topic("numbers"))
def numbers(source):
    return source

@job(inputs={"source": topic("orders", format="json", schema="t string")}, outputs=topic("texts"))
def texts(source):
    return source
"""


@pytest.fixture
def bootstrap(tmp_path: Path) -> Iterator[str]:
    with Broker(tmp_path / "broker", durability="os") as broker:
        make_topic(broker.bootstrap_servers, "orders", partitions=1)
        yield broker.bootstrap_servers


def test_two_jobs_of_one_topic_have_theirs_apart(bootstrap: str, tmp_path: Path) -> None:
    values = (b'{"n": 1}', b'{"n": "no"}', b"no json", b'{"t": 5}')
    write(bootstrap, "orders", [NewRecord(b"k", value, 1) for value in values])
    for job, name, kind in (("numbers", "n", LongType()), ("texts", "t", StringType())):
        given = {"bootstrap": bootstrap, "subscribe": "orders", "format": "json", "job": job}
        options = read_options(given)
        layout = layout_of(StructType().add(name, kind), options)
        for _ in range(2):  # a task that runs twice leaves one letter
            assert sum(batch.num_rows for batch in read_range(Range("orders", 0, 0, 4), layout, options)) < 4
    (tmp_path / "jobs.py").write_text(JOBS)
    arguments = ("pipeline", "status", str(tmp_path / "jobs.py"), "--state-dir", str(tmp_path / "state"))
    done = run_cli(*arguments, "--json", bootstrap=bootstrap)
    assert done.code == 1, done
    assert done.err == ""
    counted = {found["job"]: found["dead_letters"] for found in done.json}
    with Cluster(parse_bootstrap(bootstrap)) as cluster:
        for job in ("numbers", "texts"):
            box = LetterBox("orders.dead-letters", "orders", job)
            letters = box.look(cluster, keep=True)
            assert {letter.job for letter in letters} == {job}
            assert len({letter.offset for letter in letters}) == len(letters) == counted[job]
    assert counted["numbers"] == 2
    shown = run_cli(*arguments, bootstrap=bootstrap)
    assert "numbers: 2 records were set aside as dead letters" in shown.out


def test_letters_of_older_versions_are_read(bootstrap: str) -> None:
    old = [Header("error", b"no"), Header("topic", b"orders"), Header("partition", b"0"), Header("offset", b"7")]
    letter = Letter.of(Record(0, 1, b"orders/0/7/cache", b"v", [*old, Header("sink", b"cache")]))
    assert (letter.job, letter.reason, letter.place, letter.id) == ("cache", "no", "orders-0@7", b"orders/0/7/cache")
    assert Letter.of(Record(0, 1, b"orders/0/7", b"v", old)).id == b"orders/0/7"


def test_a_box_follows_what_is_taken_back_and_a_topic_that_was_made_again(bootstrap: str) -> None:
    with Cluster(parse_bootstrap(bootstrap)) as cluster:
        box = LetterBox("d", "orders", "j")
        box.look(cluster)
        assert box.facts() == {}
        write_letters(
            cluster, "d", [Letter("orders", 0, n, 1, None, b"v", f"reason {n % 2}", "json", "j") for n in range(5)]
        )
        box.look(cluster)
        assert box.facts() == {"dead_letters": 5, "dead_letter_reasons": {"reason 0": 3, "reason 1": 2}}


@pytest.mark.parametrize("has_room", [True, False])
def test_a_record_as_large_as_its_topic_takes_becomes_a_letter(bootstrap: str, tmp_path: Path, has_room: bool) -> None:
    """With its headers it is larger than that: a topic that we make has room, and one that was there gets it cut."""
    if not has_room:
        make_topic(bootstrap, "orders.dead-letters", partitions=1)
    large = Random(1).randbytes(1_048_400)
    write(bootstrap, "orders", [NewRecord(b"k" * 20, large, 1), NewRecord(b"k", b"small", 1), upsert(1, {"n": 1})])
    settings = SyncSettings("copy", "orders", "sqlite", {"path": str(tmp_path / "copy.sqlite"), "table": "orders"})
    assert Runner(settings, make_sink(settings, bootstrap), connector(bootstrap, "copy")).catch_up().offsets == {0: 3}
    with Cluster(parse_bootstrap(bootstrap)) as cluster:
        letters = LetterBox("orders.dead-letters", "orders", "copy").look(cluster, keep=True)
        records = [read.record for read in next(read_records(cluster, {TopicPartition("orders.dead-letters", 0): 0}))]
    values = {letter.offset: letter.value for letter in letters}
    assert values == {0: large if has_room else large[: len(large) // 2], 1: b"small"}
    named = {header.value for record in records for header in record.headers if header.key == "cut"}
    assert named == (set() if has_room else {b"value"})


def test_what_others_wrote_to_the_topics_stops_nobody(bootstrap: str, tmp_path: Path) -> None:
    """Anybody may write to the topic of dead letters, and to that of conditions."""
    named = [Header("topic", b"orders"), Header("job", b"copy"), Header("offset", b"abc"), Header("partition", b"1.5")]
    make_topic(bootstrap, "orders.dead-letters", partitions=1)
    make_topic(bootstrap, DERIVED, partitions=1)
    write(bootstrap, "orders.dead-letters", [NewRecord(key, b"v", 1, named) for key in (b"x", b"a/b/c", b"")])
    junk = (b"not json", b"[1]", b"5", b'{"updated_ms":"soon"}')
    keys = (b"copy", b'{"connector":"copy","about":"verification"}')
    write(bootstrap, DERIVED, [NewRecord(key, value, 1) for key in keys for value in junk])
    settings = SyncSettings("copy", "orders", "sqlite", {"path": str(tmp_path / "copy.sqlite"), "table": "orders"})
    with Cluster(parse_bootstrap(bootstrap)) as cluster:
        assert status_of(cluster, settings, 1).state == "never ran"
    runner = Runner(settings, make_sink(settings, bootstrap), connector(bootstrap, "copy"))
    write(bootstrap, "orders", [upsert(1, {"n": 1})])
    assert runner.catch_up().offsets == {0: 1}
    with Cluster(parse_bootstrap(bootstrap)) as cluster:
        found = status_of(cluster, settings, 1)
    assert (found.state, found.dead_letters) == ("stopped", 3)


def test_a_target_that_is_emptied_takes_back_the_letters_of_before(bootstrap: str, tmp_path: Path) -> None:
    settings = SyncSettings("copy", "orders", "sqlite", {"path": str(tmp_path / "copy.sqlite"), "table": "orders"})
    runner = Runner(settings, make_sink(settings, bootstrap), connector(bootstrap, "copy"))

    def letters() -> set[int]:
        box = LetterBox("orders.dead-letters", "orders", "copy")
        with Cluster(parse_bootstrap(bootstrap)) as cluster:
            return {letter.offset for letter in box.look(cluster, keep=True)}

    broken = NewRecord(b"k", b"no envelope", 1)
    write(bootstrap, "orders", [upsert(1, {"n": 1}), broken])
    runner.catch_up()
    assert letters() == {1}
    write(bootstrap, "orders", [*truncate(1, 5), broken])
    runner.catch_up()
    assert letters() == {3}


def test_a_table_that_gets_a_key_is_followed_and_rebuilt(bootstrap: str, tmp_path: Path) -> None:
    """Records with a key may stand before the truncate that the key is the reason of, in one batch with others."""
    settings = SyncSettings("copy", "visits", "sqlite", {"path": str(tmp_path / "copy.sqlite"), "table": "orders"})
    plain = [NewRecord(None, envelope("c", None, {"n": 1}), 1) for _ in range(3)]
    with Cluster(parse_bootstrap(bootstrap)) as cluster:
        create_topic(cluster, "visits", partitions=1)
    write(bootstrap, "visits", [*plain, *delete(1), *truncate(1, 5), upsert(2, {"n": 1}), upsert(3, {"n": 1})])
    Runner(settings, make_sink(settings, bootstrap), connector(bootstrap, "copy")).catch_up()
    assert verify(settings, make_sink(settings, bootstrap), connector(bootstrap, "copy")).target_rows == 2
    assert rebuild(settings, make_sink(settings, bootstrap), connector(bootstrap, "copy")).dead_letters == 0
    report = verify(settings, make_sink(settings, bootstrap), connector(bootstrap, "copy"))
    assert (report.is_equal, report.target_rows) == (True, 2)
