"""What every decoder of values answers."""

from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from headrace.pipelines.columns.records import RecordColumns


@dataclass(frozen=True, slots=True)
class Decoded:
    """A column per wanted field, a row per record; and the rows that did not decode, with the reason of each.

    A row that did not decode is null in every column.
    """

    columns: list[pa.Array]
    broken: dict[int, str] = field(default_factory=dict)


class Decoder(Protocol):
    """Turns the values of records into columns; a null value is a row of nulls."""

    def decode(self, records: RecordColumns) -> Decoded:
        """The values of these records as columns."""
        ...
