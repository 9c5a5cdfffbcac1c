"""`headrace sync`: keep derived systems in step with the log, look at them, compare them, fill them anew."""

import signal
import sys
import threading
import time
from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path

import click

from headrace.cli.cdc import differences_as_json, print_differences, table_as_json
from headrace.cli.output import ProgressLine, human_count, human_duration, json_option, print_json, print_table, text
from headrace.cli.parameters import as_text, bootstrap_option, config_option, connect, limit_option, timeout_option
from headrace.cli.status_view import View, letters_of, sync_table
from headrace.client.address import Address
from headrace.clock import SystemClock
from headrace.connect.capture.settings import SECTION as CAPTURES
from headrace.connect.capture.settings import from_section as captured
from headrace.connect.sync.comparison import Comparison, compare
from headrace.connect.sync.rebuilding import rebuild as rebuild_target
from headrace.connect.sync.registry import make_sink
from headrace.connect.sync.runner import connector, run_all
from headrace.connect.sync.settings import SECTION, SyncSettings, from_section
from headrace.connect.sync.status import status_of
from headrace.dead_letters import LetterBox, forget_letters, in_words
from headrace.stack.document import read_sections
from headrace.stack.kinds.forgetting import keys_of_file
from headrace.status import WAITING

file_option = config_option("The file with a section [sync.NAME] for each derived system.")
names_argument = click.argument("names", nargs=-1, metavar="[NAME]…")


@click.group()
def sync() -> None:
    """Keep caches, indexes, tables and warehouses in step with the log."""


@sync.command()
@names_argument
@file_option
@bootstrap_option
@json_option
def run(names: tuple[str, ...], config: Path, bootstrap: tuple[Address, ...], as_json: bool) -> None:
    """Keep the derived systems called NAME in step, or all of them, until interrupted.

    A target that is down is tried again and holds its place; the others go on. Ends with 1 if one of them failed, or
    has dead letters: records that it could not use.
    """
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with View(sync_table, as_json=as_json) as view:
        failures = run_all(load_settings(config, names), as_text(bootstrap), stop, view.show)
    for name, error in failures.items():
        click.echo(f"headrace: {name}: {error}", err=True)
    letters = {one.name: said for one in view.last if (said := letters_of(one))}
    for name, said in letters.items():
        click.echo(f"headrace: {name}: {said}: see them with headrace sync letters {name}", err=True)
    sys.exit(1 if failures or letters else 0)


@sync.command()
@names_argument
@file_option
@bootstrap_option
@json_option
def status(names: tuple[str, ...], config: Path, bootstrap: tuple[Address, ...], as_json: bool) -> None:
    """Show what each derived system does, how far it is behind, and what it could not use.

    Ends with 1 if one of them failed, has dead letters, or cannot be verified yet: it never ran, or has no topic.
    """
    wanted = load_settings(config, names)
    with connect(bootstrap) as cluster:
        found = [status_of(cluster, settings, SystemClock().now_ms()) for settings in wanted]
    if as_json:
        print_json([asdict(one) for one in found])
    else:
        print_table(
            ["name", "sink", "topic", "state", ">records behind", ">behind", ">dead letters", "problem"],
            [
                (
                    one.name,
                    one.sink,
                    one.topic,
                    f"{one.state}: {one.waiting}" if one.state == WAITING and one.waiting else one.state,
                    human_count(one.lag_records),
                    human_duration(one.lag_s and one.lag_s * 1000),
                    human_count(one.dead_letters),
                    "; ".join(filter(None, [one.error, in_words(one.dead_letters, one.dead_letter_reasons)])),
                )
                for one in found
            ],
        )
    sys.exit(0 if all(one.is_fine for one in found) else 1)


@sync.command()
@names_argument
@file_option
@bootstrap_option
@limit_option("How many keys to show.")
@click.option("--source", "with_source", is_flag=True, help="Compare the topic with the captured table, too.")
@timeout_option("With --source: how long the capture may take to come to where a table was read.")
@json_option
def verify(
    names: tuple[str, ...],
    config: Path,
    bootstrap: tuple[Address, ...],
    limit: int,
    with_source: bool,
    timeout: float,
    as_json: bool,
) -> None:
    """Compare targets with the log, row by row, up to the place that each holds; they may go on meanwhile.

    With --source the log is compared with the table of the database, as headrace cdc verify does, so that a target is
    equal only if it has the rows of the database. Ends with 1 if anything differs or could not be compared, or if a
    system has dead letters; the others are compared all the same.
    """
    chosen = load_settings(config, names)
    captures = (
        [captured(name, section) for name, section in read_sections(config, CAPTURES, ()).items()]
        if with_source
        else None
    )
    found = []
    for settings in chosen:
        one = compare(settings, as_text(bootstrap), captures, patience_s=timeout)
        found.append(one)
        if not as_json:
            _print_comparison(one, limit)
    if as_json:
        print_json([_comparison_as_json(one, limit) for one in found])
    sys.exit(0 if all(one.is_equal for one in found) else 1)


