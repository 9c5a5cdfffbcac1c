"""Older forms of events become newer ones, step by step: what `@upcast` registers. Pure.

    @upcast("moved", 1)                                    # what version 1 of "moved" held, as version 2 holds it
    def name_axes(fields):
        x, y = fields["at"]
        return {"x": x, "y": y}

A step returns the fields of the next version, or a `Form` of any type and version; or a list of these, if one event
becomes several, and an empty one if it is left out. Whatever a step returns goes on until it has the form of today.

What always holds: nothing is guessed. A version for which there is no step, or which is newer than the code, is an
error that names the event.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from headrace.eventsourcing.errors import InvalidEventType

Upcast = Callable[[dict[str, Any]], Any]
_MOST_STEPS: Final = 10_000  # of one event: more go in a circle


@dataclass(frozen=True, slots=True)
class Form:
    """What an event of some type holds, in one of its versions."""

    type: str
    fields: dict[str, Any]
    version: int = 1


class Several(tuple[Any, ...]):
    """The events that one stored event is read as, if it is not just one."""

    __slots__ = ()


class BrokenChain(Exception):
    """There is no way from a form to one of today; the text says what is missing."""


class Upcasts:
    """The steps, by the type and version that each begins with."""

    def __init__(self) -> None:
        self.steps: dict[tuple[str, int], Upcast] = {}

    def add(self, name: str, version: int, function: Upcast) -> None:
        if version < 1:
            raise InvalidEventType(f"event {name!r} cannot have version {version} to upcast: count from 1 on")
        known = self.steps.get((name, version), function)
        if (known.__module__, known.__qualname__) != (function.__module__, function.__qualname__):
            raise InvalidEventType(
                f"event {name!r} has two upcasts of version {version}, {known.__qualname__} and "
                f"{function.__qualname__}: keep one"
            )
        self.steps[name, version] = function

    def find(self, name: str, version: int, former: Mapping[str, str]) -> Upcast | None:
        """The step from this version on, of a type under its own name or the one it has today."""
        own = self.steps.get((name, version))
        return own if own is not None or name not in former else self.steps.get((former[name], version))

    def run(self, form: Form, newest: Mapping[str, int], former: Mapping[str, str]) -> list[Form]:
        """The forms of today that a form becomes; `newest` are the versions of the types that there are.

        A type, or a version, that there is not is left as it is.
        """
        done, waiting, steps = list[Form](), [form], 0
        while waiting:
            at = waiting.pop()
            known = newest.get(at.type)
            if at.version == known:
                done.append(at)
            elif (step := self.find(at.type, at.version, former)) is not None:
                steps += 1
                if steps > _MOST_STEPS:
                    raise BrokenChain(f"the upcasts of {form.type!r} go in a circle: end them with a version of today")
                waiting += reversed(_forms(at, step(dict(at.fields))))
            elif known is None or at.version > known:
                done.append(at)
            else:
                raise BrokenChain(
                    f"version {at.version} of {at.type!r} is stored, today's is {known}, and the step in between is "
                    f"missing: add @upcast({at.type!r}, {at.version})"
                )
        return done


def _forms(before: Form, result: Any) -> list[Form]:
    """What a step returned."""
    if isinstance(result, Form):
        return [result]
    if isinstance(result, dict):
        return [Form(before.type, result, before.version + 1)]
    if isinstance(result, list | tuple):
        return [each for one in result for each in _forms(before, one)]
    raise BrokenChain(
        f"the upcast of version {before.version} of {before.type!r} returned {result!r}: return fields, a Form, or a "
        "list of them"
    )
