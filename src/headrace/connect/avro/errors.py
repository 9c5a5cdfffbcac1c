"""What goes wrong with schemas."""

from headrace.connect.errors import ConnectError, SourceUnavailable


class UnknownSchemaId(ConnectError):
    """Nobody knows a schema with this id."""

    def __init__(self, schema_id: int, where: str) -> None:
        super().__init__(f"{where} has no schema with the id {schema_id}")
        self.schema_id = schema_id


class SchemasUnavailable(SourceUnavailable):
    """The registry does not answer just now; trying again may help."""


class SchemaRefused(ConnectError):
    """The registry does not take a schema, and will not the next time."""
