"""Processes that have been told personal values: what they remember is sealed like the events that told them.

A process's functions put what they like into its state, its commands and its effects. So from the first event on that
was opened with a key, all of that is sealed with the keys of all whose values may be in it.

What always holds: in a process's events nothing that came from a personal field stands in plain. Once one of those
subjects is forgotten the process is over, as nobody can know any more what it was to do.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from headrace.eventsourcing.errors import InvalidAppend
from headrace.eventsourcing.personal import Personal
from headrace.forgetting.keyring import Keyring
from headrace.forgetting.sealed import bytes_of, empty_for, parse, text_of

_HIDDEN: Final = ("state", "todo", "effects", "problem")
_OVER: Final[Mapping[str, Any]] = {
    "state": None, "todo": [], "effects": [], "deadlines": {}, "is_over": True,
    "problem": "somebody whose personal values it had was forgotten: it is over",
}  # fmt: skip


class ProcessSeal(Personal):
    """Seals what a process remembers, if its event names keys."""

    def seal(self, name: str, event: Any, data: bytes, tags: Iterable[str], keys: Keyring | None) -> bytes:  # noqa: ARG002
        if not event.keys:
            return data
        if keys is None:
            raise InvalidAppend(
                f"event {name!r} has personal values, and there are no keys: call use_keys(open_keys(…))"
            )
        fields = json.loads(data)
        hidden = json.dumps({each: fields.pop(each) for each in _HIDDEN}, ensure_ascii=False).encode()
        sealed = keys.seal_state(hidden, event.keys)
        # Written as sealed values are, so that whoever counts what a key has sealed finds these, too.
        fields |= {"keys": [empty_for(key_id) for key_id in event.keys], "sealed": text_of(sealed) if sealed else ""}
        return json.dumps(fields, separators=(",", ":")).encode()

    def open(self, fields: dict[str, Any], keys: Keyring | None, opened: set[str] | None) -> dict[str, Any]:
        if "sealed" not in fields:
            return fields
        if keys is None:
            raise InvalidAppend("it is sealed, and there are no keys: call use_keys(open_keys(…))")
        ids = [found.key_id for each in fields["keys"] if (found := parse(each)) is not None]
        known = keys.open_state(bytes_of(fields.pop("sealed"))) if fields["sealed"] else None
        if known is None:
            return {**fields, **_OVER, "keys": []}
        if opened is not None:
            opened.update(ids)
        return {**fields, **json.loads(known[0]), "keys": ids}


PROCESS_SEAL: Final = ProcessSeal("", {})
