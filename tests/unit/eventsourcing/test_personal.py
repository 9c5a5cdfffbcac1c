"""Personal fields of events: sealed at rest, read back, forgotten; and snapshots that hold them."""

import json
from dataclasses import dataclass, make_dataclass, replace
from datetime import date
from typing import Any

import pytest

from headrace.eventsourcing import Aggregate, EventTypes, MemoryStore, Repository, Snapshots, StreamAppend, sqlite
from headrace.eventsourcing.errors import InvalidAppend, InvalidEventType, UndecodableEvent
from headrace.forgetting.errors import SubjectForgotten, Tampered, UnknownKey
from headrace.forgetting.key_store import MemoryKeyStore
from headrace.forgetting.keyring import Keyring
from headrace.forgetting.master_key import MasterKey
from headrace.testing.contracts.keys import MASTER

ADA = "Ada Łovelace"


@pytest.fixture
def types() -> EventTypes:
    made = EventTypes()
    made.use_keys(Keyring(MemoryKeyStore(), MASTER, recheck_s=0))
    return made


@dataclass(frozen=True)
class Address:
    street: str
    town: str


@dataclass(frozen=True)
class Registered:
    customer: str
    name: str
    email: str | None
    born: date
    home: Address | None
    plan: str = "free"


def registered(types: EventTypes, **more: Any) -> type[Registered]:
    given: dict[str, Any] = {
        "subject": "customer", "personal": {"name": "(gone)", "email": None, "born": date.min, "home": None},
    }  # fmt: skip
    return types.event("registered", **{**given, **more})(Registered)


EVENT = Registered("c-1", ADA, "ada@example.org", date(1815, 12, 10), Address("St James's Square", "London"))


def stored(types: EventTypes, event: object, stream: str = "customer-1", store: Any = None) -> Any:
    store = store or MemoryStore()
    store.append([StreamAppend(stream, [types.encode(event)])])
    return [*store.read_stream(stream)][-1]


def test_fields_are_sealed_at_rest_and_read_back(types: EventTypes) -> None:
    registered(types, tags=["customer", "plan"])
    kept = stored(types, EVENT)
    for secret in (ADA, "Łovelace", "ada@", "1815", "London"):
        assert secret not in kept.data.decode()
    assert json.loads(kept.data)["plan"] == "free"
    assert kept.tags == ("customer:c-1", "plan:free")
    assert types.decode(kept) == EVENT


def test_a_forgotten_subject_leaves_stand_ins_and_the_rest(types: EventTypes) -> None:
    registered(types)
    kept, other = stored(types, EVENT), stored(types, replace(EVENT, customer="c-2"))
    assert types.keys
    types.keys.forget("c-1")
    assert types.decode(kept) == Registered("c-1", "(gone)", None, date.min, None)
    assert types.decode(other).name == ADA
    with pytest.raises(SubjectForgotten):
        types.encode(EVENT)
    types.keys.renew("c-1")
    assert types.decode(stored(types, EVENT)) == EVENT
    assert types.decode(kept).name == "(gone)"


def test_none_stays_none_and_defaults_follow_the_type(types: EventTypes) -> None:
    @types.event("noted", subject=lambda event: f"person {event.number}", personal=["text", "more"])
    @dataclass(frozen=True)
    class Noted:
        number: int
        text: str
        more: str | None = None

    kept = stored(types, Noted(7, "secret"))
    assert json.loads(kept.data)["more"] is None
    assert types.keys
    types.keys.forget("person 7")
    assert types.decode(kept) == Noted(7, "(forgotten)", None)


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"personal": ["nme"]}, "did you mean 'name'"),
        ({"personal": "name"}, "give a list"),
        ({"subject": None}, "say whose they are"),
        ({"personal": []}, "no personal fields"),
        ({"subject": "name"}, "use an id that says nothing"),
        ({"subject": "who"}, "has no field 'who'"),
        ({"tags": ["name"]}, "cannot be a tag"),
        ({"personal": ["born"]}, "say what 'born' reads as"),
        ({"personal": {"born": "never"}}, "does not fit the type of 'born'"),
        ({"personal": {"name": 7}}, "does not fit the type of 'name'"),
    ],
)
def test_what_is_wrong_is_said_at_the_declaration(types: EventTypes, more: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidEventType, match=sentence):
        registered(types, **more)


def test_what_is_wrong_with_an_event_is_said_before_it_is_stored(types: EventTypes) -> None:
    registered(types, tags=lambda event: [f"name:{event.name}"])
    with pytest.raises(InvalidAppend, match="tag") as refused:
        types.encode(EVENT)
    assert ADA not in str(refused.value)
    registered(types)
    with pytest.raises(InvalidAppend, match="names no subject"):
        types.encode(replace(EVENT, customer=""))
    assert types.keys
    forged = types.keys.seal_value("somebody's", subject="x", field="plan")
    with pytest.raises(InvalidAppend, match="looks like a sealed value"):
        types.encode(replace(EVENT, plan=forged))
    assert types.decode(stored(types, replace(EVENT, name=forged))).name == forged, "a sealed value is opened once"


