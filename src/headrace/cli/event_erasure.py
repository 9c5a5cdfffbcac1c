"""`headrace events chain|verify|redact|archive|retain`: what shows that a store was tampered with, and what takes
events out of it so that everybody can see that, and why.
"""

import sys
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from headrace.cli.output import ProgressLine, human_time, json_option, print_json
from headrace.cli.parameters import TIMESTAMP, Parsed, check_terminal, opened_store, store_argument
from headrace.clock import SystemClock
from headrace.eventsourcing.archives import Archived, Retention, archive, retain
from headrace.eventsourcing.erasure import redact
from headrace.eventsourcing.errors import ErasureRefused
from headrace.eventsourcing.hash_chain import Link, Mark, chain
from headrace.eventsourcing.store import EventStore
from headrace.eventsourcing.verification import Verification, verify

yes_option = click.option("--yes", is_flag=True, help="Do not ask.")
by_option = click.option("--by", metavar="NAME", default="", help="Who wants it; else the user who runs this.")
to_option = click.option(
    "--to",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Write the events to a file there first, which is read back before anything is removed.",
)
delete_option = click.option("--delete", "is_deleted", is_flag=True, help="Keep no archive: the events are gone.")
state_option = click.option(
    "--without-state",
    is_flag=True,
    help="The stream is one that nobody folds: archive it without a state to load it from.",
)


def _read_mark(text: str) -> Mark:
    """A link as it was printed, or a file with one."""
    path = Path(text)
    return Mark.parse(path.read_text() if path.is_file() else text)


# --- links


@click.command("chain")
@store_argument
@click.option("--every", type=click.FloatRange(min=0.1), metavar="SECONDS", help="Go on, and chain what comes.")
@json_option
def chain_events(url: str, every: float | None, as_json: bool) -> None:
    """Chain all events of STORE that are not chained yet, and print the newest link.

    A link is a hash over events and over the link before it; verify compares the store with its links. Whoever can
    write to the store can write all links anew, so keep the printed one elsewhere.

    \b
      headrace events chain sqlite:///shop.db > shop.link
      headrace events chain sqlite:///shop.db --every 60
    """
    with opened_store(url) as store:
        while True:
            chained = _chain(store)
            if chained.events or every is None:
                _print_chained(chained, as_json=as_json)
            if every is None:
                return
            time.sleep(every)


class _Chained(NamedTuple):
    mark: Mark | None
    events: int


def _chain(store: EventStore) -> _Chained:
    events, total = list[int](), store.last_position()
    with ProgressLine("chained up to", "positions") as line:

        def show(made: Link) -> None:
            events.append(len(made.entries))
            line.show(made.to, total)

        mark = chain(store, on_chained=show)
    return _Chained(mark, sum(events))


def _print_chained(chained: _Chained, *, as_json: bool) -> None:
    mark = chained.mark
    if as_json:
        print_json({"link": str(mark) if mark else None, "chained": chained.events})
    elif mark is None:
        click.echo("no events yet", err=True)
    else:
        click.echo(str(mark))


@click.command("verify")
@store_argument
@click.option(
    "--against",
    type=Parsed("link", _read_mark),
    metavar="LINK",
    help="A link that was kept elsewhere, as it was printed, or a file with it.",
)
@click.option(
    "--archives",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    metavar="FOLDER",
    help="Look at the archives there, too.",
)
@json_option
def verify_events(url: str, against: Mark | None, archives: Path | None, as_json: bool) -> None:
    """Compare all events of STORE with its links, and name what was changed, removed, put in or moved.

    Says what is not chained yet, and what was redacted or archived and left a trace. Exits with 1 if anything was
    tampered with.

    \b
      headrace events verify sqlite:///shop.db --against shop.link
    """
    with opened_store(url) as store, ProgressLine("verified", "events") as line:
        found = verify(store, against=against, archives=archives, on_progress=line.show)
    if as_json:
        print_json(_as_json(found))
    else:
        _print_verification(found)
    sys.exit(0 if found.is_intact else 1)


def _as_json(found: Verification) -> dict[str, Any]:
    return {
        "intact": found.is_intact,
        "chained": found.chained,
        "unchained": found.unchained,
        "link": str(found.newest) if found.newest else None,
        "redacted": [
            {"stream": each.stream, "version": each.version, "position": each.position, "reason": each.reason,
             "by": each.by}
            for each in found.redacted
        ],
        "archived": [
            {"stream": each.stream, "first": each.first, "last": each.last, "archive": each.archive,
             "reason": each.reason, "by": each.by}
            for each in found.archived
        ],
        "found": found.found,
        "findings": [each._asdict() for each in found.findings],
    }  # fmt: skip


def _print_verification(found: Verification) -> None:
    for each in found.findings:
        click.echo(f"{each.kind}: {each.text}")
    if found.found > len(found.findings):
        click.echo(f"and {found.found - len(found.findings):,} more")
    for redaction in found.redacted:
        click.echo(f"redacted by {redaction.by}: event {redaction.version} of {redaction.stream!r}: {redaction.reason}")
    for archival in found.archived:
        where = f"to {archival.archive}" if archival.archive else "and deleted"
        click.echo(f"archived by {archival.by} {where}: events {archival.first} to {archival.last} of "
                   f"{archival.stream!r}{f': {archival.reason}' if archival.reason else ''}")  # fmt: skip
    newest = f"up to link {found.newest}" if found.newest else "and there are no links: see headrace events chain"
    click.echo(f"{'intact' if found.is_intact else 'TAMPERED WITH'}: {found.chained:,} events as they were chained, "
               f"{found.unchained:,} not chained yet, {newest}")  # fmt: skip


