"""Records as JSON, after Debezium's conventions. Pure.

For each shape of a table straight-line code is made that writes its rows, so nothing is looked up by column while
changes run.
"""

import base64
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, Final

from headrace.connect.change import Block, Member, Message, Origin, SchemaChange
from headrace.connect.filters import Filters
from headrace.connect.form import (
    SOURCE_TYPES,
    KeyAndValue,
    TableWriters,
    described_change,
    envelope_schema,
    key_schema,
    row_schema,
    source_names,
    wrapped,
)
from headrace.connect.table import UNCHANGED, Column, Row, Table, json_wire, quoted, to_wire
from headrace.connect.units import units_header


def image_writer(
    view: Sequence[tuple[int, Column]],
    *,
    before: str = "",
    after: str = "",
    nullable: bool = True,
    encoded: bool = False,
) -> Callable[[Row], Any]:
    """A function that writes these columns of a row as a JSON object, between two texts; wire text, or its bytes."""
    code = _Code()
    lines, image = code.columns(view, frozenset() if nullable else frozenset(index for index, _ in view))
    template = _literal(before) + image + _literal(after)
    result = f"f{template!r}" + (".encode('latin-1')" if encoded else "")
    return code.made("row", lines, result)


def record_writer(
    view: Sequence[tuple[int, Column]],
    key: Sequence[int],
    *,
    key_around: tuple[str, str],
    head: str,
    source: str,
    tail: str,
) -> Callable[[Row, str, str, str, str, str], tuple[bytes | None, bytes]]:
    """A function of row, old row's text, members and place of the source, operation and end, to key and value.

    The whole record of a create, read or update in one piece of straight-line code: the key's columns are written once.
    """
    code = _Code()
    lines, image = code.columns(view, frozenset(key))
    value = (
        _literal(head) + "{old}" + _literal(',"after":') + image + _literal("," + source) + "{members}{place}"
        + _literal('},"op":"') + "{op}" + _literal('"') + "{end}" + _literal(tail)
    )  # fmt: skip
    key_code = "None"
    if key:
        numbers = {index: number for number, (index, _) in enumerate(view)}
        names = {index: column.name for index, column in view}
        parts = ",".join(_literal(json_wire(names[index]) + ":") + f"{{t{numbers[index]}}}" for index in key)
        key_template = _literal(key_around[0] + "{") + parts + _literal("}" + key_around[1])
        key_code = f"f{key_template!r}.encode('latin-1')"
    return code.made("row, old, members, place, op, end", lines, f"{key_code}, f{value!r}.encode('latin-1')")


@cache
def members_writer(names: tuple[str, ...]) -> Callable[[Iterable[Member]], str]:
    """A function that writes values as members of a `source` block, each behind a comma."""
    if not names:
        return lambda _values: ""
    code = _Code()
    lines = [f"{', '.join(f'v{number}' for number in range(len(names)))}, = values"]
    template = ""
    for number, name in enumerate(names):
        written = f"w(v{number})" if SOURCE_TYPES[name] == "string" else f"v{number}"
        lines.append(f't{number} = "null" if v{number} is None else {written}')
        template += _literal(f",{json_wire(name)}:") + f"{{t{number}}}"
    return code.made("values", lines, f"f{template!r}")


class _Code:
    """A function that is being written; what it needs is bound to its arguments, where it is found fastest."""

    def __init__(self) -> None:
        self._scope: dict[str, Any] = {"q": quoted, "w": _text, "UNCHANGED": UNCHANGED}

    def columns(self, view: Sequence[tuple[int, Column]], never_null: frozenset[int]) -> tuple[list[str], str]:
        """Lines that write each column into `t0`, `t1`, …, and the template of a JSON object with all of them."""
        lines, parts = [], []
        for number, (index, column) in enumerate(view):
            value, text, function = f"v{number}", f"t{number}", f"f{number}"
            form = column.codec.form
            if "{f}" in form:
                self._scope[function] = column.codec.to_json
            written = form.format(v=value, f=function)
            lines.append(f"{value} = row[{index}]")
            if index not in never_null:
                self._scope[f"u{number}"] = column.codec.unavailable
                written = f'"null" if {value} is None else u{number} if {value} is UNCHANGED else {written}'
            lines.append(f"{text} = {written}")
            parts.append(_literal(json_wire(column.name) + ":") + f"{{{text}}}")
        return lines, _literal("{") + ",".join(parts) + _literal("}")

    def made(self, arguments: str, lines: Sequence[str], result: str) -> Callable[..., Any]:
        bound = ", ".join(f"{name}={name}" for name in self._scope)
        body = "".join(f"    {line}\n" for line in lines)
        text = f"def write({arguments}, *, {bound}):\n{body}    return {result}\n"
        exec(compile(text, "<row>", "exec"), self._scope)  # noqa: S102 - our own text; names are only in literals
        made: Callable[..., Any] = self._scope["write"]
        return made


