"""What the values of a topic look like: the fields they have, and what a change record changed. Pure.

Fields come from the schema where records carry the id of one (Avro), else they are inferred from the records at hand.
A change record is one in Debezium's form: `before`, `after` and `op`.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

MAX_FIELDS = 500
_SHOWN_CHARACTERS = 80
_MAGIC = 0  # before the id of a schema
_ID_BYTES = 5
_OPERATIONS = {"c": "insert", "r": "snapshot", "u": "update", "d": "delete", "t": "truncate", "m": "message"}
_ABSENT = object()


@dataclass(frozen=True, slots=True)
class Field:
    """One field: its path, its types, in how many of the values it is, and one of its values."""

    path: str
    types: str
    count: int | None = None
    example: str = ""


@dataclass(frozen=True, slots=True)
class Shape:
    """What values look like; `origin` says where that is known from."""

    origin: str  # inferred, schema, changes, text, binary or nothing
    fields: tuple[Field, ...] = ()
    values: int = 0
    schemas: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a changed row; None where there was no row."""

    name: str
    before: str | None
    after: str | None

    @property
    def is_changed(self) -> bool:
        return self.before != self.after


@dataclass(frozen=True, slots=True)
class Difference:
    operation: str
    columns: tuple[Column, ...]

    @property
    def changed(self) -> tuple[Column, ...]:
        return tuple(column for column in self.columns if column.is_changed)


# --- fields


def shape_of(values: Sequence[bytes | None], look_up: Callable[[int], str]) -> Shape:
    """What some values look like; `look_up` answers the text of the schema with an id."""
    known = [value for value in values if value is not None]
    if not known:
        return Shape("nothing")
    if all(len(value) > _ID_BYTES and value[0] == _MAGIC for value in known):
        ids = sorted({int.from_bytes(value[1:_ID_BYTES]) for value in known})
        texts = {schema_id: look_up(schema_id) for schema_id in ids[-5:]}
        newest = json.loads(texts[ids[-1]])
        return Shape("schema", tuple(_schema_fields(newest, ""))[:MAX_FIELDS], len(known), texts)
    documents = [_document(value) for value in known]
    objects = [document for document in documents if isinstance(document, dict)]
    if len(objects) < len(known):
        return Shape("text" if all(_is_text(value) for value in known) else "binary", (), len(known))
    envelopes = [envelope for document in objects if (envelope := envelope_of(document)) is not None]
    if len(envelopes) == len(objects):
        rows = [row for envelope in envelopes for row in (envelope.get("after") or envelope.get("before"),) if row]
        return Shape("changes", _infer(rows), len(rows))
    return Shape("inferred", _infer(objects), len(objects))


def _schema_fields(schema: Any, path: str) -> Iterable[Field]:
    """The fields of an Avro schema, those of records inside it with their path."""
    if isinstance(schema, dict) and schema.get("type") == "record":
        for one in schema.get("fields", ()):
            inner = f"{path}.{one['name']}" if path else str(one["name"])
            branches = one["type"] if isinstance(one["type"], list) else [one["type"]]
            yield Field(inner, " or ".join(_type_name(branch) for branch in branches))
            for branch in branches:
                yield from _schema_fields(branch, inner)


def _type_name(schema: Any) -> str:
    if not isinstance(schema, dict):
        return str(schema)
    logical = schema.get("logicalType") or schema.get("connect.name")
    name = str(schema.get("name") or schema.get("type"))
    return f"{name} ({logical})" if logical else name


def _infer(documents: Sequence[Mapping[str, Any]]) -> tuple[Field, ...]:
    types: dict[str, dict[str, None]] = {}
    counts: dict[str, int] = {}
    examples: dict[str, str] = {}
    for document in documents:
        for path, value in _flatten(document, ""):
            if path not in types and len(types) >= MAX_FIELDS:
                continue
            types.setdefault(path, {})[_json_type(value)] = None
            counts[path] = counts.get(path, 0) + 1
            if value is not None and not isinstance(value, dict):
                examples[path] = shown(value)
    return tuple(Field(path, " or ".join(seen), counts[path], examples.get(path, "")) for path, seen in types.items())


def _flatten(document: Mapping[str, Any], path: str) -> Iterable[tuple[str, Any]]:
    for name, value in document.items():
        inner = f"{path}.{name}" if path else str(name)
        yield inner, value
        if isinstance(value, dict) and inner.count(".") < 6:
            yield from _flatten(value, inner)


def _json_type(value: Any) -> str:
    if value is None:
        return "null"
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return names[type(value)]


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _document(value: bytes) -> Any:
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return None


# --- changes


def envelope_of(document: Any) -> dict[str, Any] | None:
    """The change in a document, also where its schema stands beside it; None if it is not a change."""
    if isinstance(document, dict) and set(document) == {"schema", "payload"}:
        document = document["payload"]
    if not isinstance(document, dict) or "op" not in document or not ({"before", "after"} & document.keys()):
        return None
    rows = (document.get("before"), document.get("after"))
    return document if all(row is None or isinstance(row, dict) for row in rows) else None


def difference_of(value: bytes | None) -> Difference | None:
    """What a change record changed, column by column; None for a value that is not one."""
    envelope = envelope_of(_document(value)) if value else None
    if envelope is None:
        return None
    before, after = envelope.get("before") or {}, envelope.get("after") or {}
    names = dict.fromkeys([*after, *before])
    columns = (Column(name, _cell(before, name), _cell(after, name)) for name in names)
    operation = str(envelope["op"])
    return Difference(_OPERATIONS.get(operation, operation), tuple(columns))


def _cell(row: Mapping[str, Any], name: str) -> str | None:
    value = row.get(name, _ABSENT)
    return None if value is _ABSENT else shown(value, 400)


def shown(value: Any, most: int = _SHOWN_CHARACTERS) -> str:
    """A value in one line; one that is too long is cut."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= most else text[: most - 1] + "…"
