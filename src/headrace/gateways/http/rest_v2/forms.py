"""Bodies of the REST proxy's version 2, and its error codes. Pure.

Keys and values come in the form that the media type embeds: `binary` (base64), `json`, or `avro` with schemas. What
always holds: a value that was produced in a form and is consumed in the same form is the same value.
"""

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from headrace.gateways.http.exact_json import as_json_text, json_bytes, read_exact
from headrace.gateways.http.record_form import MOST_RECORDS, Given, read_base64, whole_number
from headrace.model import TopicPartition
from headrace.serving.asking import InvalidRequest

PLAIN: Final = "application/vnd.kafka.v2+json"
BINARY, JSON, AVRO = "binary", "json", "avro"
FORMATS: Final = (BINARY, JSON, AVRO)
_TYPE: Final = re.compile(r"application/vnd\.kafka(?:\.([a-z]+))?(?:\.v2)?\+json", re.IGNORECASE)
_PLAIN_TYPES: Final = ("", "application/json", "application/octet-stream")
_LAST_PARTITION, _LAST_OFFSET = 2**31 - 1, 2**62
_MOST_TOPICS: Final = 1_000

TOPIC_UNKNOWN, PARTITION_UNKNOWN, INSTANCE_UNKNOWN = 40401, 40402, 40403
FORMAT_DIFFERS: Final = 40601
SUBSCRIBED_OTHERWISE, INSTANCE_EXISTS, ILLEGAL_STATE = 40901, 40902, 40903
KEY_SCHEMA_MISSING, VALUE_SCHEMA_MISSING, NOT_AVRO, INVALID_CONSUMER, INVALID_SCHEMA = 42201, 42202, 42203, 42204, 42205
UNPROCESSABLE: Final = 422
KAFKA_ERROR, KAFKA_RETRIABLE = 50002, 50003
NOT_ALLOWED: Final = 40301


class RestError(InvalidRequest):
    """An answer of the proxy's kind: the status is the beginning of the code."""

    def __init__(self, code: int, sentence: str) -> None:
        super().__init__(sentence, int(str(code)[:3]))
        self.code = code


def embedded_format(media: str, *, usual: str | None = None) -> str | None:
    """The form that a media type embeds; `usual` where it names none. Raises `RestError`."""
    for each in media.split(","):
        kind = each.partition(";")[0].strip()
        found = _TYPE.fullmatch(kind)
        if found and (found[1] is None or found[1].lower() in ("v2", *FORMATS)):
            return usual if found[1] in (None, "v2") else found[1].lower()
        if kind in (*_PLAIN_TYPES, "*/*", "application/*"):
            return usual
    raise RestError(415, f"media type {media[:80]!r} is not known here: use {PLAIN} or one of binary, json or avro")


# --- produce


class Schemas(Protocol):
    """Turns JSON into Avro, and back; raises `RestError`."""

    def register(self, topic: str, what: str, text: str) -> int: ...

    def encode(self, schema_id: int, value: Any) -> bytes: ...

    def decode(self, value: bytes) -> str | None: ...


class Produced(NamedTuple):
    """What a body wants written, and the ids of its schemas."""

    given: list[Given]
    key_schema_id: int | None = None
    value_schema_id: int | None = None


_KNOWN: Final = ("records", "key_schema", "key_schema_id", "value_schema", "value_schema_id")


def read_produce(
    body: bytes, form: str, topic: str, partition: int | None = None, schemas: Schemas | None = None
) -> Produced:
    """The records of a body; all go to `partition`, if there is one."""
    said = read_exact(body)
    if not isinstance(said, dict) or not isinstance(said.get("records"), list):
        raise RestError(UNPROCESSABLE, 'the body is not {"records": [{"key": …, "value": …}, …]}')
    for name in said:
        if name not in _KNOWN:
            raise RestError(UNPROCESSABLE, f"unknown field {name[:40]!r}: there are {', '.join(_KNOWN)}")
    records = said["records"]
    if not 1 <= len(records) <= MOST_RECORDS:
        raise RestError(UNPROCESSABLE, f"a request has 1 to {MOST_RECORDS:,} records, not {len(records):,}")
    ids: dict[str, int | None] = {"key": None, "value": None}
    if form == AVRO:
        for what in ids:
            ids[what] = _schema(said, what, topic, records, schemas)
    given = []
    for number, record in enumerate(records, 1):
        if not isinstance(record, dict) or record.keys() - {"key", "value", "partition", "timestamp"}:
            raise RestError(UNPROCESSABLE, f"record {number} is not an object of key, value and partition")
        if partition is not None and record.get("partition") not in (None, partition):
            raise RestError(UNPROCESSABLE, f"record {number} names a partition, and the path another one")
        chosen = whole_number(record.get("partition"), f"the partition of record {number}", _LAST_PARTITION)
        given.append(
            Given(
                _embedded(record.get("key"), form, f"the key of record {number}", ids["key"], schemas),
                _embedded(record.get("value"), form, f"the value of record {number}", ids["value"], schemas),
                (),
                chosen if partition is None else partition,
                whole_number(record.get("timestamp"), f"the timestamp of record {number}", _LAST_OFFSET),
            )
        )
    return Produced(given, ids["key"], ids["value"])


