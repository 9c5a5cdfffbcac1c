"""The rows about the coordinators: what producing loses beside them, transactions a second, a group that settles."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

import broker_report as report
from broker_beside import (
    COMMITS_PER_S,
    OTHER_PARTITIONS,
    REACHED,
    MakeLoad,
    commit_answers,
    committer,
    prepare_commits,
    slow_down,
)
from broker_clients import SENDS, java_transactions
from broker_rebalance import MEMBERS, rebalance
from broker_report import Figures, Row
from broker_transactions import (
    RECORD_BYTES,
    STATE_TOPIC,
    paced,
    prepare_transactions,
    transaction_answers,
    transactions,
)
from broker_wire import make_batch
from brokers import Contender
from peers.java import PeerNotFetchedError, jars_of

if TYPE_CHECKING:
    from broker import Bench

KIB = 1024
COMMITTERS = (1, 200)
PRODUCERS = (1, 8)
LOOPS = (
    ("kafka", "Java client 4.3.1", "default"),
    ("kafka", "Java client 4.3.1", "os"),
    ("clients-39", "Java client 3.9.1", "default"),
)
_PRODUCE = "produce 16 KiB batches, acks=1, os, beside"


def beside_rows(bench: "Bench") -> Iterator[Row]:
    """Producing, with and without work for the coordinators."""
    seconds = bench.plan.seconds
    for connections in COMMITTERS:
        where = "1 connection" if connections == 1 else f"{connections} connections"
        name = f"{_PRODUCE} {COMMITS_PER_S} offset commits/s on {where}"
        if not bench.plan.wants("beside", name):
            continue
        pair = bench.pair("os")
        for broker in pair:
            prepare_commits(broker)

        def make(address: str, topic: str, connections: int = connections) -> Callable:
            return committer(address, topic, seconds, connections)

        yield _beside(bench, name, pair, make, commit_answers, COMMITS_PER_S)

    name = f"{_PRODUCE} transactions at Kafka's own rate"
    if bench.plan.wants("beside", name):
        pair = bench.pair("os")
        for broker in pair:
            prepare_transactions(broker)
        # What Kafka reaches with nothing else to do, in this very run; its first is to warm it up.
        rate = max(transactions(pair[-1], OTHER_PARTITIONS, seconds)["transactions_per_s"] for _ in range(3))

        def make_paced(address: str, topic: str) -> Callable:
            return paced(address, topic, OTHER_PARTITIONS, OTHER_PARTITIONS, seconds, rate)

        name = f"{name}, {rate:.0f}/s of {OTHER_PARTITIONS} producers"
        yield _beside(bench, name, pair, make_paced, transaction_answers, rate)


def _beside(
    bench: "Bench", name: str, pair: tuple[Contender, Contender], make: MakeLoad, answers: Callable, rate: float
) -> Row:
    batch = make_batch(16 * KIB, KIB)

    def run(broker: Contender) -> Figures:
        return slow_down(broker, batch, bench.plan.seconds, make, answers)

    row = bench.row(name, pair, run, report.BESIDE_GOALS)
    # A slow-down by work that was not done would be worth nothing.
    for key, where in (("others_per_s", "by {}"), ("others_alone_per_s", "with the sink, beside {}")):
        found = row.found[key].medians
        late = [where.format(who) + f" ({each:.0f}/s)" for who, each in found.items() if each < REACHED * rate]
        if late:
            row = replace(row, name=f"{row.name} — RATE NOT REACHED {', '.join(late)}")
    return row


def transaction_rows(bench: "Bench") -> Iterator[Row]:
    """As many transactions as go."""
    for durability in ("os", "fsync"):
        for producers in PRODUCERS:
            who = "1 producer" if producers == 1 else f"{producers} producers"
            name = f"transactions of one {RECORD_BYTES} B record, {who}, {durability}"
            if not bench.plan.wants("transactions", name):
                continue
            pair = bench.pair(durability)

            def run(broker: Contender, producers: int = producers) -> Figures:
                return transactions(broker, producers, bench.plan.seconds)

            with ExitStack() as stack:
                for broker in pair:
                    prepare_transactions(broker)
                    stack.enter_context(broker.durable_coordinator(STATE_TOPIC))
                yield bench.row(name, pair, run)


def loop_rows(bench: "Bench") -> Iterator[Row]:
    """One transaction after another from the Java client; also with both brokers as they come, where only we sync."""
    for jars, client, durability in LOOPS:
        how = "as they come (ours syncs)" if durability == "default" else durability
        name = f"{client}, one after another, {SENDS} records each, {how}"
        if not bench.plan.wants("loops", name):
            continue
        try:
            jars_of(jars)
        except PeerNotFetchedError as error:
            bench.note(f"{name}: left out, {error}")
            continue

        def run(broker: Contender, jars: str = jars) -> Figures:
            return java_transactions(broker, jars, 2 * bench.plan.seconds)

        yield bench.row(name, bench.pair(durability), run, report.LOOP_GOALS)


def rebalance_rows(bench: "Bench") -> Iterator[Row]:
    """A group that takes in one more."""
    for protocol, title in (("classic", "classic"), ("consumer", "KIP-848")):
        name = f"rebalance of {MEMBERS} members, {title}"
        if bench.plan.wants("rebalance", name):

            def run(broker: Contender, protocol: str = protocol) -> Figures:
                return rebalance(broker, protocol)

            yield bench.row(name, bench.pair("os"), run)
