"""Any store of events by its address, as commands, pages and `headrace.toml` name it.

    sqlite:///shop.db                    a file, relative; with four slashes absolute
    postgresql://user@host:5432/shop     a database
    kafka://127.0.0.1:9092/shop-events   a topic of one partition, on a broker of ours or on any Kafka
    memory:                              gone with the process

In a database `?table=NAME` names the table of events, if it is not `headrace_events`.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit, urlunsplit

from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.client.connection import ConnectionSettings
from headrace.client.errors import ClientError
from headrace.client.events import FEATURE
from headrace.errors import nearest
from headrace.eventsourcing.errors import InvalidStore, StoreUnavailable
from headrace.eventsourcing.memory import MemoryStore
from headrace.eventsourcing.store import EventStore

TABLE: Final = "headrace_events"
_FORMS: Final = "write sqlite:///path, postgresql://user@host/database, kafka://host:port/topic or memory:"


def open_store(url: str, *, create: bool = True) -> EventStore:
    """The store at an address; its tables or its topic are made if they are not there, unless not to `create`."""
    check_address(url)
    return _KINDS[urlsplit(url).scheme](url, create)


def check_address(url: str) -> None:
    """Refuse what is not the address of a store; nothing is opened."""
    try:
        scheme = urlsplit(url).scheme
    except ValueError as error:
        raise InvalidStore(f"the address of the event store cannot be read ({error}): {_FORMS}") from None
    if scheme not in _KINDS:  # the address itself is not shown: it may hold a password
        raise InvalidStore(f"{scheme + ':…' if scheme else 'a path'!r} is not the address of an event store: {_FORMS}")
    if scheme == "sqlite":
        sqlite_path(url)
    elif scheme == "kafka":
        _topic_of(url)


def _topic_of(url: str) -> str:
    parts = urlsplit(url)
    topic = unquote(parts.path).strip("/")
    for option, _ in parse_qsl(parts.query):
        if option != "index":
            raise InvalidStore(f"a store in a topic has no option {option!r}: {nearest(option, ['index'])}")
    if "@" in parts.netloc:
        raise InvalidStore("kafka:… has a user in it: name the file with its settings in HEADRACE_KAFKA instead")
    if not parts.netloc or not topic or "/" in topic:
        raise InvalidStore("kafka:… names no topic: write kafka://host:port/topic")
    return topic


def _open_sqlite(url: str, create: bool) -> EventStore:
    from headrace.eventsourcing.sqlite_store import sqlite

    return sqlite(sqlite_path(url), _take_table(url)[1], create=create)


def sqlite_path(url: str) -> Path:
    """The file that an address names."""
    parts = urlsplit(url)
    path = unquote(parts.path).removeprefix("/")
    for option, _ in parse_qsl(parts.query, keep_blank_values=True):
        if option != "table":  # one that is misspelt would be another store
            raise InvalidStore(f"a store in SQLite has no option {option!r}: {nearest(option, ['table'])}")
    if parts.netloc or not path:
        raise InvalidStore("sqlite:… names no file: write sqlite:///relative.db or sqlite:////absolute.db")
    return Path(path)


def _open_postgres(url: str, create: bool) -> EventStore:
    from headrace.eventsourcing.postgres_store import postgres

    plain, table = _take_table(url)
    return postgres(plain, table, create=create)


def _take_table(url: str) -> tuple[str, str]:
    """A URL without the table that it names, for the driver, and that table."""
    parts = urlsplit(url)
    options = [pair.partition("=") for pair in parts.query.split("&") if pair]
    others = "&".join("".join(each) for each in options if each[0] != "table")
    return urlunsplit(parts._replace(query=others)), dict(parse_qsl(parts.query)).get("table", TABLE)


def _open_topic(url: str, create: bool) -> EventStore:
    from headrace.eventsourcing.broker_store import BrokerEventStore
    from headrace.eventsourcing.kafka_store import KafkaEventStore

    topic, options = _topic_of(url), dict(parse_qsl(urlsplit(url).query))
    addresses = parse_bootstrap(urlsplit(url).netloc)
    connect = partial(Cluster, addresses, ConnectionSettings(client_id="headrace-events"))
    try:
        with connect() as cluster:
            is_ours = FEATURE in cluster.any_broker().features
            if not create:
                cluster.topic(topic)  # raises for one that is not there
    except ClientError as error:
        raise StoreUnavailable(str(error)) from error
    return BrokerEventStore(connect, topic, create=create) if is_ours else KafkaEventStore(connect, topic, **options)


def _open_memory(_: str, __: bool) -> EventStore:
    return MemoryStore()


_KINDS: Final[Mapping[str, Callable[[str, bool], EventStore]]] = {
    "sqlite": _open_sqlite,
    "postgresql": _open_postgres,
    "postgres": _open_postgres,
    "kafka": _open_topic,
    "memory": _open_memory,
}
