"""`headrace topic`: make topics, look at them, change them, delete them."""

import base64
from collections.abc import Collection, Iterator
from pathlib import Path

import click

from headrace.cli.output import console, human_bytes, json_option, print_json, print_table
from headrace.cli.parameters import PAIR, bootstrap_option, check_terminal, complete_topic, connect, topic_argument
from headrace.client import admin
from headrace.client.address import Address
from headrace.client.admin import TopicDescription, alter_topic, describe_topic
from headrace.client.cluster import Cluster
from headrace.client.coordinators import Coordinators
from headrace.client.errors import Refused
from headrace.clock import SystemClock
from headrace.connect.sync.places import group_of
from headrace.connect.sync.settings import SECTION
from headrace.dashboard.reports import LOOK_BACK, batch_report
from headrace.dashboard.sampling import take_snapshot
from headrace.dashboard.snapshot import Snapshot
from headrace.errors import HeadraceError
from headrace.protocol.errors import ErrorCode
from headrace.stack import DEFAULT_FILE
from headrace.stack.loading import load
from headrace.stack.plan import members_of
from headrace.status import CAPTURES, PROGRESS, StatusReader, TopicFeed

_partitions_type = click.IntRange(min=1)
_config_option = click.option(
    "--config",
    "configs",
    type=PAIR,
    multiple=True,
    metavar="NAME=VALUE",
    help="A topic setting under Kafka's name, as in retention.ms=3600000. May be given several times.",
)


class _AlreadyThere(HeadraceError):
    """A topic of that name is there."""


@click.group()
def topic() -> None:
    """Make topics, look at them, change them, delete them."""


@topic.command()
@click.argument("name")
@click.option("--partitions", type=_partitions_type, help="How many; by default what the broker is set up for.")
@_config_option
@bootstrap_option
@json_option
def create(
    name: str,
    partitions: int | None,
    configs: tuple[tuple[str, str], ...],
    bootstrap: tuple[Address, ...],
    as_json: bool,
) -> None:
    """Make a topic called NAME.

    \b
      headrace topic create orders --partitions 3
      headrace topic create customers --config cleanup.policy=compact
    """
    with connect(bootstrap) as cluster:
        try:
            admin.create_topic(cluster, name, partitions=partitions or admin.BROKERS_CHOICE, configs=dict(configs))
        except Refused as refusal:
            if refusal.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                raise _AlreadyThere(
                    f"topic {name!r} already exists at {cluster}: choose another name, or change this one with "
                    f"headrace topic alter {name}"
                ) from None
            raise
        count = len(cluster.topic(name).partitions)
    if as_json:
        print_json({"topic": name, "partitions": count, "configs": dict(configs)})
    else:
        click.echo(f"created {name} with {_count(count, 'partition')}")


@topic.command("list")
@click.option("--internal", is_flag=True, help="The broker's own topics as well.")
@bootstrap_option
@json_option
def list_topics(internal: bool, bootstrap: tuple[Address, ...], as_json: bool) -> None:
    """List the topics."""
    with connect(bootstrap) as cluster:
        topics = [found for found in cluster.topics() if internal or not found.is_internal]
    if as_json:
        print_json(
            [
                {
                    "topic": found.name,
                    "partitions": len(found.partitions),
                    "replication_factor": found.replication_factor,
                    "internal": found.is_internal,
                }
                for found in topics
            ]
        )
    elif not topics:
        click.echo("no topics yet: make one with headrace topic create NAME")
    else:
        rows = [(found.name, len(found.partitions), "internal" if found.is_internal else "") for found in topics]
        print_table(["topic", ">partitions", ""], rows)


@topic.command()
@topic_argument
@bootstrap_option
@json_option
def describe(topic: str, bootstrap: tuple[Address, ...], as_json: bool) -> None:
    """Show the partitions of TOPIC and the settings in which it differs from the defaults.

    Records are end minus start: an upper bound where compaction or transactions left gaps in the offsets.
    """
    with connect(bootstrap) as cluster:
        described = describe_topic(cluster, topic)
    if as_json:
        print_json(_as_json(described))
        return
    print_table(
        [">partition", ">leader", ">start", ">end", ">records", ">size"],
        [
            (
                found.partition.index,
                found.partition.leader,
                found.bounds.start,
                found.bounds.end,
                found.records,
                human_bytes(found.size_bytes),
            )
            for found in described.partitions
        ],
    )
    terminal = console()
    terminal.print()
    if described.configs:
        print_table(["setting", "value"], [(config.name, config.value) for config in described.configs])
    else:
        terminal.print("all settings are the defaults")


def _as_json(described: TopicDescription) -> dict[str, object]:
    sizes = [found.size_bytes for found in described.partitions if found.size_bytes is not None]
    return {
        "topic": described.topic.name,
        "id": base64.urlsafe_b64encode(described.topic.id).decode().rstrip("=") if described.topic.has_id else None,
        "internal": described.topic.is_internal,
        "records": sum(found.records for found in described.partitions),
        "size_bytes": sum(sizes) if sizes else None,
        "partitions": [
            {
                "partition": found.partition.index,
                "leader": found.partition.leader,
                "replicas": found.partition.replicas,
                "in_sync": found.partition.in_sync,
                "start_offset": found.bounds.start,
                "end_offset": found.bounds.end,
                "records": found.records,
                "size_bytes": found.size_bytes,
            }
            for found in described.partitions
        ],
        "configs": {config.name: config.value for config in described.configs},
    }


