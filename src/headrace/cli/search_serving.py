"""`headrace search serve`: stored queries and their hits over HTTP."""

import os

import click

from headrace.cli.access import access_options
from headrace.cli.output import json_option, print_json
from headrace.cli.parameters import bootstrap_option, complete_topic
from headrace.client.address import Address
from headrace.serving.access import Access

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