@sync.command()
@click.argument("name")
@file_option
@bootstrap_option
@click.option("--incomplete", is_flag=True, help="Even if the topic has lost its beginning.")
@json_option
def rebuild(name: str, config: Path, bootstrap: tuple[Address, ...], incomplete: bool, as_json: bool) -> None:
    """Fill a new target for NAME from the topic, beside the one in use, and switch to it.

    Who keeps NAME in step may go on meanwhile and notices the switch. Dead letters about records that the new target
    has are taken back.
    """
    (settings,) = load_settings(config, (name,))
    begun = time.monotonic()
    sink = make_sink(settings, as_text(bootstrap))
    with ProgressLine(f"rebuilding {name} from {settings.topic}") as line:
        done = rebuild_target(
            settings, sink, connector(as_text(bootstrap), name), incomplete=incomplete, progress=line.show
        )
    took_ms = (time.monotonic() - begun) * 1000
    if as_json:
        offsets = dict(sorted(done.place.offsets.items()))
        print_json({**asdict(done), "name": name, "offsets": offsets, "seconds": took_ms / 1000, "place": None})
        return
    click.echo(
        f"rebuilt {name} from {done.records:,} records of {settings.topic} in {human_duration(took_ms)}, and switched "
        f"to it: {settings.sink} {settings.target}"
    )
    if done.dead_letters:
        click.echo(f"{done.dead_letters:,} records could not be used: see headrace sync letters {name}")
    if done.taken_back:
        click.echo(f"{done.taken_back:,} dead letters were taken back: the new target has their records")


@sync.command()
@click.argument("name")
@file_option
@bootstrap_option
@limit_option("How many letters to show.")
@click.option("--forget", is_flag=True, help="Take them back: they count no more.")
@json_option
def letters(name: str, config: Path, bootstrap: tuple[Address, ...], limit: int, forget: bool, as_json: bool) -> None:
    """Show the dead letters of NAME: the records that it could not use, and why.

    What is mended (a column's type, the records' format) is brought in by headrace sync rebuild, which takes the
    letters back. --forget takes them back as they are.
    """
    (settings,) = load_settings(config, (name,))
    box = LetterBox(settings.dead_letters_topic, settings.topic, settings.name)
    with connect(bootstrap) as cluster:
        found = box.look(cluster, keep=True)
        if forget and found:
            forget_letters(cluster, settings.dead_letters_topic, box.ids)
    if as_json:
        print_json(
            {
                "name": name,
                "topic": settings.dead_letters_topic,
                "dead_letters": box.count,
                "dead_letter_reasons": box.reasons,
                "letters": [
                    {"place": one.place, "key": text(one.key), "reason": one.reason, "value": text(one.value)}
                    for one in found[:limit]
                ],
            }
        )
        return
    if found and limit:
        print_table(
            ["record", "key", "reason"], [(one.place, text(one.key) or "–", one.reason) for one in found[:limit]]
        )
    if len(found) > limit:
        click.echo(f"… and {len(found) - limit:,} more: --limit shows more of them")
    told = in_words(box.count, {}) or "no dead letters"
    click.echo(f"{name}: {told}{' and are taken back' if forget and found else ''}")


def load_settings(config: Path, names: Collection[str] = ()) -> list[SyncSettings]:
    """The derived systems of a file: all of them, or those that are named."""
    sections = read_sections(config, SECTION, names)
    keys = keys_of_file(config) if any(section.get("open") for section in sections.values()) else None
    return [from_section(name, section, keys) for name, section in sections.items()]


def _comparison_as_json(one: Comparison, limit: int) -> dict[str, object]:
    report, table = one.report, one.table
    return {
        "name": one.name,
        "equal": one.is_equal,
        "error": one.error,
        "source_rows": None if report is None else report.source_rows,
        "target_rows": None if report is None else report.target_rows,
        **differences_as_json(report, limit, {}),
        "dead_letters": one.dead_letters,
        "dead_letter_reasons": one.dead_letter_reasons,
        "source": None if table is None else table_as_json(table, limit),
    }


def _print_comparison(one: Comparison, limit: int) -> None:
    report, table = one.report, one.table
    if report is not None and report.is_equal:
        click.echo(f"{one.name}: equal to the log, {report.target_rows:,} rows, checksum {report.target_checksum:016x}")
    elif report is not None:
        click.echo(
            f"{one.name}: {len(report.differences):,} rows differ; the log has {report.source_rows:,} rows, the "
            f"target {report.target_rows:,}"
        )
        shown = report.differences[:limit]
        if shown:
            print_table(["key", "", "columns"], [(found.key, found.kind, ", ".join(found.columns)) for found in shown])
        if len(report.differences) > limit:
            click.echo(f"… and {len(report.differences) - limit:,} more: --limit shows more of them")
    if table is not None:
        print_differences(table, limit)
        equal = f"the log is equal to table {table.table}" if table.is_equal else f"table {table.table} differs"
        click.echo(f"{one.name}: {equal}{f': {table.note}' if table.note else ''}")
        if not table.is_equal and one.remedy:
            click.echo(f"{one.name}: {one.remedy}")
    if one.error:
        click.echo(f"{one.name}: not compared: {one.error}")
    if one.dead_letters:
        said = in_words(one.dead_letters, one.dead_letter_reasons)
        click.echo(f"{one.name}: {said}: see headrace sync letters {one.name}")
