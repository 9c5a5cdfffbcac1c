"""Limits on what clients may make the broker hold, and the bound on its memory that follows from them.

Each limit is a setting. Whoever reaches one gets Kafka's error, or one sentence in the broker's log, and is counted
here, under the name of the setting (`docs/reference/limits.md`).

What always holds: the broker's own memory stays below `memory_bound`, whatever clients send, do not read, or leave
half done. Pages of log files that are mapped to be sent are not counted: they are the system's, which takes them back.
"""

from collections import Counter
from typing import Final, NamedTuple

from headrace.broker.config import BrokerConfig, Listener
from headrace.broker.errors import BrokerError
from headrace.broker.fetches import MAX_PARTITIONS
from headrace.broker.load import BEGUN_AT_ONCE, FLOOR_BYTES, LARGE_AT_ONCE
from headrace.broker.settings.listeners import PREFIX_OF_LISTENERS
from headrace.broker.settings.setting import InvalidSetting
from headrace.protocol.errors import ErrorCode
from headrace.records.compression import MAX_BODY_BYTES
from headrace.telemetry.logs import RareLines, get_logger

MAX_CONNECTIONS: Final = "max.connections"
MAX_PER_IP: Final = "max.connections.per.ip"
PER_IP_OVERRIDES: Final = "max.connections.per.ip.overrides"
MAX_IN_FLIGHT: Final = "max.in.flight.requests.per.connection"
MAX_IN_FLIGHT_IN_ALL: Final = "max.in.flight.requests"
QUEUED_BYTES: Final = "queued.max.request.bytes"
MAX_FRAME: Final = "socket.request.max.bytes"
MAX_TOPIC_PARTITIONS: Final = "max.partitions.per.topic"
MAX_PARTITIONS_IN_ALL: Final = "max.partitions"
MAX_GROUPS: Final = "max.groups"
MAX_MEMBERS: Final = "max.group.members"
MAX_TRANSACTIONAL_IDS: Final = "max.transactional.ids"
MAX_SHARE_PARTITIONS: Final = "max.share.partitions"
MAX_SHARE_LOCKS: Final = "max.share.record.locks"
MAX_MEMORY_TOPIC_BYTES: Final = "max.memory.topic.bytes"

_QUIET_S: Final = 10.0
_KIB, _MIB = 1024, 1024 * 1024


class Limits:
    """What was reached of the limits of one broker."""

    def __init__(self) -> None:
        self.reached: Counter[str] = Counter()  # by the name of the setting
        self._rare: dict[str, RareLines] = {}

    def reach(self, name: str, what: str) -> None:
        """Count that a limit was reached, and log it, unless it was logged a moment ago."""
        self.reached[name] += 1
        rare = self._rare.setdefault(name, RareLines(get_logger(__name__), _QUIET_S))
        rare.warning("limit reached", limit=name, what=what, hint=f"raise {name} if this is no attack")

    def refuse(self, name: str, limit: int, what: str, code: ErrorCode = ErrorCode.POLICY_VIOLATION) -> BrokerError:
        """The error for whoever wanted more of something than there may be."""
        self.reach(name, what)
        return BrokerError(code, f"{what}: {name}={limit} allows no more")