def _schema(
    said: Mapping[str, Any], what: str, topic: str, records: Sequence[Any], schemas: Schemas | None
) -> int | None:
    if schemas is None:
        raise RestError(415, "avro needs a schema registry: start the gateway with registry = URL")
    schema_id = whole_number(said.get(f"{what}_schema_id"), f"{what}_schema_id", _LAST_PARTITION)
    if schema_id is not None:
        return schema_id
    text = said.get(f"{what}_schema")
    if isinstance(text, str):
        return schemas.register(topic, what, text)
    if any(isinstance(record, dict) and record.get(what) is not None for record in records):
        code = KEY_SCHEMA_MISSING if what == "key" else VALUE_SCHEMA_MISSING
        raise RestError(code, f"the records have {what}s, and there is no {what}_schema and no {what}_schema_id")
    return None


def _embedded(value: Any, form: str, what: str, schema_id: int | None, schemas: Schemas | None) -> bytes | None:
    if value is None and form != AVRO:
        return None
    if form == JSON:
        return json_bytes(value)
    if form == AVRO:
        if schema_id is None or value is None:
            return None
        assert schemas is not None
        return schemas.encode(schema_id, value)
    if not isinstance(value, str):
        raise RestError(UNPROCESSABLE, f"{what} is not a text of base64, as the binary form has it")
    return read_base64(value, what)


# --- consume


def shown(
    topic: str, partition: int, offset: int, key: bytes | None, value: bytes | None, form: str, schemas: Schemas | None
) -> str:
    """A record as a consumer of this form gets it; what is not of the form is base64, with a mark."""
    parts = [f'"topic":"{topic}"']
    for what, data in (("key", key), ("value", value)):
        if data is None:
            parts.append(f'"{what}":null')
            continue
        text = None
        if form == JSON:
            text = as_json_text(data)
        elif form == AVRO and schemas is not None:
            text = schemas.decode(data)
        if text is not None:
            parts.append(f'"{what}":{text}')
            continue
        parts.append(f'"{what}":"{base64.b64encode(data).decode()}"')
        if form != BINARY:
            parts.append(f'"{what}_encoding":"base64"')
    return "{" + ",".join(parts) + f',"partition":{partition},"offset":{offset}}}'


# --- consumers


@dataclass(frozen=True, slots=True)
class NewConsumer:
    """What a consumer is made of."""

    name: str | None
    form: str = BINARY
    from_earliest: bool = False
    commits_itself: bool = True
    min_bytes: int = 1
    timeout_ms: int = 1_000


_CONSUMER: Final = (
    "name", "id", "format", "auto.offset.reset", "auto.commit.enable", "fetch.min.bytes",
    "consumer.request.timeout.ms", "isolation.level",
)  # fmt: skip
_NAME: Final = re.compile(r"[^\x00-\x20/\x7f]{1,200}")