# --- redaction


@click.command("redact")
@store_argument
@click.argument("stream")
@click.argument("version", type=click.IntRange(min=1))
@click.option("--reason", metavar="TEXT", required=True, help="Why; it is kept in the trace.")
@by_option
@yes_option
@json_option
def redact_event(url: str, stream: str, version: int, reason: str, by: str, yes: bool, as_json: bool) -> None:
    """Delete what one event of STORE holds, for good, and leave a trace of it.

    The event stays, with its type, id, version, position, tags and headers. In the same step the trace is appended to
    STREAM, and its snapshots are deleted.

    \b
      headrace events redact sqlite:///shop.db order-7 3 --reason "a card number in a note"
    """
    if not yes:
        check_terminal("to delete what an event holds")
    with opened_store(url) as store:
        event = next(iter(store.read_stream(stream, after=version - 1, to=version)), None)
        if event is not None and not yes:
            when = human_time(event.time_ms)
            click.confirm(
                f"delete the {len(event.data):,} bytes of {event}, {event.type} of {when}?", abort=True, err=True
            )
        done = redact(store, stream, version, reason=reason, by=by)
    if as_json:
        print_json({"stream": stream, "version": version, "trace": done.versions[stream], "repeat": done.is_repeat})
    else:
        before = " before" if done.is_repeat else ""
        click.echo(f"redacted{before}: event {version} of {stream!r}; the trace is event {done.versions[stream]}")


# --- archives


@click.command("archive")
@store_argument
@click.argument("stream")
@click.option("--below", type=click.IntRange(min=2), required=True, metavar="VERSION", help="The first that stays.")
@to_option
@delete_option
@state_option
@click.option("--reason", metavar="TEXT", default="", help="Why; it is kept in the trace.")
@by_option
@yes_option
@json_option
def archive_events(
    url: str,
    stream: str,
    below: int,
    to: Path | None,
    is_deleted: bool,
    without_state: bool,
    reason: str,
    by: str,
    yes: bool,
    as_json: bool,
) -> None:
    """Take the events of STREAM below a version out of STORE, to a file.

    There must be a snapshot of the stream that covers them: its state goes into the trace, by which the stream is
    loaded from then on. Versions, positions and command ids stay what they were.

    \b
      headrace events archive sqlite:///shop.db order-7 --below 1000 --to archives/
    """
    _check_target(to, is_deleted=is_deleted)
    _ask(f"take events below {below} of {stream!r} out of the store?", yes=yes)
    with opened_store(url) as store:
        done = archive(store, stream, below=below, to=to, needs_state=not without_state, reason=reason, by=by)
    if as_json:
        print_json(_archived_as_json(done))
    else:
        click.echo(_archived_as_line(done))


@click.command("retain")
@store_argument
@click.option("--stream", default="", metavar="NAME", help="Of this stream.")
@click.option("--category", default="", metavar="NAME", help="Of each stream of this category.")
@click.option("--keep", type=click.IntRange(min=0), default=0, metavar="N", help="The last N events of a stream stay.")
@click.option("--newer", type=TIMESTAMP, metavar="TIME", help="Events of this time or later stay, as in 90d.")
@to_option
@delete_option
@state_option
@by_option
@yes_option
@json_option
def retain_events(
    url: str,
    stream: str,
    category: str,
    keep: int,
    newer: int | None,
    to: Path | None,
    is_deleted: bool,
    without_state: bool,
    by: str,
    yes: bool,
    as_json: bool,
) -> None:
    """Archive what is beyond a number of events or a time, of one stream or of each stream of a category.

    As far as the streams' snapshots go. Exits with 1 if a stream could not be archived, and names it.

    \b
      headrace events retain sqlite:///shop.db --category order --newer 365d --to archives/ --yes
    """
    _check_target(to, is_deleted=is_deleted)
    now_ms = SystemClock().now_ms()
    retention = Retention(category, stream, keep, max(now_ms - newer, 1) if newer is not None else 0)
    _ask(f"take old events of {category or stream!r} out of the store?", yes=yes)
    refused = 0
    with opened_store(url) as store:
        for done in retain(store, retention, to=to, now_ms=now_ms, needs_state=not without_state, by=by):
            if isinstance(done, ErasureRefused):
                refused += 1
                click.echo(str(done), err=True)
            elif as_json:
                print_json(_archived_as_json(done))
            else:
                click.echo(_archived_as_line(done))
    sys.exit(1 if refused else 0)


def _check_target(to: Path | None, *, is_deleted: bool) -> None:
    if (to is None) != is_deleted:
        raise click.UsageError("say where the events go: give either --to FOLDER or --delete")


def _ask(question: str, *, yes: bool) -> None:
    if not yes:
        check_terminal("to take events out of a store")
        click.confirm(question, abort=True, err=True)


def _archived_as_json(done: Archived) -> dict[str, Any]:
    return {"stream": done.stream, "first": done.first, "last": done.last, "archive": done.path and str(done.path),
            "trace": done.trace_version}  # fmt: skip


def _archived_as_line(done: Archived) -> str:
    where = f"archived to {done.path}" if done.path else "deleted"
    return f"{where}: events {done.first} to {done.last} of {done.stream!r}; the trace is event {done.trace_version}"


COMMANDS: Final = (chain_events, verify_events, redact_event, archive_events, retain_events)