class ConnectionLimits:
    """How many connections there may be: in all, on a listener, and from an address."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self.in_all = config.number(MAX_CONNECTIONS)
        self._per_ip = config.number(MAX_PER_IP)
        self._overrides = _read_overrides(config.text(PER_IP_OVERRIDES))
        self._by_ip: Counter[str] = Counter()
        self._by_listener: Counter[str] = Counter()

    def on_listener(self, listener: Listener) -> int:
        own = self._config.settings.get(f"{PREFIX_OF_LISTENERS}{listener.name.lower()}.{MAX_CONNECTIONS}")
        return self.in_all if own is None else int(own)

    def is_full(self, listener: Listener) -> bool:
        """Whether nobody more may connect to it, whoever it is."""
        return self._by_listener.total() >= self.in_all or self._by_listener[listener.name] >= self.on_listener(
            listener
        )

    def is_full_for(self, host: str) -> bool:
        """Whether this address may not connect again."""
        return self._by_ip[host] >= self._overrides.get(host, self._per_ip)

    def opened(self, host: str, listener: str) -> None:
        self._by_ip[host] += 1
        self._by_listener[listener] += 1

    def closed(self, host: str, listener: str) -> None:
        self._by_listener[listener] -= 1
        self._by_ip[host] -= 1
        if not self._by_ip[host]:
            del self._by_ip[host]


def _read_overrides(text: str) -> dict[str, int]:
    """From `ADDRESS:COUNT,…`; an address of IPv6 has colons of its own."""
    found = {}
    for pair in filter(None, (each.strip() for each in text.split(","))):
        host, _, count = pair.rpartition(":")
        if not host or not count.isdecimal():
            raise InvalidSetting(f"{PER_IP_OVERRIDES}: {pair!r} is not ADDRESS:COUNT, as 10.0.0.7:200")
        found[host.strip("[]")] = int(count)
    return found


# What things cost in the broker's memory, measured and rounded up (tests/integration/test_memory_bound.py holds them
# to it).
BASE_BYTES: Final = 96 * _MIB
CONNECTION_BYTES: Final = 16 * _KIB  # its objects, beside the FLOOR_BYTES that it may always hold
TLS_CONNECTION_BYTES: Final = 288 * _KIB  # OpenSSL's state and buffers
IN_FLIGHT_BYTES: Final = 16 * _KIB  # a small request that waits
LARGE_REQUEST_BYTES: Final = 128 * _MIB  # one of 50,000 entries, and its answer, as objects
BEGUN_REQUEST_BYTES: Final = 4 * _MIB  # what one becomes in a turn
PARTITION_BYTES: Final = 12 * _KIB
GROUP_BYTES: Final = 4 * _KIB
MEMBER_BYTES: Final = 8 * _KIB
TRANSACTIONAL_ID_BYTES: Final = 4 * _KIB
SHARE_PARTITION_BYTES: Final = 2 * _KIB  # a partition of a topic for one share group, when nothing of it is under way
SHARE_LOCK_BYTES: Final = 3 * _KIB  # a record that is under way alone, with the reason of a failure and its key
SHARE_LOCKS_ALWAYS: Final = 2  # records that may be under way in any partition, however many are in others
FETCHED_PARTITION_BYTES: Final = 512
MEMORY_TOPIC_SHARE: Final = 1.25  # of what its records take: segments grow ahead, and have indexes
MOST_BLOCKED_BYTES: Final = 64 * _MIB  # beyond that, who would wait is refused
LOOKED_INTO_AT_ONCE: Final = 4  # batches that are decompressed: by two readers, a compaction and the loop


class Term(NamedTuple):
    """One part of the bound."""

    what: str
    formula: str
    bytes: int


def memory_bound(config: BrokerConfig) -> list[Term]:
    """The parts of the most memory that the broker may come to have, as its settings are."""
    number = config.number
    connections = number(MAX_CONNECTIONS)
    has_tls = any(listener.has_tls for listener in config.listeners)
    a_connection = FLOOR_BYTES + CONNECTION_BYTES + (TLS_CONNECTION_BYTES if has_tls else 0)
    queued = number(QUEUED_BYTES)
    frame = number(MAX_FRAME)
    return [
        Term("the broker itself", f"{_mib(BASE_BYTES)}", BASE_BYTES),
        Term("connections", f"{MAX_CONNECTIONS} × {a_connection // _KIB} KiB", connections * a_connection),
        Term(
            "requests that are not whole, and answers that are not taken",
            f"{QUEUED_BYTES} + 2 × {MAX_FRAME}",
            (queued if queued >= 0 else connections * frame) + 2 * frame,
        ),
        Term(
            "requests under way",
            f"({MAX_IN_FLIGHT_IN_ALL} + {MAX_CONNECTIONS}) × {IN_FLIGHT_BYTES // _KIB} KiB",
            (number(MAX_IN_FLIGHT_IN_ALL) + connections) * IN_FLIGHT_BYTES,
        ),
        Term(
            "large requests",
            f"{LARGE_AT_ONCE} × {_mib(LARGE_REQUEST_BYTES)} + {BEGUN_AT_ONCE} × {_mib(BEGUN_REQUEST_BYTES)}",
            LARGE_AT_ONCE * LARGE_REQUEST_BYTES + BEGUN_AT_ONCE * BEGUN_REQUEST_BYTES,
        ),
        Term(
            "fetch sessions and long polls",
            f"2 × {MAX_PARTITIONS:,} × {FETCHED_PARTITION_BYTES} bytes",
            2 * MAX_PARTITIONS * FETCHED_PARTITION_BYTES,
        ),
        Term(
            "batches that are looked into",
            f"{LOOKED_INTO_AT_ONCE} × 2 × {_mib(MAX_BODY_BYTES)}",
            LOOKED_INTO_AT_ONCE * 2 * MAX_BODY_BYTES,
        ),
        _count_term("partitions", config, MAX_PARTITIONS_IN_ALL, PARTITION_BYTES),
        _count_term("groups", config, MAX_GROUPS, GROUP_BYTES),
        _count_term("members of groups", config, MAX_MEMBERS, MEMBER_BYTES),
        _count_term("transactional ids", config, MAX_TRANSACTIONAL_IDS, TRANSACTIONAL_ID_BYTES),
        _count_term(
            "partitions of share groups",
            config,
            MAX_SHARE_PARTITIONS,
            SHARE_PARTITION_BYTES + SHARE_LOCKS_ALWAYS * SHARE_LOCK_BYTES,
        ),
        _count_term("records of share groups that are under way", config, MAX_SHARE_LOCKS, SHARE_LOCK_BYTES),
        Term(
            "memory topics",
            f"{MAX_MEMORY_TOPIC_BYTES} × {MEMORY_TOPIC_SHARE}",
            int(number(MAX_MEMORY_TOPIC_BYTES) * MEMORY_TOPIC_SHARE),
        ),
        Term("requests that wait for room in a topic", _mib(MOST_BLOCKED_BYTES), MOST_BLOCKED_BYTES),
    ]


def _count_term(what: str, config: BrokerConfig, name: str, each: int) -> Term:
    return Term(what, f"{name} × {each // _KIB} KiB", config.number(name) * each)


def _mib(size: int) -> str:
    return f"{size // _MIB} MiB"
