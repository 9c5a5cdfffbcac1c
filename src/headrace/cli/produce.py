"""`headrace produce`: write records, from the command line or from standard input.

Whoever writes lines there may be fast or slow: `cat` gives a gigabyte, `tail -f` a line a minute. So a group of lines
is whatever can be read without waiting; at its end there is nothing more for now, and what was read is sent.
"""

import io
import json
import os
import select
import socket
import sys
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, NoReturn

import click
from rich.progress import Progress

from headrace.cli.cdc import show_until_stopped
from headrace.cli.output import error_console, json_option, print_json, print_table
from headrace.cli.parameters import PAIR, TIMESTAMP, bootstrap_option, connect, topic_argument
from headrace.cli.record_text import InvalidLine, from_json
from headrace.cli.status_view import gateway_table
from headrace.client.address import Address
from headrace.client.writer import NewRecord, Writer
from headrace.clock import SystemClock
from headrace.errors import HeadraceError
from headrace.gateways.files.follower import Follower, FollowSettings
from headrace.gateways.files.following import LINE_BYTES
from headrace.gateways.section import report_gateway
from headrace.records import Codec, Header
from headrace.reporting import Show

_SHOWN = 60  # bytes of a value that is refused


@dataclass(frozen=True, slots=True)
class _Template:
    """What the options say about every record."""

    key: bytes | None
    headers: tuple[Header, ...]
    partition: int | None
    timestamp: int | None

    def record(self, value: bytes | None, key: bytes | None = None) -> NewRecord:
        stamp = SystemClock().now_ms() if self.timestamp is None else self.timestamp
        return NewRecord(self.key if key is None else key, value, stamp, self.headers, self.partition)


class _NotWritten(HeadraceError):
    """Something stopped the writing; the text says how far it had come."""


