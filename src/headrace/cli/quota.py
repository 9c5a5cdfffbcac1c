"""`headrace quota`: how much clients may use, on our broker or any Kafka."""

from collections.abc import Callable
from typing import Any, Final

import click

from headrace.cli.output import json_option, print_json, print_table
from headrace.cli.parameters import InvalidText, Parsed, bootstrap_option, connect
from headrace.client.address import Address
from headrace.client.quotas import SetQuotas, alter_quotas, list_quotas
from headrace.errors import HeadraceError, nearest
from headrace.security.quotas import (
    CLIENT_ID,
    CONNECTION_RATE,
    IP,
    USER,
    Entity,
    InvalidQuota,
    check_quota,
    known_keys,
    parse_entity,
)

_DEFAULT: Final = "(default)"


class _NoQuota(HeadraceError):
    """There is no quota to remove."""


def _read_pair(text: str) -> tuple[str, float]:
    name, equals, value = text.partition("=")
    try:
        return name.strip(), float(value)
    except ValueError:
        example = "write for example producer_byte_rate=1000000"
        raise InvalidText(
            f"{text!r} is not NAME=NUMBER: {example}" if equals else f"{text!r} has no value: {example}"
        ) from None


def _entity_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for decorate in reversed(
        (
            click.option("--user", metavar="NAME", help="A user."),
            click.option("--user-default", is_flag=True, help="Users that have none of their own."),
            click.option("--client-id", metavar="ID", help="Clients of this id; with a user, that user's alone."),
            click.option("--client-id-default", is_flag=True, help="Client ids that have none of their own."),
            click.option("--ip", metavar="ADDRESS", help="Connections from this address."),
            click.option("--ip-default", is_flag=True, help="Addresses that have none of their own."),
        )
    ):
        command = decorate(command)
    return command


def _read_entity(options: dict[str, Any], *, is_needed: bool = True) -> Entity | None:
    """What the command line names; raises for what cannot have quotas."""
    parts: dict[str, str | None] = {}
    for kind in (USER, CLIENT_ID, IP):
        option = kind.replace("-", "_")
        name, is_default = options[option], options[f"{option}_default"]
        if name is not None and is_default:
            raise click.UsageError(f"give either --{kind} or --{kind}-default")
        if name is not None or is_default:
            parts[kind] = name
    if not parts:
        if is_needed:
            raise click.UsageError("name whom it is about: --user, --client-id, --ip, or the default of one of them")
        return None
    try:
        return parse_entity(parts)
    except InvalidQuota as error:
        raise click.UsageError(str(error)) from None


def _check_name(entity: Entity, name: str) -> None:
    known = known_keys(entity)
    if name == CONNECTION_RATE and name not in known:
        raise click.UsageError(f"{name} is a quota of addresses: give --ip ADDRESS or --ip-default")
    if name not in known:
        choices = f"choose of {', '.join(known)}"
        raise click.UsageError(f"quota {name!r} is unknown: {nearest(name, known, otherwise=choices)}")


@click.group()
def quota() -> None:
    """Say how much clients may use: bytes, time, partitions made, connections.

    The most specific quota that is set for a client applies, and no other.
    """


@quota.command("list")
@_entity_options
@bootstrap_option
@json_option
def list_command(bootstrap: tuple[Address, ...], as_json: bool, **options: Any) -> None:
    """List the quotas that are set: all, or those of a user, a client id, an address."""
    entity = _read_entity(options, is_needed=False)
    with connect(bootstrap) as cluster:
        found = list_quotas(cluster, entity)
    if as_json:
        print_json([{**_as_json(each.entity), "quotas": each.values} for each in found])
    elif not found:
        click.echo("no quotas: set one with headrace quota set producer_byte_rate=1000000 --user NAME")
    else:
        _print(found)


@quota.command("set")
@click.argument("quotas", nargs=-1, required=True, type=Parsed("quota", _read_pair), metavar="NAME=NUMBER…")
@_entity_options
@bootstrap_option
@json_option
def set_command(
    quotas: tuple[tuple[str, float], ...], bootstrap: tuple[Address, ...], as_json: bool, **options: Any
) -> None:
    """Set quotas; they are in force at once, and others of the same user stay.

    \b
      headrace quota set producer_byte_rate=1000000 consumer_byte_rate=2000000 --user alice
      headrace quota set request_percentage=25 --client-id-default
      headrace quota set producer_byte_rate=1000 --user alice --client-id reports
      headrace quota set connection_creation_rate=10 --ip-default
    """
    entity = _read_entity(options)
    assert entity is not None
    for name, value in quotas:
        _check_name(entity, name)
        try:
            check_quota(entity, name, value)
        except InvalidQuota as error:
            raise click.UsageError(str(error)) from None
    with connect(bootstrap) as cluster:
        alter_quotas(cluster, entity, dict(quotas))
    _report("set", entity, dict(quotas), as_json=as_json)


@quota.command()
@click.argument("names", nargs=-1, metavar="[NAME]…")
@_entity_options
@bootstrap_option
@json_option
def remove(names: tuple[str, ...], bootstrap: tuple[Address, ...], as_json: bool, **options: Any) -> None:
    """Remove quotas: those named, or all of a user, a client id, an address.

    \b
      headrace quota remove producer_byte_rate --user alice
      headrace quota remove --ip-default
    """
    entity = _read_entity(options)
    assert entity is not None
    for name in names:
        _check_name(entity, name)
    with connect(bootstrap) as cluster:
        held = next((each.values for each in list_quotas(cluster, entity) if each.entity == entity), {})
        removed = {name: value for name, value in held.items() if not names or name in names}
        if not removed:
            raise _NoQuota(
                f"{_describe(entity)} has no such quota at {cluster}: headrace quota list shows those there are"
            )
        alter_quotas(cluster, entity, dict.fromkeys(removed))
    _report("removed", entity, removed, as_json=as_json)


def _describe(entity: Entity) -> str:
    return " with ".join(f"{kind} {_DEFAULT if name is None else name}" for kind, name in entity.parts.items())


def _report(done: str, entity: Entity, values: dict[str, float], *, as_json: bool) -> None:
    if as_json:
        print_json({done: values, **_as_json(entity)})
    else:
        click.echo(
            f"{done} for {_describe(entity)}: {', '.join(f'{name}={value:,g}' for name, value in values.items())}"
        )


def _as_json(entity: Entity) -> dict[str, dict[str, str | None]]:
    """The parts that have a say; null is the default."""
    return {"entity": entity.parts}


def _print(found: list[SetQuotas]) -> None:
    rows = [
        [*(_DEFAULT if part is None else part for part in each.entity), name, f"{value:,.10g}"]
        for each in found
        for name, value in each.values.items()
    ]
    print_table([USER, CLIENT_ID, IP, "quota", ">limit"], rows)
