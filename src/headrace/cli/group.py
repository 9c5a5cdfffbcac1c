"""`headrace group`: look at groups of any kind, see how far behind they are, change, move and delete them."""

import click

from headrace.cli.group_text import lag_as_json, print_lag
from headrace.cli.output import console, json_option, print_json, print_table
from headrace.cli.parameters import (
    PAIR,
    TARGET,
    TOPIC_PARTITIONS,
    bootstrap_option,
    check_terminal,
    complete_group,
    complete_topic,
    connect,
    group_argument,
)
from headrace.client.address import Address
from headrace.client.admin import alter_group_configs, configs_of_groups
from headrace.client.coordinators import Coordinators
from headrace.client.groups import GroupListing, delete_groups, describe_group, list_groups
from headrace.client.lag import describe_lag
from headrace.client.offsets import Start
from headrace.client.resets import Move, Shift, plan_reset
from headrace.client.resets import reset as reset_offsets
from headrace.clock import SystemClock
from headrace.connect.sync.places import Owner, check_movable, check_unused, find_owner
from headrace.errors import nearest

# Kafka's names for the states of groups of all kinds.
_STATES = (
    "PreparingRebalance",
    "CompletingRebalance",
    "Stable",
    "Dead",
    "Empty",
    "Assigning",
    "Reconciling",
    "NotReady",
)


@click.group()
def group() -> None:
    """Look at groups, change their settings, move them to another place in the log, delete them."""


@group.command("list")
@click.option(
    "--state",
    "states",
    type=click.Choice(_STATES, case_sensitive=False),
    multiple=True,
    metavar="STATE",
    help=f"Only groups in this state: {', '.join(_STATES[:-1])} or {_STATES[-1]}. May be given several times.",
)
@bootstrap_option
@json_option
def list_all(states: tuple[str, ...], bootstrap: tuple[Address, ...], as_json: bool) -> None:
    """List the groups."""
    with connect(bootstrap) as cluster:
        groups = list_groups(cluster, states)
        owners = {found.name: owner for found in groups if (owner := find_owner(Coordinators(cluster), found.name))}
    if as_json:
        print_json(
            [
                {
                    "group": found.name,
                    "state": found.state,
                    "type": found.kind,
                    "protocol_type": found.protocol_type,
                    "owner": owners[found.name].as_json() if found.name in owners else None,
                }
                for found in groups
            ]
        )
    elif groups:
        rows = [(found.name, _state(found, owners.get(found.name)), found.kind) for found in groups]
        print_table(["group", "state", "protocol"], rows)
    else:
        click.echo(f"no groups in state {' or '.join(states)}" if states else "no groups yet")


@group.command()
@group_argument
@bootstrap_option
@json_option
def describe(name: str, bootstrap: tuple[Address, ...], as_json: bool) -> None:
    """Show the members of GROUP, how far it is behind in each partition, and the settings that are its own.

    A share group may finish records in any order: it has finished everything before the offset where it begins, and
    what it finished behind that is not part of its lag.

    Lag is told in records (an upper bound where compaction or transactions left gaps in the offsets), in bytes (an
    estimate: the partition's size on disk, by the share of its offsets that are still to be read), and in time (the age
    of the oldest record that is still to be read, by its timestamp).

    It warns of records that retention removed before the group read them, and when that is near: when less than an
    hour or less than a tenth of the topic's retention is left (for a retention under two hours: less than half of it).
    The time left is an estimate too, for the worst case.
    """
    with connect(bootstrap) as cluster:
        coordinators = Coordinators(cluster)
        described = describe_lag(coordinators, name)
        owner = find_owner(coordinators, name)
        # A Kafka before 3.8 has no settings of groups, and not everybody may see them: the rest is shown all the same.
        configs = configs_of_groups(cluster, [name], skip_refused=True).get(name)
    own = None if configs is None else {each.name: each.value for each in configs.values() if each.is_own}
    now_ms = SystemClock().now_ms()
    if as_json:
        print_json(lag_as_json(described, now_ms) | {"owner": owner.as_json() if owner else None, "configs": own})
    else:
        print_lag(described, now_ms, owner)
        if own:
            console().print()
            print_table(["setting", "value"], sorted(own.items()))


@group.command()
@group_argument
@click.argument("changes", nargs=-1, type=PAIR, metavar="[SETTING=VALUE]…")
@click.option("--unset", multiple=True, metavar="SETTING", help="Put a setting back to its default.")
@bootstrap_option
@json_option
def alter(
    name: str,
    changes: tuple[tuple[str, str], ...],
    unset: tuple[str, ...],
    bootstrap: tuple[Address, ...],
    as_json: bool,
) -> None:
    """Change settings of GROUP: all that are named or, if one is refused, none.

    A group that does not exist yet may have settings already, and begins with them.

    \b
      headrace group alter mailers share.record.lock.duration.ms=60000 headrace.retry.backoff.ms=1000
      headrace group alter mailers --unset headrace.retry.backoff.ms
    """
    wanted = dict(changes)
    if not wanted and not unset:
        raise click.UsageError("nothing to change: give SETTING=VALUE, or --unset SETTING")
    if both := sorted(wanted.keys() & set(unset)):
        raise click.UsageError(f"{both[0]} is both given a value and unset")
    with connect(bootstrap) as cluster:
        known = configs_of_groups(cluster, [name])[name] if unset else {}
        for key in [key for key in unset if key not in known]:  # which a broker takes for one that has its default
            raise click.UsageError(f"unknown setting {key!r}: {nearest(key, known, otherwise='check its name')}")
        alter_group_configs(cluster, name, changes=wanted, unset=unset)
        exists = name in {found.name for found in list_groups(cluster)}
    if as_json:
        print_json({"group": name, "exists": exists, "configs": wanted, "unset": list(unset)})
        return
    done = [f"{key}={value}" for key, value in wanted.items()]
    done += [f"{key} back to its default" for key in unset]
    click.echo(
        f"changed {name}: {', '.join(done)}{'' if exists else ' (for when it begins: there is no such group yet)'}"
    )