@topic.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME…", shell_complete=complete_topic)
@click.option("--yes", is_flag=True, help="Do not ask.")
@bootstrap_option
@json_option
def delete(names: tuple[str, ...], yes: bool, bootstrap: tuple[Address, ...], as_json: bool) -> None:
    """Delete topics, with everything in them; if one does not exist none is deleted.

    Groups, jobs, captures and derived systems that use one are named first, and so are sections of headrace.toml here.
    """
    chosen = list(dict.fromkeys(names))
    with connect(bootstrap) as cluster:
        cluster.refresh(chosen)  # a misspelt name is reported before the question, not after it
        for name, users in users_of(cluster, chosen).items():
            click.echo(f"warning: {name} is used by {', '.join(users)}", err=True)
        if not yes:
            check_terminal(f"to delete {', '.join(chosen)}")
            click.confirm(f"delete {', '.join(chosen)} with all records?", abort=True, err=True)
        admin.delete_topics(cluster, chosen)
    if as_json:
        print_json({"deleted": chosen})
    else:
        click.echo(f"deleted {', '.join(chosen)}")


@topic.command()
@topic_argument
@click.option("--partitions", type=_partitions_type, help="How many there shall be in all; they can only become more.")
@_config_option
@click.option("--unset", multiple=True, metavar="NAME", help="Put a setting back to its default.")
@bootstrap_option
@json_option
def alter(
    topic: str,
    partitions: int | None,
    configs: tuple[tuple[str, str], ...],
    unset: tuple[str, ...],
    bootstrap: tuple[Address, ...],
    as_json: bool,
) -> None:
    """Give TOPIC more partitions or other settings: all that is asked or, if a part is refused, nothing.

    With more partitions new records of a key may go elsewhere than its old ones.
    """
    changes = dict(configs)
    if partitions is None and not changes and not unset:
        raise click.UsageError("nothing to change: give --partitions, --config or --unset")
    if both := sorted(changes.keys() & set(unset)):
        raise click.UsageError(f"{both[0]} is given to both --config and --unset")
    with connect(bootstrap) as cluster:
        alter_topic(cluster, topic, partitions=partitions, changes=changes, unset=unset)
    if as_json:
        print_json({"topic": topic, "partitions": partitions, "configs": changes, "unset": list(unset)})
        return
    done = [f"{_count(partitions, 'partition')}"] if partitions else []
    done += [f"{name}={value}" for name, value in changes.items()]
    done += [f"{name} back to its default" for name in unset]
    click.echo(f"changed {topic}: {', '.join(done)}")


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def users_of(cluster: Cluster, topics: Collection[str], file: Path = Path(DEFAULT_FILE)) -> dict[str, list[str]]:
    """For each of the topics that is used: by which groups, jobs, captures, derived systems and sections of `file`."""
    snapshot = take_snapshot(cluster, Coordinators(cluster), SystemClock().now_ms())
    found = [*_readers(snapshot), *_reporters(cluster, snapshot), *_sections(file)]
    return {
        topic: names for topic in topics if (names := sorted({name for name, used in found if topic in used}))
    }  # fmt: skip


def _readers(snapshot: Snapshot) -> Iterator[tuple[str, Collection[str]]]:
    """Groups; a derived system keeps its offsets in one."""
    prefix = group_of("")
    for group in snapshot.groups.values():
        name = group.name
        shown = f"derived system {name.removeprefix(prefix)}" if name.startswith(prefix) else f"group {name}"
        yield shown, {*group.topics, *(where.topic for member in group.members for where in member.partitions)}


def _reporters(cluster: Cluster, snapshot: Snapshot) -> Iterator[tuple[str, Collection[str]]]:
    """Jobs and captures, by what they last reported."""
    for read in TopicFeed(PROGRESS, LOOK_BACK).news(cluster, snapshot.topics):
        if report := batch_report(read):
            yield f"job {report.job}", {where.topic for where in report.places}
    for capture in StatusReader(CAPTURES).read(cluster, snapshot.topics).values():
        if isinstance(written := capture.facts.get("topics"), list):
            yield f"capture {capture.name}", [str(topic) for topic in written]


def _sections(file: Path) -> Iterator[tuple[str, Collection[str]]]:
    """What a stack's file names, whether it runs or not."""
    if not file.is_file():
        return
    try:
        stack = load(file)
        members = list(members_of(stack))
    except (HeadraceError, OSError):
        return  # what is wrong with it is reported by headrace up
    for member in members:
        yield f"[{member.name}] of {file}", member.topics
    for name, values in stack.several(SECTION).items():
        yield f"[{SECTION}.{name}] of {file}", [str(values.get("topic"))]
