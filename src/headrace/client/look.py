"""`headrace.look`: topics and groups of a cluster as they stand now, readable in a notebook and at a prompt.

    >>> look = headrace.look(broker)          # or "127.0.0.1:9092", ours or any Kafka
    >>> look                                  # its topics and groups
    >>> look.topic("orders")                  # partitions, offsets, sizes, settings of its own
    >>> look.group("shop")                    # how far behind, partition by partition

Each answer is a value of its moment and changes no more; ask again for a newer one. Nothing is kept open.
"""

import io
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from rich.console import Console
from rich.table import Table
from rich.text import Text

from headrace.client.address import parse_bootstrap
from headrace.client.admin import TopicDescription, describe_topic
from headrace.client.cluster import Cluster
from headrace.client.connection import ConnectionSettings
from headrace.client.coordinators import Coordinators
from headrace.client.groups import GroupListing, list_groups
from headrace.client.html_tables import facts, is_number, shown, table
from headrace.client.lag import GroupLag, describe_lag, trouble_of
from headrace.client.offsets import bounds

_WIDTH = 200


class Running(Protocol):
    """A broker that runs here."""

    @property
    def bootstrap_servers(self) -> str:
        """Where it listens."""


@dataclass(frozen=True)
class Section:
    """A table under its title."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]


class Sheet:
    """Facts and tables, which a notebook shows as HTML and a prompt as text."""

    def __init__(self, title: str, said: Sequence[tuple[str, object]], sections: Sequence[Section]) -> None:
        self.title, self.said, self.sections = title, tuple(said), tuple(sections)

    def _repr_html_(self) -> str:
        parts = [facts(self.title, self.said)]
        parts += [table(each.columns, each.rows, caption=each.title) for each in self.sections if each.rows]
        return f"<div>{''.join(parts)}</div>"

    def __repr__(self) -> str:
        out = io.StringIO()
        # Not asked, rich would show it in a notebook's cell by itself.
        console = Console(file=out, width=_WIDTH, color_system=None, highlight=False, force_jupyter=False)
        console.print(Text(f"{self.title}: {', '.join(f'{name} {shown(value)}' for name, value in self.said)}"))
        for each in self.sections:
            if each.rows:
                console.print(_as_text(each))
        return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def _as_text(section: Section) -> Table:
    made = Table(title=section.title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for place, name in enumerate(section.columns):
        numbers = all(is_number(row[place]) or row[place] is None for row in section.rows)
        made.add_column(name, justify="right" if numbers else "left", no_wrap=True)
    for row in section.rows:
        made.add_row(*(Text(shown(value)) for value in row))
    return made


class TopicSheet(Sheet):
    """One topic; `description` has the numbers."""

    def __init__(self, description: TopicDescription) -> None:
        self.description = description
        parts = description.partitions
        sizes = [part.size_bytes for part in parts if part.size_bytes is not None]
        said: list[tuple[str, object]] = [("partitions", len(parts)), ("records", sum(part.records for part in parts))]
        said += [("bytes", sum(sizes))] if sizes else []
        rows = [
            (part.partition.index, part.bounds.start, part.bounds.end, part.size_bytes, part.partition.leader)
            for part in parts
        ]
        super().__init__(
            f"topic {description.topic.name}",
            said,
            [
                Section("partitions", ("partition", "first offset", "next offset", "bytes", "leader"), rows),
                Section("settings", ("setting", "value"), [(each.name, each.value) for each in description.configs]),
            ],
        )


class GroupSheet(Sheet):
    """One group; `lag` has the numbers."""

    def __init__(self, lag: GroupLag, now_ms: int) -> None:
        self.lag = lag
        readers = {where: each.client_id or each.id for each in lag.group.members for where in each.partitions}
        rows = []
        for part in lag.partitions:
            trouble = trouble_of(part, now_ms)
            loss = part.loss(now_ms)
            left_s = None if loss is None or loss.left_ms is None else loss.left_ms // 1000
            said = trouble.value.replace("_", " ") if trouble else ""
            age_ms = part.age_ms(now_ms)
            seconds = None if age_ms is None else age_ms / 1000
            where = str(part.partition)
            rows.append(
                (where, part.committed, part.end, part.records, seconds, left_s, readers.get(part.partition), said)
            )
        columns = ("partition", "committed", "end", "lag", "lag in s", "kept for s", "read by", "trouble")
        super().__init__(
            f"group {lag.group.name}",
            [
                ("state", lag.group.state),
                ("members", len(lag.group.members)),
                ("lag", sum(part.records or 0 for part in lag.partitions)),
            ],
            [Section("partitions", columns, rows)],
        )


class Look(Sheet):
    """A cluster as it stood when it was looked at; `topic` and `group` ask again."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        with self._cluster() as cluster:
            topics = [topic for topic in cluster.topics() if not topic.is_internal]
            held = bounds(cluster, [where for topic in topics for where in cluster.partitions(topic.name)])
            groups: list[GroupListing] = list_groups(cluster)
        records = {topic.name: 0 for topic in topics}
        for where, found in held.items():
            records[where.topic] += found.end - found.start
        super().__init__(
            f"cluster at {bootstrap}",
            [("topics", len(topics)), ("groups", len(groups))],
            [
                Section(
                    "topics",
                    ("topic", "partitions", "records"),
                    [(topic.name, len(topic.partitions), records[topic.name]) for topic in topics],
                ),
                Section("groups", ("group", "state", "kind"), [(each.name, each.state, each.kind) for each in groups]),
            ],
        )

    def topic(self, name: str) -> TopicSheet:
        """A topic as it stands now."""
        with self._cluster() as cluster:
            return TopicSheet(describe_topic(cluster, name))

    def group(self, name: str) -> GroupSheet:
        """A group as it stands now."""
        with self._cluster() as cluster:
            return GroupSheet(describe_lag(Coordinators(cluster), name), int(time.time() * 1000))

    def _cluster(self) -> Cluster:
        return Cluster(parse_bootstrap(self.bootstrap), ConnectionSettings(client_id="headrace-look"))


def look(at: "str | Running") -> Look:
    """A cluster's topics and groups as they stand now; `at` is a running broker or its address."""
    return Look(at if isinstance(at, str) else at.bootstrap_servers)