def key_differs(key: Sequence[int]) -> Callable[[Row, Row], bool]:
    """A function that says whether two rows have different keys."""
    if not key:
        return lambda _before, _after: False
    test = " or ".join(f"before[{index}] != after[{index}]" for index in key)
    scope: dict[str, Any] = {}
    exec(f"def differs(before, after):\n    return {test}", scope)  # noqa: S102 - numbers alone
    made: Callable[[Row, Row], bool] = scope["differs"]
    return made


def _text(text: str) -> str:
    return quoted(text if text.isascii() else to_wire(text))


def _literal(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


_CLOSING: Final = "}"


class JsonForm:
    """Writes the records of one connector; `source` is what its `source` blocks have in common."""

    null = "null"

    def __init__(self, source: dict[str, Any], filters: Filters, *, schemas: bool, unwrap: str) -> None:
        self._fixed = source
        self._filters = filters
        self._schemas = schemas
        self._unwrap = unwrap

    def origin(self, origin: Origin) -> str:
        members = origin.members
        return members_writer(tuple(members))(members.values())

    def place(self, origin: Origin) -> Callable[[Any], str]:
        own = origin.own
        if own[:1] == ("sequence",):  # there is one in every change of PostgreSQL's log
            head = ',"sequence":' + quoted(origin.sequence_head)[:-1]
            return lambda lsn: f'{head}{lsn}\\"]","lsn":{lsn}'
        write = members_writer(own)
        return write if len(own) != 1 else lambda value: write((value,))

    def end(self, block: Block | None, now_us: int) -> str:
        told = "null"
        if block is not None:
            told = (
                f'{{"id":"{block.id}","total_order":{block.total_order},'
                f'"data_collection_order":{block.data_collection_order}}}'
            )
        return f',"transaction":{told},{_times(now_us)}'

    def table(self, table: Table, topic: str) -> TableWriters:
        view = self._filters.view(table)
        key_view = tuple((index, table.columns[index]) for index in table.key)
        key_around = wrapped(key_schema(topic, key_view)) if self._schemas else ("", "")
        before, after = key_around
        write_key: Callable[[Row], bytes | None] = _no_key
        empty = None
        if key_view:
            write_key = image_writer(key_view, before=before, after=after, nullable=False, encoded=True)
            nulls = ",".join(f"{json_wire(column.name)}:null" for _, column in key_view)
            empty = f"{before}{{{nulls}}}{after}".encode("latin-1")
        head, tail, flat_head = '{"before":', _CLOSING, ""
        if self._schemas:
            opening, closing = wrapped(envelope_schema(topic, row_schema(view)))
            head, tail = opening + head, tail + closing
            flat_head = wrapped(row_schema(view))[0]
        source = self._source(table.schema, table.name)
        row = image_writer(view)

        def envelope(old: str, new: str, members: str, place: str, op: str, end: str) -> bytes:
            return f'{head}{old},"after":{new},{source}{members}{place}}},"op":"{op}"{end}{tail}'.encode("latin-1")

        def flat(values: Row, is_gone: bool) -> bytes:
            text = row(values)
            if self._unwrap == "rewrite":
                text = f'{text[:-1]},"__deleted":"{str(is_gone).lower()}"}}'
            return f"{flat_head}{text}{tail[1:]}".encode("latin-1")

        whole = record_writer(view, table.key, key_around=key_around, head=head, source=source, tail=tail)
        units = () if self._schemas else units_header(column for _, column in view)
        return TableWriters(topic, write_key, empty, row, whole, envelope, flat, key_differs(table.key), units)

    # --- what stands beside rows

    def transaction(self, event: dict[str, Any]) -> KeyAndValue:
        return f'{{"id":"{event["id"]}"}}'.encode(), json_wire(event).encode("latin-1")

    def message(self, message: Message, ts_ms: int, now_us: int) -> KeyAndValue:
        members = self.origin(message.origin) or f',"ts_ms":{ts_ms},"snapshot":"false"'
        content = base64.b64encode(message.content).decode()
        prefix = json_wire(message.prefix)
        value = (
            f'{{"op":"m","message":{{"prefix":{prefix},"content":"{content}"}},{self._source("", "")}{members}'
            f"{self.place(message.origin)(message.place)}}},{_times(now_us)}}}"
        )
        return f'{{"prefix":{prefix}}}'.encode("latin-1"), value.encode("latin-1")

    def schema_change(self, event: SchemaChange, now_us: int) -> KeyAndValue:
        table, database = event.table, self._fixed["db"]
        source = self._source(table.schema, table.name) + self.origin(event.origin)
        value = (
            f"{{{source}{self.place(event.origin)(event.place)}}},{_times(now_us)},"
            f'"databaseName":{json_wire(database)},"tableChanges":[{json_wire(described_change(event, database))}]}}'
        )
        key = json_wire({"databaseName": database, "table": table.full_name})
        return key.encode("latin-1"), value.encode("latin-1")

    def _source(self, schema: str, table: str) -> str:
        told = self._fixed | source_names(schema, table)
        return '"source":{' + members_writer(tuple(told))(told.values())[1:]


def _times(now_us: int) -> str:
    return f'"ts_ms":{now_us // 1000},"ts_us":{now_us},"ts_ns":{now_us}000'


def _no_key(_row: Row) -> None:
    return None
