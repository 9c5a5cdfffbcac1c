"""Records of many callers into topics: what was said to be written is there, once, whatever happens to the broker."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from pathlib import Path
from threading import Event, Thread

import pytest

from headrace import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.admin import create_topic, delete_topics
from headrace.client.cluster import Cluster
from headrace.client.connection import ConnectionSettings
from headrace.client.errors import Refused, UnknownPartition, UnknownTopic
from headrace.client.fetch import FetchOptions
from headrace.client.offsets import bounds
from headrace.client.reader import read_records
from headrace.connect.delivery import Entry
from headrace.connect.errors import TakenOver
from headrace.gateways.gateway import Overload, Progress
from headrace.gateways.inlet import Dropped, Inlet, Lot, Overloaded, Placed, Stopped, Uncertain
from headrace.gateways.writing import PartlyWritten, Remembering
from tests.integration.test_follow_faults import serving, until
from tests.ports import free_port

WITHIN_S = 60.0


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "data") as running:
        yield running


def entry(value: bytes, key: bytes | None = None) -> Entry:
    return (key, value, 1_700_000_000_000, ())


def values(bootstrap: str, topic: str, *, committed: bool = False) -> dict[tuple[int, int], bytes]:
    """What a topic holds, by partition and offset."""
    with Cluster(parse_bootstrap(bootstrap), ConnectionSettings()) as cluster:
        held = bounds(cluster, cluster.partitions(topic))
        starts = {where: bound.start for where, bound in held.items() if bound.end > bound.start}
        until_ = {where: held[where].end for where in starts}
        found = {}
        for group in read_records(cluster, starts, until=until_, options=FetchOptions(committed=committed)):
            for where, record in group:
                found[where.partition, record.offset] = bytes(record.value or b"")
        return found


def make(bootstrap: str, *topics: str, partitions: int = 1, **configs: str) -> None:
    with Cluster(parse_bootstrap(bootstrap), ConnectionSettings()) as cluster:
        for topic in topics:
            create_topic(cluster, topic, partitions=partitions, configs=configs)


def inlet(bootstrap: str, **how: object) -> Inlet:
    made = Inlet(parse_bootstrap(bootstrap), "test", Progress(), **how)  # type: ignore[arg-type]
    made.start()
    return made


def test_each_caller_learns_where_its_records_are(broker: Broker) -> None:
    make(broker.bootstrap_servers, "a", "b", partitions=3)
    into = inlet(broker.bootstrap_servers)
    answers: dict[bytes, Future[list[Placed]]] = {}

    def bring(name: str) -> None:
        for number in range(200):
            value = f"{name}{number}".encode()
            answers[value] = into.put("ab"[number % 2], [entry(value, value), entry(value + b"+")])

    threads = [Thread(target=bring, args=(name,)) for name in "pqrs"]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    wait(answers.values(), WITHIN_S)
    held = {topic: values(broker.bootstrap_servers, topic) for topic in "ab"}
    for value, answer in answers.items():
        first, second = answer.result(0)
        of_topic = held["ab"[int(value[1:]) % 2]]
        assert of_topic[first] == value
        assert of_topic[second] == value + b"+"
    assert sum(map(len, held.values())) == 1600
    assert into.progress.records == 1600
    into.close()


def test_what_is_refused_of_one_harms_no_other(broker: Broker) -> None:
    make(broker.bootstrap_servers, "plain")
    make(broker.bootstrap_servers, "compacted", **{"cleanup.policy": "compact"})
    into = inlet(broker.bootstrap_servers)
    good = [into.put("plain", [entry(b"%d" % number)]) for number in range(50)]
    kept = [into.put("compacted", [entry(b"%d" % number, b"k%d" % number)]) for number in range(50)]
    no_key = into.put("compacted", [entry(b"lost"), entry(b"lost too", b"key")])
    too_large = into.put("plain", [entry(b"x" * 2_000_000)])
    nowhere = into.put("nowhere", [entry(b"x")])
    beyond = into.put("plain", [entry(b"x")], 7)
    more = [into.put("compacted", [entry(b"more", b"m%d" % number)]) for number in range(50)]
    wait([*good, *kept, *more, no_key, too_large, nowhere, beyond], WITHIN_S)
    refused = [each.exception(0) for each in (no_key, too_large, nowhere, beyond)]
    for error, kind in zip(refused, (Refused, Refused, UnknownTopic, UnknownPartition), strict=True):
        assert isinstance(error, kind), refused
    is_part = isinstance(refused[0], PartlyWritten)
    assert is_part is (b"lost too" in values(broker.bootstrap_servers, "compacted").values())
    assert [each.result(0)[0].offset for each in good] == list(range(50))
    assert len({each.result(0)[0].offset for each in kept + more}) == 100
    assert b"lost" not in values(broker.bootstrap_servers, "compacted").values()
    into.close()


def test_what_was_refused_last_is_said_until_something_is_written(broker: Broker) -> None:
    make(broker.bootstrap_servers, "there")
    into = inlet(broker.bootstrap_servers)
    assert isinstance(into.put("gone", [entry(b"x")]).exception(WITHIN_S), UnknownTopic)
    until(lambda: "'gone' does not exist" in into.progress.problem, "it is said")
    into.put("there", [entry(b"x")]).result(WITHIN_S)
    until(lambda: into.progress.problem == "", "it is not said any more")
    into.close()


def test_records_that_no_batch_can_hold_end_nothing_but_themselves(broker: Broker) -> None:
    make(broker.bootstrap_servers, "held")
    into = inlet(broker.bootstrap_servers)
    unwritable = (None, b"x", 0, (("a header without a value", None),))
    assert into.put("held", [entry(b"with it"), unwritable]).exception(WITHIN_S) is not None  # type: ignore[list-item]
    assert [into.put("held", [entry(b"%d" % number)]).result(WITHIN_S)[0].offset for number in range(3)] == [0, 1, 2]
    into.close()


def test_a_lot_larger_than_a_batch_is_written_in_several(broker: Broker) -> None:
    make(broker.bootstrap_servers, "small", **{"max.message.bytes": "4000"})
    into = inlet(broker.bootstrap_servers)
    lots = [into.put("small", [entry(b"%d-%d" % (lot, number) * 20) for number in range(100)]) for lot in range(5)]
    wait(lots, WITHIN_S)
    assert [place.offset for lot in lots for place in lot.result(0)] == list(range(500))
    into.close()


def test_a_topic_that_was_made_again_is_written_to(broker: Broker) -> None:
    make(broker.bootstrap_servers, "again")
    into = inlet(broker.bootstrap_servers)
    assert [into.put("again", [entry(b"x")]).result(WITHIN_S)[0].offset for _ in range(3)] == [0, 1, 2]
    with Cluster(parse_bootstrap(broker.bootstrap_servers), ConnectionSettings()) as cluster:
        delete_topics(cluster, ["again"])
    make(broker.bootstrap_servers, "again")
    assert [into.put("again", [entry(b"y")]).result(WITHIN_S)[0].offset for _ in range(3)] == [0, 1, 2]
    into.close()


@pytest.mark.parametrize("is_remembering", [False, True])
@pytest.mark.parametrize("is_made_again", [False, True], ids=["deleted", "with fewer partitions"])
def test_a_topic_that_went_away_holds_up_no_other(broker: Broker, is_remembering: bool, is_made_again: bool) -> None:
    make(broker.bootstrap_servers, "here")
    make(broker.bootstrap_servers, "gone", partitions=4)
    how = {"open_writing": lambda _: Remembering("test", "memory")} if is_remembering else {}
    into = inlet(broker.bootstrap_servers, **how)
    assert into.put("gone", [entry(b"x")], 3).result(WITHIN_S) == [Placed(3, 0)]
    with Cluster(parse_bootstrap(broker.bootstrap_servers), ConnectionSettings()) as cluster:
        delete_topics(cluster, ["gone"])
    if is_made_again:
        make(broker.bootstrap_servers, "gone")
    refused = into.put("gone", [entry(b"x")], 3)
    others = [into.put("here", [entry(b"%d" % number)]) for number in range(3)]
    assert isinstance(refused.exception(WITHIN_S), UnknownPartition if is_made_again else UnknownTopic)
    assert [each.result(WITHIN_S)[0].partition for each in others] == [0, 0, 0]
    assert [*values(broker.bootstrap_servers, "here", committed=True).values()] == [b"0", b"1", b"2"]
    assert into.progress.waiting == ""
    into.close()


def test_a_memory_that_somebody_deletes_is_made_again(broker: Broker) -> None:
    make(broker.bootstrap_servers, "a")
    into = inlet(broker.bootstrap_servers, open_writing=lambda _: Remembering("hooks", "memory"))
    into.put_lot(Lot("a", [entry(b"1")], None, [entry(b"", b"id-1")])).result(WITHIN_S)
    with Cluster(parse_bootstrap(broker.bootstrap_servers), ConnectionSettings()) as cluster:
        delete_topics(cluster, ["memory"])
    for number in (2, 3):
        kept = entry(b"", b"id-%d" % number)
        into.put_lot(Lot("a", [entry(b"%d" % number)], None, [kept])).result(WITHIN_S)
    into.close()
    assert sorted(values(broker.bootstrap_servers, "a", committed=True).values()) == [b"1", b"2", b"3"]
    assert len(values(broker.bootstrap_servers, "memory", committed=True)) == 2


@pytest.mark.parametrize("is_remembering", [False, True])
def test_a_broker_that_is_killed_again_and_again_loses_and_doubles_nothing(
    tmp_path: Path, is_remembering: bool
) -> None:
    port = free_port()
    bootstrap = f"127.0.0.1:{port}"
    how = {"open_writing": lambda _: Remembering("test", "memory")} if is_remembering else {}
    into = inlet(bootstrap, limit_bytes=2_000_000, **how)
    ending, answers = Event(), list[tuple[bytes, Future[list[Placed]]]]()

    def bring() -> None:
        while not ending.is_set() and len(answers) < 100_000:
            value = b"%d" % len(answers)
            key = (entry(value, b"key" + value),) if is_remembering else ()
            answers.append((value, into.put_lot(Lot("t", [entry(value)], None, key))))

    thread = Thread(target=bring)
    try:
        for turn in range(3):
            with serving(tmp_path / "data", port):
                if turn == 0:
                    make(bootstrap, "t", partitions=2)
                    thread.start()
                before = into.progress.records
                until(lambda before=before: into.progress.records > before + 2_000, "records are written")  # type: ignore[misc]
        with serving(tmp_path / "data", port):
            ending.set()
            thread.join(WITHIN_S)
            wait([answer for _, answer in answers], WITHIN_S)
            held = values(bootstrap, "t", committed=True)
            assert all(answer.exception(0) is None for _, answer in answers)
            assert Counter(held.values()) == Counter(value for value, _ in answers)
            told = {answer.result(0)[0]: value for value, answer in answers if answer.result(0)[0].offset >= 0}
            assert all(held[place] == value for place, value in told.items())
            if is_remembering:
                kept = values(bootstrap, "memory", committed=True)
                assert set(kept.values()) == {value for value, _ in answers}
    finally:
        ending.set()
        into.close(0.1)


def test_whoever_begins_under_the_same_name_ends_the_one_before(broker: Broker) -> None:
    make(broker.bootstrap_servers, "t")
    first = inlet(broker.bootstrap_servers, open_writing=lambda _: Remembering("same", "memory"))
    first.put("t", [entry(b"1")]).result(WITHIN_S)
    second = inlet(broker.bootstrap_servers, open_writing=lambda _: Remembering("same", "memory"))
    second.put("t", [entry(b"2")]).result(WITHIN_S)
    assert isinstance(first.put("t", [entry(b"3")]).exception(WITHIN_S), TakenOver)
    with pytest.raises(TakenOver):
        first.put("t", [entry(b"4")])
    assert second.put("t", [entry(b"5")]).result(WITHIN_S)
    assert set(values(broker.bootstrap_servers, "t", committed=True).values()) == {b"1", b"2", b"5"}
    first.close()
    second.close()


# --- overload, with a broker that was never there


def full(overload: Overload) -> Inlet:
    into = inlet(f"127.0.0.1:{free_port()}", limit_bytes=10_000, overload=overload)
    taken = into.put("t", [entry(b"first" * 1000)])
    until(lambda: into.progress.waiting == "for the broker", "it waits")
    assert not taken.done()
    return into


def test_whoever_fails_is_told_so() -> None:
    into = full(Overload.FAIL)
    into.put("t", [entry(b"x" * 2000)])
    with pytest.raises(Overloaded, match="no room"):
        into.put("t", [entry(b"x" * 9000)])
    into.close(0.1)


def test_the_newest_is_dropped_and_counted() -> None:
    into = full(Overload.DROP_NEWEST)
    kept = into.put("t", [entry(b"x" * 2000)])
    dropped = into.put("t", [entry(b"x" * 9000), entry(b"y")])
    assert isinstance(dropped.exception(1), Dropped)
    assert not kept.done()
    assert into.progress.dropped == 2
    into.close(0.1)


def test_the_oldest_that_waits_is_dropped_and_counted() -> None:
    into = full(Overload.DROP_OLDEST)
    until(lambda: not into._waiting, "the first is on its way")
    oldest = into.put("t", [entry(b"x" * 1000)] * 3)
    newest = into.put("t", [entry(b"x" * 4000)])
    assert isinstance(oldest.exception(1), Dropped)
    assert not newest.done()
    assert into.progress.dropped == 3
    assert into.bytes_waiting <= 10_000
    into.close(0.1)


def test_whoever_blocks_waits_on_a_thread_and_on_a_loop(tmp_path: Path) -> None:
    port = free_port()
    into = inlet(f"127.0.0.1:{port}", limit_bytes=10_000)
    first = into.put("t", [entry(b"x" * 9_000)])
    done: list[object] = []
    callers: list[Callable[[], object]] = [
        lambda: into.put("t", [entry(b"y" * 9_000)]).result(WITHIN_S),
        lambda: asyncio.run(into.put_async("t", [entry(b"z" * 9_000)])),
    ]
    threads = [Thread(target=lambda call=call: done.append(call())) for call in callers]  # type: ignore[misc]
    [thread.start() for thread in threads]
    until(lambda: len(into._room_wanted) == 1, "the loop waits")
    assert into.bytes_waiting < 10_000
    assert not done
    with serving(tmp_path / "data", port):
        make(f"127.0.0.1:{port}", "t")
        [thread.join(WITHIN_S) for thread in threads]
        assert first.result(0)
        assert len(done) == 2
        into.close()


def test_what_was_not_written_at_the_end_says_so() -> None:
    into = full(Overload.BLOCK)
    until(lambda: not into._waiting, "the first is on its way")
    waiting = into.put("t", [entry(b"x")])
    into.close(0.1)
    assert isinstance(waiting.exception(1), Stopped | Uncertain)
    with pytest.raises(Stopped):
        into.put("t", [entry(b"x")])


def test_close_writes_what_waits(broker: Broker) -> None:
    make(broker.bootstrap_servers, "t")
    into = inlet(broker.bootstrap_servers)
    answers = [into.put("t", [entry(b"x")]) for _ in range(5_000)]
    into.close(WITHIN_S)
    assert all(answer.exception(0) is None for answer in answers)
    assert len(values(broker.bootstrap_servers, "t")) == 5_000


def test_a_caller_that_goes_away_harms_no_other(broker: Broker) -> None:
    make(broker.bootstrap_servers, "a")
    into = Inlet(parse_bootstrap(broker.bootstrap_servers), "test", Progress())

    async def talk() -> list[Placed]:
        gone = asyncio.create_task(into.put_async("a", [entry(b"of one who is gone")]))
        await asyncio.sleep(0)  # it is taken, and waits
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        into.start()
        async with asyncio.timeout(WITHIN_S):
            return await into.put_async("a", [entry(b"of another")])

    assert asyncio.run(talk()) == [Placed(0, 1)]
    into.close()
    assert list(values(broker.bootstrap_servers, "a").values()) == [b"of one who is gone", b"of another"]
