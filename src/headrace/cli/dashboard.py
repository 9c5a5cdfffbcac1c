"""`headrace dashboard`: pages that show a cluster live, in a browser."""

import os
from collections.abc import Callable
from pathlib import Path

import click

from headrace.cli.access import access_options
from headrace.cli.moment import parse_start, parse_target, parse_time
from headrace.cli.output import json_option, print_json
from headrace.cli.parameters import bootstrap_option
from headrace.cli.where import is_true, parse
from headrace.client.address import Address
from headrace.client.connection import ConnectionSettings
from headrace.dashboard.settings import DEFAULT_PORT, Language, Settings, StoreSection
from headrace.serving.access import Access


def language() -> Language:
    """How the dashboard reads conditions, places and times: as the other commands do."""

    def condition(text: str) -> Callable[[object], bool]:
        node = parse(text)
        return lambda document: is_true(node.value(document))

    return Language(condition, parse_start, parse_target, parse_time)


@click.group()
def dashboard() -> None:
    """See topics, groups and pipelines live in a browser."""


@dashboard.command()
@bootstrap_option
@click.option(
    "--port", type=click.IntRange(0, 65535), default=DEFAULT_PORT, show_default=True, help="0 takes a free one."
)
@access_options
@click.option("--allow-writes", is_flag=True, help="Let admins produce records and reset groups.")
@click.option(
    "--token",
    envvar="HEADRACE_DASHBOARD_TOKEN",
    show_envvar=True,
    help="Let in who has this, 16 characters or more. Best given in the environment, which others cannot see.",
)
@click.option(
    "--every", "interval_s", type=click.FloatRange(0.2, 60), default=2.0, show_default=True,
    help="How often to look at the cluster, in seconds.",
)  # fmt: skip
@click.option("--registry", default="", metavar="URL", help="A schema registry, to show the schemas of Avro topics.")
@click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A file with sections [events.NAME], whose stores are shown; code of aggregates is imported from this folder.",
)
@json_option
def start(
    bootstrap: tuple[Address, ...],
    port: int,
    access: Access,
    allow_writes: bool,
    interval_s: float,
    registry: str,
    config: Path | None,
    as_json: bool,
) -> None:
    """Serve the dashboard until SIGTERM or Ctrl-C; prints the address to open.

    \b
      headrace dashboard start
      headrace dashboard start --bootstrap kafka-1:9092 --allow-writes

    It listens on this machine alone and changes nothing, unless told otherwise; then only who opens the printed address
    is let in. Where the broker asks for logins, so does the dashboard: by the same names and passwords.
    """
    from headrace.dashboard.app import DashboardServer  # what serves pages is wanted by this command alone

    settings = Settings(
        bootstrap,
        language(),
        port,
        allow_writes,
        access,
        interval_s,
        ConnectionSettings(client_id="headrace-dashboard"),
        registry,
        _read_stores(config) if config is not None else (),
    )
    server = DashboardServer(settings)
    if as_json:
        print_json({"url": server.entry_url, "port": server.settings.port, "pid": os.getpid()})
    else:
        click.echo(f"headrace dashboard ready on {server.entry_url} (Ctrl-C ends)")
    server.serve()


def _read_stores(config: Path) -> tuple[StoreSection, ...]:
    from headrace.eventsourcing.flow import SECTION, check_section
    from headrace.stack.document import read_sections

    checked = {name: check_section(name, section) for name, section in read_sections(config, SECTION).items()}
    return tuple(
        StoreSection(name, given["url"], given.get("topic", ""), tuple(given.get("aggregates", ())))
        for name, given in checked.items()
    )
