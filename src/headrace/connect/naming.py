"""What topics are called."""

import re
from dataclasses import dataclass

from headrace.connect.errors import InvalidConnectSetting

_ALLOWED = re.compile(r"[A-Za-z0-9._-]+")
_FORBIDDEN = re.compile(r"[^A-Za-z0-9._-]")


@dataclass(frozen=True, slots=True)
class TopicNames:
    """Topic names of one connector; `template` may hold {prefix}, {database}, {schema} and {table}."""

    prefix: str
    template: str = "{prefix}.{schema}.{table}"

    def __post_init__(self) -> None:
        if not _ALLOWED.fullmatch(self.prefix):
            raise InvalidConnectSetting("prefix", self.prefix, "use letters, digits, '.', '_' and '-' only")
        try:
            self.template.format(prefix="p", database="d", schema="s", table="t")
        except (KeyError, IndexError, ValueError) as error:
            wanted = "it may hold {prefix}, {database}, {schema} and {table}"
            raise InvalidConnectSetting("topic", self.template, wanted) from error

    def table(self, database: str, schema: str, table: str) -> str:
        """The topic of a table; what a topic's name cannot hold becomes an underscore."""
        return _FORBIDDEN.sub("_", self.written(database, schema, table))

    def written(self, database: str, schema: str, table: str) -> str:
        """What the template says, before it is made fit for a topic."""
        return self.template.format(prefix=self.prefix, database=database, schema=schema, table=table)

    @property
    def transactions(self) -> str:
        """Where transactions begin and end."""
        return f"{self.prefix}.transaction"

    @property
    def messages(self) -> str:
        """Logical messages of the database."""
        return f"{self.prefix}.message"

    @property
    def schema_changes(self) -> str:
        """Changes of tables' shapes."""
        return f"{self.prefix}.schema-changes"
