"""How much a client may use: which quota applies to it, and how long it has to wait once it used more.

Quotas are set for users, client ids, both together and IP addresses, or for the default of each (KIP-13, 55, 546, 612).
Pure: time is an argument, and who is made to wait is the broker's business.

What always holds:
- the most specific quota that is set for a client applies, and no other (`Quotas.find`);
- whoever used more than ten seconds of the quota at once waits until the use is back at it, as long as Kafka would have
  it wait; so up to any moment a client that waits has used what the quota allows for that time, and ten seconds more.
  Kafka measures a rate over the last eleven seconds, and forgets a burst that was waited for longer than that: large
  requests go at up to twice their quota. Here nothing that is owed is forgotten;
- what is remembered of clients is bounded: `MAX_TRACKED`, of which those used longest ago are forgotten first.
"""

import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from ipaddress import ip_address
from typing import Final, NamedTuple

from headrace.errors import HeadraceError

USER, CLIENT_ID, IP = "user", "client-id", "ip"

PRODUCE_RATE = "producer_byte_rate"
FETCH_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
MUTATION_RATE = "controller_mutation_rate"
CONNECTION_RATE = "connection_creation_rate"

# What may be used at once, in seconds of the quota: Kafka's whole samples of a rate, and of its tokens for mutations.
BURST_S: Final = 10
MUTATION_BURST_S: Final = 11
MAX_THROTTLE_MS: Final = 2**31 - 1  # of the wire
MAX_SHORT_THROTTLE_MS: Final = 1000  # for the time that requests take, and for connections
MAX_TRACKED: Final = 10_000  # clients, each with two numbers
IDLE_MS: Final = 3_600_000  # after which a client is forgotten anyway

_LONG, _INT = 2**63 - 1, 2**31 - 1
_CLIENT_KEYS: Mapping[str, int | None] = {  # the largest whole number, or None for any number
    PRODUCE_RATE: _LONG,
    FETCH_RATE: _LONG,
    REQUEST_PERCENTAGE: None,
    MUTATION_RATE: None,
}
_IP_KEYS: Mapping[str, int | None] = {CONNECTION_RATE: _INT}


class InvalidQuota(HeadraceError):
    """A quota that cannot be set as it was asked for."""


class Entity(NamedTuple):
    """What a quota is set for. Of each part an empty name says that it has no say, None that it is the default."""

    user: str | None = ""
    client_id: str | None = ""
    ip: str | None = ""

    @property
    def parts(self) -> dict[str, str | None]:
        """The parts that have a say, by their types."""
        return {kind: name for kind, name in zip((USER, CLIENT_ID, IP), self, strict=True) if name != ""}


