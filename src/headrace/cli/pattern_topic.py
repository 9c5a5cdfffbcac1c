"""`headrace pattern list|add|pause|resume|remove`: the patterns of a compacted topic, which running jobs look for."""

from collections.abc import Callable
from typing import Final, NamedTuple

import click

from headrace.cep.errors import InvalidPattern
from headrace.cep.spelling import text_of
from headrace.cep.stored import PAUSED, RUNNING, StoredPattern, check_name, read_name, read_stored
from headrace.cli.output import human_time, json_option, print_json, print_table
from headrace.cli.parameters import bootstrap_option, complete_topic, connect
from headrace.cli.pattern_source import load_pattern, pattern_argument
from headrace.cli.trial_events import columns_of_text
from headrace.client.address import Address
from headrace.client.admin import create_topic
from headrace.client.cluster import Cluster
from headrace.client.offsets import Start, StartKind, find_stretch
from headrace.client.reader import read_records
from headrace.client.writer import NewRecord, Writer
from headrace.clock import SystemClock
from headrace.errors import nearest

_CONFIGS: Final = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"}
_SHOWN: Final = 100  # characters of a text
_name_argument = click.argument("name", metavar="NAME")
_topic_argument = click.argument("topic", metavar="TOPIC", shell_complete=complete_topic)


class Entry(NamedTuple):
    """A pattern of the topic, or what is wrong with its record."""

    name: str
    stored: StoredPattern | None
    problem: InvalidPattern | None
    offset: int
    at_ms: int


@click.command("list")
@_topic_argument
@bootstrap_option
@json_option
def list_patterns(topic: str, bootstrap: tuple[Address, ...], as_json: bool) -> None:
    """List the patterns of TOPIC. Ends with 1 if one of them cannot run."""
    with connect(bootstrap) as cluster:
        entries = [_checked(entry) for entry in _read(cluster, topic)]
    if as_json:
        print_json(
            [
                {
                    "name": one.name,
                    "state": one.stored.state if one.stored else None,
                    "pattern": one.stored.text if one.stored else None,
                    "problem": str(one.problem) if one.problem else None,
                    "version": one.offset,
                    "at_ms": one.at_ms,
                }
                for one in entries
            ]
        )
    else:
        print_table(
            ["pattern", "state", ">version", "since", "text"],
            [
                (
                    one.name,
                    "failed" if one.problem else one.stored.state if one.stored else "",
                    one.offset,
                    human_time(one.at_ms),
                    _one_line(one.stored.text) if one.stored else "",
                )
                for one in entries
            ],
        )
        for one in entries:
            if one.problem:
                click.echo(f"{one.name}: {one.problem}", err=True)
    if any(one.problem for one in entries):
        raise click.exceptions.Exit(1)


@click.command()
@_topic_argument
@_name_argument
@pattern_argument
@click.option("--columns", metavar="NAME,…", help="The columns that rows have, to check them as well.")
@click.option("--paused", is_flag=True, help="Do not look for it until it is resumed.")
@click.option("--replace", is_flag=True, help="Put it in the place of one that has the name.")
@bootstrap_option
def add(
    topic: str,
    name: str,
    pattern: str,
    columns: str | None,
    paused: bool,
    replace: bool,
    bootstrap: tuple[Address, ...],
) -> None:
    """Add PATTERN to TOPIC as NAME; jobs that follow the topic look for it from then on.

    \b
      headrace pattern add patterns small-then-large fraud.sql
      headrace pattern add patterns small-then-large fraud.py:SMALL_THEN_LARGE --replace

    The topic is made if it is not there. A pattern that could not run on a stream is refused.
    """
    check_name(name)
    found = load_pattern(pattern)
    found.compile(None if columns is None else columns_of_text(columns))
    if found.tree.within_us is None:
        raise InvalidPattern("a pattern of a topic needs a time: add `within`, of the whole")
    with connect(bootstrap) as cluster:
        is_there = topic in {one.name for one in cluster.topics()}
        if not is_there:
            create_topic(cluster, topic, partitions=1, configs=_CONFIGS)
        elif not replace and any(one.name == name for one in _read(cluster, topic)):
            raise InvalidPattern(f"{topic} has a pattern {name!r} already: give --replace, or another name")
        _write(cluster, topic, StoredPattern(name, text_of(found), PAUSED if paused else RUNNING))
    click.echo(f"added {name} to {topic}" + (", paused" if paused else ""))


def _command(
    word: str, done: str, meaning: str, change: Callable[[StoredPattern], StoredPattern | None]
) -> click.Command:
    @click.command(word, help=meaning)
    @_topic_argument
    @_name_argument
    @bootstrap_option
    def command(topic: str, name: str, bootstrap: tuple[Address, ...]) -> None:
        with connect(bootstrap) as cluster:
            entries = {entry.name: entry for entry in _read(cluster, topic)}
            if name not in entries:
                hint = nearest(name, entries, f"{topic} has") if entries else "it has none"
                raise InvalidPattern(f"{topic} has no pattern {name!r}: {hint}")
            stored, problem = entries[name].stored, entries[name].problem
            if stored is None and word != "remove":
                raise InvalidPattern(f"{problem}; add it again with --replace, or remove it")
            changed = change(stored) if stored is not None else None
            _write(cluster, topic, changed, name)
        click.echo(f"{done} {name}")

    return command


pause = _command(
    "pause", "paused", "Stop looking for the pattern NAME of TOPIC; what has begun is given up.",
    lambda stored: stored.stand(PAUSED),
)  # fmt: skip
resume = _command(
    "resume", "resumed", "Look for the paused pattern NAME of TOPIC again.", lambda stored: stored.stand(RUNNING)
)
remove = _command("remove", "removed", "Remove the pattern NAME from TOPIC.", lambda _: None)
COMMANDS: Final = (list_patterns, add, pause, resume, remove)


# --- the topic


def _read(cluster: Cluster, topic: str) -> list[Entry]:
    """What the topic has now, by name."""
    stretch = find_stretch(cluster, cluster.partitions(topic), Start(StartKind.EARLIEST), committed=True)
    found: dict[str, Entry] = {}
    for group in read_records(cluster, stretch.starts, until=stretch.ends):
        for _, record in group:
            try:
                name = read_name(record.key)
            except InvalidPattern:
                continue  # nobody could name it either
            found.pop(name, None)
            if record.value is None:
                continue
            try:
                stored, problem = read_stored(name, record.value), None
            except InvalidPattern as error:
                stored, problem = None, error
            found[name] = Entry(name, stored, problem, record.offset, record.timestamp)
    return sorted(found.values())


def _checked(entry: Entry) -> Entry:
    """With what is wrong with the pattern itself."""
    if entry.stored is None:
        return entry
    try:
        entry.stored.pattern.compile()
    except InvalidPattern as error:
        return entry._replace(problem=error)
    return entry


def _write(cluster: Cluster, topic: str, stored: StoredPattern | None, name: str = "") -> None:
    key = stored.key if stored is not None else name.encode()
    writer = Writer(cluster, topic)
    writer.add(NewRecord(key, None if stored is None else stored.value, SystemClock().now_ms(), (), None))
    writer.flush()


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else line[: _SHOWN - 1] + "…"
