"""The reference page of operators, from their signatures and docstrings; `generate.py` writes it."""

import inspect
import re
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from headrace.pipelines import operators

# What a parameter means in every operator that has it.
COMMON: Mapping[str, str] = {
    "aggregates": 'Every further word is a column of the result: `total=agg.sum("cents")`.',
    "buckets": "Into how many buckets keys are put; it cannot change under a checkpoint.",
    "by": "The columns that make the key; without them all rows are one key.",
    "early": "Tell so often what there is of an open window.",
    "empty": "How long a silent key has results of windows without rows, or which keys always have; by default none.",
    "stragglers": "What becomes of late rows: `drop()`, which is the default, `side_output()` or `correct(…)`.",
    "time": "The column of event time; by default the one that has a watermark.",
    "wall_clock": "End a window so long after its end by the wall clock, even if the watermark stands still.",
}
_SIZE = {"size": "How long a window is.", "offset": "How much later than multiples of the size windows begin."}
_CHANGES = {
    "key": "The columns of the primary key.",
    "form": "`envelope` (Debezium's) or `rows`.",
    "truncates": "`apply` has a truncate take back all rows, `refuse` stops the query, `ignore` keeps the rows.",
    "table": "What versions call the table; by default the topic.",
}
_ASIDE = {"frame": "What an operator with `side_output()` gave."}
# What a parameter means in one operator. One that stands in neither has to be named in the operator's docstring.
_CAP = {
    "most_partial": "How many partial matches a key may have.",
    "at_cap": "What happens when there would be one more: `drop_oldest`, `drop_newest` or `fail`.",
    "timed_out": "Whether partial matches whose time is over come out too.",
}
OWN: Mapping[str, Mapping[str, str]] = {
    "burn_rate": {
        "good": "The column that counts what was good.",
        "total": "The column that counts all there was.",
        "objective": "The share that has to be good.",
        "windows": "Pairs of a short and a long window, each with the burn above which both are an alert.",
    },
    "compare": {
        "value": "The column that is compared.",
        "against": 'Names, and how long before each compared window began; `"previous"` is the last one before.',
        "history": "How far back the windows go that a result is held against.",
        "rolling": "Adds the average of the windows that began within so long.",
    },
    "distinct_changes": {"columns": "The columns; by default all of the row."},
    "join_tables": {"right": "The other table, as changes."},
    "row_versions": _CHANGES,
    "table_changes": _CHANGES,
    "correct": {
        "allowed": "For how long after a window's end its result is corrected.",
        "then": "What becomes of rows that are later still.",
    },
    "correct_clock": {
        "device": "The column that tells clocks apart.",
        "event": "When it happened, by the device's clock.",
        "sent": "When it was sent, by the device's clock.",
        "received": "When it came, by our clock.",
        "window": "How far back a clock's error is looked for.",
        "least_delay": "The time that a row is known to be on its way at least.",
    },
    "event_time": {
        "field": "The column that holds it.",
        "delay": "How far the watermark stays behind the latest time.",
        "ahead": "How far before the wall clock a row may be; further, and it has no usable time.",
        "unit": "What a number counts: s, ms or us.",
        "into": "What the column of event time is called.",
    },
    "level_in": {"text": "The column, or an expression."},
    "parse_logs": {
        "column": "The column that holds a line, string or binary.",
        "format": "`common`, `combined`, `syslog`, `logfmt` or `json`.",
        "schema": "The fields that are wanted; by default all of a format that has its own.",
        "time": "When a line was received: a column or an expression, which syslog needs.",
        "problem": "What the column is called that says why a line was not read.",
        "options": "The format's own: `timeZone` for syslog, `epochUnit` for logfmt and JSON.",
    },
    "match_pattern": {"pattern": "The pattern, in either language.", **_CAP},
    "match_patterns": {"patterns": "The patterns by their names, or `patterns_from(…)`.", **_CAP},
    "percolate": {
        "queries": "The queries by their ids, as `StoredQuery`, or `queries_from(…)`.",
        "fields": "The columns that are the document's fields; by default all but those that begin with `_`.",
        "json": "The column that holds the document as JSON, instead of fields.",
        "mapping": "What fields mean; for queries from a topic, the name of a mapping there.",
        "highlights": "Whether results have the words for which they matched.",
        "refused": "What becomes of rows that are no documents: `drop()`, which is the default, or `side_output()`.",
        "policy": "What a query may cost, a `headrace.percolation.Policy`; dearer ones are refused.",
    },
    "queries_from": {"records": "The topic's records, with `key`, `value`, `partition` and `offset`."},
    "patterns_from": {"records": "The topic's records, with `key`, `value`, `partition` and `offset`."},
    "hopping": {**_SIZE, "every": "How often a window begins."},
    "late_rows": _ASIDE,
    "on_time": _ASIDE,
    "routed": {**_ASIDE, "results": "The topic of results.", "late": "The topic of late rows."},
    "seasonal": {"period": "After what time values are alike again.", "slot": "A part of it, in which they are alike."},
    "sessions": {
        "gap": "So long without a row ends a session.",
        "maximum": "So long after its first row a session ends at the latest.",
    },
    "sliding": {**_SIZE, "keep": "Columns of the row that come out with the result."},
    "tumbling": _SIZE,
}
_NAMED = re.compile(r"`(\w+)(?:=[^`]*)?`")