def parse_entity(parts: Mapping[str, str | None]) -> Entity:
    """An entity that quotas can be set for; raises `InvalidQuota`."""
    if not parts:
        raise InvalidQuota("Invalid empty client quota entity")
    for kind, name in parts.items():
        if kind not in (USER, CLIENT_ID, IP):
            raise InvalidQuota(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise InvalidQuota(f"Empty {kind} not supported")
    if IP in parts:
        if len(parts) > 1:
            raise InvalidQuota(
                "Invalid quota entity combination: an IP entity stands alone, without a user or a client-id"
            )
        return Entity(ip=_parse_ip(parts[IP]))
    return Entity(parts.get(USER, ""), parts.get(CLIENT_ID, ""))


def _parse_ip(name: str | None) -> str | None:
    try:
        return name and str(ip_address(name))
    except ValueError:
        raise InvalidQuota(f"{name} is not an IP address: give the address instead of a host's name") from None


def known_keys(entity: Entity) -> Mapping[str, int | None]:
    """The quotas that an entity can have, each with the largest whole number that it may be, or None for any number."""
    return _IP_KEYS if entity.ip != "" else _CLIENT_KEYS


def check_quota(entity: Entity, key: str, value: float) -> None:
    """Refuse what cannot be a quota of the entity, with `InvalidQuota`."""
    known = known_keys(entity)
    if key not in known:
        raise InvalidQuota(f"Invalid configuration key {key}: known for this entity are {', '.join(known)}")
    if not value > 0:  # nor is it what is not a number
        raise InvalidQuota(f"Quota {key} must be greater than 0")
    largest = known[key]
    if largest is None:
        return
    if value > largest:
        raise InvalidQuota(f"Proposed value for {key} is too large: at most {largest}")
    if value % 1.0 > 1e-6:
        raise InvalidQuota(f"{key} cannot be a fractional value.")


class Quotas:
    """Every quota that is set, by entity and key."""

    def __init__(self) -> None:
        self._entities: dict[Entity, dict[str, float]] = {}
        self._by_key: dict[str, dict[Entity, float]] = {}

    def __bool__(self) -> bool:
        return bool(self._entities)

    def __iter__(self) -> Iterator[tuple[Entity, Mapping[str, float]]]:
        return iter(self._entities.items())

    def of(self, entity: Entity) -> Mapping[str, float]:
        return self._entities.get(entity, {})

    def set(self, entity: Entity, quotas: Mapping[str, float]) -> None:
        """All quotas of an entity; none removes it."""
        for key in self._entities.pop(entity, {}):
            del self._by_key[key][entity]
        for key, value in quotas.items():
            self._by_key.setdefault(key, {})[entity] = value
        if quotas:
            self._entities[entity] = dict(quotas)

    def find(self, key: str, user: str, client_id: str) -> tuple[float, Entity] | None:
        """The quota that applies to a client, and whose use counts towards it; the most specific one that is set."""
        quotas = self._by_key.get(key)
        if not quotas:
            return None
        for level_user in (user, None, ""):
            # A client that does not name itself is not one of those that the default for client ids is for.
            for level_client in (client_id, None, "") if client_id else ("",):
                quota = quotas.get(Entity(level_user, level_client))
                if quota is not None:
                    return quota, Entity(user if level_user != "" else "", client_id if level_client != "" else "")
        return None

    def find_connection_rate(self, ip: str) -> float | None:
        quotas = self._by_key.get(CONNECTION_RATE, {})
        return quotas.get(Entity(ip=ip), quotas.get(Entity(ip=None)))


class TokenBucket:
    """What may still be used: so many seconds of the quota, refilled as time goes by."""

    __slots__ = ("_at_ms", "_tokens")

    def __init__(self) -> None:
        self._tokens = math.inf  # full, whatever that is
        self._at_ms = 0

    def refill(self, quota: float, burst_s: int, now_ms: int) -> bool:
        """Take in what has come since the last time; whether it is full."""
        full = quota * burst_s
        self._tokens = min(full, self._tokens + quota * (now_ms - self._at_ms) / 1000)
        self._at_ms = now_ms
        return self._tokens == full

    def take(self, amount: float) -> None:
        self._tokens -= amount

    def throttle_ms(self, quota: float) -> int:
        """How long until nothing is owed any more; 0 if nothing is."""
        return int(min(max(-self._tokens, 0.0) / quota * 1000 + 0.5, MAX_THROTTLE_MS))


class Ledger:
    """What clients have used of their quotas, and how long they have to wait."""

    def __init__(self, quotas: Callable[[], Quotas], *, most: int = MAX_TRACKED) -> None:
        """`quotas` are those that are set just now."""
        self._quotas = quotas
        self._most = most
        self._buckets: OrderedDict[tuple[str, Entity], tuple[TokenBucket, int]] = OrderedDict()
        self.throttled: Counter[str] = Counter()  # how often somebody had to wait, by kind of quota
        self.throttled_ms: Counter[str] = Counter()  # and for how long

    def __len__(self) -> int:
        """How many clients it remembers something of, counted once for each kind of quota."""
        return len(self._buckets)

    def charge(self, key: str, user: str, client_id: str, amount: float, now_ms: int) -> int:
        """Record a use; for how many milliseconds the client has to wait."""
        found = self._quotas().find(key, user, client_id)
        if found is None:
            return 0
        quota, entity = found
        bucket, _ = self._bucket(key, entity, quota, now_ms)
        bucket.take(amount)
        throttle_ms = bucket.throttle_ms(quota)
        # A request that took long is over: a longer wait would only make a client believe that the broker is gone.
        return self._count(key, min(throttle_ms, MAX_SHORT_THROTTLE_MS) if key == REQUEST_PERCENTAGE else throttle_ms)

    def charge_fetch(
        self, user: str, client_id: str, size_bytes: int, now_ms: int, *, must_send: bool = False
    ) -> tuple[bool, int]:
        """Whether so much may be sent now, and how long the client has to wait; what is not sent is not counted.

        More than fits into the bucket is sent once the bucket is full, and waited for afterwards: a batch is never sent
        in parts, so a reader would not get past it.
        """
        found = self._quotas().find(FETCH_RATE, user, client_id)
        if found is None:
            return True, 0
        quota, entity = found
        bucket, is_full = self._bucket(FETCH_RATE, entity, quota, now_ms)
        bucket.take(size_bytes)
        throttle_ms = bucket.throttle_ms(quota)
        may_send = must_send or is_full or not throttle_ms
        if not may_send:
            bucket.take(-size_bytes)
        return may_send, self._count(FETCH_RATE, throttle_ms)

    def fetch_limit(self, user: str, client_id: str) -> float:
        """How many bytes can be sent at once without a wait for certain."""
        found = self._quotas().find(FETCH_RATE, user, client_id)
        return found[0] * BURST_S if found else math.inf

    def charge_mutations(self, user: str, client_id: str, count: int, now_ms: int, *, strict: bool) -> tuple[bool, int]:
        """Whether so many partitions may be made or deleted, and for how long the client has to wait.

        A strict quota refuses whatever comes while something is owed; else it is only waited for (KIP-599).
        """
        found = self._quotas().find(MUTATION_RATE, user, client_id)
        if found is None:
            return True, 0
        quota, entity = found
        bucket, _ = self._bucket(MUTATION_RATE, entity, quota, now_ms)
        throttle_ms = bucket.throttle_ms(quota)
        if strict and throttle_ms:
            return False, self._count(MUTATION_RATE, throttle_ms)
        bucket.take(count)
        return True, 0 if strict else self._count(MUTATION_RATE, bucket.throttle_ms(quota))

    def charge_connection(self, ip: str, now_ms: int) -> int:
        """How long a connection from an address is kept waiting before it is closed; 0 if it is welcome."""
        quota = self._quotas().find_connection_rate(ip)
        if quota is None:
            return 0
        bucket, _ = self._bucket(CONNECTION_RATE, Entity(ip=ip), quota, now_ms)
        bucket.take(1)
        throttle_ms = bucket.throttle_ms(quota)
        if throttle_ms:
            bucket.take(-1)
        return self._count(CONNECTION_RATE, min(throttle_ms, MAX_SHORT_THROTTLE_MS))

    def _count(self, key: str, throttle_ms: int) -> int:
        if throttle_ms:
            self.throttled[key] += 1
            self.throttled_ms[key] += throttle_ms
        return throttle_ms

    def _bucket(self, key: str, entity: Entity, quota: float, now_ms: int) -> tuple[TokenBucket, bool]:
        """The bucket of an entity as it is now, and whether it is full; what was not used for long is forgotten."""
        buckets = self._buckets
        known = buckets.pop((key, entity), None)
        bucket = known[0] if known else TokenBucket()
        buckets[key, entity] = bucket, now_ms
        while len(buckets) > self._most or now_ms - next(iter(buckets.values()))[1] >= IDLE_MS:
            buckets.popitem(last=False)
        is_full = bucket.refill(quota, MUTATION_BURST_S if key == MUTATION_RATE else BURST_S, now_ms)
        return bucket, is_full


def match_entities(
    quotas: Quotas, exact: Mapping[str, str | None], any_of: Iterable[str], *, strict: bool
) -> Iterator[tuple[Entity, Mapping[str, float]]]:
    """The entities that have the exact parts, and some part of the other types; if strict, no parts besides."""
    types = set(any_of)
    for entity, values in quotas:
        parts = entity.parts
        if strict and len(parts) != len(exact) + len(types):
            continue
        if types <= parts.keys() and all(kind in parts and parts[kind] == name for kind, name in exact.items()):
            yield entity, values
