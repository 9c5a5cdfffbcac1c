"""`headrace up`: run a whole stack under one supervisor."""

import asyncio
import os
import sys
from pathlib import Path

import click

from headrace.cli.output import json_option, print_json
from headrace.connect.sections import DEFAULT_FILE
from headrace.stack.errors import InvalidStack
from headrace.stack.journal import Journal
from headrace.stack.kinds.broker import connection_environment
from headrace.stack.loading import load
from headrace.stack.lock import held
from headrace.stack.plan import chosen, members_of
from headrace.stack.ports import taken_ports
from headrace.stack.supervisor import Supervisor

config_option = click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    default=DEFAULT_FILE,
    show_default=True,
    help="The file that describes the stack; headrace init writes one.",
)


@click.command()
@config_option
@click.option(
    "--only",
    "names",
    multiple=True,
    metavar="NAME",
    help="Only this part and what it needs: cdc.shop, shop or cdc. May be given several times.",
)
@click.option("--check", "is_check", is_flag=True, help="Say whether the file is in order, and start nothing.")
@json_option
def up(config: Path, names: tuple[str, ...], is_check: bool, as_json: bool) -> None:
    """Run the stack that headrace.toml describes, until Ctrl-C or SIGTERM.

    \b
      headrace init
      headrace up

    Everything is checked before anything starts. Parts start in order, each when what it needs is ready; one that
    fails is started again after a pause that grows. Ctrl-C ends them in the reverse order, a second one at once. Ends
    with 1 if a part had to be given up or killed. What all of them say is one log here, with --json a line each.
    """
    stack = load(config)
    members = chosen(members_of(stack), names)
    if is_check:
        parts = [member.name for member in members]
        if as_json:
            print_json({"file": str(config), "parts": parts})
        else:
            click.echo(f"{config} is in order: {', '.join(parts)}")
        return
    with held(stack.folder):
        os.environ.update(connection_environment(stack))  # for our own questions, and for all that we start
        if taken := taken_ports(stack, {member.kind for member in members}):
            raise InvalidStack(taken)
        journal = Journal(
            sys.stdout, [member.name for member in members], as_json=as_json, has_colours=sys.stdout.isatty()
        )
        sys.exit(asyncio.run(Supervisor(stack, members, journal).run()))
