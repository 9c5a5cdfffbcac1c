"""`headrace view`: see views and how fresh they are, ask one for a row, and serve them over HTTP."""

import os
import time
from pathlib import Path
from typing import Any

import click

from headrace.cli.access import access_options
from headrace.cli.output import human_count, human_duration, human_time, json_option, print_json, print_table
from headrace.cli.parameters import as_text, bootstrap_option
from headrace.client.address import Address
from headrace.serving.access import Access

_FILE = "views.py"
file_argument = click.argument("file", type=click.Path(path_type=Path), default=_FILE)
file_option = click.option(
    "--file", type=click.Path(path_type=Path), default=_FILE, show_default=True, help="The file that declares the view."
)
_DEFAULT_PORT = 8300


@click.group()
def view() -> None:
    """Look at materialized views, and serve them. They are kept by `headrace pipeline run`."""


@view.command("list")
@file_argument
@json_option
def list_views(file: Path, as_json: bool) -> None:
    """List the views that FILE declares (views.py if none is named), without asking their stores."""
    found = [
        {"view": name, "key": list(sink.key), "sources": list(sink.sources), "store": str(sink.store)}
        for name, sink in _views(file).items()
    ]
    if as_json:
        print_json(found)
        return
    print_table(
        ["view", "key", "reads", "kept in"],
        [(one["view"], ", ".join(one["key"]), ", ".join(one["sources"]), one["store"]) for one in found],
    )


@view.command()
@file_argument
@bootstrap_option
@json_option
def status(file: Path, bootstrap: tuple[Address, ...], as_json: bool) -> None:
    """Show how fresh the views of FILE are: rows, last batch, when it was written, lag."""
    found = [_status(name, sink, as_text(bootstrap)) for name, sink in _views(file).items()]
    if as_json:
        print_json(found)
        return
    print_table(
        ["view", "store", ">rows", ">batch", "written", ">ago", ">lag", "watermark", "problem"],
        [
            (
                one["view"],
                one["store"],
                human_count(one.get("rows")),
                human_count(one.get("batch")),
                human_time(one.get("written_ms")),
                human_duration(one.get("age_ms")),
                human_count(one.get("lag_records")),
                one.get("watermark") or "–",
                one.get("problem", ""),
            )
            for one in found
        ],
    )


@view.command()
@click.argument("name", metavar="VIEW")
@click.argument("key", nargs=-1, required=True)
@file_option
@bootstrap_option
@json_option
def get(name: str, key: tuple[str, ...], file: Path, bootstrap: tuple[Address, ...], as_json: bool) -> None:
    """Print the row of VIEW with this KEY: a value for each column of the key. Ends with 1 if there is none.

    \b
      headrace view get cities Porto --file views.py
    """
    from headrace.stores.errors import NoSuchView
    from headrace.stores.views.question import read_key
    from headrace.stores.views.shape import show_row

    views = _views(file)
    if name not in views:
        raise NoSuchView(f"{file} declares no view {name!r}: it has {', '.join(views)}")
    reader = views[name].store.reader(name, as_text(bootstrap))
    try:
        shape = reader.kept().shape
        answer = reader.row(read_key(shape, key))
    finally:
        reader.close()
    if not answer.rows:
        raise NoSuchView(f"view {name!r} has no row with the key {' '.join(key)}")
    row = show_row(shape, answer.rows[0])
    freshness = answer.kept.freshness
    if as_json:
        print_json({"view": name, "row": row, "freshness": freshness.shown(_now_ms())})
        return
    print_table(["column", "value"], list(row.items()))
    ago = human_duration(max(_now_ms() - freshness.written_ms, 0))
    click.echo(f"as of batch {freshness.batch}, written {ago} ago")


@view.command()
@file_argument
@click.option(
    "--port", type=click.IntRange(0, 65535), default=_DEFAULT_PORT, show_default=True, help="0 takes a free one."
)
@access_options
@bootstrap_option
@json_option
def serve(file: Path, port: int, access: Access, bootstrap: tuple[Address, ...], as_json: bool) -> None:
    """Serve the views of FILE over HTTP, on this machine alone unless told otherwise, until SIGTERM or Ctrl-C.

    \b
      GET /views                          all views, and how fresh they are
      GET /views/NAME/KEY[/KEY…]          one row
      GET /views/NAME?user=7&order=-at    rows, a page at a time
      GET /views/NAME/live                server-sent events as the view changes

    Where the broker asks for logins, so does this server: by the same names and passwords, or by a token.
    """
    from headrace.pipelines.views.serving.app import ViewServer  # what serves is wanted by this command alone

    views = _views(file)
    server = ViewServer(views, port, as_text(bootstrap), access)
    if as_json:
        print_json({"url": server.url, "port": server.port, "pid": os.getpid(), "views": list(views)})
    else:
        click.echo(f"headrace views ready on {server.url}/views: {', '.join(views)} (Ctrl-C ends)")
    server.serve()


def _views(file: Path) -> dict[str, Any]:
    from headrace.pipelines.jobs.load import BadFile, load
    from headrace.pipelines.views.declare import views_in

    found = views_in(load(file))
    if not found:
        raise BadFile(
            f"{file} declares no view: put @view(…) over a function (from headrace.pipelines.views import view)"
        )
    return found


def _status(name: str, sink: Any, bootstrap: str) -> dict[str, Any]:
    from headrace.client.address import parse_bootstrap
    from headrace.client.cluster import PATIENT, Cluster
    from headrace.client.errors import ClientError
    from headrace.pipelines.views.status import with_lag
    from headrace.stores.errors import ViewError

    about = {"view": name, "store": sink.store.kind}
    try:
        reader = sink.store.reader(name, bootstrap)
        try:
            freshness = reader.kept().freshness
        finally:
            reader.close()
    except ViewError as error:
        return about | {"problem": str(error)}
    about |= freshness.shown(_now_ms()) | {"written_ms": freshness.written_ms}
    try:
        with Cluster(parse_bootstrap(bootstrap), retry=PATIENT.at_most(0)) as cluster:
            return about | with_lag(cluster, freshness)
    except ClientError:
        return about  # a view can be looked at without its broker


def _now_ms() -> int:
    return int(time.time() * 1000)
