"""A group and its lag, as people and as programs want to see it."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from rich.text import Text

from headrace.cli.output import console, human_bytes, human_duration, print_table
from headrace.client.groups import SHARE, GroupMember
from headrace.client.lag import GroupLag, PartitionLag, Trouble, trouble_of
from headrace.client.leaders import by_topic
from headrace.connect.sync.places import Owner
from headrace.model import TopicPartition

_STYLES = {
    Trouble.REMOVED: "bold red",
    Trouble.BEYOND_END: "bold red",
    Trouble.NEAR_LOSS: "yellow",
    Trouble.NO_PARTITION: "yellow",
}


class Warned(NamedTuple):
    partition: TopicPartition
    trouble: Trouble
    text: str


def warnings_of(described: GroupLag, now_ms: int) -> Iterator[Warned]:
    """What is wrong, partition by partition."""
    for lag in described.partitions:
        trouble = trouble_of(lag, now_ms)
        if trouble:
            yield Warned(lag.partition, trouble, f"{lag.partition}: {_sentence(lag, trouble, now_ms)}")
    for where, committed in described.gone.items():
        text = f"{where}: offset {committed.offset} is committed, but the partition does not exist any more"
        yield Warned(where, Trouble.NO_PARTITION, text)


def _sentence(lag: PartitionLag, trouble: Trouble, now_ms: int) -> str:
    if trouble is Trouble.REMOVED:
        were = "record was removed before it was" if lag.removed == 1 else "records were removed before they were"
        onward = "where the group goes on" if lag.shared else "and auto.offset.reset decides where to go on"
        return f"{lag.removed:,} {were} read: the log starts at {lag.start}, {onward}"
    if trouble is Trouble.BEYOND_END:
        return f"offset {lag.committed} is past the end of the log, {lag.end}: was the topic made anew?"
    loss = lag.loss(now_ms)
    assert loss is not None
    if loss.left_ms is None:
        when = f"soon ({loss.share_left:.0%} of the space is left)"
    else:
        when = f"in about {human_duration(loss.left_ms)}" if loss.left_ms else "at any time"
    return f"records will be removed before they are read, {when} ({loss.setting})"


# --- for people


def print_lag(described: GroupLag, now_ms: int, owner: Owner | None = None) -> None:
    """The group, its members, its partitions, and what is wrong."""
    group = described.group
    terminal = console()
    facts = [
        ("group", group.name),
        ("state", group.state),
        ("protocol", group.kind if group.protocol_type in ("", "consumer") else f"{group.kind}, {group.protocol_type}"),
        ("assignor", group.assignor or "–"),
        ("coordinator", f"{group.coordinator} at {group.address}"),
    ]
    for name, value in facts:
        terminal.print(Text.assemble((f"{name:<12}", "bold"), value), soft_wrap=True)
    terminal.print()
    if group.members:
        print_table(
            ["client", "host", "partitions", "member"],
            [(found.client_id, found.host, _short(found.partitions), _identity(found)) for found in group.members],
        )
    else:
        terminal.print(f"no members: {owner} reads without them" if owner else "no members")
    terminal.print()
    warnings = list(warnings_of(described, now_ms))
    if described.partitions:
        troubles = {warned.partition: warned.trouble for warned in warnings}
        readers = _readers(group.members)
        place = ">begins at" if group.kind == SHARE else ">committed"
        print_table(
            ["topic", ">partition", place, ">start", ">end", ">lag", ">≈ bytes", ">time", "client"],
            [
                _row(lag, troubles.get(lag.partition), readers.get(lag.partition, []), lag.age_ms(now_ms))
                for lag in described.partitions
            ],
        )
    if not described.has_commits:
        nothing = "nothing was fetched yet" if group.kind == SHARE else "no offsets are committed"
        terminal.print(nothing)
    if warnings:
        terminal.print()
    for warned in warnings:
        terminal.print(Text(f"warning: {warned.text}", style=_STYLES[warned.trouble]), soft_wrap=True)


def _row(lag: PartitionLag, trouble: Trouble | None, readers: list[GroupMember], age_ms: int | None) -> list[object]:
    style = _STYLES[trouble] if trouble else ""
    return [
        lag.partition.topic,
        lag.partition.partition,
        Text("–" if lag.committed is None else str(lag.committed), style=style),
        lag.start,
        lag.end,
        Text("–" if lag.records is None else str(lag.records), style=style),
        human_bytes(lag.size_left_bytes),
        human_duration(age_ms),
        ", ".join(reader.client_id for reader in readers) or "–",
    ]


def _short(partitions: Iterable[TopicPartition]) -> str:
    texts = [f"{topic}:{','.join(map(str, indexes))}" for topic, indexes in by_topic(partitions).items()]
    return " ".join(texts) or "–"


def _identity(member: GroupMember) -> str:
    return f"{member.id} ({member.instance_id})" if member.instance_id else member.id


def _readers(members: Iterable[GroupMember]) -> dict[TopicPartition, list[GroupMember]]:
    """Who reads each partition: one member, but for share groups, where several may."""
    readers: dict[TopicPartition, list[GroupMember]] = {}
    for member in members:
        for where in member.partitions:
            readers.setdefault(where, []).append(member)
    return readers


# --- for programs


def lag_as_json(described: GroupLag, now_ms: int) -> dict[str, object]:
    """Everything; what is not known is null."""
    group = described.group
    readers = _readers(group.members)
    ages = [lag.age_ms(now_ms) for lag in described.partitions]
    return {
        "group": group.name,
        "state": group.state,
        "type": group.kind,
        "protocol_type": group.protocol_type,
        "assignor": group.assignor or None,
        "coordinator": {"node": group.coordinator, "host": group.address.host, "port": group.address.port},
        "members": [
            {
                "member_id": member.id,
                "instance_id": member.instance_id,
                "client_id": member.client_id,
                "host": member.host,
                "partitions": [where._asdict() for where in member.partitions],
            }
            for member in group.members
        ],
        "has_commits": described.has_commits,
        "lag_records": sum(lag.records or 0 for lag in described.partitions),
        "lag_bytes_estimated": _total([lag.size_left_bytes for lag in described.partitions]),
        "lag_seconds": max((age / 1000 for age in ages if age is not None), default=None),
        "partitions": [_partition(lag, readers.get(lag.partition, []), now_ms) for lag in described.partitions],
        "warnings": [
            {**warned.partition._asdict(), "kind": warned.trouble.value, "text": warned.text}
            for warned in warnings_of(described, now_ms)
        ],
    }


def _partition(lag: PartitionLag, readers: list[GroupMember], now_ms: int) -> dict[str, object]:
    loss, age_ms = lag.loss(now_ms), lag.age_ms(now_ms)
    return {
        **lag.partition._asdict(),
        "committed_offset": lag.committed,
        "metadata": lag.metadata,
        "start_offset": lag.start,
        "end_offset": lag.end,
        "lag_records": lag.records,
        "lag_bytes_estimated": lag.size_left_bytes,
        "lag_seconds": None if age_ms is None else age_ms / 1000,
        "removed_records": lag.removed,
        "next_timestamp_ms": lag.next_ms,
        "newest_timestamp_ms": lag.newest_ms,
        "size_bytes": lag.size_bytes,
        "retention_ms": lag.retention.ms,
        "retention_bytes": lag.retention.size_bytes,
        "loss": loss
        and {
            "setting": loss.setting,
            "seconds_left": None if loss.left_ms is None else loss.left_ms / 1000,
            "share_left": round(loss.share_left, 4),
            "is_near": loss.is_near,
        },
        "member_id": readers[0].id if len(readers) == 1 else None,
        "member_ids": [reader.id for reader in readers],
    }


def _total(sizes: Iterable[int | None]) -> int | None:
    known = [size for size in sizes if size is not None]
    return sum(known) if known else None
