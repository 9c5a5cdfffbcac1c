"""`headrace search serve` and `mail`: stored queries and their hits over HTTP, and hits by mail."""

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import click

from headrace.cli.access import access_options
from headrace.cli.cdc import show_until_stopped
from headrace.cli.output import json_option, print_json
from headrace.cli.parameters import bootstrap_option, complete_topic, config_option
from headrace.cli.status_view import search_table
from headrace.client.address import Address
from headrace.searches.digests import owner_of
from headrace.searches.mail_settings import from_section
from headrace.serving.access import Access
from headrace.stack.document import read_section
from headrace.stack.kinds.mail import KIND

_DEFAULT_PORT = 8400


@click.command()
@click.option(
    "--queries", default="searches", show_default=True, metavar="TOPIC", shell_complete=complete_topic,
    help="The compacted topic that the queries are in.",
)  # fmt: skip
@click.option("--hits", metavar="TOPIC", shell_complete=complete_topic,
              help="Let browsers listen to the hits in this topic.")  # fmt: skip
@click.option(
    "--port", type=click.IntRange(0, 65535), default=_DEFAULT_PORT, show_default=True, help="0 takes a free one."
)
@click.option("--allow-writes", is_flag=True, help="Let admins add, change, pause and remove queries.")
@access_options
@bootstrap_option
@json_option
def serve(
    queries: str,
    hits: str | None,
    port: int,
    allow_writes: bool,
    access: Access,
    bootstrap: tuple[Address, ...],
    as_json: bool,
) -> None:
    """Serve stored queries over HTTP, on this machine alone unless told otherwise, until SIGTERM or Ctrl-C.

    \b
      POST /percolate             a document in hand, or a list: its hits, or with ?explain=ID why (not)
      GET  /searches[/ID]         the stored queries
      PUT, DELETE /searches/ID    store or remove one; POST /searches/ID/pause and /resume
      GET  /hits                  server-sent events of hits, by ?owner=, ?tag= or ?query=

    Where the broker asks for logins, so does this server: by the same names and passwords, or by a token. Queries are
    changed with --allow-writes alone, and only who shows the printed token is let in then.
    """
    from headrace.searches.http import SearchServer  # what serves is wanted by this command alone

    server = SearchServer(bootstrap, queries, hits, port, access, allow_writes=allow_writes)
    shown = {"token": access.token} if access.token else {}
    if as_json:
        print_json({"url": server.url, "port": server.port, "pid": os.getpid(), **shown})
    else:
        click.echo(f"headrace search ready on {server.url}/searches (Ctrl-C ends)")
        if access.token:
            click.echo(f"show this token: Authorization: Bearer {access.token}")
    server.serve()


@click.command()
@click.argument("name")
@config_option("The file with a section [mail.NAME].")
@bootstrap_option
@json_option
@click.option("--failed", is_flag=True, help="Show the mails that were given up, and end.")
@click.option("--retry-failed", is_flag=True, help="Have the mails that were given up wait again, and end.")
def mail(
    name: str, config: Path, bootstrap: tuple[Address, ...], as_json: bool, failed: bool, retry_failed: bool
) -> None:
    """Mail hits to the owners of their queries as [mail.NAME] says, until interrupted.

    Each owner gets one mail an interval at most, with all hits since the last one. A mail server that is away is waited
    for. Each hit is told once, whatever ends this command and whenever; a mail that was under way then is sent again
    with the same Message-ID.

    A mail that the server refuses for good, or for now ten times, is given up: --failed shows why, and after
    --retry-failed it is sent again, by whoever runs this command or by the next.
    """
    from headrace.searches.mail import open_outbox, run_mail  # what sends is wanted by this command alone

    settings = from_section(name, read_section(config, KIND, name))
    if failed or retry_failed:
        with open_outbox(settings) as ledger:
            _show_given_up(ledger.failed(), as_json=as_json)
            if retry_failed:
                ledger.retry_failed()
        return
    show_until_stopped(search_table, partial(run_mail, settings, bootstrap), as_json=as_json)


def _show_given_up(found: Sequence[tuple[str, int, str, str]], *, as_json: bool) -> None:
    mails = [
        {"mail": key, "owner": owner_of(payload), "attempts": attempts, "error": error}
        for key, attempts, error, payload in found
    ]
    if as_json:
        print_json(mails)
        return
    for each in mails:
        click.echo(f"{each['owner']}: {each['error']} (tries: {each['attempts']}, Message-ID: {each['mail']})")
    if not mails:
        click.echo("no mail was given up")
