"""`headrace sync`: keep derived systems in step with the log, look at them, compare them, fill them anew."""

import signal
import sys
import threading
from pathlib import Path

import click

from headrace.cli.output import human_duration, json_option, print_json, print_table
from headrace.cli.parameters import bootstrap_option, connect
from headrace.cli.sections import read_sections
from headrace.client.address import Address
from headrace.clock import SystemClock
from headrace.connect.sections import DEFAULT_FILE
from headrace.connect.sync.rebuilding import rebuild as rebuild_target
from headrace.connect.sync.registry import make_sink
from headrace.connect.sync.settings import SECTION, SyncSettings, from_section
from headrace.connect.sync.status import SyncStatus, status_of
from headrace.connect.sync.supervision import connector, run_all
from headrace.connect.sync.verification import Report
from headrace.connect.sync.verification import verify as verify_target

config_option = click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    default=DEFAULT_FILE,
    show_default=True,
    help="The file with a section [sync.NAME] for each derived system.",
)
names_argument = click.argument("names", nargs=-1, metavar="[NAME]…")


@click.group()
def sync() -> None:
    """Keep caches, indexes, tables and warehouses in step with the log."""


@sync.command()
@names_argument
@config_option
@bootstrap_option
def run(names: tuple[str, ...], config: Path, bootstrap: tuple[Address, ...]) -> None:
    """Keep the derived systems called NAME in step, or all of them, until interrupted.

    A target that is down is tried again and holds its place; the others go on. Ends with 1 if one of them failed.
    """
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    failures = run_all(_load(config, names), _text(bootstrap), stop)
    for name, error in failures.items():
        click.echo(f"headrace: {name}: {error}", err=True)
    sys.exit(1 if failures else 0)


@sync.command()
@names_argument
@config_option
@bootstrap_option
@json_option
def status(names: tuple[str, ...], config: Path, bootstrap: tuple[Address, ...], as_json: bool) -> None:
    """Show how far each derived system is behind, in records and in seconds."""
    wanted = _load(config, names)
    with connect(bootstrap) as cluster:
        found = [status_of(cluster, settings, SystemClock().now_ms()) for settings in wanted]
    if as_json:
        print_json([_as_json(one) for one in found])
        return
    print_table(
        ["name", "sink", "topic", "state", ">records behind", ">behind", "error"],
        [
            (
                one.name,
                one.sink,
                one.topic,
                one.state,
                "–" if one.lag_records is None else f"{one.lag_records:,}",
                "–" if one.lag_s is None else human_duration(one.lag_s * 1000),
                one.error,
            )
            for one in found
        ],
    )


@sync.command()
@names_argument
@config_option
@bootstrap_option
@click.option("--limit", type=click.IntRange(min=0), default=20, show_default=True, help="How many keys to show.")
@json_option
def verify(names: tuple[str, ...], config: Path, bootstrap: tuple[Address, ...], limit: int, as_json: bool) -> None:
    """Compare targets with the log, row by row, up to the place that each holds; they may go on meanwhile.

    Ends with 1 if anything differs.
    """
    reports = []
    for settings in _load(config, names):
        sink = make_sink(settings, _text(bootstrap))
        reports.append((settings, verify_target(settings, sink, connector(_text(bootstrap), settings.name))))
    if as_json:
        print_json([_report_as_json(settings, report, limit) for settings, report in reports])
    else:
        for settings, report in reports:
            _print_report(settings, report, limit)
    sys.exit(0 if all(report.is_equal for _, report in reports) else 1)


@sync.command()
@click.argument("name")
@config_option
@bootstrap_option
@click.option("--incomplete", is_flag=True, help="Even if the topic has lost its beginning.")
@json_option
def rebuild(name: str, config: Path, bootstrap: tuple[Address, ...], incomplete: bool, as_json: bool) -> None:
    """Fill a new target for NAME from the topic, beside the one in use, and switch to it.

    Who keeps NAME in step may go on meanwhile and notices the switch.
    """
    (settings,) = _load(config, (name,))
    counted = 0

    def progress(records: int) -> None:
        nonlocal counted
        counted = records
        if sys.stderr.isatty():
            click.echo(f"\r{records:,} records", nl=False, err=True)

    sink = make_sink(settings, _text(bootstrap))
    place = rebuild_target(
        settings, sink, connector(_text(bootstrap), name), incomplete=incomplete, progress=progress
    )  # fmt: skip
    offsets = dict(sorted(place.offsets.items()))
    if as_json:
        print_json({"name": name, "records": counted, "offsets": offsets})
    else:
        click.echo(f"rebuilt {name} from {counted:,} records of {settings.topic}, and switched to it")


def _load(config: Path, names: tuple[str, ...]) -> list[SyncSettings]:
    return [from_section(name, section) for name, section in read_sections(config, SECTION, names).items()]


def _text(bootstrap: tuple[Address, ...]) -> str:
    return ",".join(map(str, bootstrap))


def _as_json(status: SyncStatus) -> dict[str, object]:
    return {
        "name": status.name,
        "sink": status.sink,
        "topic": status.topic,
        "state": status.state,
        "lag_records": status.lag_records,
        "lag_s": status.lag_s,
        "offsets": status.offsets,
        "ends": status.ends,
        "told_ms": status.told_ms,
        "error": status.error,
    }


def _report_as_json(settings: SyncSettings, report: Report, limit: int) -> dict[str, object]:
    return {
        "name": settings.name,
        "equal": report.is_equal,
        "source_rows": report.source_rows,
        "target_rows": report.target_rows,
        "differences": len(report.differences),
        "keys": [
            {"key": found.key, "kind": found.kind, "columns": found.columns} for found in report.differences[:limit]
        ],
    }


def _print_report(settings: SyncSettings, report: Report, limit: int) -> None:
    if report.is_equal:
        click.echo(f"{settings.name}: equal, {report.target_rows:,} rows, checksum {report.target_checksum:016x}")
        return
    click.echo(
        f"{settings.name}: {len(report.differences):,} rows differ; the log has {report.source_rows:,} rows, the "
        f"target {report.target_rows:,}"
    )
    shown = report.differences[:limit]
    if shown:
        print_table(["key", "", "columns"], [(one.key, one.kind, ", ".join(one.columns)) for one in shown])
    if len(report.differences) > limit:
        click.echo(f"… and {len(report.differences) - limit:,} more: --limit shows more of them")
