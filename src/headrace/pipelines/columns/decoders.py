"""From a format's name, a schema and options to the decoder; what cannot be is refused in one sentence."""

import re
from collections.abc import Callable, Collection, Mapping
from datetime import timedelta, timezone, tzinfo
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa

from headrace import extras
from headrace.errors import nearest
from headrace.pipelines.columns import json
from headrace.pipelines.columns.decoding import Decoder
from headrace.pipelines.errors import PipelineError
from headrace.schema_registry import RegistryError, SchemaRegistry

Options = Mapping[str, str]

# Every option by its key, with the name a user writes.
_SHOWN = {
    "epochunit": "epochUnit", "avroschema": "avroSchema", "avroframing": "avroFraming",
    "schemaregistry": "schemaRegistry", "descriptorfile": "descriptorFile", "message": "message",
    "protobufframing": "protobufFraming", "delimiter": "delimiter", "quote": "quote", "nulltext": "nullText",
    "timezone": "timeZone",
}  # fmt: skip


def decoder_for(format: str, schema: pa.Schema, options: Options) -> Decoder:  # noqa: A002 (the user's word for it)
    """The decoder for a format; raises `PipelineError`. Keys of options are in lower case."""
    name = format.lower()
    if name not in _FORMATS:
        raise PipelineError(f"there is no format {format!r}: {nearest(name, _FORMATS, likeness=0)}")
    keys, build = _FORMATS[name]
    for key in options:
        if key not in keys:
            hint = nearest(key, option_names(name), likeness=0)
            raise PipelineError(f"the format {name} has no option {_SHOWN.get(key, key)!r}: {hint}")
    _check_schema(name, schema)
    return build(schema, options)


def option_names(format: str) -> list[str]:  # noqa: A002
    """The options of a format, as a user writes them."""
    return [_SHOWN[key] for key in _FORMATS[format][0]]


def _check_schema(name: str, schema: pa.Schema) -> None:
    if not len(schema):
        raise PipelineError(f"the format {name} needs a schema with at least one column: say which fields are wanted")
    twice = sorted({column for column in schema.names if schema.names.count(column) > 1})
    if twice:
        raise PipelineError(f"the schema has more than one column {twice[0]!r}: give each its own name")
    if name in FIXED:
        from headrace.pipelines.columns.logs.lines import check_line_schema

        check_line_schema(name, schema)
        return
    for field in schema:
        if not (_is_flat(field.type) if name in ("csv", "logfmt") else _is_known(field.type, name)):
            raise PipelineError(
                f"column {field.name!r} is of type {field.type}, which cannot be read from {name}: take another type"
            )


def _is_flat(kind: pa.DataType) -> bool:
    return json.supported(kind) and not pa.types.is_nested(kind)


def _is_known(kind: pa.DataType, name: str) -> bool:
    types = pa.types
    if types.is_nested(kind):
        if types.is_map(kind):
            good_key = types.is_string(kind.key_type) or (name == "protobuf" and _is_known(kind.key_type, name))
            return bool(good_key) and _is_known(kind.item_type, name)
        return (types.is_struct(kind) or types.is_list(kind)) and all(
            _is_known(kind.field(index).type, name) for index in range(kind.num_fields)
        )
    return json.supported(kind) or (name == "avro" and kind == pa.time64("us"))


def _json(schema: pa.Schema, options: Options) -> Decoder:
    unit = _choice(options, "epochunit", json.EPOCH_UNITS)
    return json.JsonDecoder(schema, epoch_unit=unit)


def _avro(schema: pa.Schema, options: Options) -> Decoder:
    from headrace.pipelines.columns.avro import AvroDecoder

    framing = _choice(options, "avroframing", ("confluent", "none")) or "confluent"
    told, url = options.get("avroschema"), options.get("schemaregistry")
    if framing == "none":
        if told is None:
            raise PipelineError("bare Avro (avroFraming = none) needs the writer's schema: give it as avroSchema")
        if url is not None:
            raise PipelineError("bare Avro (avroFraming = none) looks nothing up: leave schemaRegistry away")
        return AvroDecoder(schema, writer=told)
    if url is None:
        raise PipelineError(
            "Avro in Confluent's framing needs a schema registry: give schemaRegistry, or avroFraming = none"
        )
    try:
        registry = SchemaRegistry(url)
    except RegistryError as error:
        raise PipelineError(str(error)) from None
    return AvroDecoder(schema, lookup=registry.look_up, reader=told)