def test_without_keys_nothing_is_written_and_the_rest_is_readable(types: EventTypes) -> None:
    registered(types)
    kept = stored(types, EVENT)

    @types.event("other")
    @dataclass(frozen=True)
    class Other:
        text: str

    other = stored(types, Other("plain"))
    types.use_keys(None)
    with pytest.raises(InvalidAppend, match="use_keys"):
        types.encode(EVENT)
    with pytest.raises(UndecodableEvent, match="use_keys"):
        types.decode(kept)
    assert types.decode(other) == Other("plain")
    types.use_keys(Keyring(MemoryKeyStore(), MASTER))
    with pytest.raises(UnknownKey):
        types.decode(kept)
    assert types.decode(other) == Other("plain")


def test_values_cannot_be_moved_from_one_to_another(types: EventTypes) -> None:
    registered(types)
    mine, theirs = stored(types, EVENT), stored(types, replace(EVENT, customer="c-2", email="eve@example.org"))
    fields = json.loads(mine.data) | {"email": json.loads(theirs.data)["email"]}
    with pytest.raises(Tampered, match="another subject"):
        types.decode(mine._replace(data=json.dumps(fields).encode()))


def test_errors_do_not_show_what_is_sealed(types: EventTypes) -> None:
    registered(types)
    kept = stored(types, EVENT)
    later = make_dataclass("Registered", [("customer", str), ("name", int)], frozen=True)
    later.__module__, later.__qualname__ = Registered.__module__, Registered.__qualname__
    types.event("registered", subject="customer", personal={"name": 0})(later)
    with pytest.raises(UndecodableEvent) as refused:
        types.decode(kept)
    assert ADA not in str(refused.value)
    assert refused.value.__cause__ is None


def test_upcasts_see_what_is_opened(types: EventTypes) -> None:
    @types.event("named", subject="who", personal=["name"])
    @dataclass(frozen=True)
    class Named:
        who: str
        name: str

    kept = stored(types, Named("7", ADA))

    @types.event("named", version=2, subject="who", personal=["first", "last"])
    @dataclass(frozen=True)
    class Named:  # type: ignore[no-redef]
        who: str
        first: str
        last: str

    @types.upcast("named", 1)
    def split(fields: dict[str, Any]) -> dict[str, Any]:
        first, _, last = (fields.pop("name") or "").partition(" ")
        return {**fields, "first": first, "last": last}

    assert types.decode(kept) == Named("7", "Ada", "Łovelace")


# --- snapshots


@dataclass(frozen=True)
class Customer:
    name: str = ""
    changes: int = 0


@dataclass(frozen=True)
class Renamed:
    customer: str
    name: str


@dataclass(frozen=True)
class Rename:
    customer: str
    name: str


def customers(types: EventTypes) -> Aggregate[Customer]:
    types.event("renamed", subject="customer", personal=["name"])(Renamed)
    made = Aggregate("customer", Customer, types=types)

    @made.decide
    def rename(state: Customer, command: Rename) -> Renamed:
        return Renamed(command.customer, command.name)

    @made.evolve
    def renamed(state: Customer, event: Renamed) -> Customer:
        return Customer(event.name, state.changes + 1)

    return made


def test_snapshots_are_sealed_with_the_keys_of_all_who_are_in_them(types: EventTypes, tmp_path: Any) -> None:
    customer, store = customers(types), sqlite(tmp_path / "events.db")
    repository = Repository(store, snapshots=Snapshots(every=2))
    for number, who in enumerate(["c-1", "c-2", "c-1", "c-1"]):
        repository.handle(customer, "1", Rename(who, f"{ADA} {number}"))
    snapshot = store.read_snapshot("customer-1", customer.fingerprint)
    assert snapshot is not None
    assert b"ovelace" not in snapshot.data
    assert snapshot.version == 4
    assert repository.load(customer, "1").state == Customer(f"{ADA} 3", 4)
    assert types.keys
    types.keys.forget("c-2")  # of whom only the past holds something
    assert repository.load(customer, "1").state == Customer(f"{ADA} 3", 4)
    assert store.read_snapshot("customer-1", customer.fingerprint) is None, "it held what was forgotten"
    repository.handle(customer, "1", Rename("c-1", ADA))
    again = store.read_snapshot("customer-1", customer.fingerprint)
    assert again is not None
    assert again.version == 5
    types.keys.forget("c-1")
    assert repository.load(customer, "1").state == Customer("(forgotten)", 5)
    files = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert b"ovelace" not in files


def test_a_wrong_master_key_is_noticed_before_anything_is_opened() -> None:
    store = MemoryKeyStore()
    Keyring(store, MASTER)
    with pytest.raises(Exception, match="nothing was read or written"):
        Keyring(store, MasterKey(bytes(32)))
