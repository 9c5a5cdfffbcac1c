"""What a search looks for, and how it goes over a real log."""

import pytest

from headrace.cli.dashboard import language
from headrace.client.address import parse_bootstrap
from headrace.client.admin import create_topic
from headrace.client.cluster import Cluster
from headrace.client.offsets import Start, StartKind
from headrace.client.writer import NewRecord, Writer
from headrace.dashboard.errors import BadForm
from headrace.dashboard.search import DEFAULT_LIMIT, MAX_LIMIT, Query, matcher, read_query, scan
from headrace.errors import HeadraceError
from tests.unit.dashboard.dashboard_cases import NOW, read


def query(**fields):
    return read_query("orders", fields, language(), NOW)


def matches(record, **fields):
    return matcher(query(**fields))(record.record)


def test_an_empty_form_wants_everything():
    asked = query(key=" ", text="", where="")
    assert asked == Query("orders", Start(StartKind.EARLIEST))
    assert query(follow="1").start == Start(StartKind.LATEST)
    assert asked.limit == DEFAULT_LIMIT


def test_fields():
    asked = query(**{"key": "c7", "partition": "3", "limit": "99999", "from": "10m", "until": "5m"})
    assert (asked.key, asked.partitions, asked.limit) == (b"c7", (3,), MAX_LIMIT)
    assert (asked.start, asked.until_ms) == (Start(StartKind.TIME, NOW - 600_000), NOW - 300_000)


@pytest.mark.parametrize("fields", [{"partition": "x"}, {"limit": "-1"}, {"where": ".a ="}, {"from": "tomorrow"}])
def test_a_mistake_is_told(fields):
    with pytest.raises(HeadraceError):
        query(**fields)
    with pytest.raises(BadForm, match="not a whole number"):
        query(partition="one")


def test_matching():
    record = read("c7", '{"customer": "c7", "cents": 600, "note": "Über"}', at_ms=NOW)
    assert matches(record, key="c7")
    assert not matches(record, key="c")
    assert matches(record, text="über")
    assert matches(record, text="C7")
    assert not matches(record, text="graz")
    assert matches(record, where='.customer == "c7" and .cents > 500')
    assert not matches(record, where=".cents > 700")
    assert not matches(read("k", "no json"), where=".cents > 700")
    assert not matches(read("k", None), text="k2", where=".a")
    assert not matches(record, until="5m")


@pytest.fixture
def cluster(headrace_broker):
    with Cluster(parse_bootstrap(headrace_broker.bootstrap_servers)) as cluster:
        create_topic(cluster, "orders", partitions=2, configs={"retention.ms": "-1"})
        writer = Writer(cluster, "orders")
        for number in range(1000):
            key = f"c{number % 10}".encode()
            writer.add(NewRecord(key, f'{{"n": {number}}}'.encode(), NOW + number, partition=number % 2))
            if number % 50 == 0:
                writer.flush()
        writer.flush()
        yield cluster


def found(steps):
    return sorted(int(read.record.value[6:-1]) for step in steps for read in step.records)


def test_a_search_goes_to_the_end_and_tells_how_far_it_is(cluster):
    steps = list(scan(cluster, query(where=".n >= 900", limit="500"), lambda: False))
    assert found(steps) == list(range(900, 1000))
    assert steps[0].progress.read == 0
    assert (steps[-1].progress.read, steps[-1].progress.total, steps[-1].progress.found) == (1000, 1000, 100)


def test_a_search_ends_at_its_limit(cluster):
    steps = list(scan(cluster, query(key="c3", limit="5"), lambda: False))
    assert len(found(steps)) == steps[-1].progress.found == 5


def test_a_search_between_two_times_reads_nothing_else(cluster):
    asked = Query("orders", Start(StartKind.TIME, NOW + 300), until_ms=NOW + 399, limit=500)
    steps = list(scan(cluster, asked, lambda: False))
    assert found(steps) == list(range(300, 400))
    assert steps[-1].progress.total == 100


def test_a_search_that_is_stopped_ends(cluster):
    steps = scan(cluster, query(follow="1"), lambda: True)
    assert len(list(steps)) == 1, "the beginning, and nothing after it"
