"""`headrace events flow|run`: what is stored in a database goes into a topic, and what follows from events is done."""

import os
import sys
from functools import partial
from pathlib import Path

import click

from headrace.cli.cdc import run_until_stopped, show_until_stopped
from headrace.cli.output import json_option
from headrace.cli.parameters import bootstrap_option, config_option
from headrace.cli.status_view import follower_table
from headrace.client.address import Address
from headrace.connect.sections import all_resolved
from headrace.eventsourcing.flow import SECTION, from_section
from headrace.stack.document import read_sections


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]…")
@config_option("The file with a section [events.NAME] for each store.")
@click.option("--url", help="The store, instead of what the file says; NAME is what its position is kept under then.")
@click.option("--topic", help="With --url: the topic that its events go to.")
@bootstrap_option
@json_option
def flow(
    names: tuple[str, ...],
    config: Path,
    url: str | None,
    topic: str | None,
    bootstrap: tuple[Address, ...],
    as_json: bool,
) -> None:
    """Write the events of stores called NAME, or of all in the file that have a topic, to their topics.

    Each event once, in the order of the store, until interrupted; a later start goes on where the last one was. A store
    or broker that is away is waited for. Ends with 1 if one failed.

    \b
      headrace events flow shop
      headrace events flow shop --url sqlite:///shop.db --topic shop.events
    """
    if (url is None) != (topic is None):
        raise click.UsageError("--url and --topic go together: name the store, and where its events go")
    if url is not None:
        if len(names) > 1:
            raise click.UsageError("with --url there is one store, and so at most one NAME")
        # So that a password need not stand in the list of processes: --url 'postgresql://ann:${PASSWORD}@…'.
        given = all_resolved("--url", {"url": url, "topic": topic}, os.environ, Path())
        wanted = [from_section(names[0] if names else str(topic), given)]
    else:
        found = read_sections(config, SECTION, names)
        wanted = [from_section(name, section) for name, section in found.items() if names or "topic" in section]
        if not wanted:
            raise click.UsageError(f"no section [{SECTION}.NAME] of {config} has a topic: add topic = …")
    run_until_stopped(wanted, bootstrap, as_json)


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]…")
@config_option("The file with a section [events.NAME] for each store.")
@bootstrap_option
@json_option
def run(names: tuple[str, ...], config: Path, bootstrap: tuple[Address, ...], as_json: bool) -> None:
    """Run the projections and processes of stores called NAME, or of all in the file, until interrupted.

    Their code is imported from beside the file. A store that is away is waited for; of several, those that do not fail
    go on. Ends with 1 if one failed. The broker is only told how they are doing.
    """
    from headrace.eventsourcing.followers import followers_of, run_followers

    folder = str(config.absolute().parent)
    if Path(folder).name != "fd":  # handed over in memory by headrace up, which starts us beside the file
        sys.path.insert(0, folder)
    sections = read_sections(config, SECTION, names)
    wanted = [each for name, section in sections.items() for each in followers_of(name, section)]
    if not wanted:
        raise click.UsageError(f"no section [{SECTION}.NAME] of {config} names projections or processes: add some")
    show_until_stopped(follower_table, partial(run_followers, wanted, bootstrap), as_json=as_json)
