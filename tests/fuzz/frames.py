"""Requests of every API and version, written from their declarations: valid ones, and ones that lie at chosen places.

A request is written field by field, and nothing of the broker's own encoder is used. Each field is a place for a lie:
a number at a border, a length or a count that is not the true one, a null where none may be, text that is no UTF-8,
tagged fields that are unknown, twice there or out of order. What is written is damaged as a whole after that, if at
all: cut, lengthened, bits changed, with another API's or version's number.

Values are taken from what exists (`Vocabulary`): the names of topics, groups and transactions that the requests before
made, and the ids that the broker gave out. So a good part of the requests is meaningful, and goes deep.
"""

from collections import deque
from random import Random
from struct import Struct as Layout

from headrace.broker.registry import SERVED
from headrace.protocol.api import APIS, ApiKey
from headrace.protocol.primitives import varint
from headrace.protocol.schema import BYTES, RECORDS, STRING, UUID, Field, Message, Primitive, Struct
from headrace.records import HEADER_SIZE, Codec, Record, build_batch, crc_of
from headrace.records.batch import ATTRIBUTES_AT

API_VERSIONS = [(key, version) for key, versions in SERVED.items() for version in versions]

_LAYOUTS = {letter: Layout(f">{letter}") for letter in "bhHiqd?"}
_BITS = {"b": 8, "h": 16, "H": 16, "i": 32, "q": 64}
_TEXTS = ("", "f", "ü€𐍈", "a b", ".", "..", "x" * 249, "x" * 250, "y" * 130, "\0", "%s", "a/b", "*", "(", "[", "(a*)*$")
_SETTINGS = (
    "cleanup.policy",
    "retention.ms",
    "retention.bytes",
    "segment.bytes",
    "max.message.bytes",
    "compression.type",
    "message.timestamp.type",
    "min.insync.replicas",
    "delete.retention.ms",
    "consumer_byte_rate",
    "producer_byte_rate",
    "request_percentage",
    "connection_creation_rate",
    "consumer.session.timeout.ms",
    "interval.ms",
    "metrics",
    "match",
    "headrace.fuzz",
    "num.partitions",
    "log.cleaner.backoff.ms",
    "unknown",
)
_WORDS = {
    "cleanup.policy": ("compact", "delete", "compact,delete"),
    "protocol_type": ("consumer", "connect", ""),
    "mechanism": ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI"),
    "entity_type": ("user", "client-id", "ip", "host"),
    "server_assignor": ("uniform", "range", "other"),
    "principal": ("User:ANONYMOUS", "User:fuzz", "User:*", "Group:x", ":"),
    "host": ("*", "127.0.0.1", "::1", "x"),
    "feature": ("metadata.version", "transaction.version", "group.version", "kraft.version"),
}


