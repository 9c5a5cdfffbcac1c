"""`headrace dashboard`: pages that show a cluster live, in a browser."""

import os
import secrets
from collections.abc import Callable

import click

from headrace.cli.moment import parse_start, parse_target, parse_time
from headrace.cli.output import json_option, print_json
from headrace.cli.parameters import bootstrap_option
from headrace.cli.where import is_true, parse
from headrace.client.address import Address
from headrace.client.connection import ConnectionSettings
from headrace.dashboard.settings import DEFAULT_PORT, Language, Settings

_TOKEN_BYTES = 24


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
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Where to listen; another than loopback needs a token."
)
@click.option("--allow-writes", is_flag=True, help="Let it produce records and reset groups; a token is made for it.")
@click.option(
    "--token",
    envvar="HEADRACE_DASHBOARD_TOKEN",
    show_envvar=True,
    help="Let in only who has this, 16 characters or more. Best given in the environment, which others cannot see.",
)
@click.option(
    "--host-name",
    "host_names",
    multiple=True,
    metavar="NAME",
    help="Also answer to this name; may be given repeatedly.",
)
@click.option(
    "--every", "interval_s", type=click.FloatRange(0.2, 60), default=2.0, show_default=True,
    help="How often to look at the cluster, in seconds.",
)  # fmt: skip
@click.option("--registry", default="", metavar="URL", help="A schema registry, to show the schemas of Avro topics.")
@json_option
def start(
    bootstrap: tuple[Address, ...],
    port: int,
    host: str,
    allow_writes: bool,
    token: str | None,
    host_names: tuple[str, ...],
    interval_s: float,
    registry: str,
    as_json: bool,
) -> None:
    """Serve the dashboard until SIGTERM or Ctrl-C; prints the address to open.

    \b
      headrace dashboard start
      headrace dashboard start --bootstrap kafka-1:9092 --allow-writes

    It listens on this machine alone and changes nothing, unless told otherwise; then only who opens the printed address
    is let in.
    """
    from headrace.dashboard.app import DashboardServer  # what serves pages is wanted by this command alone

    if allow_writes and token is None:
        token = secrets.token_urlsafe(_TOKEN_BYTES)
    settings = Settings(
        bootstrap,
        language(),
        host,
        port,
        allow_writes,
        token,
        host_names,
        interval_s,
        ConnectionSettings(client_id="headrace-dashboard"),
        registry,
    )
    server = DashboardServer(settings)
    if as_json:
        print_json({"url": server.entry_url, "port": server.settings.port, "pid": os.getpid()})
    else:
        click.echo(f"headrace dashboard ready on {server.entry_url} (Ctrl-C ends)")
    server.serve()
