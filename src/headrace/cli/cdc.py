"""`headrace cdc`: changes of databases into topics: start captures, look at them, ask things of them."""

import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import click
from rich.table import Table

from headrace.cli.access import access_options
from headrace.cli.output import human_bytes, human_duration, json_option, print_json, print_table
from headrace.cli.parameters import PAIR, bootstrap_option, config_option, connect, limit_option, timeout_option
from headrace.cli.status_view import View, capture_table, count
from headrace.client.address import Address
from headrace.clock import SystemClock
from headrace.connect.capture.running import SNAPSHOT, STOP, Order, give, rebuild, run_captures
from headrace.connect.capture.settings import SECTION, CaptureSettings, from_section
from headrace.connect.capture.verification import TableReport
from headrace.connect.capture.verification import verify as verify_capture
from headrace.connect.errors import ConnectError
from headrace.connect.sections import all_resolved
from headrace.connect.sync.verification import Kind, Report
from headrace.serving.access import Access
from headrace.stack.document import read_sections
from headrace.stack.kinds.forgetting import keys_of_file
from headrace.status import CAPTURES, RUNNING, WAITING, Status, read_statuses

_STOP_PATIENCE_S = 60.0
# The table is what is right here, so a row that the topic lacks is missing there.
_KINDS = {Kind.EXTRA: "missing", Kind.MISSING: "extra", Kind.DIFFERENT: "different"}
_DIFFERS = {
    Kind.EXTRA: "is missing in the topic",
    Kind.MISSING: "is in the topic and not in the table",
    Kind.DIFFERENT: "differs",
}


class NotRunning(ConnectError):
    """A capture that is to do something, and does not run."""


file_option = config_option("The file with a section [cdc.NAME] for each capture.")


@click.group()
def cdc() -> None:
    """Changes of databases into topics: PostgreSQL, MariaDB, MySQL, SQLite."""


@cdc.command()
@click.argument("names", nargs=-1, metavar="[NAME]…")
@file_option
@click.option("--url", help="Capture this database instead of what the file says; NAME is the capture's name then.")
@click.option("--table", "tables", multiple=True, help="With --url: capture this table (schema.table); several times.")
@click.option(
    "--set", "options", multiple=True, type=PAIR, metavar="KEY=VALUE",
    help="With --url: any other key of a section; several times.",
)  # fmt: skip
@bootstrap_option
@json_option
def start(
    names: tuple[str, ...],
    config: Path,
    url: str | None,
    tables: tuple[str, ...],
    options: tuple[tuple[str, str], ...],
    bootstrap: tuple[Address, ...],
    as_json: bool,
) -> None:
    """Capture the databases called NAME, or all of the file, until interrupted.

    The first start reads every row, then come the changes; later ones go on where the last one was. A database or
    broker that is away is waited for. Ends with 1 if a capture failed.
    """
    if url is None and (tables or options):
        raise click.UsageError("--table and --set go with --url: in a file they are keys of the section")
    run_until_stopped(_load(config, names) if url is None else [_one(names, url, tables, options)], bootstrap, as_json)


def run_until_stopped(wanted: Sequence[CaptureSettings], bootstrap: tuple[Address, ...], as_json: bool) -> None:
    """Run captures until Ctrl-C or SIGTERM, and end the process; with 1 if one failed."""
    _collect_rarely()
    show_until_stopped(capture_table, partial(run_captures, wanted, bootstrap), as_json=as_json)


def show_until_stopped(
    table: Callable[[Sequence[Status]], Table],
    run: Callable[[threading.Event, Any], Mapping[str, Exception]],
    *,
    as_json: bool,
) -> NoReturn:
    """Run parts until Ctrl-C or SIGTERM, and end the process; with 1 if one failed."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with View(table, as_json=as_json) as view:
        failures = run(stop, view.show)
    for name, error in failures.items():
        click.echo(f"headrace: {name}: {error}", err=True)
    sys.exit(1 if failures else 0)


def _collect_rarely() -> None:
    """Changes are many small objects in lists, none of them in a cycle: looking for cycles took a fifth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 20, 100)


def _load(config: Path, names: tuple[str, ...]) -> list[CaptureSettings]:
    sections = read_sections(config, SECTION, names)
    keys = keys_of_file(config) if any("personal" in section for section in sections.values()) else None
    seal = None if keys is None else keys.seal_late
    return [from_section(name, section, seal) for name, section in sections.items()]


