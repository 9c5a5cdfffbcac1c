"""Personal fields of events: sealed before an event is stored, opened when it is read, and in time forgotten.

    @event("customer-registered", subject="customer", personal=["name", "email"])
    @dataclass(frozen=True)
    class CustomerRegistered:
        customer: str
        name: str
        email: str | None

`subject` says whose key seals them: a field of the event, or a function of it. Once the subject is forgotten a field
reads as its stand-in: None where the field may be None, `"(forgotten)"` for a text, else what is given:
`personal={"born": date.min}`. All else of the event stays readable.

What always holds: a personal value is in no stored event, no tag and no error in plain.
"""

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Any, Final, TypeAlias, Union, get_args, get_origin, get_type_hints

from headrace.errors import nearest
from headrace.eventsourcing.errors import InvalidAppend, InvalidEventType
from headrace.forgetting.keyring import FORGOTTEN, Keyring
from headrace.forgetting.sealed import parse

STAND_IN: Final = "(forgotten)"
SubjectOf: TypeAlias = str | Callable[[Any], object]
Marked: TypeAlias = "Iterable[str] | Mapping[str, Any] | Personal"


@dataclass(frozen=True, slots=True)
class Personal:
    """What is personal in events of one class; stand-ins are JSON."""

    subject: SubjectOf
    stand_ins: Mapping[str, Any]

    def seal(self, name: str, event: Any, data: bytes, tags: Iterable[str], keys: Keyring | None) -> bytes:
        """An event's JSON with its personal fields sealed."""
        if keys is None:
            raise InvalidAppend(
                f"event {name!r} has personal fields, and there are no keys to seal them: call use_keys(open_keys(…))"
            )
        subject = self._subject_of(name, event)
        fields = json.loads(data)
        for field, value in fields.items():
            if field in self.stand_ins:
                if value is not None:
                    self._check_tags(name, field, value, tags)
                    fields[field] = keys.seal_value(value, subject=subject, field=field)
            elif parse(value) is not None:
                raise InvalidAppend(f"field {field!r} of an event {name!r} looks like a sealed value: it is not stored")
        return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()

    def _subject_of(self, name: str, event: Any) -> str:
        found = self.subject(event) if callable(self.subject) else getattr(event, self.subject)
        if found is None or not str(found):
            raise InvalidAppend(f"an event {name!r} names no subject, and has personal fields: say whose they are")
        return str(found)

    @staticmethod
    def _check_tags(name: str, field: str, value: Any, tags: Iterable[str]) -> None:
        if isinstance(value, str) and any(value in tag for tag in tags if len(value) > 1):
            raise InvalidAppend(f"a tag of an event {name!r} holds its personal field {field!r}: tags are not sealed")

    def open(self, fields: dict[str, Any], keys: Keyring | None, opened: set[str] | None) -> dict[str, Any]:
        """Stored fields with what is sealed opened; the keys that opened something are added to `opened`."""
        subject = fields.get(self.subject) if isinstance(self.subject, str) else None
        for field, value in fields.items():
            if (sealed := parse(value)) is None:
                continue
            if keys is None:
                raise InvalidAppend("it is sealed, and there are no keys: call use_keys(open_keys(…))")
            found = keys.open_value(value, field=field, subject="" if subject is None else str(subject))
            if found is FORGOTTEN:
                fields[field] = self.stand_ins.get(field)
            else:
                fields[field] = found
                if opened is not None:
                    opened.add(sealed.key_id)
        return fields


def declare_personal(
    name: str,
    cls: type,
    subject: SubjectOf | None,
    marked: Marked,
    tags: object,
    dumped: Callable[[Any], bytes],
    reader_of: Callable[[Any], Callable[[Any], Any]],
) -> Personal | None:
    """What is personal in a class of events, checked; None if nothing is."""
    if isinstance(marked, Personal):
        return marked
    if isinstance(marked, str):
        raise InvalidEventType(f"event {name!r}: personal={marked!r} is one text: give a list, as in [{marked!r}]")
    given = dict(marked) if isinstance(marked, Mapping) else dict.fromkeys(marked, FORGOTTEN)
    if not given and subject is None:
        return None
    if not given:
        raise InvalidEventType(f"event {name!r} has a subject and no personal fields: name them, personal=[…]")
    if subject is None:
        raise InvalidEventType(f"event {name!r} has personal fields and no subject: say whose they are, subject=…")
    known = {each.name for each in dataclasses.fields(cls)}
    for field in (*given, *([subject] if isinstance(subject, str) else ())):
        if field not in known:
            raise InvalidEventType(f"event {name!r} has no field {field!r}: {nearest(field, known)}")
    if isinstance(subject, str) and subject in given:
        raise InvalidEventType(f"event {name!r}: its subject {subject!r} is not sealed: use an id that says nothing")
    for field in tags if isinstance(tags, (list, tuple, set, frozenset)) else ():
        if field in given:
            raise InvalidEventType(f"event {name!r}: its personal field {field!r} cannot be a tag: tags are not sealed")
    try:
        hints = get_type_hints(cls)
    except NameError as error:
        raise InvalidEventType(f"event {name!r} has a field of an unknown type ({error}): define it above") from None
    stand_ins = {}
    for field, wanted in given.items():
        value = _default_for(name, field, hints[field]) if wanted is FORGOTTEN else wanted
        try:
            stand_ins[field] = json.loads(dumped(value))
            fits = reader_of(hints[field])(stand_ins[field]) == value
        except Exception:  # noqa: BLE001 - whatever a type raises for a value it does not take
            fits = False
        if not fits:
            raise InvalidEventType(
                f"event {name!r}: {value!r} does not fit the type of {field!r}, whose stand-in it is to be"
            )
    return Personal(subject, stand_ins)


def _default_for(name: str, field: str, hint: Any) -> Any:
    if hint is Any or hint is NoneType or (get_origin(hint) in (Union, UnionType) and NoneType in get_args(hint)):
        return None
    if hint is str:
        return STAND_IN
    raise InvalidEventType(
        f"event {name!r}: say what {field!r} reads as once forgotten, personal={{{field!r}: …}}, or let it be None"
    )
