"""`headrace top`: the picture, and keys that end it."""

import io
from dataclasses import replace

from rich.console import Console

from headrace.cli.top import picture
from headrace.client.address import Address
from headrace.connect.sync.places import group_of
from headrace.dashboard.history import History, Point
from headrace.dashboard.snapshot import PartitionSample, Snapshot, TopicSample
from headrace.dashboard.watch import Problem, State
from headrace.stack.overview import member_row, topic_rows
from headrace.stack.state_file import MemberState, StackState
from headrace.stack.usage import Usage
from headrace.status import DERIVED, Status

MEMBERS = (
    MemberState("broker", "broker", "running", 7, since_ms=1_000),
    MemberState("pipelines.sums", "pipelines", "running", 8, 1_000, 3, facts={"job sums.out": {"per_s": 50.0}}),
    MemberState("sync.copy", "sync", "running", 9, 1_000),
    MemberState("dashboard", "dashboard", "restarting", None, 1_000, 1, "port 8088 is taken"),
)
STATE = StackState(1, 1, 1_000, "/data/headrace.toml", "127.0.0.1:9092", MEMBERS)


def topic(name: str, end: int) -> TopicSample:
    return TopicSample(name, name.startswith("__"), (PartitionSample(0, 1, (1,), (1,), 0, end, 2048),))


SEEN = State(
    3,
    5_000,
    Snapshot(5_000, "id", 1, {1: Address("127.0.0.1", 9092)}, {n: topic(n, 900) for n in ("orders", "quiet", "__own")}),
    history=History(
        written=(Point(4_000, 70.0),),
        lag=(Point(4_000, 12.0),),
        topics={"orders": (Point(4_000, 70.0),)},
        group_reads={group_of("copy"): (Point(4_000, 44.0),)},
    ),
    statuses={DERIVED: {"copy": Status("copy", {"lag_records": 12, "lag_ms": 300}, 4_000)}},
)


def drawn(state: StackState, seen: State | None) -> str:
    used, before = {7: Usage(2.5, 1 << 20, 1), 8: Usage(9, 2 << 20, 3)}, {7: Usage(2, 0, 1), 8: Usage(8, 0, 3)}
    rows = [member_row(member, before, used, 2.0, seen) for member in state.members]
    out = io.StringIO()
    Console(file=out, width=200).print(picture(state, rows, seen, 61_000))
    return out.getvalue()


def test_a_picture_of_all() -> None:
    lines = drawn(STATE, SEEN).splitlines()
    assert " ".join(lines[0].split()) == "headrace.toml on 127.0.0.1:9092, for 1 min 70/s written 12 behind"
    words = {line.split()[0]: line.split() for line in lines if line.strip()}
    assert words["broker"] == ["broker", "running", "7", "25%", "1.0", "MiB", "–", "–", "–", "0", "1", "min"]
    assert words["pipelines.sums"][3:7] == ["50%", "2.0", "MiB", "50"]
    assert words["sync.copy"][5:9] == ["44", "12", "300", "ms"]
    assert "port 8088 is taken" in " ".join(words["dashboard"])
    assert words["orders"] == ["orders", "70", "900", "2.0", "KiB"]
    assert "__own" not in words


def test_a_broker_that_is_away_is_told() -> None:
    away = replace(SEEN, problem=Problem("no broker answers at 127.0.0.1:9092", 0, is_away=True))
    assert "no broker answers" in drawn(STATE, away)
    assert "orders" not in drawn(STATE, None)


def test_the_busiest_topics_come_first() -> None:
    assert [row.name for row in topic_rows(SEEN, 1)] == ["orders"]
    assert [row.name for row in topic_rows(SEEN, 9)] == ["orders", "quiet"]
