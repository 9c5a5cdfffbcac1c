"""Rows that lack values which the database did not send again. Pure."""

from collections.abc import Mapping, Sequence

from headrace.stores.derived import RowChange, Values


def completed(changes: Sequence[RowChange], stored: Mapping[str, Values]) -> list[RowChange]:
    """Partial rows with what is stored under their key; a store that replaces whole rows needs them so."""
    return [
        change._replace(row={**stored.get(change.key_text, {}), **change.row}, partial=False)
        if change.partial and change.row is not None
        else change
        for change in changes
    ]