def listed() -> dict[str, Any]:
    """Everything that is exported, by name: functions for `transform` first, then what they are given."""
    return {name: getattr(operators, name) for name in sorted(operators.__all__)}


def meaning_of(name: str, function: Callable[..., Any], parameter: str) -> str | None:
    """What a parameter means; None if nobody has said."""
    said = OWN.get(name, {}).get(parameter) or COMMON.get(parameter)
    is_named = parameter in _NAMED.findall(inspect.getdoc(function) or "")
    return said or ("See above." if is_named else None)


def page(note: str) -> str:
    """The page."""
    lines = ["# Operators\n", note, "Functions from a DataFrame to a DataFrame, for `df.transform(…)`:"]
    lines += ["[windows, stragglers and clocks](../how-to/windows.md), [time](../explanation/time.md)."]
    lines += ["`from headrace.pipelines.operators import …` has all of them. An interval is text such as `10 minutes`,"]
    lines += ["or a `timedelta`.\n"]
    for name, thing in listed().items():
        lines += _module(name, thing) if isinstance(thing, ModuleType) else _callable(name, thing)
    return "\n".join([*lines, ""]).replace("\n\n\n#", "\n\n#")  # not in examples


def _callable(name: str, thing: Callable[..., Any]) -> list[str]:
    lines = [f"## `{name}`\n", f"{inspect.getdoc(thing) or ''}\n"]
    rows = [
        f"| `{'**' * (each.kind is each.VAR_KEYWORD)}{word}` | {_default(each)} | {meaning_of(name, thing, word)} |"
        for word, each in parameters(thing).items()
    ]
    return [*lines, "| parameter | default | meaning |", "|---|---|---|", *rows, ""] if rows else lines


def parameters(thing: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """What it is called with."""
    return inspect.signature(thing).parameters


def _module(name: str, module: ModuleType) -> list[str]:
    lines = [f"## `{name}`\n", f"{inspect.getdoc(module) or ''}\n", "| function | result |", "|---|---|"]
    for word in module.__all__:
        thing = getattr(module, word)
        if inspect.isfunction(thing):
            given = ", ".join(parameters(thing))
            said = inspect.getdoc(thing) or ""
            # What takes more than a sentence or two has a section of its own.
            short = f"{said.partition(chr(10))[0]} [More](#{name}{word})." if "\n\n" in said else said
            lines.append(f"| `{word}({given})` | {' '.join(short.split())} |")
    for word in module.__all__:
        thing = getattr(module, word)
        if inspect.isfunction(thing) and "\n\n" in (said := inspect.getdoc(thing) or ""):
            lines += [f"\n### `{name}.{word}`\n", said]
    return [*lines, ""]


def _default(parameter: inspect.Parameter) -> str:
    if parameter.default in (inspect.Parameter.empty, None):
        return ""
    value = dict(parameter.default) if isinstance(parameter.default, Mapping) else parameter.default
    return f"`{value!r}`"
