"""`headrace queue`: look at queues and what waits in them, send dead letters back, purge them, move their messages.

A queue is a topic that share groups have. Nothing here acquires a message: whoever looks takes nothing away from those
who work, and what changes something is for groups whose consumers are stopped.
"""

from collections.abc import Iterator
from functools import partial

import click
from rich.text import Text

from headrace.cli.output import ProgressLine, console, human_duration, json_option, print_json, print_table
from headrace.cli.parameters import (
    FILTER,
    bootstrap_option,
    check_terminal,
    complete_group,
    complete_topic,
    connect,
    limit_option,
)
from headrace.cli.record_text import as_coloured_line, as_json, as_line
from headrace.cli.tail import holds
from headrace.cli.where import Node
from headrace.client.address import Address
from headrace.client.admin import configs_of_topics
from headrace.client.cluster import Cluster
from headrace.client.coordinators import Coordinators
from headrace.client.fetch import FetchOptions
from headrace.client.lag import PartitionLag
from headrace.client.offsets import bounds
from headrace.client.reader import ReadRecord, read_records
from headrace.client.share_groups import ShareOffset, share_offsets
from headrace.clock import SystemClock
from headrace.delivery.letters import Letter
from headrace.errors import harmless
from headrace.model import TopicPartition
from headrace.queues.message import QueueError
from headrace.queues.moving import Mover, plan_purge
from headrace.queues.moving import purge as purge_group
from headrace.queues.overview import LETTERS_SETTING, Letters, Queue, QueueGroup, find_queues, letter_topics_of
from headrace.queues.redrive import Redriven
from headrace.queues.redrive import redrive as send_back

_queue_argument = click.argument("name", metavar="QUEUE", shell_complete=complete_topic)
_yes_option = click.option("--yes", is_flag=True, help="Do not ask.")
_group_option = click.option(
    "--group",
    metavar="GROUP",
    shell_complete=complete_group,
    help="One of the queue's share groups; need not be named if there is only one.",
)
_UNKNOWN = "–"
_PREFIXES = ("headrace.queue", "headrace.bindings", "headrace.storage", "headrace.overflow")


@click.group()
def queue() -> None:
    """Look at queues, send dead letters back, purge and move messages.

    A queue is a topic that share groups have: each group gets every message, and in a group each message goes to one
    consumer at a time.

    \b
      headrace queue list
      headrace queue peek emails
      headrace queue redrive emails --dry-run
    """


# --- looking


@queue.command("list")
@bootstrap_option
@json_option
def list_all(bootstrap: tuple[Address, ...], as_json: bool) -> None:
    """List the queues with their share groups.

    Depth is how many messages a group has yet to finish, those in flight among them; oldest is the age of the first of
    these. What a broker does not tell is shown as –: what is in flight and what was delivered again only ours does.
    """
    with connect(bootstrap) as cluster:
        queues = find_queues(Coordinators(cluster))
    now_ms = SystemClock().now_ms()
    if as_json:
        print_json([_queue_as_json(found, now_ms) for found in queues.values()])
    elif not queues:
        click.echo("no queues yet: a topic is one once a share consumer subscribes to it, or with headrace.queue=true")
    else:
        rows = [row for found in queues.values() for row in _rows(found, now_ms)]
        headings = ["queue", "group", "state", ">members", ">depth", ">oldest", ">in flight", ">redelivered"]
        print_table([*headings, ">dead letters"], rows)


def _rows(found: Queue, now_ms: int) -> Iterator[list[object]]:
    if not found.groups:
        yield [found.topic, Text("no group yet", style="dim"), *[""] * 7]
    for group in found.groups:
        yield [
            found.topic,
            group.name,
            group.state,
            group.members,
            _number(group.depth),
            human_duration(group.age_ms(now_ms)) if group.depth else _UNKNOWN,
            _number(group.in_flight),
            _number(group.redeliveries),
            _letters_text(group.letters),
        ]


def _number(number: int | None) -> str:
    return _UNKNOWN if number is None else f"{number:,}"


def _letters_text(letters: Letters | None) -> Text:
    if letters is None:
        return Text(_UNKNOWN)
    shown = f"{letters.number:,}" if letters.is_exact else f"≤ {letters.number:,}"
    return Text(shown, style="bold red" if letters.number else "")