@group.command()
@group_argument
@click.option(
    "--topic",
    "topics",
    type=TOPIC_PARTITIONS,
    multiple=True,
    metavar="TOPIC[:PARTITION,…]",
    shell_complete=complete_topic,
    help="A topic, or some partitions of it, as in orders or orders:0,2. May be given several times.",
)
@click.option("--all-topics", is_flag=True, help="Every partition that the group has an offset for.")
@click.option(
    "--to",
    "target",
    type=TARGET,
    required=True,
    metavar="PLACE",
    help="earliest, latest, an offset, -N or +N for so many back or on from where the group is (no further than what "
    "the log holds), a time (ISO-8601, UTC unless it says otherwise), or how long ago: 30s, 10m, 2h, 1d.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be done, and do nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@bootstrap_option
@json_option
def reset(
    name: str,
    topics: tuple[tuple[str, tuple[int, ...]], ...],
    all_topics: bool,
    target: Start | Shift,
    dry_run: bool,
    yes: bool,
    bootstrap: tuple[Address, ...],
    as_json: bool,
) -> None:
    """Have GROUP go on reading from another place, to read records again or to leave some out.

    The group must have no members: stop its consumers first.

    \b
      headrace group reset billing --all-topics --to earliest --dry-run
      headrace group reset billing --topic orders --to 2h
      headrace group reset billing --topic orders:0,2 --to -100 --yes
    """
    if bool(topics) == all_topics:
        raise click.UsageError("say which topics: give either --topic or --all-topics")
    if not yes and not dry_run:
        check_terminal(f"to reset {name}")
    check_movable(name)
    with connect(bootstrap) as cluster:
        coordinators = Coordinators(cluster)
        moves = plan_reset(coordinators, name, None if all_topics else _merge_topics(topics), target)
        if not as_json:
            _show(moves)
        if not dry_run:
            if not yes:
                click.confirm(f"reset {name}?", abort=True, err=True)
            reset_offsets(coordinators, name, moves)
    if as_json:
        print_json({"group": name, "dry_run": dry_run, "partitions": [_as_json(move) for move in moves]})
    else:
        click.echo("a dry run: nothing was changed" if dry_run else f"reset {name}")


def _state(found: GroupListing, owner: Owner | None) -> str:
    return f"{found.state} ({owner})" if owner else found.state


def _merge_topics(topics: tuple[tuple[str, tuple[int, ...]], ...]) -> dict[str, tuple[int, ...]]:
    """The partitions of each topic; a topic that was once named without any is wanted whole."""
    merged: dict[str, tuple[int, ...]] = {}
    for topic, partitions in topics:
        before = merged.get(topic, partitions)
        merged[topic] = tuple(sorted({*before, *partitions})) if before and partitions else ()
    return merged


def _show(moves: list[Move]) -> None:
    rows = [
        (move.partition.topic, move.partition.partition, "–" if move.old is None else move.old, "→", move.new)
        for move in moves
    ]
    print_table(["topic", ">partition", ">old", "", ">new"], rows)
    console().print()


def _as_json(move: Move) -> dict[str, object]:
    return {
        "topic": move.partition.topic,
        "partition": move.partition.partition,
        "old_offset": move.old,
        "new_offset": move.new,
    }


@group.command()
@click.argument("names", nargs=-1, required=True, metavar="GROUP…", shell_complete=complete_group)
@click.option("--yes", is_flag=True, help="Do not ask.")
@bootstrap_option
@json_option
def delete(names: tuple[str, ...], yes: bool, bootstrap: tuple[Address, ...], as_json: bool) -> None:
    """Delete groups, with their offsets; if one does not exist or has members none is deleted."""
    chosen = list(dict.fromkeys(names))
    if not yes:
        check_terminal(f"to delete {', '.join(chosen)}")
    with connect(bootstrap) as cluster:
        coordinators = Coordinators(cluster)
        for name in chosen:
            check_unused(name, find_owner(coordinators, name))
        if not yes:
            for name in chosen:  # what cannot be done is told before the question, not after it
                describe_group(coordinators, name).check_empty()
            click.confirm(f"delete {', '.join(chosen)} with all committed offsets?", abort=True, err=True)
        delete_groups(coordinators, chosen)
    if as_json:
        print_json({"deleted": chosen})
    else:
        click.echo(f"deleted {', '.join(chosen)}")
