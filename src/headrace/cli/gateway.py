"""`headrace gateway`: run what stands between programs that speak no Kafka and topics, and look at it.

Each kind of gateway is a command whose options are its keys; a section of `headrace.toml` has the same.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import click

from headrace.cli.cdc import show_until_stopped
from headrace.cli.output import console, json_option, print_json
from headrace.cli.parameters import bootstrap_option, config_option, connect
from headrace.cli.status_view import gateway_table
from headrace.client.address import Address
from headrace.clock import SystemClock
from headrace.gateways.section import KINDS, kind_of, run_gateway
from headrace.secret_files import check_private
from headrace.section_keys import Key, check_keys, with_defaults
from headrace.stack.document import read_section
from headrace.stack.errors import InvalidStack
from headrace.stack.kinds.gateways import KIND
from headrace.status import GATEWAYS, read_statuses
from headrace.storage.filesystem import raise_open_files

_FILE = "_file"


class _Kinds(click.Group):
    """Finds the command of a kind when it is first asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*super().list_commands(ctx), *KINDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, cmd_name) or (_command_of(cmd_name) if cmd_name in KINDS else None)


@click.group(cls=_Kinds)
def gateway() -> None:
    """Let programs that speak no Kafka send to topics, and receive from them.

    A gateway of some kind is run by its name, with its keys as options, or as [gateways.NAME] of headrace.toml says.
    """


@gateway.command()
@click.argument("name")
@config_option("The file with a section [gateways.NAME].")
@bootstrap_option
@json_option
def start(name: str, config: Path, bootstrap: tuple[Address, ...], as_json: bool) -> None:
    """Run [gateways.NAME] until interrupted; a broker that is away is waited for."""
    _run(name, read_section(config, KIND, name), bootstrap, as_json=as_json)


@gateway.command("list")
@bootstrap_option
@json_option
def list_gateways(bootstrap: tuple[Address, ...], as_json: bool) -> None:
    """Show the gateways of this cluster and how each stands."""
    now_ms = SystemClock().now_ms()
    with connect(bootstrap) as cluster:
        found = [one.seen_at(now_ms) for _, one in sorted(read_statuses(cluster, GATEWAYS).items())]
    if as_json:
        print_json([{"name": one.name, **one.facts} for one in found])
    else:
        console().print(gateway_table(found))


def _run(name: str, section: Mapping[str, Any], bootstrap: tuple[Address, ...], *, as_json: bool) -> None:
    raise_open_files()  # each connection is one
    show_until_stopped(gateway_table, partial(run_gateway, name, section, bootstrap), as_json=as_json)


def _command_of(kind: str) -> click.Command:
    """A command that runs a gateway of a kind, with its keys as options."""
    known = kind_of(kind)

    def run(name: str | None, bootstrap: tuple[Address, ...], as_json: bool, **given: Any) -> None:
        section = {"kind": kind} | {key.name: value for key in known.keys if (value := _value(key, given)) is not None}
        name = name or kind
        if wrong := check_keys(KIND.keys_of(section), section, f"{KIND.name}.{name}"):
            raise InvalidStack([sentence for _, sentence in wrong])
        _run(name, with_defaults(KIND.keys_of(section), section), bootstrap, as_json=as_json)

    command: Any = run
    for decorate in (
        json_option,
        bootstrap_option,
        *(_option(key) for key in reversed(known.keys) if key.type is not dict),
    ):
        command = decorate(command)
    named = click.option("--name", help=f"What it is called, in its status and its positions; by default {kind}.")
    return click.command(kind, help=known.summary + " It runs until interrupted.")(named(command))


def _option(key: Key) -> Any:
    word, meaning = f"--{key.name.replace('_', '-')}", key.meaning
    if key.is_secret:  # others can see the arguments of a process
        return click.option(f"{word}-file", key.name + _FILE, metavar="FILE", help=f"A file that holds it. {meaning}")
    if key.type is bool:
        return click.option(f"{word}/--no-{word[2:]}", key.name, default=None, help=meaning)
    if key.type is list:
        return click.option(word, key.name, multiple=True, help=f"{meaning} May be given several times.")
    choices = click.Choice(key.choices) if key.choices else None
    return click.option(word, key.name, type=choices or key.type, help=meaning + _usual(key))


def _usual(key: Key) -> str:
    return "" if key.default in (None, "") else f" By default {key.default}."


def _value(key: Key, given: dict[str, Any]) -> Any:
    """What an option says, as the key of a section; None if it was not given."""
    if key.is_secret and (path := given.get(key.name + _FILE)):
        check_private(path, f"the file of {key.name}")
        return Path(path).read_text(encoding="utf-8").strip()
    value = given.get(key.name)
    return (list(value) or None) if isinstance(value, tuple) else value
