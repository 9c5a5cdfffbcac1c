"""The shapes of tables, and what is done when one changes: go on, stop, or leave the table out; never in silence. Pure.

A shape is remembered as a fingerprint in the position, so that a change is noticed across a restart as well.
"""

import hashlib
from collections.abc import Callable

from headrace.connect.change import Origin, Place, SchemaChange
from headrace.connect.errors import SchemaChangeBlocked
from headrace.connect.postgres.relation import FULL, Relation, difference
from headrace.connect.postgres.types import LookUp, TypeModes, codec_of
from headrace.connect.table import Column, Table


def build_table(relation: Relation, modes: TypeModes, look_up: LookUp, key: tuple[str, ...] | None) -> Table:
    """A table from its announcement; `key` names its columns where the announcement does not tell them."""
    is_key = [column.is_identity if key is None else column.name in key for column in relation.columns]
    columns = []
    for column, in_key in zip(relation.columns, is_key, strict=True):
        name, codec = codec_of(column.type_id, column.modifier, modes, look_up)
        columns.append(Column(column.name, name, codec, not in_key, column.type_id, column.modifier))
    places = tuple(index for index, in_key in enumerate(is_key) if in_key)
    return Table(relation.schema, relation.name, tuple(columns), places, relation.id)


def fingerprint(table: Table) -> str:
    """A few letters that change with the table's shape."""
    parts = [f"{column.name}:{column.type_id}:{column.modifier}" for column in table.columns]
    return hashlib.sha256(repr((parts, table.key)).encode()).hexdigest()[:12]


class Shapes:
    """The shape of each table that is captured, and the policy for changes."""

    def __init__(
        self,
        policy: str,
        modes: TypeModes,
        look_up: LookUp,
        key_of: Callable[[Relation], tuple[str, ...]],
        known: dict[str, str],
    ) -> None:
        self._policy = policy
        self._modes = modes
        self._look_up = look_up
        self._key_of = key_of
        self._tables: dict[str, Table] = {}  # as the log has them now
        self._built: dict[tuple[str, str], Table] = {}  # one table for each shape, however often it is announced
        self.known = dict(known)

    def learn(self, relation: Relation) -> Table:
        """A table from the catalog, before its first change; its shape is as it is."""
        table = self.view(relation)
        self._tables.setdefault(table.full_name, table)
        self.known.setdefault(table.full_name, fingerprint(table))
        return table

    def view(self, relation: Relation) -> Table:
        """The table of an announcement, without drawing any conclusion."""
        # A table whose whole row is its identity may have a key all the same; only the catalog knows.
        key = self._key_of(relation) if relation.identity == FULL else None
        table = build_table(relation, self._modes, self._look_up, key)
        return self._built.setdefault((table.full_name, fingerprint(table)), table)

    def forget(self, name: str) -> None:
        """A table is not there any more."""
        self._tables.pop(name, None)
        self.known.pop(name, None)

    def recall(self, relation: Relation) -> Table | None:
        """The table of an announcement that was taken before, and comes again after a restart."""
        table = self.view(relation)
        is_left_out = self._policy == "skip" and self.known.get(table.full_name) != fingerprint(table)
        return None if is_left_out else table

    def take(self, relation: Relation, origin: Origin, place: Place) -> tuple[Table | None, list[SchemaChange]]:
        """The table of an announcement, None if it is left out; and the event, if its shape changed."""
        table = self.view(relation)
        name = table.full_name
        print_now = fingerprint(table)
        before = self._tables.get(name)
        if self.known.setdefault(name, print_now) == print_now:
            self._tables[name] = table
            return table, []
        what = difference(before, table) if before is not None else "its columns are not those before the restart"
        if self._policy == "block":
            raise SchemaChangeBlocked(name, what)
        if self._policy == "skip":
            # The old fingerprint stays, so the table stays left out until somebody chooses otherwise.
            what = f"{what}; changes of this table are left out from here on (schema_changes is 'skip')"
            return None, [SchemaChange(table, before, what, origin, place)]
        self.known[name] = print_now
        self._tables[name] = table
        return table, [SchemaChange(table, before, what, origin, place)]
