"""Reading the options of `format("headrace")`: every name known, every value checked, before anything is done.

Spark hands options over as text and does not tell a misspelt name from a right one, so it is done here.
"""

import json
from collections.abc import Collection, Mapping
from typing import Any

from headrace.errors import nearest
from headrace.pipelines.errors import BadOption

_TRUE, _FALSE = ("true", "yes", "1"), ("false", "no", "0")


def connection_in(options: Mapping[str, str], but: Collection[str] = ()) -> dict[str, str]:
    """Kafka's own settings among options, those that begin with `kafka.`, by their own names."""
    given = {name.lower(): value for name, value in options.items()}
    known = {name.removeprefix("kafka."): value for name, value in given.items() if name.startswith("kafka.")}
    return {name: value for name, value in known.items() if name not in but}


class Options:
    """Options by name, whatever their case; `kafka.` names are passed on to the connection and checked there."""

    def __init__(self, given: Mapping[str, str], known: Collection[str], where: str) -> None:
        """`known` are the names as documented; `where` says in an error whose options these are."""
        self._where = where
        self._values = {name.lower(): value for name, value in given.items()}
        names = {name.lower(): name for name in known}
        for name in self._values:
            if name not in names and not name.startswith("kafka."):
                raise BadOption(f"{where} has no option {name!r}: {nearest(name, known)}")

    def text(self, *names: str, default: str | None = None) -> str | None:
        return next((self._values[name.lower()] for name in names if name.lower() in self._values), default)

    def required(self, *names: str, example: str) -> str:
        found = self.text(*names)
        if not found:
            raise BadOption(f"{self._where} needs the option {names[0]!r}: write for example .option({example})")
        return found

    def choice(self, name: str, choices: Collection[str], default: str) -> str:
        found = (self.text(name) or default).lower()
        if found not in choices:
            raise self.bad(name, f"choose one of {', '.join(choices)}")
        return found

    def flag(self, name: str, *, default: bool) -> bool:
        found = (self.text(name) or str(default)).lower()
        if found not in _TRUE + _FALSE:
            raise self.bad(name, "write true or false")
        return found in _TRUE

    def number(self, *names: str, default: int | None = None, least: int = 1) -> int | None:
        found = self.text(*names)
        if found is None:
            return default
        if not found.isdecimal() or int(found) < least:
            raise self.bad(names[0], f"write a whole number from {least} on")
        return int(found)

    def parsed(self, name: str, example: str) -> Any:
        try:
            return json.loads(self._values[name.lower()])
        except ValueError:
            raise self.bad(name, f"write JSON such as {example}") from None

    def connection(self, but: str) -> dict[str, str]:
        """How the cluster is reached; `but` is a setting that is not for the connection."""
        return connection_in(self._values, ("bootstrap.servers", but))

    def bad(self, name: str, remedy: str) -> BadOption:
        """What is wrong with an option's value, and how to write it."""
        return BadOption(f"option {name!r} of {self._where} is {self.text(name)!r}: {remedy}")
