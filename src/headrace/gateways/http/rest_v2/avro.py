"""Avro of the REST proxy's kind: JSON as Avro's specification encodes it, on the wire with the id of its schema."""

import io
import json
from typing import Any, Final

from headrace import extras
from headrace.gateways.http.exact_json import write_exact
from headrace.gateways.http.rest_v2.forms import INVALID_SCHEMA, NOT_AVRO, RestError
from headrace.schema_registry import RegistryError, RegistryUnavailable, SchemaRegistry

_MAGIC: Final = b"\x00"
_MOST_PARSED: Final = 1_000


class AvroSchemas:
    """The schemas of a registry; any thread may ask."""

    def __init__(self, url: str) -> None:
        self._fastavro = extras.load("fastavro", "Avro over HTTP")
        self._registry = SchemaRegistry(url)
        self._parsed: dict[int, Any] = {}

    def register(self, topic: str, what: str, text: str) -> int:
        try:
            self._fastavro.parse_schema(json.loads(text))
        except Exception as error:  # noqa: BLE001 - whatever fastavro raises, it is the text that is wrong
            raise RestError(INVALID_SCHEMA, f"the {what} schema is not Avro: {_one_line(error)}") from None
        try:
            return self._registry.register(f"{topic}-{what}", text)
        except RegistryError as error:
            raise _registry_error(error) from None

    def encode(self, schema_id: int, value: Any) -> bytes:
        schema = self._schema(schema_id)
        try:
            text = write_exact(value)
            (read,) = self._fastavro.json_reader(io.StringIO(text), schema)
            out = io.BytesIO()
            self._fastavro.schemaless_writer(out, schema, read)
        except Exception as error:  # noqa: BLE001 - likewise, the value
            raise RestError(NOT_AVRO, f"a value does not fit schema {schema_id}: {_one_line(error)}") from None
        return _MAGIC + schema_id.to_bytes(4, "big") + out.getvalue()

    def decode(self, value: bytes) -> str | None:
        """The JSON of a value; None for one that is not Avro with the id of a schema."""
        if len(value) < 5 or value[:1] != _MAGIC:
            return None
        schema = self._schema(int.from_bytes(value[1:5], "big"))
        try:
            stream = io.BytesIO(value[5:])
            read = self._fastavro.schemaless_reader(stream, schema, None)
            out = io.StringIO()
            self._fastavro.json_writer(out, schema, [read])
        except Exception:  # noqa: BLE001 - it is shown as it is
            return None
        return out.getvalue()

    def _schema(self, schema_id: int) -> Any:
        if schema_id not in self._parsed:
            try:
                text = self._registry.look_up(schema_id)
            except RegistryError as error:
                raise _registry_error(error) from None
            if len(self._parsed) >= _MOST_PARSED:
                self._parsed.clear()
            self._parsed[schema_id] = self._fastavro.parse_schema(json.loads(text))
        return self._parsed[schema_id]


def _registry_error(error: RegistryError) -> RestError:
    return RestError(50301 if isinstance(error, RegistryUnavailable) else INVALID_SCHEMA, str(error))


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
