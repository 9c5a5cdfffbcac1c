"""`headrace user`: users who log in by a password, on our broker or any Kafka."""

import sys
from pathlib import Path
from typing import Final

import click

from headrace.cli.output import json_option, print_json, print_table
from headrace.cli.parameters import bootstrap_option, connect
from headrace.client.address import Address
from headrace.client.users import list_users, remove_user, set_password
from headrace.errors import HeadraceError
from headrace.secret_files import check_private
from headrace.security.scram import FEWEST_ROUNDS, HASHES, MOST_STORED_ROUNDS
from headrace.serving.access import add_token, read_tokens, remove_token
from headrace.serving.sessions import Role

_MOST_CHARACTERS: Final = 1024


class _NoPassword(HeadraceError):
    """No password was given, or one that cannot be used."""


class _UnknownUser(HeadraceError):
    """There is no user of that name."""


@click.group()
def user() -> None:
    """Add users who log in by a password, list them, remove them.

    They are those of Kafka's SCRAM: what you connect with has to be allowed to alter the cluster. How the cluster is
    reached is in the file that HEADRACE_KAFKA names.
    """


@user.command()
@click.argument("name")
@click.option(
    "--password-file",
    type=click.Path(exists=True, dir_okay=False),
    help="A file that holds it, which others cannot read; else it is asked for, or read from a pipe.",
)
@click.option(
    "--mechanism",
    "mechanisms",
    type=click.Choice(list(HASHES)),
    multiple=True,
    help="For which it holds; by default for both.",
)
@click.option(
    "--iterations",
    type=click.IntRange(FEWEST_ROUNDS, MOST_STORED_ROUNDS),
    default=FEWEST_ROUNDS,
    show_default=True,
    help="How much work a guess at it is.",
)
@bootstrap_option
@json_option
def add(
    name: str,
    password_file: str | None,
    mechanisms: tuple[str, ...],
    iterations: int,
    bootstrap: tuple[Address, ...],
    as_json: bool,
) -> None:
    """Add the user NAME, or give it another password.

    \b
      headrace user add alice
      headrace user add alice --password-file alice.password
    """
    password = _read_password(name, password_file)
    wanted = mechanisms or tuple(HASHES)
    with connect(bootstrap) as cluster:
        set_password(cluster, name, password, wanted, iterations)
    if as_json:
        print_json({"user": name, "mechanisms": list(wanted), "iterations": iterations})
    else:
        click.echo(f"{name} may log in by {' and '.join(wanted)}")


def _read_password(name: str, path: str | None) -> str:
    if path is not None:
        check_private(path, "--password-file")
        text = Path(path).read_text(encoding="utf-8")
    elif sys.stdin.isatty():
        text = click.prompt(f"Password for {name}", hide_input=True, confirmation_prompt=True)
    else:
        text = sys.stdin.readline()
    password = text.rstrip("\r\n")
    if not password:
        raise _NoPassword("there is no password: type one, pipe one in, or name a file with --password-file")
    if "\n" in password or "\0" in password or len(password) > _MOST_CHARACTERS:
        raise _NoPassword(f"a password is one line of at most {_MOST_CHARACTERS} characters: give another")
    return password


@user.command("list")
@bootstrap_option
@json_option
def list_all(bootstrap: tuple[Address, ...], as_json: bool) -> None:
    """List the users, and how they log in."""
    with connect(bootstrap) as cluster:
        users = list_users(cluster)
    if as_json:
        print_json([{"user": name, "mechanisms": mechanisms} for name, mechanisms in users.items()])
    else:
        print_table(
            ["user", "logs in by"],
            [
                [name, ", ".join(f"{mechanism} ({rounds:,} iterations)" for mechanism, rounds in mechanisms.items())]
                for name, mechanisms in users.items()
            ],
        )


@user.command()
@click.argument("name")
@bootstrap_option
@json_option
def remove(name: str, bootstrap: tuple[Address, ...], as_json: bool) -> None:
    """Remove the user NAME: its password, and with it the way in.

    Our broker serves nothing more on connections that it has; a Kafka does until they have to log in again.
    """
    with connect(bootstrap) as cluster:
        users = list_users(cluster, [name])
        if name not in users:
            raise _UnknownUser(f"there is no user {name!r} at {cluster}: headrace user list shows those there are")
        remove_user(cluster, name, users[name])
    if as_json:
        print_json({"user": name, "removed": list(users[name])})
    else:
        click.echo(f"removed {name}")


# --- tokens

_DEFAULT_TOKENS: Final = Path(".headrace/security/tokens")
_tokens_file = click.option(
    "--file",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    default=_DEFAULT_TOKENS,
    show_default=True,
    envvar="HEADRACE_TOKENS",
    show_envvar=True,
    help="The file that holds them, as their hashes; servers are told of it by --tokens.",
)


@user.group()
def token() -> None:
    """Tokens for programs that ask the dashboard, the view server or the schema server.

    A program sends its token with each request, in a header: Authorization: Bearer TOKEN. A server with --tokens FILE
    lets it in, from the moment that the token is added until it is removed.
    """


@token.command("add")
@click.argument("name")
@click.option(
    "--role",
    type=click.Choice([role.value for role in Role]),
    default=Role.READ_ONLY.value,
    show_default=True,
    help="What it may do.",
)
@_tokens_file
@json_option
def add_one(name: str, role: str, path: Path, as_json: bool) -> None:
    """Make a token for the program NAME, and print it: it is not kept. An earlier one of that name is valid no more."""
    made = add_token(path, name, Role(role))
    if as_json:
        print_json({"name": name, "role": role, "token": made})
    else:
        click.echo(made)


@token.command("list")
@_tokens_file
@json_option
def list_tokens(path: Path, as_json: bool) -> None:
    """List the names of tokens and what they may do."""
    tokens = read_tokens(path)
    if as_json:
        print_json([{"name": each.name, "role": each.role.value} for each in tokens])
    else:
        print_table(["token", "role"], [[each.name, each.role.value] for each in tokens])


@token.command("remove")
@click.argument("name")
@_tokens_file
@json_option
def remove_one(name: str, path: Path, as_json: bool) -> None:
    """Remove the token of NAME: servers let it in no more."""
    remove_token(path, name)
    if as_json:
        print_json({"removed": name})
    else:
        click.echo(f"removed {name}")