@click.command()
@topic_argument
@click.argument("values", nargs=-1, metavar="[VALUE]…")
@click.option("--key", help="The key of every record.")
@click.option(
    "--header", "headers", type=PAIR, multiple=True, metavar="NAME=VALUE", help="A header; may be given several times."
)
@click.option("--partition", type=click.IntRange(min=0), help="Write there, instead of where the key belongs.")
@click.option(
    "--timestamp", type=TIMESTAMP, metavar="TIME", help="ISO-8601, milliseconds since the epoch, or how long ago: 10m."
)
@click.option(
    "--compression",
    type=click.Choice([codec.name.lower() for codec in Codec]),
    default="none",
    show_default=True,
    help="How batches are compressed.",
)
@click.option("--tombstone", is_flag=True, help="Write a record without a value: a compacted topic forgets the key.")
@click.option("--key-separator", metavar="TEXT", help="Split each line from standard input into key and value here.")
@click.option(
    "--check-json", is_flag=True, help="Refuse a value that is not valid JSON, instead of writing it as it is."
)
@click.option(
    "--follow",
    "paths",
    multiple=True,
    metavar="PATH",
    help="Follow this file, or the files of a pattern, and write each line; may be given several times.",
)
@click.option("--name", help="With --follow: whose position it is; by default the topic, this host and the paths tell.")
@click.option(
    "--from",
    "origin",
    type=click.Choice(["start", "end"]),
    default="start",
    show_default=True,
    help="With --follow: where the first start of all begins in files that are there.",
)
@click.option(
    "--max-line",
    type=click.IntRange(1, 16 * 1024 * 1024),
    default=LINE_BYTES,
    show_default=True,
    metavar="BYTES",
    help="With --follow: how many bytes of a line are kept at the most.",
)
@click.option("--once", is_flag=True, help="With --follow: end when all that there is has been written.")
@click.option("--json-lines", is_flag=True, help="Read lines of JSON, as headrace tail --json writes them.")
@bootstrap_option
@json_option
def produce(
    topic: str,
    values: tuple[str, ...],
    key: str | None,
    headers: tuple[tuple[str, str], ...],
    partition: int | None,
    timestamp: int | None,
    compression: str,
    tombstone: bool,
    key_separator: str | None,
    check_json: bool,
    json_lines: bool,
    paths: tuple[str, ...],
    name: str | None,
    origin: str,
    max_line: int,
    once: bool,
    bootstrap: tuple[Address, ...],
    as_json: bool,
) -> None:
    """Write each VALUE to TOPIC or, without any, each line of standard input.

    \b
      headrace produce orders '{"cents": 500}' --key c7 --check-json
      headrace produce orders --key-separator : < orders.txt
      headrace tail orders --no-follow --json | headrace produce copy --json-lines
      headrace produce access --follow /var/log/nginx/access.log

    With --json-lines a line is {"key": …, "value": …, "headers": …, "timestamp": …, "partition": …}, of which only the
    value must be there. A value that is no text is written as JSON, and null is a tombstone.

    A record is acknowledged before it is counted as written, and none is written twice.

    With --follow it goes on until interrupted, through rotations and restarts: lines and the position in the files are
    committed together, so each line is written once, whatever ends this command and whenever.
    """
    if paths:
        if values or key_separator is not None or json_lines or tombstone or check_json or key or headers or timestamp:
            raise click.UsageError("--follow writes lines as they are: of the other options it takes --compression")
        _follow(topic, paths, name, origin, max_line, compression, once, bootstrap, as_json)
    if values and (key_separator is not None or json_lines):
        raise click.UsageError("--key-separator and --json-lines are for standard input: leave the values out")
    if tombstone and (values or key_separator is not None or json_lines or key is None):
        raise click.UsageError("--tombstone takes a --key, and no values")
    if key_separator is not None and (json_lines or not key_separator):
        raise click.UsageError("--key-separator takes a text, and does not go with --json-lines")
    if check_json:
        for text in values:  # all of them, before the first is written
            _check_json(_bytes(text))
    template = _Template(
        None if key is None else _bytes(key),
        tuple(Header(name, _bytes(value)) for name, value in headers),
        partition,
        timestamp,
    )
    with connect(bootstrap) as cluster:
        writer = Writer(cluster, topic, codec=Codec.named(compression))
        if partition is not None:
            cluster.partitions(topic, [partition])
        if values or tombstone:
            for value in values or [None]:
                writer.add(template.record(None if value is None else _bytes(value)))
            writer.flush()
        else:
            _write_lines(writer, _records(template, key_separator, json_lines, check_json))
    _report(topic, writer, as_json=as_json)


def _follow(
    topic: str, paths: tuple[str, ...], name: str | None, origin: str, max_line: int, compression: str, once: bool,
    bootstrap: tuple[Address, ...], as_json: bool,
) -> NoReturn:  # fmt: skip
    """Follow files until Ctrl-C or SIGTERM, and end the process."""
    full = tuple(os.path.abspath(os.path.expanduser(path)) for path in paths)
    # The same files of the same host into the same topic are the same follower, whoever starts it and where.
    whose = name or f"{topic}@{socket.gethostname()}:{','.join(full)}"
    settings = FollowSettings(
        whose, full, topic, from_end=origin == "end", line_bytes=max_line, codec=Codec.named(compression)
    )

    def run(stop: threading.Event, show: Show) -> dict[str, HeadraceError]:
        return report_gateway("file", Follower(settings, bootstrap, stopping=stop, until_idle=once), bootstrap, show)

    show_until_stopped(gateway_table, run, as_json=as_json)


def _bytes(argument: str) -> bytes:
    # What the shell passed need not be UTF-8; it is written as it came.
    return argument.encode(errors="surrogateescape")


def _check_json(value: bytes) -> None:
    try:
        json.loads(value)
    except (ValueError, RecursionError) as error:
        shown = value[:_SHOWN].decode(errors="replace") + ("…" if len(value) > _SHOWN else "")
        raise InvalidLine(f"{shown!r} is not valid JSON ({error}): mend it, or leave --check-json out") from None