def _one(
    names: tuple[str, ...], url: str, tables: tuple[str, ...], options: tuple[tuple[str, str], ...]
) -> CaptureSettings:
    if len(names) > 1:
        raise click.UsageError("with --url there is one capture, and so at most one NAME")
    section: dict[str, Any] = {"url": url, **{key: _value(text) for key, text in options}}
    if tables:
        section["tables"] = [table.replace(".", "\\.") for table in tables]
    # So that a password need not stand in the list of processes: --url 'postgresql://ann:${PASSWORD}@…'.
    return from_section(names[0] if names else "headrace", all_resolved("--url", section, os.environ, Path()))


def _value(text: str) -> Any:
    """A value as TOML would have it, where that is plain: a number, true or false, a list with commas; else text."""
    if text in ("true", "false"):
        return text == "true"
    if text.lstrip("-").isdecimal():
        return int(text)
    if text.startswith("[") and text.endswith("]"):
        return [part.strip() for part in text[1:-1].split(",") if part.strip()]
    return text


@cdc.command()
@click.argument("names", nargs=-1, metavar="[NAME]…")
@bootstrap_option
@json_option
def status(names: tuple[str, ...], bootstrap: tuple[Address, ...], as_json: bool) -> None:
    """Show how captures stand: state, rate, snapshot, and how much log the database keeps for them."""
    now_ms = SystemClock().now_ms()
    with connect(bootstrap) as cluster:
        every = {name: found.seen_at(now_ms) for name, found in sorted(read_statuses(cluster, CAPTURES).items())}
    for name in names:
        if name not in every:
            known = f"known are {', '.join(every)}" if every else "there is none yet: headrace cdc start"
            raise NotRunning(f"there is no capture {name!r}: {known}")
    chosen = [every[name] for name in names or every]
    if as_json:
        print_json([_as_json(one) for one in chosen])
        return
    print_table(
        ["name", "database", "state", ">records", ">per s", "snapshot", ">log kept", ">said", "problem"],
        [_row(one, now_ms) for one in chosen],
    )


def _row(one: Status, now_ms: int) -> tuple[str, ...]:
    return (
        one.name,
        one.text("kind"),
        one.state_text,
        count(one, "records"),
        count(one, "per_s"),
        one.snapshot,
        human_bytes(one.number("slot_lag_bytes")),
        f"{human_duration(now_ms - one.at_ms)} ago",
        one.text("problem"),
    )


def _as_json(one: Status) -> dict[str, Any]:
    empty = {"kind": "", "state": "", "waiting": "", "records": 0, "per_s": 0.0, "problem": "", "position": None}
    return {"name": one.name, **empty, "updated_ms": one.at_ms, **one.facts}


@cdc.command()
@click.argument("name")
@click.argument("tables", nargs=-1, required=True, metavar="TABLE…")
@bootstrap_option
def snapshot(name: str, tables: Sequence[str], bootstrap: tuple[Address, ...]) -> None:
    """Have a running capture read every row of TABLE (schema.table) again, while changes go on."""
    with connect(bootstrap) as cluster:
        _require_running(read_statuses(cluster, CAPTURES), name)
        give(cluster, Order(name, SNAPSHOT, tuple(tables)))
    click.echo(f"asked {name} to read {', '.join(tables)} again: see headrace cdc status {name}")


@cdc.command()
@click.argument("name")
@bootstrap_option
def stop(name: str, bootstrap: tuple[Address, ...]) -> None:
    """Stop a running capture after the batch it is at; the next start goes on there."""
    with connect(bootstrap) as cluster:
        _require_running(read_statuses(cluster, CAPTURES), name)
        give(cluster, Order(name, STOP))
        deadline = time.monotonic() + _STOP_PATIENCE_S
        while (found := read_statuses(cluster, CAPTURES)[name]).state in (RUNNING, WAITING):
            if time.monotonic() > deadline:
                raise NotRunning(
                    f"capture {name!r} was asked to stop and has not reported that it did: is it still there?"
                )
            time.sleep(0.2)
    click.echo(f"{name} is {found.state} after {count(found, 'records')} records")


