"""`headrace tail`: show records, those that are there and those that come."""

import json
import re
import select
import sys
from collections.abc import Callable, Iterator

import click

from headrace.cli.output import console
from headrace.cli.parameters import FILTER, START, InvalidText, Parsed, bootstrap_option, connect, topic_argument
from headrace.cli.record_text import as_coloured_line, as_json, as_line
from headrace.cli.where import Node, is_true
from headrace.client.address import Address
from headrace.client.fetch import FetchOptions
from headrace.client.offsets import Start, StartKind, find_stretch
from headrace.client.reader import ReadRecord, read_records
from headrace.records import Record

_MAX_WAIT_MS = 1000  # how long a quiet broker holds a fetch; then we look whether anybody still reads our output


def _regex(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise InvalidText(f"{text!r} is not a valid regular expression: {error}") from None


@click.command()
@topic_argument
@click.option(
    "--partition", "partitions", type=click.IntRange(min=0), multiple=True, help="Only these; may be given repeatedly."
)
@click.option(
    "--from",
    "start",
    type=START,
    metavar="PLACE",
    help="earliest, latest, an offset, -N for the last N of each partition, a time (ISO-8601, UTC unless it says "
    "otherwise), or how long ago: 30s, 10m, 2h, 1d.  [default: latest, or earliest with --no-follow]",
)
@click.option("--follow/--no-follow", default=True, show_default=True, help="Wait for more, or end where the log does.")
@click.option("--limit", type=click.IntRange(min=1), help="End after so many records.")
@click.option("--key", help="Only records with this key.")
@click.option("--grep", "regex", type=Parsed("regex", _regex), help="Only values in which this is found.")
@click.option("--where", type=FILTER, metavar="EXPR", help="Only values that are JSON for which this is true.")
@click.option("--headers", "with_headers", is_flag=True, help="Show headers.")
@click.option("--committed", is_flag=True, help="Leave out records of aborted and of open transactions.")
@click.option("--json", "is_json", is_flag=True, help="Print one JSON object a line, for programs.")
@bootstrap_option
def tail(
    topic: str,
    partitions: tuple[int, ...],
    start: Start | None,
    follow: bool,
    limit: int | None,
    key: str | None,
    regex: re.Pattern[str] | None,
    where: Node | None,
    with_headers: bool,
    committed: bool,
    is_json: bool,
    bootstrap: tuple[Address, ...],
) -> None:
    """Show the records of TOPIC and wait for more, until Ctrl-C.

    A line is partition:offset, time (UTC), key and value. Records of a partition come in its order; there is none
    across partitions, so what was fetched together is shown by timestamp.

    \b
      headrace tail orders --from 10m --key c7
      headrace tail orders --no-follow --where '.customer == "c7" and .cents > 500'
      headrace tail orders --from -10 --json

    An EXPR compares parts of the document (.cents, .items[0].name, ."odd name") with ==, !=, <, <=, >, >= and joins
    conditions with and, or, not and parentheses. A part that is not there is null.
    """
    begin = start or Start(StartKind.LATEST if follow else StartKind.EARLIEST)
    is_wanted = _condition(key, regex, where)
    show = _display(is_json=is_json, with_headers=with_headers)
    try:
        with connect(bootstrap) as cluster:
            stretch = find_stretch(cluster, cluster.partitions(topic, partitions), begin, committed=committed)
            if follow and sys.stderr.isatty():
                click.echo(f"following {topic}; Ctrl-C ends", err=True)
            reading = read_records(
                cluster,
                stretch.starts,
                until=None if follow else stretch.ends,
                options=FetchOptions(max_wait_ms=_MAX_WAIT_MS, committed=committed),
            )
            for group in _limit(reading, is_wanted, limit):
                show(group)
                check_output()
    except KeyboardInterrupt:
        # The way to end what would go on for ever; of what would have ended by itself, something is missing now.
        if not follow:
            raise click.exceptions.Exit(130) from None


def _limit(
    groups: Iterator[list[ReadRecord]], is_wanted: Callable[[Record], bool], limit: int | None
) -> Iterator[list[ReadRecord]]:
    left = limit
    for group in groups:
        wanted = [read for read in group if is_wanted(read.record)][:left]
        yield wanted
        if left is not None:
            left -= len(wanted)
            if not left:
                return


def _condition(key: str | None, regex: re.Pattern[str] | None, where: Node | None) -> Callable[[Record], bool]:
    key_bytes = None if key is None else key.encode(errors="surrogateescape")

    def is_wanted(record: Record) -> bool:
        if key_bytes is not None and record.key != key_bytes:
            return False
        if regex is not None and (record.value is None or not regex.search(record.value.decode(errors="replace"))):
            return False
        return where is None or holds(where, record.value)

    return is_wanted


def holds(where: Node, value: bytes | None) -> bool:
    """Whether a condition is true of a record's value; of one that is not JSON it is not."""
    if value is None:
        return False
    try:
        return is_true(where.value(json.loads(value)))
    except (ValueError, RecursionError):  # no JSON, or nested beyond all reason
        return False


def _display(*, is_json: bool, with_headers: bool) -> Callable[[list[ReadRecord]], None]:
    terminal = console()

    def show(group: list[ReadRecord]) -> None:
        if terminal.is_terminal and not is_json:
            for read in group:
                terminal.print(as_coloured_line(read, with_headers=with_headers), soft_wrap=True)
        elif group:
            lines = (
                [json.dumps(as_json(read), ensure_ascii=False) for read in group]
                if is_json
                else [as_line(read, with_headers=with_headers) for read in group]
            )
            sys.stdout.write("\n".join(lines) + "\n")
            sys.stdout.flush()

    return show


def check_output() -> None:
    """Whether whoever reads our output is still there: in a quiet topic no write would tell."""
    try:
        poller = select.poll()
        poller.register(sys.stdout.fileno(), 0)
    except (OSError, ValueError):
        return
    if any(event & select.POLLERR for _, event in poller.poll(0)):
        raise BrokenPipeError