def _records(
    template: _Template, separator: str | None, is_json_lines: bool, is_checked: bool
) -> Iterator[NewRecord | None]:
    """A record for each line; None whenever the next line is not there yet."""
    number = 0
    for line in lines_as_they_come(sys.stdin.buffer):
        if line is None:
            yield None
            continue
        number += 1
        try:
            if is_json_lines:
                yield _from_json(line, template) if line.strip() else None
                continue
            record = _from_line(line, template, separator)
            if is_checked:
                _check_json(record.value or b"")
            yield record
        except InvalidLine as error:
            raise InvalidLine(f"line {number} of the input: {error}") from None


def _from_json(line: bytes, template: _Template) -> NewRecord:
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        raise InvalidLine(f"it is not UTF-8 ({error.reason} at byte {error.start})") from None
    read = from_json(text, now_ms=SystemClock().now_ms())
    return NewRecord(
        template.key if read.key is None else read.key,
        read.value,
        read.timestamp if template.timestamp is None else template.timestamp,
        (*template.headers, *read.headers),
        read.partition if template.partition is None else template.partition,
    )


def _from_line(line: bytes, template: _Template, separator: str | None) -> NewRecord:
    if separator is None:
        return template.record(line)
    key, found, value = line.partition(_bytes(separator))
    if not found:
        raise InvalidLine(f"there is no key separator {separator!r} in it")
    return template.record(value, key)


def _write_lines(writer: Writer, records: Iterable[NewRecord | None]) -> None:
    terminal = error_console()
    if sys.stdin.isatty():
        click.echo("one value a line; Ctrl-D ends", err=True)
    is_watched = terminal.is_terminal and not sys.stdin.isatty()
    try:
        with Progress("writing: {task.completed:,} records", console=terminal, disable=not is_watched) as progress:
            task = progress.add_task("", total=None)
            for record in records:
                if record is None:
                    writer.flush()
                    progress.update(task, completed=writer.written)
                else:
                    writer.add(record)
    except HeadraceError as error:
        # What is written is always the first so many lines, so whoever sent them can go on from there.
        written = f"the first {writer.written:,} records were written" if writer.written else "nothing was written"
        raise _NotWritten(f"{error}; {written}") from error


def _report(topic: str, writer: Writer, *, as_json: bool) -> None:
    totals = writer.totals
    if as_json:
        print_json(
            {
                "topic": topic,
                "records": writer.written,
                "partitions": [
                    {
                        "partition": partition,
                        "records": total.records,
                        "first_offset": total.first_offset,
                        "last_offset": total.last_offset,
                    }
                    for partition, total in totals.items()
                ],
            }
        )
    elif writer.written == 1:
        ((partition, total),) = totals.items()
        click.echo(f"wrote 1 record to {topic}, partition {partition}, offset {total.first_offset}")
    elif not totals:
        click.echo("wrote nothing: there was no input")
    else:
        print_table(
            [">partition", ">records", ">first offset", ">last offset"],
            [(partition, total.records, total.first_offset, total.last_offset) for partition, total in totals.items()],
        )


_CHUNK_BYTES = 256 * 1024


def lines_as_they_come(stream: BinaryIO) -> Iterator[bytes | None]:
    """Each line without its end; None whenever the next one is not there yet."""
    rest = bytearray()
    while chunk := _read(stream):
        *whole, last = chunk.split(b"\n")
        for line in whole:
            rest += line
            yield bytes(rest).removesuffix(b"\r")
            rest.clear()
        rest += last
        if not _has_more(stream):
            yield None
    if rest:
        yield bytes(rest).removesuffix(b"\r")
    yield None


def _read(stream: BinaryIO) -> bytes:
    # One read of the system's: it waits for something, but not for all that was asked for.
    read_some = getattr(stream, "read1", stream.read)
    data: bytes = read_some(_CHUNK_BYTES)
    return data


def _has_more(stream: BinaryIO) -> bool:
    try:
        return bool(select.select([stream], [], [], 0)[0])
    except (io.UnsupportedOperation, ValueError, OSError):
        return False
