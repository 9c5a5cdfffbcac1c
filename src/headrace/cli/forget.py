"""`headrace forget` and `headrace keys`: forget a person in a whole stack, verify that, and look after the keys."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import click

from headrace.cli.output import human_time, json_option, print_json, print_table
from headrace.cli.parameters import bootstrap_option, check_terminal, config_option, connect, timeout_option
from headrace.client.address import Address
from headrace.client.cluster import Cluster
from headrace.errors import HeadraceError, harmless
from headrace.forgetting.keyring import Keyring
from headrace.forgetting.ledger import Ledger, reconcile
from headrace.forgetting.master_key import create_master_key
from headrace.forgetting.report import Hit, Report
from headrace.forgetting.search import read_needles
from headrace.stack.forgetting.running import forget as forget_in
from headrace.stack.forgetting.running import verify as verify_in
from headrace.stack.kind import Stack
from headrace.stack.kinds.broker import connection_environment
from headrace.stack.kinds.forgetting import NAME, open_keys_of
from headrace.stack.loading import load

file_option = config_option("The file that describes the stack, with its section [forgetting].")


@contextmanager
def _opened(config: Path) -> Iterator[tuple[Stack, Keyring]]:
    stack = load(config, explore=False)
    os.environ.update(connection_environment(stack))
    keys = open_keys_of(stack.one(NAME), stack.folder)
    try:
        yield stack, keys
    finally:
        keys.close()


@click.command()
@click.argument("subject")
@file_option
@bootstrap_option
@click.option("--dry-run", "is_dry", is_flag=True, help="Say what would be done, and do nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--verify",
    "is_verify",
    is_flag=True,
    help="Forget nothing: search every place for the values of --values, and the key store for keys.",
)
@click.option(
    "--values",
    type=click.File("r", encoding="utf-8"),
    metavar="FILE",
    help="With --verify: the values to look for, one a line; - is standard input.",
)
@timeout_option("How long a topic's compaction, or a derived system, is waited for.")
@json_option
def forget(
    subject: str,
    config: Path,
    bootstrap: tuple[Address, ...],
    is_dry: bool,
    yes: bool,
    is_verify: bool,
    values: TextIO | None,
    timeout: float,
    as_json: bool,
) -> None:
    """Forget SUBJECT: destroy its keys, and erase what they do not make unreadable, in every part of the stack.

    \b
      headrace forget customer-7 --dry-run
      headrace forget customer-7
      headrace forget customer-7 --verify --values values.txt

    It may be run again at any time, and goes on where one that was killed had come. What could not be erased is listed
    with the reason; then, or if --verify finds something, it ends with 1.
    """
    if is_verify != (values is not None):
        raise click.UsageError("--verify and --values go together: a file with the values that must not be found")
    with _opened(config) as (stack, keys):
        if values is not None:
            report, hits = verify_in(stack, keys, subject, read_needles(values), lambda: connect(bootstrap))
            _show(report, hits, as_json=as_json)
            sys.exit(0 if report.is_complete and not hits else 1)
        if not is_dry and not yes:
            check_terminal("to forget for good without being asked")
            click.confirm(f"Forget {harmless(subject)} for good? It cannot be undone.", abort=True)
        report = forget_in(
            stack, keys, subject, lambda: connect(bootstrap), dry=is_dry, patience_s=timeout,
            watch=lambda place: None if as_json else click.echo(f"  {harmless(place)} …", err=True),
        )  # fmt: skip
        _show(report, [], as_json=as_json)
    sys.exit(0 if report.is_complete or is_dry else 1)


def _show(report: Report, hits: list[Hit], *, as_json: bool) -> None:
    if as_json:
        print_json({**report.as_json(), "hits": [each.as_json() for each in hits]})
        return
    print_table(
        ["place", "what", "outcome", ">count", "why"],
        [(each.place, each.what, each.outcome, each.count or "–", each.why) for each in report.findings],
    )
    for hit in hits:
        click.echo(harmless(f"found value {hit.value} in {hit.place}: {hit.where}"))
    if report.is_dry and not hits:
        click.echo("nothing was changed")
    elif not report.is_complete:
        click.echo("not everything is done: see what could not be, or will follow")


@click.group()
def keys() -> None:
    """Look after the keys that personal data is sealed with."""


@keys.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
def create(file: Path) -> None:
    """Write a new master key to FILE, which nobody else can read.

    Keep a copy of it apart from the backups of the key store: without it nothing that is sealed can be opened, with it
    and an old copy of the key store also what was forgotten since.
    """
    create_master_key(file)
    click.echo(f"wrote {file}: keep it, without it nothing that is sealed can be opened")


@keys.command()
@file_option
@bootstrap_option
@json_option
def status(config: Path, bootstrap: tuple[Address, ...], as_json: bool) -> None:
    """Show who was forgotten, by the ids of their keys, and keys that a backup has brought back.

    Ends with 1 if there are such, or if the broker's record of who was forgotten cannot be read. headrace forget
    destroys them again, whoever it is run for.
    """
    with _opened(config) as (_, held):
        acts = held.store.forgotten()
        try:
            with connect(bootstrap) as cluster:
                back, problem = _brought_back(held, cluster), ""
        except HeadraceError as error:
            back, problem = [], str(error)
        if as_json:
            print_json({
                "store": str(held.store),
                "forgotten": [{"at_ms": act.forgotten_ms, "keys": act.key_ids} for act in acts],
                "brought_back": back,
                "error": problem or None,
            })  # fmt: skip
        else:
            print_table(["forgotten", "keys"], [(human_time(act.forgotten_ms), ", ".join(act.key_ids)) for act in acts])
            for key_id in back:
                click.echo(f"key {key_id} was destroyed and is there again: the key store was restored from a backup")
            if problem:
                click.echo(f"headrace: not compared with the broker's record: {harmless(problem)}", err=True)
    sys.exit(1 if back or problem else 0)


def _brought_back(held: Keyring, cluster: Cluster) -> list[str]:
    return reconcile(held, Ledger(cluster), dry=True)
