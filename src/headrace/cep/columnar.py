"""Patterns over columns: rows of many keys as arrays in, matches as arrays out, partial matches kept as arrays.

Whoever calls it has evaluated, for each row, the row predicates into a mask of bits and the facts into columns
(natively in Spark, or by `ColumnarProgram.evaluate`), has put the rows of each key in their order, and has numbered all
rows so that numbers rise with that order. It gets back which rows, by number, make up which match as which variable.
What is kept between calls is a `Kept`, of the keys of the call only.

What always holds: the cost of a call is that of its rows and of the partial matches of its keys; no key and no row is
looked at in Python.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.cep.assembling import Assembler, NotColumnar, Segment
from headrace.cep.automaton import ACCEPT, Automaton
from headrace.cep.errors import TooManyPartialMatches
from headrace.cep.expressions import TRUE, Call, Expression, Fact, Literal, show, walk
from headrace.cep.found import Found, Rows, Shown, Stepped, describe
from headrace.cep.kept import Kept, Shelves, Tables
from headrace.cep.kinds import LONG, Kind, numbers_of
from headrace.cep.lanes import NO_NODES, fill, lagged, last_rows, names_of
from headrace.cep.loops import layout
from headrace.cep.loops.code import run_rows
from headrace.cep.loops.keys import step_keys
from headrace.cep.loops.layout import NEVER, NOT_YET, Longs, Look
from headrace.cep.loops.paths import collect, hash_nodes
from headrace.cep.measures import measured
from headrace.cep.operations import Foreign
from headrace.cep.partial import Cap
from headrace.cep.rowwise import Evaluated, RowProgram
from headrace.cep.shaping import shape_of
from headrace.cep.tree import Contiguity, Skip

__all__ = ["NEVER", "ColumnarProgram", "Evaluated", "Found", "Kept", "NotColumnar", "Shown", "Stepped"]

_MOST_BITS: Final = 62


class ColumnarProgram:
    """An automaton as arrays, ready for stepping.

    `schema` is that of the rows; without it only patterns can be served whose conditions look at one row, and whose
    matches are not shown with measures.
    """

    def __init__(self, automaton: Automaton, cap: Cap | None = None, *, schema: pa.Schema | None = None) -> None:
        cap = cap or Cap()
        tree = automaton.tree
        self.automaton = automaton
        self.schema = schema
        self.variables = automaton.variables
        self.row_predicates = automaton.row_predicates
        self.all_rows = tree.output.all_rows
        self.keeps_numbers = automaton.keeps_numbers
        self.back = 0
        every = tuple(dict.fromkeys([*self.variables, *(test.variable for test in automaton.tests)]))
        self._numbers = {name: number for number, name in enumerate(every)}
        self._assembler = Assembler(pa.schema([]) if schema is None else schema, every)
        self._bits: list[tuple[int, Segment]] = []
        _require_columnar(automaton, schema)
        tests = [self._test(number) for number in range(len(automaton.tests))]
        if len(self.row_predicates) + len(self._bits) > _MOST_BITS:
            raise NotColumnar(f"the pattern has more than {_MOST_BITS} different conditions")
        self._measures = [
            (measure, measured(self._assembler, measure.value))
            for measure in tree.output.measures
            if schema is not None
        ]
        self._distinct = -1
        if tree.distinct is not None and schema is not None:
            try:
                self._distinct, _ = self._assembler.lane(tree.distinct.value)
            except Foreign:
                raise NotColumnar(
                    f"values of {show(tree.distinct.value)} cannot be told apart: every-distinct takes a text, a "
                    "number, a time or a truth value",
                    tree.distinct.value,
                ) from None
        self._lanes = list(self._assembler.lanes)
        self.back = max((lane.back for lane in self._lanes), default=0)
        self.facts: tuple[Expression, ...] = tuple(dict.fromkeys(lane.of for lane in self._lanes))
        types = {lane.of: found for lane, found in self._assembler.lanes.items()}
        self.fact_schema = pa.schema([(f"f{at}", types[of].arrow) for at, of in enumerate(self.facts)])
        self._sources = [self.facts.index(lane.of) for lane in self._lanes]
        self._tailed = sorted({source for source, lane in zip(self._sources, self._lanes, strict=True) if lane.back})
        self._shape = shape_of(automaton, tests, self._numbers, cap)
        expires_us = None if tree.distinct is None else tree.distinct.expires_us
        self._shelves = Shelves(
            pa.schema(
                [(name, found.arrow) for name, found in zip(
                    names_of(self._lanes), self._assembler.lanes.values(), strict=True
                )]
            ),
            pa.schema([self.fact_schema.field(at) for at in self._tailed]),
            list(self._assembler.lanes.values())[self._distinct].arrow if self._distinct >= 0 else None,
            tree.chooses_one or tree.after.skip is not Skip.NONE,
            tree.chooses_one or tree.after.skip is not Skip.NONE or self.keeps_numbers,
            NEVER if expires_us is None else expires_us,
        )  # fmt: skip

    # --- what callers evaluate

    @cached_property
    def _rowwise(self) -> RowProgram:
        if self.schema is None:
            raise NotColumnar("rows are evaluated by a program that knows their schema")
        return RowProgram(self.schema, self.row_predicates, self.facts, self.fact_schema)

    @property
    def predicate_sql(self) -> tuple[str, ...]:
        """The row predicates as texts for Spark; none of them fails, whatever a row has in it."""
        return self._rowwise.predicate_sql

    @property
    def fact_sql(self) -> tuple[str, ...]:
        return self._rowwise.fact_sql

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that predicates and facts read."""
        return self._rowwise.columns

    def evaluate(self, rows: pa.RecordBatch) -> Evaluated:
        """The masks and facts of some rows, without Spark."""
        return self._rowwise.evaluate(rows)

    @cached_property
    def relevant_masks(self) -> tuple[int, ...] | None:
        """A row matters only if its mask has all bits of one of these; None: every row may matter.

        What does not matter may be left out before it is put in order: it would neither be taken nor end anything.
        """
        automaton = self.automaton
        if self.back or any(
            edge.next_bars or (source is not None and edge.target != ACCEPT and edge.contiguity is Contiguity.STRICT)
            for source, edge in automaton.edges()
        ):
            return None
        masks = {test.rows for test in automaton.tests}
        return None if 0 in masks else tuple(sorted(masks))

    # --- what is kept

    @property
    def tables(self) -> Mapping[str, pa.Schema]:
        """What has to persist between calls: tables by name."""
        return self._shelves.schemas()

    def to_tables(self, kept: Kept) -> Tables:
        return self._shelves.write(kept)

    def from_tables(self, keys: int, tables: Tables) -> Kept:
        kept = self._shelves.read(keys, tables)
        hash_nodes(kept.nodes, self._shape.states)
        return kept

    # --- stepping

    def step(
        self,
        kept: Kept,
        row_ends: Longs,
        rows: Longs,
        times_us: Longs,
        masks: Longs,
        facts: pa.RecordBatch | None = None,
        *,
        watermark_us: int,
        is_final: bool = False,
    ) -> Stepped:
        """New rows of some keys, those of key k up to `row_ends[k]`: numbers, times, predicates as bits, and facts.

        `is_final`: no rows will come any more.
        """
        kept = self._prepared(kept)
        fresh = self._lanes_of(kept, row_ends, rows, facts)
        assert kept.values is not None
        columns = [pa.concat_arrays([old, new]) for old, new in zip(kept.values.columns, fresh, strict=True)]
        look, texts = fill(self._assembler, columns, len(kept.nodes) + len(rows))
        masks = self._with_bits(masks, look, len(kept.nodes))
        begun, began_us, began_keys, began = self._values_begun(kept, row_ends, fresh)
        froms = kept.froms.copy()
        runs, run_ends, waiting, waiting_ends, nodes, matches, match_ends, timed_out, timed_out_ends, counts = (
            step_keys(
                self._shape, look, row_ends, rows, times_us, masks, watermark_us, is_final, kept.runs, kept.run_ends,
                kept.waiting, kept.waiting_ends, froms, kept.nodes, begun, began_us,
            )
        )  # fmt: skip
        if counts[layout.C_FAILED]:
            raise TooManyPartialMatches(
                f"a key has {self._shape.settings[layout.O_CAP]} partial matches, which is the cap: raise it, shorten "
                "`within`, or choose to drop some"
            )
        call = Rows(nodes, look, texts)
        found = describe(call, self._shape.states, matches, match_ends, kept.numbers if self.keeps_numbers else None)
        over = describe(call, self._shape.states, timed_out, timed_out_ends, None)
        held, node_keys = collect(nodes, runs, run_ends, waiting, waiting_ends)
        places = pa.array(held[:, layout.N_PLACE])
        held[:, layout.N_PLACE] = np.arange(len(held))
        values = pa.RecordBatch.from_arrays([one.take(places) for one in columns], schema=self._shelves.values)
        numbers = kept.numbers + np.diff(match_ends, prepend=0) if self.keeps_numbers else kept.numbers
        after = Kept(
            runs, run_ends, waiting, waiting_ends, froms, numbers, held, node_keys, values, expires_us=kept.expires_us,
            tail_ends=kept.tail_ends,
        )  # fmt: skip
        after = self._with_tail(after, kept, row_ends, facts)
        if began is not None:
            expires_us = kept.expires_us
            lasts = (began_us != NOT_YET) & ((expires_us == NEVER) | (began_us > watermark_us - expires_us))
            after = replace(
                after, began=began.filter(pa.array(lasts)), began_keys=began_keys[lasts], began_us=began_us[lasts]
            )
        return Stepped(after, found, over, int(counts[layout.C_DROPPED]))

    def _prepared(self, kept: Kept) -> Kept:
        """What is kept of keys never seen, with the columns of this pattern."""
        shelves = self._shelves
        values, tail, began = kept.values, kept.tail, kept.began
        if values is None:
            values = pa.RecordBatch.from_arrays(
                [pa.nulls(len(kept.nodes), one.type) for one in shelves.values], schema=shelves.values
            )
        if tail is None and len(shelves.tail):
            tail = pa.RecordBatch.from_pylist([], schema=shelves.tail)
        if began is None and shelves.began is not None:
            began = pa.array([], shelves.began)
        return replace(kept, values=values, tail=tail, began=began, expires_us=shelves.expires_us)

    def _lanes_of(self, kept: Kept, row_ends: Longs, rows: Longs, facts: pa.RecordBatch | None) -> list[pa.Array]:
        if not self._lanes:
            return []
        if facts is None:
            facts = pa.RecordBatch.from_pylist([], schema=self.fact_schema)
        if len(facts) != len(rows):
            raise ValueError(f"{len(rows)} rows were given with the facts of {len(facts)}")
        found = []
        for lane, source in zip(self._lanes, self._sources, strict=True):
            column = facts.column(source).cast(self.fact_schema.field(source).type)
            if lane.back:
                assert kept.tail is not None
                tail = kept.tail.column(self._tailed.index(source))
                column = lagged(column, tail, row_ends, kept.tail_ends, lane.back)
            found.append(column)
        return found

    def _with_bits(self, masks: Longs, look: Look, first: int) -> Longs:
        """The masks, with what looks at no other row of the match than the one at hand."""
        for bit, segment in self._bits:
            longs, doubles = np.empty(len(masks), np.int64), np.empty(len(masks), np.float64)
            known = np.empty(len(masks), np.bool_)
            run_rows(look, segment.begin, segment.end, NO_NODES, self._shape.states, first, longs, doubles, known)
            masks = masks | ((known & (longs != 0)).astype(np.int64) << bit)
        return masks

    def _with_tail(self, after: Kept, kept: Kept, row_ends: Longs, facts: pa.RecordBatch | None) -> Kept:
        if kept.tail is None:
            return after
        places, ends = last_rows(row_ends, kept.tail_ends, self.back)
        columns = []
        for at, source in enumerate(self._tailed):
            new = [] if facts is None else [facts.column(source).cast(self.fact_schema.field(source).type)]
            columns.append(pa.concat_arrays([kept.tail.column(at), *new]).take(pa.array(places)))
        tail = pa.RecordBatch.from_arrays(columns, schema=self._shelves.tail)
        return replace(after, tail=tail, tail_ends=ends)

    # --- every-distinct

    def _values_begun(
        self, kept: Kept, row_ends: Longs, fresh: list[pa.Array]
    ) -> tuple[Longs, Longs, Longs, pa.Array | None]:
        """Values by number: of each row its value, when a match began with each, whose it is, and the values."""
        none = np.empty(0, np.int64)
        if self._distinct < 0:
            return none, none, none, None
        column = pa.concat_arrays([kept.began, fresh[self._distinct]])
        found = list(self._assembler.lanes.values())[self._distinct]
        if found.kind is Kind.TEXT:
            indices = column.dictionary_encode().indices
            values, known = numbers_of(indices, LONG)
        else:
            values, known = numbers_of(column, found)
        owners = np.repeat(np.arange(len(row_ends)), np.diff(row_ends, prepend=0))
        pairs = np.stack([np.concatenate([kept.began_keys, owners]), known.astype(np.int64), values], axis=1)
        pairs[:, 2] *= pairs[:, 1]  # all that is unknown is one value
        order = np.lexsort((pairs[:, 2], pairs[:, 1], pairs[:, 0]))
        ordered = pairs[order]
        is_new = np.ones(len(order), np.bool_)
        is_new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
        numbers = np.empty(len(order), np.int64)
        numbers[order] = np.cumsum(is_new) - 1
        first = order[is_new]
        began_us = np.full(len(first), NOT_YET, np.int64)
        old = len(kept.began_keys)
        np.maximum.at(began_us, numbers[:old], kept.began_us)
        return numbers[old:], began_us, pairs[first, 0], column.take(pa.array(first))

    # --- what MATCH_RECOGNIZE shows

    @property
    def output_schema(self) -> pa.Schema:
        """The measures with their types."""
        return pa.schema([(measure.name, value.type) for measure, value in self._measures])

    def output(self, found: Found) -> Shown:
        """The rows that the matches of a step are shown as."""
        call, states = found.call, self._shape.states
        counts = np.diff(found.ends, prepend=0)
        lasts = found.path[found.ends - 1] if len(found) else found.path
        if self.all_rows:
            is_shown = states[call.nodes[found.path, layout.N_STATE], layout.S_IS_EXCLUDED] == 0
            matches = np.repeat(np.arange(len(found)), counts)[is_shown]
            running = found.path[is_shown]
        else:
            matches, running = np.arange(len(found)), lasts
        columns = []
        for measure, value in self._measures:
            # What is final has one value a match.
            wanted = lasts if measure.is_final or not self.all_rows else running
            numbers = found.numbers if wanted is lasts else found.numbers[matches]
            column = value.column(call, states, wanted, numbers)
            columns.append(column.take(pa.array(matches)) if wanted is lasts and self.all_rows else column)
        rows = call.nodes[running, layout.N_ROW]
        if not columns:
            return Shown(matches, rows, pa.RecordBatch.from_arrays([], schema=pa.schema([])))
        return Shown(matches, rows, pa.RecordBatch.from_arrays(columns, schema=self.output_schema))

    # --- the automaton as arrays

    def _test(self, number: int) -> tuple[int, int, int, int]:
        """A test: row predicates as bits, code, variable."""
        test = self.automaton.tests[number]
        variable = self._numbers[test.variable]
        if not test.rest:
            return test.rows, 0, 0, variable
        parts = test.rest
        condition = parts[0] if len(parts) == 1 else Call("and", parts)
        before = len(self._assembler.code)
        segment = self._assembler.assemble(condition, test.variable)
        if segment.type.kind is not Kind.BOOL:  # only what is true passes
            del self._assembler.code[before:]
            segment = self._assembler.assemble(Call("and", (Literal(None), TRUE)))
        if not segment.is_at_hand:
            return test.rows, segment.begin, segment.end, variable
        bit = len(self.row_predicates) + len(self._bits)
        self._bits.append((bit, segment))
        return test.rows | (1 << bit if bit < _MOST_BITS else 0), 0, 0, variable


def _require_columnar(automaton: Automaton, schema: pa.Schema | None) -> None:
    if schema is None:
        looking = next((test for test in automaton.tests if test.rest), None)
        if looking is not None:
            raise NotColumnar(f"the condition of {looking.variable} looks at other rows of the match: give a schema")
        if automaton.tree.distinct is not None:
            raise NotColumnar("every-distinct keeps values of rows: give a schema")
    if len(automaton.row_predicates) > _MOST_BITS:
        raise NotColumnar(f"the pattern has more than {_MOST_BITS} different conditions")
    if any(len(state.edges) > _MOST_BITS for state in automaton.states):
        raise NotColumnar(f"a state of the pattern has more than {_MOST_BITS} edges")
    for test in automaton.tests:
        for part in (one for rest in test.rest for one in walk(rest)):
            if isinstance(part, Fact) and part.name == "MATCH_NUMBER":
                raise NotColumnar(
                    f"the condition of {test.variable} asks for MATCH_NUMBER(), which is known only once there is a "
                    "match: use it in MEASURES"
                )
