"""Bindings: which other topics get copies of a topic's records, as AMQP's exchanges have them.

    [{"to": "eu", "key": "orders.eu.*"}, {"to": "big", "header": {"kind": "sale.#"}, "where": "value.amount > 100"}]

A record matches a binding if its key and its headers match the patterns (`routing.py`) and the whole record the filter
(`filters.py`); a binding without any of them takes every record. Two bindings to one topic make one copy. A copy goes
to the partition that Kafka's clients choose for its key, and without one to that of the same number, as far as there
are so many.
"""

import json
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from headrace.delivery.filters import Filter
from headrace.delivery.routing import Pattern
from headrace.errors import HeadraceError
from headrace.model import check_topic_name
from headrace.records import Record

MAX_BINDINGS: Final = 100
_KNOWN: Final = frozenset(("to", "key", "header", "where"))


class InvalidBindings(HeadraceError):
    """Bindings that cannot be read, or that would copy records round and round."""


class Binding(NamedTuple):
    to: str
    key: Pattern | None = None
    headers: tuple[tuple[str, Pattern], ...] = ()
    where: Filter | None = None

    def matches(self, record: Record) -> bool:
        if self.key is not None and (record.key is None or not self.key.matches(_text(record.key))):
            return False
        if self.headers:
            given = {header.key: header.value for header in record.headers}
            for name, pattern in self.headers:
                value = given.get(name)
                if value is None or not pattern.matches(_text(value)):
                    return False
        return self.where is None or self.where.matches(record)


def _text(data: bytes) -> str:
    return data.decode(errors="replace")


def parse_bindings(text: str) -> tuple[Binding, ...]:
    """The bindings that a setting's text says; none if it is empty."""
    if not text.strip():
        return ()
    try:
        listed = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidBindings(
            f'not JSON ({error}): give a list such as [{{"to": "eu", "key": "orders.eu.*"}}]'
        ) from None
    if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
        raise InvalidBindings('not a list of objects: give one such as [{"to": "eu", "key": "orders.eu.*"}]')
    if len(listed) > MAX_BINDINGS:
        raise InvalidBindings(f"{len(listed)} bindings of one topic: give at most {MAX_BINDINGS}")
    return tuple(map(_parse, listed))


def _parse(given: dict[str, Any]) -> Binding:
    if unknown := given.keys() - _KNOWN:
        raise InvalidBindings(f"{min(unknown)!r} is unknown in a binding: known are to, key, header and where")
    headers = given.get("header", {})
    texts = [given.get("to", ""), given.get("key", ""), given.get("where", "")]
    if not isinstance(headers, dict) or not all(isinstance(each, str) for each in (*texts, *headers.values())):
        raise InvalidBindings("in a binding to, key and where are texts, and header an object of names and patterns")
    if not texts[0]:
        raise InvalidBindings("a binding without `to`: name the topic that gets the copies")
    check_topic_name(texts[0])
    return Binding(
        texts[0],
        Pattern(texts[1]) if "key" in given else None,
        tuple((name, Pattern(pattern)) for name, pattern in headers.items()),
        Filter(texts[2]) if "where" in given else None,
    )


def find_loop(start: str, targets_of: Callable[[str], Sequence[str]]) -> list[str] | None:
    """The topics through which a record of `start` would come back to it, if there are such."""
    seen: set[str] = set()
    paths = [[start]]
    while paths:
        path = paths.pop()
        for target in targets_of(path[-1]):
            if target == start:
                return [*path, start]
            if target not in seen:
                seen.add(target)
                paths.append([*path, target])
    return None


def choose_targets(bindings: Sequence[Binding], record: Record) -> Generator[None, None, list[str]]:
    """The topics that get a copy of a record, each once; in steps, since each filter may have to parse the value."""
    chosen: dict[str, None] = {}
    for binding in bindings:
        if binding.to not in chosen and binding.matches(record):
            chosen[binding.to] = None
        if binding.where is not None:
            yield
    return list(chosen)


def check_bindings(name: str, text: str, others: Mapping[str, str]) -> tuple[Binding, ...]:
    """Refuse bindings of a topic that lead back to it, beside those that other topics have."""
    bindings = parse_bindings(text)

    def targets_of(topic: str) -> list[str]:
        try:
            own = bindings if topic == name else parse_bindings(others.get(topic, ""))
        except HeadraceError:  # another version wrote it: it has no effect here
            return []
        return [binding.to for binding in own]

    if loop := find_loop(name, targets_of):
        raise InvalidBindings(f"records would go round and round, {' → '.join(loop)}: leave one of these bindings out")
    return bindings
