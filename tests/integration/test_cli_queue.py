"""`headrace queue` against a broker and members of share groups: what it shows, what it does, and what it refuses."""

import itertools
from contextlib import contextmanager
from functools import partial

import pytest

from headrace import Broker, Queue
from headrace.client.address import parse_bootstrap
from headrace.client.admin import create_topic
from headrace.client.cluster import Cluster
from headrace.client.coordinators import Coordinators
from headrace.client.groups import committed_offsets
from headrace.client.transactions import Transactions
from headrace.client.writer import NewRecord, Writer
from headrace.delivery.letters import Letter
from headrace.queues.moving import Mover
from headrace.queues.overview import LetterCounter
from headrace.records import Codec
from tests.conformance.clients.sharing import ACCEPT, RELEASE, Sharer, set_group
from tests.conformance.clients.wire import Wire
from tests.integration.cli_runs import assert_one_sentence, assert_wrong_call, run_cli
from tests.integration.waiting import wait_until

_numbers = itertools.count()


@pytest.fixture(scope="module")
def broker():
    with Broker(durability="os", own_process=True) as broker:  # whose log is not ours: what commands print is looked at
        yield broker


@pytest.fixture
def headrace(broker):
    return partial(run_cli, bootstrap=broker.bootstrap_servers)


@pytest.fixture
def emails(headrace):
    """A topic of one partition with eight messages, which nobody has."""
    return make_queue(headrace, f"emails{next(_numbers)}")


def make_queue(headrace, name):
    assert headrace("topic", "create", name, "--partitions", 1).code == 0
    lines = "\n".join(f'{{"value": "{{\\"n\\": {number}}}", "key": "k{number}"}}' for number in range(8))
    assert headrace("produce", name, "--json-lines", stdin=lines).code == 0
    return name


@contextmanager
def worker(broker, topic, group, **settings):
    """A member of a share group that holds all messages."""
    with Wire(broker.bootstrap_servers) as wire:
        set_group(wire, group, share_auto_offset_reset="earliest", **settings)
        sharer = Sharer(wire, group, topic)
        sharer.join()
        held = 0
        while held < 8:  # as many fetches as the batches need
            answer = sharer.fetch_some()
            held += sum(
                run.last_offset - run.first_offset + 1
                for found in answer.responses
                for partition in found.partitions
                for run in partition.acquired_records
            )
        yield sharer
        sharer.beat(epoch=-1)  # leaves, and what it holds is available again


def only_group(headrace, queue):
    (group,) = headrace("queue", "describe", queue, "--json").json["groups"]
    return group


def values(headrace, topic):
    return [record["value"] for record in headrace("tail", topic, "--no-follow", "--json").json_lines]


def peeked(headrace, queue, *options):
    shown = headrace("queue", "peek", queue, "--json", *options).json_lines
    return [(message["offset"], message["state"], message["deliveries"]) for message in shown]


def some_are_finished(broker, topic, group):
    """A group that has finished 0, 1 and 5, and has nobody any more."""
    with worker(broker, topic, group) as sharer:
        sharer.acknowledge((0, 1, [ACCEPT]), (5, 5, [ACCEPT]))


# --- looking


def test_no_queues():
    with Broker(durability="os") as broker:
        headrace = partial(run_cli, bootstrap=broker.bootstrap_servers)
        assert headrace("queue", "list").out.startswith("no queues yet")
        assert headrace("queue", "list", "--json").json == []


def test_a_queue_is_listed_and_described_while_it_is_worked_on(headrace, broker, emails):
    with worker(broker, emails, f"{emails}-mailers") as sharer:
        sharer.acknowledge((0, 1, [ACCEPT]), (3, 3, [RELEASE]))
        sharer.fetch_some()  # 3 again
        sharer.acknowledge((4, 4, [RELEASE]))
        (listed,) = [found for found in headrace("queue", "list", "--json").json if found["queue"] == emails]
        text = headrace("queue", "list").out
        described = headrace("queue", "describe", emails).out
        messages = peeked(headrace, emails)
        lines = headrace("queue", "peek", emails, "--limit", 2).out.splitlines()
    (group,) = listed["groups"]
    assert (group["group"], group["state"], group["members"]) == (f"{emails}-mailers", "Stable", 1)
    assert (group["depth"], group["in_flight"], group["redeliveries"]) == (6, 5, 1)
    assert 0 <= group["oldest_seconds"] < 3600
    assert group["dead_letters"] is None
    assert f"{emails}-mailers" in text
    assert "begins at" in described
    assert messages == [
        (2, "in flight", 1),
        (3, "in flight", 2),
        (4, "available", 1),
        (5, "in flight", 1),
        (6, "in flight", 1),
        (7, "in flight", 1),
    ]
    assert len(lines) == 2
    assert lines[0].endswith('{"n": 2}  [in flight, delivered once]')
    assert lines[1].endswith('{"n": 3}  [in flight, delivered 2 times]')