@queue.command()
@_queue_argument
@bootstrap_option
@json_option
def describe(name: str, bootstrap: tuple[Address, ...], as_json: bool) -> None:
    """Show QUEUE: its settings, and for each group how it is doing in each partition."""
    with connect(bootstrap) as cluster:
        found = _find(cluster, name)
        settings = _own_settings(cluster, found)
    now_ms = SystemClock().now_ms()
    if as_json:
        print_json(_queue_as_json(found, now_ms) | {"configs": settings})
        return
    terminal = console()
    for key, value in settings.items():
        terminal.print(Text.assemble((f"{key}  ", "bold"), value), soft_wrap=True)
    if not found.groups:
        terminal.print(f"no share group has {name} yet")
    for group in found.groups:
        terminal.print()
        members = "1 member" if group.members == 1 else f"{group.members} members"
        terminal.print(Text.assemble((harmless(group.name), "bold"), f"  {group.state}, {members}"), soft_wrap=True)
        if group.letters:
            where = f"  dead letters in {group.letters.topic}: "
            terminal.print(Text.assemble(where, _letters_text(group.letters)), soft_wrap=True)
        print_table(
            [">partition", ">begins at", ">end", ">depth", ">oldest", ">in flight", ">redelivered"],
            [_partition_row(lag, now_ms) for lag in group.partitions],
        )


def _partition_row(lag: PartitionLag, now_ms: int) -> list[object]:
    shared = lag.shared or ShareOffset(-1)
    return [
        lag.partition.partition,
        _number(lag.committed),
        lag.end,
        _number(lag.records),
        human_duration(lag.age_ms(now_ms)) if lag.records else _UNKNOWN,
        _number(shared.in_flight),
        _number(shared.redeliveries),
    ]


def _own_settings(cluster: Cluster, found: Queue) -> dict[str, str]:
    """What makes the topic a queue, as it is set."""
    told = configs_of_topics(cluster, [found.topic], skip_refused=True).get(found.topic, {})
    return {key: told[key].value or "" for key in sorted(told) if key.startswith(_PREFIXES)}


def _find(cluster: Cluster, name: str) -> Queue:
    """A queue; a topic that is none yet is one without groups."""
    cluster.topic(name, refresh=True)
    return find_queues(Coordinators(cluster)).get(name) or Queue(name)


def _choose(found: Queue, group: str | None) -> QueueGroup:
    """The group that is meant."""
    names = [each.name for each in found.groups]
    if group is None and len(names) == 1:
        return found.groups[0]
    if not names:
        raise QueueError(f"no share group has {found.topic!r}: see headrace queue list")
    chosen = found.group(group) if group is not None else None
    if chosen is None:
        wrong = f"group {group!r} does not have {found.topic!r}" if group else f"{found.topic!r} has several groups"
        raise QueueError(f"{wrong}: name one of {', '.join(names)} with --group")
    return chosen


def _queue_as_json(found: Queue, now_ms: int) -> dict[str, object]:
    return {"queue": found.topic, "groups": [_group_as_json(group, now_ms) for group in found.groups]}


def _group_as_json(group: QueueGroup, now_ms: int) -> dict[str, object]:
    age_ms, letters = group.age_ms(now_ms), group.letters
    return {
        "group": group.name,
        "state": group.state,
        "members": group.members,
        "depth": group.depth,
        "oldest_seconds": None if age_ms is None else age_ms / 1000,
        "in_flight": group.in_flight,
        "redeliveries": group.redeliveries,
        "dead_letters": letters and {"topic": letters.topic, "records": letters.number, "is_exact": letters.is_exact},
        "partitions": [
            {
                "partition": lag.partition.partition,
                "start_offset": lag.committed,
                "end_offset": lag.end,
                "depth": lag.records,
                "in_flight": lag.shared.in_flight if lag.shared else None,
                "redeliveries": lag.shared.redeliveries if lag.shared else None,
            }
            for lag in group.partitions
        ],
    }


# --- peeking


@queue.command()
@_queue_argument
@_group_option
@limit_option("How many messages to show at most.")
@click.option("--headers", "with_headers", is_flag=True, help="Show headers too.")
@bootstrap_option
@json_option
def peek(
    name: str,
    group: str | None,
    limit: int,
    with_headers: bool,
    bootstrap: tuple[Address, ...],
    as_json: bool,
) -> None:
    """Show the messages that a group of QUEUE has yet to finish, the oldest first, without taking them.

    Each is shown with its state and how often it was delivered, as our broker tells; on a Kafka messages that are
    finished already may be among those that are shown.
    """
    with connect(bootstrap) as cluster:
        coordinators = Coordinators(cluster)
        chosen = _choose(_find(cluster, name), group)
        known = share_offsets(coordinators, chosen.name, with_runs=True)
        mine = {where: place for where, place in known.items() if where.topic == name}
        shown = 0
        for read in _unfinished(cluster, mine):
            if shown >= limit:
                break
            shown += 1
            _show_message(read, mine[read.partition], with_headers=with_headers, is_json=as_json)
    if not shown and not as_json:
        click.echo(f"{chosen.name} has finished everything in {name}")


