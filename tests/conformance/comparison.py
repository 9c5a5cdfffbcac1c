"""One scenario on two brokers, and what came of it side by side.

A scenario is a function of a client (which knows its bootstrap servers) and a name for its topic, the same on both
brokers and nobody else's. It returns plain data: numbers, strings, tuples, lists and dictionaries, with whatever is by
chance (ids, ports, the broker's clock) left out or normalised. Two outcomes are compared part by part: what differs and
is not declared in `differences.py` is a failure, and so is what is declared and does not differ.
"""

from __future__ import annotations

import pprint
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from tests.conformance.differences import DIFFERENCES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ABSENT = "(absent)"


@dataclass(frozen=True)
class Brokers:
    """Where our broker and the real one are reached."""

    ours: str
    kafka: str

    def compare(self, scenario: Callable[..., Any], client: type, **options: Any) -> Any:
        """Run the scenario with the client on both; fail unless the outcomes are equal but for what is declared.

        Returns our outcome, so that a test can also say what it must be: two brokers may fail alike.
        """
        case = f"{scenario.__name__}[{client.__name__.lower()}]"
        topic = "-".join([scenario.__name__, client.__name__.lower(), *(str(value) for value in options.values())])
        # Both at once, for most of a scenario is waiting. The outcome of the real one first: a scenario that is wrong
        # about Kafka itself fails there, whatever we do.
        with ThreadPoolExecutor(2) as pool:
            kafka, ours = pool.map(
                lambda servers: _run(scenario, client, servers, topic, options), (self.kafka, self.ours)
            )
        complaint = mismatch(case, ours, kafka)
        assert not complaint, complaint
        return ours


def _run(scenario: Callable[..., Any], client: type, servers: str, topic: str, options: dict[str, Any]) -> Any:
    with client(servers) as connected:
        return scenario(connected, topic, **options)


def wait_until(ask: Callable[[], Any], wanted: Any, *, timeout_s: float = 90) -> Any:
    """Ask until the answer is the wanted one: Kafka's brokers learn of changes a moment after they are acknowledged."""
    deadline = time.monotonic() + timeout_s
    while (answer := ask()) != wanted and time.monotonic() < deadline:
        time.sleep(0.02)  # the pause of a poll
    return answer


def mismatch(case: str, ours: Any, kafka: Any) -> str:
    """What is wrong with these outcomes, readable, with both of them; empty if nothing is."""
    patterns = {pattern for each in DIFFERENCES for pattern in each.at if fnmatchcase(case, pattern.split("/")[0])}
    undeclared, used = [], set()
    for path, mine, theirs in _differing("", ours, kafka):
        fitting = {pattern for pattern in patterns if fnmatchcase(f"{case}/{path}", pattern)}
        used |= fitting
        if not fitting:
            undeclared.append(f"  {case}/{path}:\n    ours:  {_shown(mine)}\n    kafka: {_shown(theirs)}")
    stale = sorted(patterns - used)
    if not undeclared and not stale:
        return ""
    lines = [f"{case}: the outcomes are not what tests/conformance/differences.py says."]
    lines += ["Different, and not declared:", *undeclared] if undeclared else []
    lines += ["Declared, and not different:", *(f"  {pattern}" for pattern in stale)] if stale else []
    lines += ["Ours as a whole:", pprint.pformat(ours, width=118)]
    lines += ["Kafka's as a whole:", pprint.pformat(kafka, width=118)]
    return "\n".join(lines)


def _differing(path: str, ours: Any, kafka: Any) -> Iterator[tuple[str, Any, Any]]:
    """The smallest parts that differ, by their paths: a value, or a whole branch that only one of the two has."""
    if isinstance(ours, dict) and isinstance(kafka, dict):
        for key in sorted(ours.keys() | kafka.keys(), key=str):
            yield from _differing(f"{path}.{key}" if path else str(key), ours.get(key, ABSENT), kafka.get(key, ABSENT))
    elif _is_sequence(ours) and _is_sequence(kafka) and len(ours) == len(kafka):
        for index, (mine, theirs) in enumerate(zip(ours, kafka, strict=True)):
            yield from _differing(f"{path}[{index}]", mine, theirs)
    elif ours != kafka:
        yield path, ours, kafka


def _is_sequence(value: Any) -> bool:
    return isinstance(value, (list, tuple))


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 1000 else f"{text[:1000]} …"