class Vocabulary:
    """What requests name: things that are there, that were there, and that never were."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.topics = ["f0", "f1", "f-compacted", "f-none"]
        self.names = [*self.topics, "__consumer_offsets", "__transaction_state", "__headrace_metadata"]
        self.groups = ["g0", "g1", "g2"]
        self.transactions = ["x0", "x1"]
        self.texts: dict[str, deque[str]] = {"member_id": deque(maxlen=8), "instance_id": deque(["i0", "i1"])}
        self.numbers: dict[str, deque[int]] = {}
        self.topic_ids: deque[bytes] = deque(maxlen=8)
        self.producers: deque[tuple[int, int]] = deque(maxlen=8)  # ids with their epochs
        self.sequences: dict[tuple[int, str, int], int] = {}

    def learn(self, message: Struct) -> None:
        """Take in what an answer says: ids, epochs, sessions."""
        for field in message.__schema__.fields:
            value = getattr(message, field.name)
            if isinstance(value, Struct):
                self.learn(value)
            elif isinstance(value, list):
                for item in value[:4]:
                    if isinstance(item, Struct):
                        self.learn(item)
            elif field.name == "member_id" and value:
                self.texts["member_id"].append(value)
            elif field.name == "topic_id" and value and getattr(message, "name", "f") in self.topics:
                self.topic_ids.append(value)
            elif field.name == "producer_id" and value is not None and value >= 0:
                self.producers.append((value, getattr(message, "producer_epoch", 0)))
            elif field.name in ("session_id", "generation_id", "member_epoch", "subscription_id"):
                self.numbers.setdefault(field.name, deque(maxlen=4)).append(value)

    def text(self, name: str) -> str:
        """A text for a field of this name."""
        chance = self.chance
        roll = chance.random()
        if roll < 0.06:
            return chance.choice(_TEXTS)
        if "transactional" in name:
            return chance.choice(self.transactions)
        if "group_id" in name or name in ("groups", "groups_names", "key", "coordinator_keys"):
            return chance.choice(self.groups if roll < 0.9 else self.transactions)
        if "instance_id" in name:
            return chance.choice(self.texts["instance_id"])
        if name == "member_id":
            return chance.choice(self.texts["member_id"] or ("m",))
        if name in _WORDS or name.removesuffix("_filter") in _WORDS:
            return chance.choice(_WORDS.get(name) or _WORDS[name.removesuffix("_filter")])
        if name == "configuration_keys" or (name == "name" and roll > 0.85):
            return chance.choice(_SETTINGS)
        if name in ("value", "match", "entity_name"):
            return chance.choice((*_WORDS["cleanup.policy"], "1000", "0", "-1", "1e9", "x", "", str(2**63), "topic"))
        if "topic" in name or name in ("name", "resource_name", "resource_name_filter", "subscribed_topic_names"):
            if name == "resource_name" and roll > 0.7:
                return chance.choice(("", "0", "1", "kafka-cluster", "g0", "headrace.fuzz"))
            return chance.choice(self.topics if roll < 0.93 else self.names)
        return chance.choice(("f", "range", "roundrobin", "reason", ""))

    def number(self, name: str) -> int:
        chance = self.chance
        if name in self.numbers and self.numbers[name] and chance.random() < 0.8:
            return chance.choice(self.numbers[name])
        if "partition" in name or name in ("index", "partitions"):
            return chance.choice((0, 0, 0, 1, 1, 2))
        if "timeout_ms" in name or "max_wait" in name:
            return chance.choice((0, 10, 1000, 6000, 30_000))
        if name == "acks":
            return chance.choice((-1, -1, 1, 0))
        if "max_bytes" in name or name == "response_partition_limit":
            return chance.choice((0, 1, 100, 65_536, 1 << 20))
        if "offset" in name:
            return chance.choice((0, 0, 1, 2, 5, 100, -1, -2))
        if name == "timestamp":
            return chance.choice((-1, -2, -3, -4, -5, 0, 1_700_000_000_000, 1_700_000_001_000))
        if "epoch" in name or name == "generation_id":
            return chance.choice((-1, -1, 0, 0, 1, 2))
        if name == "replica_id":
            return -1
        if name in ("count", "num_partitions"):
            return chance.choice((-1, 1, 2, 3))
        if name == "replication_factor":
            return chance.choice((-1, 1, 1, 2))
        if name == "iterations":
            return chance.choice((4096, 4095, 8192))
        return chance.choice((0, 1, 2, 3, 4, 5, -1))


class FrameWriter:
    """Writes requests; `lies` is how likely each place is to hold something else than it should."""

    def __init__(self, vocabulary: Vocabulary, without: tuple[ApiKey, ...] = ()) -> None:
        """`without` names APIs that are not asked."""
        self.vocabulary = vocabulary
        self._asked = [(key, version) for key, version in API_VERSIONS if key not in without]
        self.chance = vocabulary.chance
        self.lies = 0.0
        self._producer: tuple[int, int] = (-1, -1)
        self._topic = ""

    def frame(self, correlation_id: int) -> tuple[int, int, bytes]:
        """A request of some API and version with its size in front; which API and version it claims to be."""
        chance = self.chance
        key, version = chance.choice(self._asked)
        if chance.random() < 0.15:  # more of what carries records and has most to check
            key = chance.choice((ApiKey.PRODUCE, ApiKey.FETCH))
            version = chance.choice(SERVED[key])
        self.lies = chance.choice((0.0, 0.0, 0.01, 0.05, 0.3))
        return int(key), version, self.request(int(key), version, correlation_id)

    def request(self, key: int, version: int, correlation_id: int) -> bytes:
        chance = self.chance
        message = APIS[key].request
        self._producer = chance.choice(self.vocabulary.producers or ((-1, -1),))
        flexible = message.__schema__.is_flexible(version)
        body = self._struct(message, version, flexible=flexible)
        if self._lie(0.2):  # another API's number, or another version's, before the same body
            key, version = chance.choice(self._asked) if chance.random() < 0.7 else (key, chance.randrange(-2, 20))
        header = _pack("h", key) + _pack("h", version) + _pack("i", correlation_id)
        client_id = chance.choice((b"fuzz", b"", b"\xff\xfe" if self._lie() else b"f"))
        header += _pack("h", -1) if chance.random() < 0.1 else _pack("h", len(client_id)) + client_id
        frame = header + (self._tags([]) if flexible else b"") + body
        if self._lie(0.3):
            frame = damage(frame, chance)
        size = len(frame)
        if self._lie(0.02):
            size = chance.choice((size + 1, max(size - 1, 0), -1, 0, 2**31 - 1, 105_000_000))
        return _pack("i", size) + frame

    def _lie(self, weight: float = 1.0) -> bool:
        return bool(self.lies) and self.chance.random() < max(self.lies, 0.02) * weight

    # --- fields

    def _struct(self, struct: type[Struct], version: int, *, flexible: bool, depth: int = 0) -> bytes:
        parts = []
        tagged = []
        for field in struct.__schema__.fields:
            if not field.exists(version):
                continue
            if field.tag is None:
                parts.append(self._field(field, version, flexible=flexible, depth=depth))
            elif self.chance.random() < 0.5:
                data = self._field(field, version, flexible=flexible, depth=depth)
                tagged.append((field.tag, data))
        if flexible:
            parts.append(self._tags(tagged))
        return b"".join(parts)

    def _tags(self, tagged: list[tuple[int, bytes]]) -> bytes:
        chance = self.chance
        tagged = sorted(tagged)
        if self._lie(0.5):
            tagged.append((chance.choice((100, 127, 128, 2**31 - 1)), chance.randbytes(chance.choice((0, 3, 130)))))
        if tagged and self._lie():
            tagged.append(chance.choice(tagged))
        if self._lie(0.5):
            chance.shuffle(tagged)
        out = [_count(len(tagged) + (chance.choice((-1, 1, 1000, 2**31)) if self._lie(0.5) else 0))]
        for tag, data in tagged:
            out += [varint(tag), _count(len(data) + (chance.choice((-1, 1, 2**31)) if self._lie() else 0)), data]
        return b"".join(out)

    def _field(self, field: Field, version: int, *, flexible: bool, depth: int) -> bytes:
        chance = self.chance
        compact = flexible and field.flexible
        is_null = (field.nullable(version) and chance.random() < 0.2) or self._lie(0.3)
        if field.is_array:
            if is_null:
                return b"\0" if compact else _pack("i", -1)
            count = chance.choice((0, 1, 1, 1, 2, 3)) if depth < 3 else 1
            items = [self._single(field, version, flexible=flexible, depth=depth + 1) for _ in range(count)]
            if items and self._lie():
                items.append(chance.choice(items))  # the same entry twice
            if items and self._lie(0.1):
                items *= chance.choice((50, 200))
            return self._length(len(items), "i", compact=compact) + b"".join(items)
        if not isinstance(field.type, Primitive) and field.nullable(version):
            if is_null:
                return b"\xff" if field.tag is None else b"\0"
            return b"\1" + self._single(field, version, flexible=flexible, depth=depth + 1)
        if isinstance(field.type, Primitive) and not field.type.format and is_null:
            return b"\0" if compact else _pack("h" if field.type is STRING else "i", -1)
        return self._single(field, version, flexible=flexible, depth=depth)

    def _length(self, length: int, letter: str, *, compact: bool) -> bytes:
        chance = self.chance
        if self._lie(0.5):
            lies = (length + 1, length - 1, 0, -1, -2, 127, 128, 2**15 - 1, 2**31 - 1)
            length = chance.choice(lies)
            if compact and chance.random() < 0.2:
                return chance.choice(
                    (b"\xff" * 5, b"\x80\x80\x80\x80\x10", b"\x80\0", b"\xff\xff\xff\xff\x0f", b"\xff" * 11)
                )
        if compact:
            return _count(length + 1)
        return _pack(letter, length)

    def _single(self, field: Field, version: int, *, flexible: bool, depth: int) -> bytes:
        kind = field.type
        if not isinstance(kind, Primitive):
            return self._struct(kind, version, flexible=flexible, depth=depth + 1)
        chance, vocabulary = self.chance, self.vocabulary
        compact = flexible and field.flexible
        if kind is STRING:
            text = vocabulary.text(field.name)
            if field.name in ("name", "topic"):
                self._topic = text
            data = text.encode()
            if self._lie(0.3):
                data = chance.choice((b"\xff\xfe", b"\xc3", data + b"\0", data * 3, b"\xed\xa0\x80"))
            return self._length(len(data), "h", compact=compact) + data
        if kind is BYTES or kind is RECORDS:
            data = self._batches() if kind is RECORDS else self._blob(field.name)
            return self._length(len(data), "i", compact=compact) + data
        if kind is UUID:
            known = vocabulary.topic_ids
            return (
                chance.choice(known)
                if known and chance.random() < 0.8
                else chance.choice((bytes(16), chance.randbytes(16)))
            )
        return self._number(field.name, kind.format)

    def _number(self, name: str, letter: str) -> bytes:
        chance = self.chance
        if letter == "?":
            return b"\x7f" if self._lie() else chance.choice((b"\0", b"\1"))
        if letter == "d":
            return _LAYOUTS["d"].pack(chance.choice((0.0, 1.0, 1e9, -1.0, float("inf"), float("nan"), 5e-324)))
        if self._lie():
            high = 2 ** (_BITS[letter] - 1)
            return _pack(letter, chance.choice((-high, -high + 1, -1, 0, 1, high - 1, high - 2, 255)))
        if name.endswith("producer_id"):
            return _pack(letter, self._producer[0])
        if name.endswith("producer_epoch"):
            return _pack(letter, self._producer[1])
        return _pack(letter, self.vocabulary.number(name))

    def _blob(self, name: str) -> bytes:
        chance = self.chance
        if name == "metadata":  # of a consumer: version, topics, user data
            data = b"\0\1\0\0\0\1\0\2f0\xff\xff\xff\xff\0\0\0\0"
        elif name == "assignment":
            data = b"\0\0\0\0\0\1\0\2f0\0\0\0\1\0\0\0\0\xff\xff\xff\xff"
        elif name == "auth_bytes":
            data = chance.choice(
                (b"\0fuzz\0fuzz-secret", b"n,,n=fuzz,r=abc", b"n,,\1auth=Bearer a.b.c\1\1", b"c=biws,r=abc,p=eA==")
            )
        else:
            data = chance.randbytes(chance.choice((0, 1, 24, 32)))
        return damage(data, chance) if self._lie() else data

    # --- record batches

    def _batches(self) -> bytes:
        return b"".join(self.batch() for _ in range(1 if self.chance.random() < 0.93 else 2))

    def batch(self) -> bytes:
        """A batch as producers send them, or one that was damaged, with its checksum made right again or not."""
        chance = self.chance
        now = 1_700_000_000_000
        count = chance.choice((1, 1, 2, 5))
        records = [
            Record(n, now + n, b"k%d" % n if chance.random() < 0.8 else None, chance.choice((b"v" * 20, b"", None)))
            for n in range(count)
        ]
        producer_id, epoch = self._producer if chance.random() < 0.5 else (-1, -1)
        sequence = -1
        if producer_id >= 0:
            place = (producer_id, self._topic, 0)
            sequence = self.vocabulary.sequences.get(place, 0)
            if chance.random() < 0.8:
                self.vocabulary.sequences[place] = sequence + count
        batch = build_batch(
            records,
            codec=chance.choice((0, 0, *Codec)),
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=producer_id >= 0 and chance.random() < 0.4,
        )
        if not self._lie():
            return batch
        return damaged_batch(batch, chance)


def damaged_batch(batch: bytes, chance: Random) -> bytes:
    """One field, or some bytes, are not what they were; whether the checksum fits again is left to chance."""
    changed = bytearray(batch)
    fields = (
        (0, "q"),
        (8, "i"),
        (12, "i"),
        (16, "b"),
        (21, "h"),
        (23, "i"),
        (27, "q"),
        (35, "q"),
        (43, "q"),
        (51, "h"),
        (53, "i"),
        (57, "i"),
    )
    roll = chance.random()
    if roll < 0.5:
        at, letter = chance.choice(fields)
        high = 2 ** (_BITS[letter] - 1)
        value = chance.choice((-high, -1, 0, 1, 2, high - 1, chance.randrange(-high, high)))
        _LAYOUTS[letter].pack_into(changed, at, value)
    elif roll < 0.9 and len(changed) > HEADER_SIZE:  # what is compressed, or the records themselves
        body = damage(bytes(changed[HEADER_SIZE:]), chance)
        changed[HEADER_SIZE:] = body
        if chance.random() < 0.9:
            _LAYOUTS["i"].pack_into(changed, 8, len(changed) - 12)
    else:
        changed = bytearray(damage(bytes(changed), chance))
    if chance.random() < 0.6 and len(changed) >= ATTRIBUTES_AT:
        changed[17:21] = crc_of(changed).to_bytes(4, "big")
    return bytes(changed)


def damage(data: bytes, chance: Random) -> bytes:
    """Bytes changed, left out, added, repeated, or cut off."""
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 5))):
        at = chance.randrange(len(changed) + 1)
        match chance.randrange(6):
            case 0 if changed:
                changed[at % len(changed)] ^= 1 << chance.randrange(8)
            case 1 if changed:
                changed[at % len(changed)] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
            case 2:
                del changed[at : at + chance.choice((1, 2, 4, 16))]
            case 3:
                changed[at:at] = chance.randbytes(chance.choice((1, 2, 4, 16)))
            case 4:
                changed[at:at] = changed[max(at - 16, 0) : at]
            case _ if chance.random() < 0.3:
                del changed[at:]
            case _:
                changed[at : at + 4] = chance.choice(
                    (b"\xff\xff\xff\xff", b"\0\0\0\0", b"\x7f\xff\xff\xff", b"\x80\0\0\0")
                )
    return bytes(changed)


def raw_bytes(chance: Random) -> bytes:
    """What is no request at all, with a size in front or without."""
    data = chance.choice(
        (
            chance.randbytes(chance.randrange(64)),
            b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
            b"\x16\x03\x01\x02\0\1\0\1\xfc\3\3" + chance.randbytes(32),
            bytes(chance.randrange(40)),
            b"\xff" * chance.randrange(1, 40),
        )
    )
    return _pack("i", len(data)) + data if chance.random() < 0.5 else data


def _pack(letter: str, value: int) -> bytes:
    """A number in its width; one that is too large is cut to it, as it would be on the wire."""
    bits = _BITS[letter]
    value &= 2**bits - 1
    if letter != "H" and value >= 2 ** (bits - 1):
        value -= 2**bits
    return _LAYOUTS[letter].pack(value)


def _count(value: int) -> bytes:
    return varint(value & 0xFFFFFFFF)


def error_codes(message: Message | Struct) -> list[int]:
    """Every error code in an answer."""
    codes = []
    for field in message.__schema__.fields:
        value = getattr(message, field.name)
        if field.name == "error_code" and isinstance(value, int):
            codes.append(value)
        for item in value if isinstance(value, list) else (value,):
            if isinstance(item, Struct):
                codes += error_codes(item)
    return codes