def _unfinished(cluster: Cluster, places: dict[TopicPartition, ShareOffset]) -> Iterator[ReadRecord]:
    held = bounds(cluster, places)
    starts = {
        where: max(place.offset, held[where].start)
        for where, place in places.items()
        if place.unfinished != 0 and max(place.offset, held[where].start) < held[where].end
    }
    ends = {where: held[where].end for where in starts}
    for records in read_records(cluster, starts, until=ends, options=FetchOptions(max_wait_ms=100)) if starts else ():
        yield from (read for read in records if _state(read, places[read.partition])[0] != "finished")


def _state(read: ReadRecord, place: ShareOffset) -> tuple[str, int | None]:
    """The state of a message, and how often it was delivered."""
    if place.in_flight is None:
        return _UNKNOWN, None
    for run in place.runs:
        if run.first <= read.record.offset <= run.last:
            state = "finished" if run.is_finished else "in flight" if run.is_in_flight else "available"
            return state, run.deliveries
    return "available", 0


def _show_message(read: ReadRecord, place: ShareOffset, *, with_headers: bool, is_json: bool) -> None:
    state, deliveries = _state(read, place)
    if is_json:
        print_json(as_json(read) | {"state": None if state == _UNKNOWN else state, "deliveries": deliveries})
        return
    told = state if not deliveries else f"{state}, delivered {'once' if deliveries == 1 else f'{deliveries} times'}"
    terminal = console()
    if terminal.is_terminal:
        style = "yellow" if state == "in flight" else "dim"
        line = as_coloured_line(read, with_headers=with_headers)
        terminal.print(line.append(f"  [{told}]", style), soft_wrap=True)
    else:
        click.echo(f"{as_line(read, with_headers=with_headers)}  [{told}]")


# --- changing


@queue.command()
@_queue_argument
@_group_option
@click.option(
    "--id", "ids", multiple=True, metavar="ID", help="Only the letter with this key. May be given several times."
)
@click.option("--reason", metavar="TEXT", help="Only letters whose reason contains this.")
@click.option(
    "--where", type=FILTER, metavar="EXPR", help="Only letters whose JSON value matches, as in headrace tail."
)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="No more than so many.")
@click.option("--to", metavar="TOPIC", shell_complete=complete_topic, help="Send them there, not where they came from.")
@click.option("--dry-run", is_flag=True, help="Show what would be done, and do nothing.")
@_yes_option
@bootstrap_option
@json_option
def redrive(
    name: str,
    group: str | None,
    ids: tuple[str, ...],
    reason: str | None,
    where: Node | None,
    limit: int | None,
    to: str | None,
    dry_run: bool,
    yes: bool,
    bootstrap: tuple[Address, ...],
    as_json: bool,
) -> None:
    """Send the dead letters of QUEUE back to it: all, or those that are asked for.

    QUEUE may be the topic of the dead letters as well. Each letter is sent back and taken from that topic in one
    transaction: what is interrupted is run again, and sends nothing twice.

    \b
      headrace queue redrive emails --dry-run
      headrace queue redrive emails --reason "no such customer" --yes
      headrace queue redrive emails --where '.amount > 100' --limit 10
    """
    if not yes and not dry_run:
        check_terminal(f"to send dead letters of {name} back")
    matches = partial(_matches, reason, where)
    with connect(bootstrap) as cluster:
        letters_topic = _letters_topic(cluster, name, group)
        send = partial(
            send_back, cluster, letters_topic, ids=[key.encode() for key in ids], matches=matches, limit=limit, to=to
        )
        if not yes and not dry_run:
            planned = send(dry_run=True)
            click.confirm(f"send {_messages(planned.sent)} of {letters_topic} back?", abort=True, err=True)
        with ProgressLine("sent back") as line:
            done = send(dry_run=dry_run, on_progress=lambda so_far: line.show(so_far.sent, so_far.letters))
    _report_redrive(done, letters_topic, dry_run=dry_run, is_json=as_json)
    if sum(done.left.values()):
        raise click.exceptions.Exit(1)


