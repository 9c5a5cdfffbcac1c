"""Which transactions were seen, in the words of either database. Pure.

MariaDB numbers transactions in a domain: `domain-server-number`, and a state is the last of each domain. MySQL numbers
them by the server on which they began: `uuid:number`, and a state is a set of ranges, as they may come out of order.
"""

from dataclasses import dataclass
from typing import Protocol, Self, TypeAlias

from headrace.connect.errors import ConnectError


class BadGtid(ConnectError):
    """Text that is no GTID."""

    def __init__(self, text: str) -> None:
        super().__init__(f"{text!r} is not a supported GTID: begin again with a new snapshot")


class GtidState(Protocol):
    """Transactions that were seen."""

    def with_gtid(self, gtid: str) -> "GtidState":
        """This one as well."""
        ...

    def covers(self, other: "GtidState") -> bool:
        """Whether all of the other's transactions are among these."""
        ...


@dataclass(frozen=True, slots=True)
class MariaDbState:
    """The last transaction of each domain."""

    last: tuple[tuple[int, int, int], ...] = ()  # domain, server, number; ordered

    @classmethod
    def parse(cls, text: str) -> Self:
        """`0-1-5,1-1-7`, or nothing."""
        found = []
        for part in filter(None, (one.strip() for one in text.split(","))):
            numbers = part.split("-")
            if len(numbers) != 3 or not all(number.isdecimal() for number in numbers):
                raise BadGtid(part)
            found.append((int(numbers[0]), int(numbers[1]), int(numbers[2])))
        return cls(tuple(sorted(found)))

    def with_gtid(self, gtid: str) -> "MariaDbState":
        domain, server, number = (int(part) for part in gtid.split("-"))
        return MariaDbState(tuple(sorted([one for one in self.last if one[0] != domain] + [(domain, server, number)])))

    def covers(self, other: GtidState) -> bool:
        assert isinstance(other, MariaDbState)
        here = {domain: number for domain, _, number in self.last}
        return all(here.get(domain, -1) >= number for domain, _, number in other.last)

    def __str__(self) -> str:
        return ",".join(f"{domain}-{server}-{number}" for domain, server, number in self.last)


Range: TypeAlias = tuple[int, int]  # first and last, both seen


@dataclass(frozen=True, slots=True)
class MysqlState:
    """The transactions of each server."""

    seen: tuple[tuple[str, tuple[Range, ...]], ...] = ()  # uuid, ranges; ordered

    @classmethod
    def parse(cls, text: str) -> Self:
        """`uuid:1-5:7,uuid:1-3`, or nothing."""
        found: dict[str, list[Range]] = {}
        for part in filter(None, (one.strip() for one in text.split(","))):
            uuid, *ranges = part.lower().split(":")
            if len(uuid.replace("-", "")) != 32 or not ranges:
                raise BadGtid(part)
            for one in ranges:
                first, _, last = one.partition("-")
                if not first.isdecimal() or (last and not last.isdecimal()):
                    raise BadGtid(part)  # MySQL 8.3's tags come here too
                found.setdefault(uuid, []).append((int(first), int(last or first)))
        return cls(tuple(sorted((uuid, _joined(ranges)) for uuid, ranges in found.items())))

    def with_gtid(self, gtid: str) -> "MysqlState":
        uuid, _, number = gtid.rpartition(":")
        found = dict(self.seen)
        ranges = found.get(uuid, ())
        if ranges and ranges[-1][1] == int(number) - 1:  # the next one, as nearly always
            found[uuid] = (*ranges[:-1], (ranges[-1][0], int(number)))
        else:
            found[uuid] = _joined([*ranges, (int(number), int(number))])
        return MysqlState(tuple(sorted(found.items())))

    def covers(self, other: GtidState) -> bool:
        assert isinstance(other, MysqlState)
        here = dict(self.seen)
        return all(
            any(first <= one[0] and one[1] <= last for first, last in here.get(uuid, ()))
            for uuid, ranges in other.seen
            for one in ranges
        )

    def encoded(self) -> bytes:
        """As COM_BINLOG_DUMP_GTID wants it: ranges without their last."""
        data = len(self.seen).to_bytes(8, "little")
        for uuid, ranges in self.seen:
            data += bytes.fromhex(uuid.replace("-", "")) + len(ranges).to_bytes(8, "little")
            for first, last in ranges:
                data += first.to_bytes(8, "little") + (last + 1).to_bytes(8, "little")
        return data

    def __str__(self) -> str:
        return ",".join(
            f"{uuid}:" + ":".join(f"{first}-{last}" if last > first else str(first) for first, last in ranges)
            for uuid, ranges in self.seen
        )


def _joined(ranges: list[Range]) -> tuple[Range, ...]:
    found: list[Range] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return tuple(found)