def _protobuf(schema: pa.Schema, options: Options) -> Decoder:
    for key in ("descriptorfile", "message"):
        if key not in options:
            raise PipelineError(f"the format protobuf needs the option {_SHOWN[key]}")
    framing = _choice(options, "protobufframing", ("confluent", "none")) or "confluent"
    try:
        descriptor_set = Path(options["descriptorfile"]).read_bytes()
    except OSError as error:
        raise PipelineError(
            f"the descriptorFile {options['descriptorfile']!r} cannot be read: {error.strerror}"
        ) from error
    extras.load("google.protobuf", "the format protobuf")
    from headrace.pipelines.columns.protobuf import ProtobufDecoder

    return ProtobufDecoder(
        schema, descriptor_set=descriptor_set, message=options["message"], is_framed=framing == "confluent"
    )


def _csv(schema: pa.Schema, options: Options) -> Decoder:
    from headrace.pipelines.columns.csv import CsvDecoder

    delimiter, quote = options.get("delimiter", ","), options.get("quote", '"')
    delimiter = "\t" if delimiter == "\\t" else delimiter
    for key, character in (("delimiter", delimiter), ("quote", quote)):
        if len(character) != 1 or not character.isascii() or character in "\r\n":
            raise PipelineError(f"{key} is {character!r}: it must be one ASCII character and no line break")
    if delimiter == quote:
        raise PipelineError(f"delimiter and quote are both {quote!r}: they must differ")
    return CsvDecoder(schema, delimiter=delimiter, quote=quote, null_text=options.get("nulltext", ""))


def _logfmt(schema: pa.Schema, options: Options) -> Decoder:
    from headrace.pipelines.columns.logs.logfmt import LogfmtDecoder

    return LogfmtDecoder(schema, epoch_unit=_choice(options, "epochunit", json.EPOCH_UNITS))


def _lines(name: str) -> Callable[[pa.Schema, Options], Decoder]:
    def build(schema: pa.Schema, options: Options) -> Decoder:
        from headrace.pipelines.columns.logs.lines import LineDecoder

        return LineDecoder(name, schema, _zone(options.get("timezone", "UTC")))

    return build


def _zone(name: str) -> tzinfo:
    if (found := _AHEAD.fullmatch(name)) is not None:
        minutes = int(found[2]) * 60 + int(found[3])
        return timezone(timedelta(minutes=-minutes if found[1] == "-" else minutes))
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise PipelineError(
            f"timeZone is {name!r}, which is not a zone: write UTC, +02:00, or a name such as Europe/Berlin"
        ) from None


FIXED: Final = ("common", "combined", "syslog")  # the forms whose lines all have the same fields
_AHEAD: Final = re.compile(r"([+-])([01][0-9]|2[0-3]):([0-5][0-9])")
_FORMATS: dict[str, tuple[tuple[str, ...], Callable[[pa.Schema, Options], Decoder]]] = {
    "json": (("epochunit",), _json),
    "avro": (("avroschema", "avroframing", "schemaregistry"), _avro),
    "protobuf": (("descriptorfile", "message", "protobufframing"), _protobuf),
    "csv": (("delimiter", "quote", "nulltext"), _csv),
    "logfmt": (("epochunit",), _logfmt),
    "common": ((), _lines("common")),
    "combined": ((), _lines("combined")),
    "syslog": (("timezone",), _lines("syslog")),
}


def _choice(options: Options, key: str, choices: Collection[str]) -> str | None:
    """An option that is one of a few words; None if it is not given."""
    if key not in options:
        return None
    value = options[key].lower()
    if value not in choices:
        raise PipelineError(f"{_SHOWN[key]} is {options[key]!r}: {nearest(value, choices, likeness=0)}")
    return value