def _matches(reason: str | None, where: Node | None, letter: Letter) -> bool:
    return (reason is None or reason in letter.reason) and (where is None or holds(where, letter.value))


def _letters_topic(cluster: Cluster, name: str, group: str | None) -> str:
    """The topic with the dead letters of a queue's group; or the one that was named itself."""
    found = _find(cluster, name)
    if not found.groups and group is None:
        return name
    named = letter_topics_of(cluster, [each.name for each in found.groups])
    if group is None and len(set(named.values())) == 1:
        return next(iter(named.values()))
    chosen = _choose(found, group).name
    if chosen not in named:
        raise QueueError(f"group {chosen!r} has no topic for dead letters: set its {LETTERS_SETTING}")
    return named[chosen]


def _report_redrive(done: Redriven, topic: str, *, dry_run: bool, is_json: bool) -> None:
    if is_json:
        print_json({"topic": topic, "letters": done.letters, "sent": done.sent, "left": done.left, "dry_run": dry_run})
        return
    click.echo(f"{'would send' if dry_run else 'sent'} {_messages(done.sent)} of {topic} back")
    for reason, number in done.left.items():
        click.echo(f"{_messages(number)} stay: {reason}", err=True)


def _messages(number: int) -> str:
    return "1 message" if number == 1 else f"{number:,} messages"


@queue.command()
@_queue_argument
@_group_option
@click.option("--dry-run", is_flag=True, help="Show what would be done, and do nothing.")
@_yes_option
@bootstrap_option
@json_option
def purge(
    name: str, group: str | None, dry_run: bool, yes: bool, bootstrap: tuple[Address, ...], as_json: bool
) -> None:
    """Have a group of QUEUE leave behind all messages that are in it now.

    The group must have no members: stop its consumers first. The messages stay in the log for other groups, until
    retention removes them.

    \b
      headrace queue purge emails --dry-run
      headrace queue purge emails --group mailers --yes
    """
    if not yes and not dry_run:
        check_terminal(f"to purge {name}")
    with connect(bootstrap) as cluster:
        coordinators = Coordinators(cluster)
        chosen = _choose(_find(cluster, name), group).name
        planned = plan_purge(coordinators, name, chosen)
        if not yes and not dry_run:
            click.confirm(f"have {chosen} leave {_messages(planned.messages)} of {name} behind?", abort=True, err=True)
        if not dry_run:
            purge_group(coordinators, planned)
    if as_json:
        print_json({"queue": name, "group": chosen, "purged": planned.messages, "dry_run": dry_run})
    else:
        click.echo(f"{'would leave' if dry_run else 'left'} {_messages(planned.messages)} of {name} behind")


@queue.command()
@_queue_argument
@click.argument("target", metavar="TOPIC", shell_complete=complete_topic)
@_group_option
@click.option("--dry-run", is_flag=True, help="Show what would be done, and do nothing.")
@_yes_option
@bootstrap_option
@json_option
def move(
    name: str,
    target: str,
    group: str | None,
    dry_run: bool,
    yes: bool,
    bootstrap: tuple[Address, ...],
    as_json: bool,
) -> None:
    """Move the messages that a group of QUEUE has yet to finish to TOPIC.

    The group must have no members: stop its consumers first. Messages are copied in transactions, and the group begins
    behind them once all are: what is interrupted is run again, and copies nothing twice.

    \b
      headrace queue move emails emails-later --dry-run
      headrace queue move emails emails-later --group mailers --yes
    """
    if not yes and not dry_run:
        check_terminal(f"to move the messages of {name}")
    with connect(bootstrap) as cluster:
        chosen = _choose(_find(cluster, name), group).name
        mover = Mover(Coordinators(cluster), name, chosen, target)
        moved = mover.expected
        if not yes and not dry_run:
            click.confirm(f"move {_messages(moved)} of {chosen} from {name} to {target}?", abort=True, err=True)
        if not dry_run:
            with ProgressLine("moved") as line:
                moved = mover.run(lambda done: line.show(done, mover.expected)).messages
    if as_json:
        print_json({"queue": name, "group": chosen, "to": target, "moved": moved, "dry_run": dry_run})
    else:
        click.echo(f"{'would move' if dry_run else 'moved'} {_messages(moved)} from {name} to {target}")