def read_consumer(body: bytes) -> NewConsumer:
    """What a body makes; raises `RestError`."""
    said = _object(body, empty_is_one=True)
    for setting in said:
        if setting not in _CONSUMER:
            raise RestError(INVALID_CONSUMER, f"unknown setting {setting[:40]!r}: there are {', '.join(_CONSUMER)}")
    name = said.get("name") or said.get("id")
    if name is not None and not (isinstance(name, str) and _NAME.fullmatch(name)):
        raise RestError(INVALID_CONSUMER, "the name of a consumer has 1 to 200 characters, and no slash or space")
    form = said.get("format") or BINARY
    if form not in FORMATS:
        raise RestError(INVALID_CONSUMER, f"format is binary, json or avro, not {str(form)[:40]!r}")
    reset = said.get("auto.offset.reset") or "latest"
    if reset not in ("earliest", "latest"):
        raise RestError(INVALID_CONSUMER, f"auto.offset.reset is earliest or latest, not {str(reset)[:40]!r}")
    if said.get("isolation.level") not in (None, "read_committed"):
        raise RestError(INVALID_CONSUMER, "isolation.level is read_committed: what is not committed is not shown here")
    commits = said.get("auto.commit.enable")
    if str(commits).lower() not in ("none", "true", "false"):
        raise RestError(INVALID_CONSUMER, "auto.commit.enable is true or false")
    return NewConsumer(
        name,
        form,
        reset == "earliest",
        str(commits).lower() != "false",
        _setting(said, "fetch.min.bytes", -1, 64 * 1024 * 1024, 1),
        _setting(said, "consumer.request.timeout.ms", 0, 60_000, 1_000),
    )


def _setting(said: Mapping[str, Any], name: str, least: int, most: int, usual: int) -> int:
    """A number, which these settings may be as a text, too."""
    text = str(said.get(name, usual))
    if not re.fullmatch(r"-?\d{1,12}", text, re.ASCII) or not least <= int(text) <= most:
        raise RestError(INVALID_CONSUMER, f"{name} is a number from {least:,} to {most:,}, not {text[:40]!r}")
    return usual if int(text) < 0 else int(text)


def read_subscription(body: bytes) -> tuple[list[str], str | None]:
    """Topics, or a pattern of them."""
    said = _object(body)
    topics, pattern = said.get("topics"), said.get("topic_pattern")
    if (topics is None) == (pattern is None):
        raise RestError(UNPROCESSABLE, "a subscription has topics or topic_pattern, one of them")
    if pattern is not None:
        if not isinstance(pattern, str) or not 0 < len(pattern) <= 1_000:
            raise RestError(UNPROCESSABLE, "topic_pattern is a regular expression of at most 1,000 characters")
        return [], pattern
    if not isinstance(topics, list) or not topics or not all(isinstance(each, str) for each in topics):
        raise RestError(UNPROCESSABLE, "topics is a list of names of topics")
    if len(topics) > _MOST_TOPICS:
        raise RestError(UNPROCESSABLE, f"a subscription has at most {_MOST_TOPICS:,} topics")
    return list(dict.fromkeys(topics)), None


def read_partitions(body: bytes) -> list[TopicPartition]:
    return [where for where, _ in _places(_object(body), "partitions", with_offset=False)]


def read_offsets(body: bytes, *, may_be_empty: bool = False) -> dict[TopicPartition, tuple[int, str]] | None:
    """Offsets and what is stored beside them; None for an empty body, where it may be one."""
    if may_be_empty and not body.strip():
        return None
    said = _object(body)
    name = "partitions" if "partitions" in said and "offsets" not in said else "offsets"
    return {
        where: (whole_number(entry.get("offset"), f"the offset of {where}", _LAST_OFFSET) or 0, entry["metadata"])
        for where, entry in _places(said, name, with_offset=True)
    }


def _places(said: Mapping[str, Any], name: str, *, with_offset: bool) -> list[tuple[TopicPartition, dict[str, Any]]]:
    listed = said.get(name)
    if not isinstance(listed, list) or len(listed) > MOST_RECORDS:
        raise RestError(UNPROCESSABLE, f'the body is not {{"{name}": [{{"topic": …, "partition": …}}, …]}}')
    found = []
    for each in listed:
        if not isinstance(each, dict) or not isinstance(each.get("topic"), str) or each.get("partition") is None:
            raise RestError(UNPROCESSABLE, f"{name} has an entry without a topic or a partition")
        if with_offset and each.get("offset") is None:
            raise RestError(UNPROCESSABLE, f"{name} has an entry without an offset")
        metadata = each.get("metadata") or ""
        if not isinstance(metadata, str) or len(metadata) > 4096:
            raise RestError(UNPROCESSABLE, "metadata is a text of at most 4,096 characters")
        partition = whole_number(each["partition"], "a partition", _LAST_PARTITION) or 0
        found.append((TopicPartition(each["topic"], partition), {**each, "metadata": metadata}))
    return found


def _object(body: bytes, *, empty_is_one: bool = False) -> dict[str, Any]:
    if empty_is_one and not body.strip():
        return {}
    said = read_exact(body)
    if not isinstance(said, dict):
        raise RestError(UNPROCESSABLE, "the body is not a JSON object")
    return said