def test_the_name_of_a_group_is_nothing_that_a_terminal_obeys(headrace, broker, emails):
    with worker(broker, emails, "\x1b]0;owned\x07"):
        pass
    with worker(broker, emails, "\x1b[2J"):
        pass
    for command in (["queue", "list"], ["queue", "describe", emails], ["queue", "peek", emails], ["group", "list"]):
        shown = headrace(*command)
        assert "\\x1b" in shown.out + shown.err
        assert "\x1b" not in shown.out + shown.err


def test_peeking_takes_nothing(headrace, broker, emails):
    some_are_finished(broker, emails, f"{emails}-mailers")
    before = only_group(headrace, emails)
    assert [offset for offset, _, _ in peeked(headrace, emails)] == [2, 3, 4, 6, 7]
    after = only_group(headrace, emails)
    assert (after["depth"], after["in_flight"], after["redeliveries"]) == (5, 0, before["redeliveries"])


def test_a_topic_that_is_set_to_be_a_queue_is_one(headrace):
    headrace("topic", "create", "declared", "--config", "headrace.queue=true")
    (listed,) = [found for found in headrace("queue", "list", "--json").json if found["queue"] == "declared"]
    assert listed["groups"] == []
    assert "no group yet" in headrace("queue", "list").out
    described = headrace("queue", "describe", "declared", "--json").json
    assert described["configs"]["headrace.queue"] == "true"


# --- dead letters


def write_letters(broker, topic, origin):
    with Cluster(parse_bootstrap(broker.bootstrap_servers)) as cluster:
        create_topic(cluster, topic, partitions=1, configs={"cleanup.policy": "compact"})
        writer = Writer(cluster, topic)
        for number, reason in enumerate(["no such customer", "no such customer", "time-out"]):
            value = b'{"n": %d}' % (100 + number)
            letter = Letter(origin, 0, number, 1, None, value, reason, "", "mailers").to_record(1)
            writer.add(NewRecord(letter.key, letter.value, 1, letter.headers))
        writer.flush()


def test_dead_letters_are_counted_and_sent_back(headrace, broker, emails):
    topic = f"dlq.{emails}"
    write_letters(broker, topic, emails)
    counter = LetterCounter()

    def wait_for_letters(cluster, number):
        """A commit is answered before its markers are written, and before those nobody sees it."""
        for each in (counter, LetterCounter()):
            wait_until(lambda: each.count(cluster, topic).number == number, f"not {number} letters", patience_s=60)  # noqa: B023

    with Cluster(parse_bootstrap(broker.bootstrap_servers)) as cluster:
        assert counter.count(cluster, topic) == (topic, 3, True)
        planned = headrace("queue", "redrive", topic, "--reason", "time-out", "--dry-run", "--json").json
        assert (planned["letters"], planned["sent"], planned["left"]) == (3, 1, {})
        assert len(values(headrace, emails)) == 8
        sent = headrace("queue", "redrive", topic, "--reason", "time-out", "--yes")
        assert sent.out == f"sent 1 message of {topic} back\n"
        wait_for_letters(cluster, 2)
        assert headrace("queue", "redrive", topic, "--where", ".n == 101", "--limit", 5, "--yes").code == 0
        wait_for_letters(cluster, 1)
        assert headrace("queue", "redrive", topic, "--yes").code == 0
        wait_for_letters(cluster, 0)
    assert values(headrace, emails)[8:] == ['{"n": 102}', '{"n": 101}', '{"n": 100}']
    assert_wrong_call(headrace("queue", "redrive", topic), "no terminal to ask in")
    assert_one_sentence(headrace("queue", "redrive", "nowhere", "--yes"), "topic 'nowhere' does not exist")


# --- purging


def test_purge(headrace, broker, emails):
    some_are_finished(broker, emails, f"{emails}-mailers")
    planned = headrace("queue", "purge", emails, "--dry-run", "--json").json
    assert planned == {"queue": emails, "group": f"{emails}-mailers", "purged": 5, "dry_run": True}
    assert only_group(headrace, emails)["depth"] == 5
    assert headrace("queue", "purge", emails, "--yes").out == f"left 5 messages of {emails} behind\n"
    assert only_group(headrace, emails)["depth"] == 0
    assert headrace("queue", "peek", emails).out == f"{emails}-mailers has finished everything in {emails}\n"
    assert len(values(headrace, emails)) == 8  # other groups have them yet


# --- moving


def test_move_takes_what_is_not_finished(headrace, broker, emails):
    some_are_finished(broker, emails, f"{emails}-mailers")
    target = f"{emails}-later"
    headrace("topic", "create", target, "--partitions", 1)
    assert (
        headrace("queue", "move", emails, target, "--dry-run").out
        == f"would move 5 messages from {emails} to {target}\n"
    )
    assert values(headrace, target) == []
    moved = headrace("queue", "move", emails, target, "--yes", "--json").json
    assert moved == {"queue": emails, "group": f"{emails}-mailers", "to": target, "moved": 5, "dry_run": False}
    assert values(headrace, target) == [f'{{"n": {number}}}' for number in (2, 3, 4, 6, 7)]
    assert only_group(headrace, emails)["depth"] == 0
    again = headrace("queue", "move", emails, target, "--yes")
    assert again.out == f"moved 0 messages from {emails} to {target}\n"
    assert len(values(headrace, target)) == 5