@cdc.command()
@click.argument("name")
@click.argument("tables", nargs=-1, metavar="[TABLE]…")
@file_option
@bootstrap_option
@limit_option("How many keys to show a table.")
@timeout_option("How long the capture may take to come to where a table was read.")
@json_option
def verify(
    name: str,
    tables: tuple[str, ...],
    config: Path,
    bootstrap: tuple[Address, ...],
    limit: int,
    timeout: float,
    as_json: bool,
) -> None:
    """Compare the tables of NAME (or TABLE, as schema.table) with their topics, row by row; NAME goes on meanwhile.

    Ends with 1 if anything differs, or could not be compared.
    """
    (settings,) = _load(config, (name,))
    found = []
    for one in verify_capture(settings, tables, lambda: connect(bootstrap), patience_s=timeout):
        found.append(one)
        if not as_json:
            print_differences(one, limit)
    if as_json:
        print_json([table_as_json(one, limit) for one in found])
    else:
        print_table(
            ["table", "topic", ">rows", ">in the topic", ">differ", "note"],
            [
                (
                    one.table,
                    one.topic,
                    f"{it.target_rows:,}",
                    f"{it.source_rows:,}",
                    f"{len(it.differences):,}",
                    one.note,
                )
                if (it := one.report) is not None
                else (one.table, one.topic, "–", "–", "–", one.note)
                for one in found
            ],
        )
    sys.exit(0 if all(one.is_equal for one in found) else 1)


def print_differences(one: TableReport, limit: int) -> None:
    """The rows of a table that differ from its topic."""
    differences = [] if one.report is None else one.report.differences
    for found in differences[:limit]:
        columns = f" in {', '.join(found.columns)}" if found.columns else ""
        click.echo(f"{one.table} {found.key} {_DIFFERS[found.kind]}{columns}")
    if len(differences) > limit:
        click.echo(f"{one.table}: {len(differences) - limit:,} more: --limit shows more of them")


def table_as_json(one: TableReport, limit: int) -> dict[str, Any]:
    """A comparison of a table for programs."""
    report = one.report
    return {
        "table": one.table,
        "topic": one.topic,
        "equal": one.is_equal,
        "note": one.note,
        "table_rows": None if report is None else report.target_rows,
        "topic_rows": None if report is None else report.source_rows,
        **differences_as_json(report, limit, _KINDS),
    }


def differences_as_json(report: Report | None, limit: int, kinds: Mapping[Kind, str]) -> dict[str, Any]:
    """How many rows differ, and the keys of the first; `kinds` are the words for how they do."""
    found = None if report is None else report.differences
    keys = [
        {"key": one.key, "kind": kinds.get(one.kind, one.kind), "columns": list(one.columns)}
        for one in (found or [])[:limit]
    ]
    return {"differences": None if found is None else len(found), "keys": keys}


@cdc.command("rebuild-history")
@click.argument("name")
@file_option
@bootstrap_option
def rebuild_history(name: str, config: Path, bootstrap: tuple[Address, ...]) -> None:
    """Write the shapes of NAME's tables down anew, as the database has them now (MariaDB, MySQL).

    For when the topic that holds them was lost. It is right if no table changed its shape since NAME last ran.
    """
    (settings,) = _load(config, (name,))
    with connect(bootstrap) as cluster:
        gtid = rebuild(settings, cluster)
    click.echo(f"{name} goes on at {gtid} with its tables as they are now")


@cdc.command("serve-schemas")
@bootstrap_option
@click.option("--port", type=click.IntRange(0, 65535), default=8081, show_default=True, help="0 takes a free one.")
@access_options
def serve_schemas(bootstrap: tuple[Address, ...], port: int, access: Access) -> None:
    """Answer as a schema registry, with the schemas of captures that write Avro and name none, until interrupted.

    For readers that want a registry's address, as format("headrace") does: schemaRegistry = http://127.0.0.1:8081.
    Where the broker asks for logins, so does this server: by the same names and passwords, or by a token.
    """
    from headrace.connect.avro.serving import SchemaServer  # what serves is wanted by this command alone

    with connect(bootstrap) as cluster:
        server = SchemaServer(cluster, port, access)
        click.echo(f"schemas are served on {server.url} (Ctrl-C ends)")
        server.serve()


def _require_running(known: dict[str, Status], name: str) -> None:
    found = known.get(name)
    state = found.state_at(SystemClock().now_ms()) if found else "unknown"
    if state not in (RUNNING, WAITING):
        raise NotRunning(f"capture {name!r} does not run (it is {state}): headrace cdc start {name}")
