"""`headrace init` and `headrace up`: write a `headrace.toml`, and run the stack that it describes."""

import asyncio
import os
import sys
from pathlib import Path

import click

from headrace import extras
from headrace.cli.output import json_option, print_json
from headrace.cli.parameters import config_option
from headrace.stack import DEFAULT_FILE
from headrace.stack.errors import InvalidStack, StackError
from headrace.stack.journal import Journal
from headrace.stack.kinds.broker import connection_environment
from headrace.stack.loading import load
from headrace.stack.plan import choose_members, members_of, taken_ports
from headrace.stack.registry import sample
from headrace.stack.state_file import hold_lock, read
from headrace.stack.supervisor import Supervisor

file_option = config_option("The file that describes the stack; headrace init writes one.")


@click.command()
@file_option
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
    members = choose_members(members_of(stack), names)
    if is_check:
        state = read(stack.folder)
        is_up = state is not None and any(member.pid for member in state.members)  # then the ports are its own
        if not is_up and (taken := taken_ports(stack, {member.kind for member in members})):
            raise InvalidStack(taken)
        parts = [member.name for member in members]
        if as_json:
            print_json({"file": str(config), "parts": parts})
        else:
            click.echo(f"{config} is in order: {', '.join(parts)}")
        return
    with hold_lock(stack.folder):
        os.environ.update(connection_environment(stack))  # for our own questions, and for all that we start
        if taken := taken_ports(stack, {member.kind for member in members}):
            raise InvalidStack(taken)
        journal = Journal(
            sys.stdout, [member.name for member in members], as_json=as_json, has_colours=sys.stdout.isatty()
        )
        sys.exit(asyncio.run(Supervisor(stack, members, journal).run()))


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False), default=DEFAULT_FILE)
def init(file: Path) -> None:
    """Write FILE, which describes a stack: a broker, a topic, a dashboard, and comments on all else that there is.

    FILE is headrace.toml unless another is named. It runs as it is: headrace up. A file that is there already is left
    alone.
    """
    try:
        with file.open("x", encoding="utf-8") as new:
            new.write(sample())
    except FileExistsError:
        raise StackError(f"{file} is there already, and is left as it is: name another file, or remove it") from None
    option = "" if str(file) == DEFAULT_FILE else f" --config {file}"
    click.echo(f"wrote {file}: look at it, then start it with headrace up{option}")
    if missing := extras.look_for("starlette", "its section [dashboard]"):
        click.echo(f"{missing}, or remove the section")