def test_a_move_that_was_killed_before_its_end_copies_nothing_twice(headrace, broker, emails):
    """Everything is copied and committed, and the share group begins where it did."""
    group, target = f"{emails}-mailers", f"{emails}-later"
    some_are_finished(broker, emails, group)
    headrace("topic", "create", target, "--partitions", 1)
    with Cluster(parse_bootstrap(broker.bootstrap_servers)) as cluster:
        coordinators = Coordinators(cluster)
        mover = Mover(coordinators, emails, group, target)

        def kill(_):
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            mover.run(kill)
        Transactions(cluster).begin(f"headrace-move.{group}.{emails}", 60_000)  # its markers are written
        assert list(committed_offsets(coordinators, f"headrace-move.{group}.{emails}").values()) == [(8, "")]
    assert only_group(headrace, emails)["depth"] == 5
    assert len(values(headrace, target)) == 5
    assert headrace("queue", "move", emails, target, "--yes").code == 0
    assert len(values(headrace, target)) == 5
    assert only_group(headrace, emails)["depth"] == 0
    assert f"headrace-move.{group}.{emails}" not in headrace("group", "list").out


def test_what_is_moved_there_and_back_is_no_duplicate_of_itself(headrace, broker):
    here, there = (f"moved{next(_numbers)}" for _ in range(2))
    for name in (here, there):
        begin_to_take(broker, name)
    with Queue(here, broker) as queue:
        queue.put("precious", dedup_id="1")
        queue.put("precious", dedup_id="1")
        queue.put("as precious", dedup_id="x" * 1024)
    for one, other in ((here, there), (there, here)):
        moved = headrace("queue", "move", one, other, "--yes")
        assert moved.code == 0, moved
    with Queue(here, broker) as queue:
        taken = {queue.get(60).value, queue.get(60).value}
        assert taken == {"precious", "as precious"}


def test_a_message_that_is_only_small_when_compressed_is_moved(headrace, broker):
    here, there = (f"moved{next(_numbers)}" for _ in range(2))
    begin_to_take(broker, here)
    begin_to_take(broker, there)
    large = b'"' + b"x" * 2_000_000 + b'"'
    with Cluster(parse_bootstrap(broker.bootstrap_servers)) as cluster:
        writer = Writer(cluster, here, codec=Codec.GZIP)
        for value in (b'"small"', large, b'"small"'):
            writer.add(NewRecord(None, value, 0))
        writer.flush()
    moved = headrace("queue", "move", here, there, "--yes")
    assert moved.code == 0, moved
    with Queue(there, broker) as queue:
        assert sorted(len(queue.get(60).data) for _ in range(3)) == [7, 7, len(large)]


def begin_to_take(broker, name):
    """Have a queue and its group, which has finished what there is."""
    with Queue(name, broker) as queue:
        queue.put("the first")
        queue.get(60).ack()
        assert queue.flush(60)


# --- what is refused


@pytest.mark.parametrize("command", [["purge"], ["move"]])
def test_a_group_with_members_is_left_alone(headrace, broker, emails, command):
    target = [f"{emails}-later"] if command == ["move"] else []
    headrace("topic", "create", f"{emails}-later")
    with worker(broker, emails, f"{emails}-mailers"):
        refused = headrace("queue", *command, emails, *target, "--yes")
        assert_one_sentence(refused, f"group '{emails}-mailers' has 1 member")
        assert only_group(headrace, emails)["depth"] == 8


def test_mistakes_get_one_sentence(headrace, broker, emails):
    assert_one_sentence(headrace("queue", "describe", "nowhere"), "topic 'nowhere' does not exist")
    assert_one_sentence(headrace("queue", "peek", emails), f"no share group has '{emails}'", "headrace queue list")
    some_are_finished(broker, emails, f"{emails}-a")
    wrong = headrace("queue", "purge", emails, "--group", "other", "--yes")
    assert_one_sentence(wrong, f"group 'other' does not have '{emails}'", f"name one of {emails}-a with --group")
    some_are_finished(broker, emails, f"{emails}-b")
    several = headrace("queue", "peek", emails)
    assert_one_sentence(several, f"'{emails}' has several groups: name one of {emails}-a, {emails}-b with --group")
    itself = headrace("queue", "move", emails, emails, "--group", f"{emails}-a", "--yes")
    assert_one_sentence(itself, "cannot be moved to itself")
    missing = headrace("queue", "move", emails, "nowhere", "--group", f"{emails}-a", "--yes")
    assert_one_sentence(missing, "topic 'nowhere' does not exist")
    assert_wrong_call(headrace("queue", "purge", emails, "--group", f"{emails}-a"), "no terminal to ask in")
    assert {group["depth"] for group in headrace("queue", "describe", emails, "--json").json["groups"]} == {5}
