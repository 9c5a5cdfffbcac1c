"""Options and arguments that several commands share, and how their texts are read.

A text that cannot be read is a wrong call: exit code 2, with a sentence that says what was expected.
"""

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import click
from click.shell_completion import CompletionItem

from headrace.cli.moment import parse_start, parse_target, parse_timestamp
from headrace.cli.where import parse
from headrace.client.address import Address, parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.client.connection import ConnectionSettings
from headrace.client.groups import list_groups
from headrace.clock import SystemClock
from headrace.errors import HeadraceError
from headrace.stack import DEFAULT_FILE
from headrace.stack.state_file import running_bootstrap

if TYPE_CHECKING:
    from headrace.eventsourcing.store import EventStore

T = TypeVar("T")
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
_COMPLETION_TIMEOUT_S = 0.5  # somebody is waiting with a finger on the tab key


class Parsed(click.ParamType[T], Generic[T]):
    """A parameter that is read by a function of ours; what the function refuses is a wrong call."""

    def __init__(self, name: str, read: Callable[[str], T]) -> None:
        self.name = name
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> T:
        """Read the text; a default may come already read."""
        if not isinstance(value, str):
            return value  # type: ignore[no-any-return]
        try:
            return self._read(value)
        except HeadraceError as error:
            self.fail(str(error), param, ctx)


class InvalidText(HeadraceError):
    """A text that is not what a parameter takes."""


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise InvalidText(f"{text!r} is not NAME=VALUE")
    return name.strip(), value


def _topic_partitions(text: str) -> tuple[str, tuple[int, ...]]:
    topic, colon, listed = text.strip().partition(":")
    numbers = [number.strip() for number in listed.split(",")] if colon else []
    if not topic or not all(re.fullmatch(r"[0-9]{1,9}", number) for number in numbers):
        raise InvalidText(f"{text!r} is not TOPIC or TOPIC:PARTITION,…: write for example orders or orders:0,2")
    return topic, tuple(map(int, numbers))


PAIR = Parsed("name=value", _pair)
TOPIC_PARTITIONS = Parsed("topic", _topic_partitions)
START = Parsed("start", lambda text: parse_start(text, SystemClock().now_ms()))
TARGET = Parsed("target", lambda text: parse_target(text, SystemClock().now_ms()))
TIMESTAMP = Parsed("time", lambda text: parse_timestamp(text, SystemClock().now_ms()))
FILTER = Parsed("expression", parse)


def _bootstrap_here() -> str:
    return running_bootstrap(Path()) or DEFAULT_BOOTSTRAP


bootstrap_option = click.option(
    "--bootstrap",
    type=Parsed("addresses", parse_bootstrap),
    default=_bootstrap_here,
    envvar="HEADRACE_BOOTSTRAP",
    show_default=f"of the stack that runs in this folder, or {DEFAULT_BOOTSTRAP}",
    show_envvar=True,
    metavar="HOST:PORT[,…]",
    help="Where the broker is, ours or any Kafka.",
)


def config_option(meaning: str) -> Decorator:
    kind = click.Path(path_type=Path, dir_okay=False)
    return click.option("--config", type=kind, default=DEFAULT_FILE, show_default=True, help=meaning)


def limit_option(meaning: str) -> Decorator:
    """How many of what was found are shown."""
    return click.option("--limit", type=click.IntRange(min=0), default=20, show_default=True, help=meaning)


def timeout_option(meaning: str) -> Decorator:
    """How long to wait for another process."""
    kind = click.FloatRange(min=0, min_open=True)
    return click.option("--timeout", type=kind, default=60.0, show_default=True, metavar="SECONDS", help=meaning)


def check_terminal(doing: str) -> None:
    """Refuse to ask a question where nobody would see it."""
    if not sys.stdin.isatty():
        raise click.UsageError(f"no terminal to ask in: {doing}, give --yes")


def as_text(bootstrap: tuple[Address, ...]) -> str:
    """Addresses as they are written."""
    return ",".join(map(str, bootstrap))


def connect(bootstrap: tuple[Address, ...]) -> Cluster:
    return Cluster(bootstrap, ConnectionSettings(client_id="headrace-cli"))


def complete_topic(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001 - click's
    is_internal_wanted = incomplete.startswith("_")
    return _complete(
        ctx,
        incomplete,
        lambda cluster: (topic.name for topic in cluster.topics() if is_internal_wanted or not topic.is_internal),
    )


def complete_group(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001 - click's
    return _complete(ctx, incomplete, lambda cluster: (group.name for group in list_groups(cluster)))


def _complete(
    ctx: click.Context, incomplete: str, names_in: Callable[[Cluster], Iterable[str]]
) -> list[CompletionItem]:
    """Names, if the broker tells quickly; nothing if not, because a shell is no place for errors."""
    quick = ConnectionSettings(
        client_id="headrace-completion",
        connect_timeout_s=_COMPLETION_TIMEOUT_S,
        request_timeout_s=_COMPLETION_TIMEOUT_S,
    )
    try:
        bootstrap = ctx.params.get("bootstrap") or parse_bootstrap(_bootstrap_here())
        with Cluster(bootstrap, quick) as cluster:
            return [CompletionItem(name) for name in names_in(cluster) if name.startswith(incomplete)]
    except HeadraceError:
        return []


topic_argument = click.argument("topic", shell_complete=complete_topic)
group_argument = click.argument("name", metavar="GROUP", shell_complete=complete_group)


store_argument = click.argument("url", metavar="STORE")


@contextmanager
def opened_store(url: str) -> "Iterator[EventStore]":
    """The store of events at an address, which must be there."""
    from headrace.eventsourcing.opening import open_store

    store = open_store(url, create=False)
    try:
        yield store
    finally:
        store.close()
