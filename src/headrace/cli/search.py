"""`headrace search`: store queries, try them on documents, and see why one matches or does not.

Queries live in a compacted topic (`percolation/catalog.py` says in which form), which everything that holds documents
against them follows: what is written here is effective there within a moment.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
from rich.text import Text

from headrace.cli.cdc import show_until_stopped
from headrace.cli.output import console, json_option, print_json, print_table
from headrace.cli.parameters import (
    START,
    Parsed,
    bootstrap_option,
    complete_topic,
    config_option,
    connect,
    limit_option,
)
from headrace.cli.search_serving import mail, serve
from headrace.cli.status_view import search_table
from headrace.cli.trial_events import OF_RECORDS, Events, Row, read_file, read_topic
from headrace.client.address import Address
from headrace.client.cluster import Cluster
from headrace.client.offsets import Start
from headrace.durations import in_words, positive
from headrace.errors import harmless, nearest
from headrace.percolation.catalog import MAPPING_PREFIX, Catalog
from headrace.percolation.documents import parse_value, read_document
from headrace.percolation.errors import InvalidDocument, InvalidStoredQuery, UnknownQuery
from headrace.percolation.explain import Explanation
from headrace.percolation.mapping import Mapping, parse_mapping
from headrace.percolation.percolator import AllQueries, Hit, Percolator
from headrace.percolation.snippets import snippets
from headrace.percolation.stored import StoredQuery
from headrace.searches.section import run_search
from headrace.searches.settings import from_section
from headrace.stack.document import read_section
from headrace.stack.kinds.search import KIND
from headrace.stores.compacted_topic import CompactedTopic

DEFAULT_TOPIC: Final = "searches"
_TRIED: Final = "the query"
_duration = Parsed("duration", lambda text: positive(text, "--also-match-last"))

_queries_option = click.option(
    "--queries", default=DEFAULT_TOPIC, show_default=True, metavar="TOPIC", shell_complete=complete_topic,
    help="The compacted topic that the queries are in.",
)  # fmt: skip
_ids_argument = click.argument("ids", metavar="ID…", nargs=-1, required=True)
_mapping_file_option = click.option(
    "--mapping-file", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
    help="What fields mean, as JSON, in place of a stored mapping.",
)  # fmt: skip


@click.group()
def search() -> None:
    """Store queries that documents are held against as they flow past.

    \b
      headrace search mapping listings listings.json
      headrace search add bikes 'title:"racing bike"~2 AND price:<500' --mapping listings --owner ann
      headrace search test listings.jsonl --mapping listings
      headrace search explain '{"title": "A bike for racing", "price": 450}' --id bikes
    """


search.add_command(serve)
search.add_command(mail)


# --- at work


@search.command()
@click.argument("name")
@config_option("The file with a section [search.NAME].")
@click.option("--once", is_flag=True, help="End when every document that is there was held against the queries.")
@bootstrap_option
@json_option
def run(name: str, config: Path, once: bool, bootstrap: tuple[Address, ...], as_json: bool) -> None:
    """Run [search.NAME] until interrupted: documents are held against the stored queries as they come.

    Each hit is written once, whatever ends this command and whenever. A query that is added, changed, paused or removed
    meanwhile counts from then on. A document that cannot be read is a dead letter.
    """
    settings = from_section(name, read_section(config, KIND, name))
    show_until_stopped(search_table, partial(run_search, settings, bootstrap, once=once), as_json=as_json)


# --- storing


@search.command()
@click.argument("query_id", metavar="ID")
@click.argument("query")
@click.option("--mapping", default="default", show_default=True, metavar="NAME", help="What the fields mean.")
@click.option("--field", "fields", multiple=True, metavar="FIELD",
              help="Where to look for words that name no field. May be given several times.")  # fmt: skip
@click.option("--all-words", is_flag=True, help="Of words side by side all have to be there, instead of any.")
@click.option("--tag", "tags", multiple=True, help="Goes along with each match. May be given several times.")
@click.option("--owner", default="", help="Whose it is.")
@click.option("--boost", type=float, default=1.0, show_default=True, help="What scores are multiplied by.")
@click.option("--also-match-last", type=_duration, metavar="DURATION",
              help="Run it over so much of the log as well, for example '24 hours'.")  # fmt: skip
@click.option("--replace", "replaces", is_flag=True, help="Replace the query of this ID, if there is one.")
@_queries_option
@bootstrap_option
def add(
    query_id: str,
    query: str,
    mapping: str,
    fields: tuple[str, ...],
    all_words: bool,
    tags: tuple[str, ...],
    owner: str,
    boost: float,
    also_match_last: int | None,
    replaces: bool,
    queries: str,
    bootstrap: tuple[Address, ...],
) -> None:
    """Store QUERY as ID. One that cannot be read, or costs too much, is refused with the place marked."""
    stored = StoredQuery(query_id, query, mapping, fields, all_words, tags, owner, boost, False, 1, also_match_last)
    with connect(bootstrap) as cluster:
        topic, catalog = _read(cluster, queries)
        known = catalog.percolator
        if query_id in known:
            if not replaces:
                raise InvalidStoredQuery(f"query {query_id!r} is there already: give --replace, or another id")
            stored = replace(stored, version=known.get(query_id).version + 1)
        known.put(stored)
        topic.write(query_id, stored.as_json())
    click.echo(f"{'stored' if stored.version == 1 else 'replaced'} {harmless(query_id)} (version {stored.version})")


@search.command("list")
@click.option("--owner", help="Only those of this owner.")
@click.option("--tag", help="Only those with this tag.")
@_queries_option
@bootstrap_option
@json_option
def list_queries(
    owner: str | None, tag: str | None, queries: str, bootstrap: tuple[Address, ...], as_json: bool
) -> None:
    """List the stored queries, and what could not be taken and why."""
    with connect(bootstrap) as cluster:
        _, catalog = _read(cluster, queries)
    found = [
        stored
        for stored in catalog.percolator
        if (owner is None or stored.owner == owner) and (tag is None or tag in stored.tags)
    ]
    refused = sorted(catalog.refused.items())
    if as_json:
        print_json(
            {
                "queries": [{"id": stored.id, **json.loads(stored.as_json())} for stored in found],
                "refused": {key: change.reason for key, change in refused},
                "unselective": catalog.percolator.unselective,
            }
        )
        return
    if not found and not refused:
        click.echo("no queries yet: store one with headrace search add ID QUERY")
    if found:
        print_table(["id", "query", "mapping", "owner", "tags", ">version", "state"], map(_row, found))
    if catalog.percolator.unselective:
        click.echo(f"{catalog.percolator.unselective:,} are held against every document, for want of a word to look up")
    for key, change in refused:
        click.echo(f"refused: {harmless(key)}: {harmless(change.reason)}", err=True)


def _row(stored: StoredQuery) -> list[object]:
    state = Text("paused", style="yellow") if stored.paused else Text("running", style="green")
    if stored.also_match_last_us is not None:
        state.append(f", last {in_words(stored.also_match_last_us)}", "dim")
    tags = ", ".join(map(harmless, stored.tags))
    return [
        harmless(stored.id), harmless(stored.text), harmless(stored.mapping), harmless(stored.owner), tags,
        stored.version, state,
    ]  # fmt: skip


@search.command()
@_ids_argument
@_queries_option
@bootstrap_option
def pause(ids: tuple[str, ...], queries: str, bootstrap: tuple[Address, ...]) -> None:
    """Let no document match these queries until they are resumed."""
    _change(ids, queries, bootstrap, paused=True)


@search.command()
@_ids_argument
@_queries_option
@bootstrap_option
def resume(ids: tuple[str, ...], queries: str, bootstrap: tuple[Address, ...]) -> None:
    """Let documents match these queries again."""
    _change(ids, queries, bootstrap, paused=False)


def _change(ids: tuple[str, ...], queries: str, bootstrap: tuple[Address, ...], *, paused: bool) -> None:
    with connect(bootstrap) as cluster:
        topic, catalog = _read(cluster, queries)
        for stored in [catalog.percolator.get(each) for each in ids]:
            said = "paused" if paused else "resumed"
            if stored.paused == paused:
                click.echo(f"{harmless(stored.id)} was {said} already")
                continue
            topic.write(stored.id, catalog.percolator.change(stored.id, paused=paused).as_json())
            click.echo(f"{said} {harmless(stored.id)}")


@search.command()
@_ids_argument
@_queries_option
@bootstrap_option
def remove(ids: tuple[str, ...], queries: str, bootstrap: tuple[Address, ...]) -> None:
    """Remove these queries, or records that were refused."""
    with connect(bootstrap) as cluster:
        topic, catalog = _read(cluster, queries)
        for each in ids:
            if each not in catalog.refused:
                catalog.percolator.get(each)
        for each in ids:
            topic.write(each, None)
            click.echo(f"removed {harmless(each)}")


@search.command()
@click.argument("name")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@_queries_option
@bootstrap_option
def mapping(name: str, file: Path, queries: str, bootstrap: tuple[Address, ...]) -> None:
    """Store what fields mean as mapping NAME, from a FILE of JSON.

    \b
      {"fields": {"title": {"type": "text", "analyzer": "english"}, "price": "double", "place": "geo_point"},
       "default_fields": ["title"]}

    Queries that would mean nothing under it are named, and nothing is stored.
    """
    given = file.read_bytes()
    read = parse_mapping(given, name)
    with connect(bootstrap) as cluster:
        topic, catalog = _read(cluster, queries)
        refused = catalog.percolator.put_mapping(name, read)
        if refused:
            first, error = min(refused.items())
            raise InvalidStoredQuery(
                f"mapping {name!r} would refuse {len(refused)} of its queries, the first is {first!r} "
                f"({error.sentence}): change or remove them before"
            )
        topic.write(f"{MAPPING_PREFIX}{name}", given)
    click.echo(f"stored mapping {harmless(name)} ({len(read.fields)} fields)")


# --- trying


@search.command()
@click.argument("documents", required=False)
@click.option("--query", help="Try this query, in place of the stored ones.")
@click.option("--id", "ids", multiple=True, metavar="ID", help="Only this stored query. May be given several times.")
@click.option("--mapping", default="default", show_default=True, metavar="NAME", help="What the fields mean.")
@_mapping_file_option
@click.option("--topic", shell_complete=complete_topic, help="Take the documents from this topic of JSON.")
@click.option("--from", "start", type=START, metavar="PLACE", help="Where to begin in the topic.  [default: earliest]")
@click.option("--to", "end", type=START, metavar="PLACE", help="Where to end in the topic; by default, now.")
@limit_option("How many documents that match are shown; --json has all.")
@_queries_option
@bootstrap_option
@json_option
def test(
    documents: str | None,
    query: str | None,
    ids: tuple[str, ...],
    mapping: str,
    mapping_file: Path | None,
    topic: str | None,
    start: Start | None,
    end: Start | None,
    limit: int,
    queries: str,
    bootstrap: tuple[Address, ...],
    as_json: bool,
) -> None:
    """Hold DOCUMENTS against the stored queries, or against one of --query, and show what matches.

    DOCUMENTS is a file of JSON lines or CSV, or - for standard input; with --topic they are the records of a topic that
    are JSON objects. With --query and a file no broker is needed.

    \b
      headrace search test listings.jsonl
      headrace search test listings.jsonl --query 'title:bike AND price:<500' --mapping-file listings.json
      headrace search test --topic listings --from 1d --id bikes
    """
    if (documents is None) == (topic is None):
        raise click.UsageError("give DOCUMENTS, or --topic")
    if topic is None and (start is not None or end is not None):
        raise click.UsageError("--from and --to are of a --topic")
    if query is not None and ids:
        raise click.UsageError("give --query or --id, not both")
    held = _percolator(query, ids, mapping, mapping_file, queries, bootstrap)
    with _opened(documents, topic, start, end, bootstrap) as events:
        trial = _Trial(held, mapping, events, limit, as_json)
        trial.run()
    trial.end()


@search.command()
@click.argument("document")
@click.option("--id", "query_id", metavar="ID", help="Explain this stored query.")
@click.option("--query", help="Explain this query, in place of a stored one.")
@click.option(
    "--mapping", default="default", show_default=True, metavar="NAME", help="What the fields mean to --query."
)
@_mapping_file_option
@_queries_option
@bootstrap_option
@json_option
def explain(
    document: str,
    query_id: str | None,
    query: str | None,
    mapping: str,
    mapping_file: Path | None,
    queries: str,
    bootstrap: tuple[Address, ...],
    as_json: bool,
) -> None:
    """Say why DOCUMENT matches a query, or why not: each part of the query, and what the document has.

    DOCUMENT is a JSON object, or a file whose first document is taken, or - for standard input. Ends with 1 if it does
    not match.

    \b
      headrace search explain '{"title": "A bike for racing", "price": 450}' --id bikes
      headrace search explain listing.json --query 'title:bike AND price:<500'
    """
    if (query is None) == (query_id is None):
        raise click.UsageError("give --id or --query")
    value = _document(document)
    held = _percolator(query, (query_id,) if query_id else (), mapping, mapping_file, queries, bootstrap)
    said = held.explain(query_id or _TRIED, value)
    if as_json:
        print_json(said.as_json())
    else:
        _print_explanation(said)
    sys.exit(0 if said.matches else 1)


def _print_explanation(said: Explanation) -> None:
    terminal = console()
    for line in said.lines():
        shown = Text(line)
        at = len(line) - len(line.lstrip())
        shown.stylize("green" if line[at:].startswith("yes") else "red", at, at + 3)
        terminal.print(shown, soft_wrap=True)


def _document(given: str) -> dict[str, Any]:
    if given.lstrip().startswith("{"):
        try:
            value: dict[str, Any] = parse_value(given)
        except InvalidDocument:
            raise InvalidDocument("the document is not JSON: write an object, whose numbers are finite") from None
        return value
    return dict(next(read_file(given).rows))


# --- what is held against what


def _percolator(
    query: str | None,
    ids: tuple[str, ...],
    mapping: str,
    mapping_file: Path | None,
    queries: str,
    bootstrap: tuple[Address, ...],
) -> Percolator:
    """The queries to try: one that was given, those that were named, or all that are stored."""
    if query is not None and (mapping_file is not None or mapping == "default"):
        given = {} if mapping_file is None else {mapping: _mapping_of(mapping_file, mapping)}
        held = Percolator(given or None, index=AllQueries)
        held.put(StoredQuery(_TRIED, query, mapping))
        return held
    with connect(bootstrap) as cluster:
        _, catalog = _read(cluster, queries)
    held = catalog.percolator
    if mapping_file is not None:
        refused = held.put_mapping(mapping, _mapping_of(mapping_file, mapping))
        for each in sorted(set(ids) & set(refused)):
            raise refused[each]
    if query is not None:
        held.put(StoredQuery(_TRIED, query, mapping))
        ids = (_TRIED,)
    for each in ids:
        if each in catalog.refused:
            raise InvalidStoredQuery(catalog.refused[each].reason)
        held.get(each)
    for stored in list(held):
        if ids and stored.id not in ids:
            held.remove(stored.id)
    return held


def _mapping_of(file: Path, name: str) -> Mapping:
    return parse_mapping(file.read_bytes(), name)


def _read(cluster: Cluster, name: str) -> tuple[CompactedTopic, Catalog]:
    """The topic, and what stands in it now."""
    topic, catalog = CompactedTopic(cluster, name, is_for_others=True), Catalog(index=AllQueries)
    for record in topic.read_news():
        key, value = record.key, record.value
        catalog.apply(record.offset, None if key is None else bytes(key), None if value is None else bytes(value))
    return topic, catalog


@contextmanager
def _opened(
    documents: str | None, topic: str | None, start: Start | None, end: Start | None, bootstrap: tuple[Address, ...]
) -> Iterator[Events]:
    if topic is None:
        yield read_file(documents or "-")
        return
    with connect(bootstrap) as cluster, read_topic(cluster, topic, start, end) as read:
        yield read


class _Trial:
    """Documents held against queries, one after the other, and what is said of them."""

    def __init__(self, held: Percolator, mapping: str, events: Events, limit: int, as_json: bool) -> None:
        if mapping not in held.mappings:
            raise UnknownQuery(f"mapping {mapping!r} is unknown; {nearest(mapping, held.mappings)}")
        self._held = held
        self._mapping = mapping
        self._events = events
        self._limit = limit
        self._as_json = as_json
        self._read = self._matching = self._hits = self._refused = 0

    def run(self) -> None:
        described = self._held.mappings[self._mapping]
        hidden = OF_RECORDS if self._events.is_topic else ()
        for row in self._events.rows:
            self._read += 1
            try:
                # What a topic's records have beside their values is no text to search.
                value = {name: each for name, each in row.items() if name not in hidden}
                document = read_document(value, described)
            except InvalidDocument as error:
                self._refused += 1
                click.echo(f"{self._events.place} {row.place}: {harmless(str(error))}", err=True)
                continue
            hits = self._held.percolate(document, self._mapping)
            if not hits:
                continue
            self._matching += 1
            self._hits += len(hits)
            if self._as_json:
                click.echo(json.dumps(_as_json(row, hits), ensure_ascii=False))
            elif self._matching <= self._limit:
                terminal = console()
                terminal.print(Text(f"{self._events.place} {row.place}", "cyan"), soft_wrap=True)
                for hit in hits:
                    shown = "; ".join(f"{each.field}: {each.marked()}" for each in snippets(document, hit.highlights))
                    line = Text.assemble(
                        "  ", (harmless(hit.id), "bold"), f"  {hit.score:g}  ", (harmless(shown), "dim")
                    )
                    terminal.print(line, soft_wrap=True)

    def end(self) -> None:
        more = f" ({self._matching - self._limit:,} not shown)" if self._matching > self._limit else ""
        skipped = self._events.skipped[0]  # records that hold no JSON object
        refused = f", {self._refused + skipped:,} could not be read" if self._refused + skipped else ""
        if not self._as_json:
            click.echo(
                f"{self._matching:,} of {self._read + skipped:,} documents match{more}, {self._hits:,} hits{refused}"
            )


def _as_json(row: Row, hits: list[Hit]) -> dict[str, Any]:
    return {
        "place": row.place,
        "hits": [
            {
                "id": hit.id,
                "score": hit.score,
                "version": hit.version,
                "tags": list(hit.tags),
                "owner": hit.owner,
                "highlights": [
                    {"field": each.field, "value": each.value, "start": each.start, "end": each.end, "text": each.text}
                    for each in hit.highlights
                ],
            }
            for hit in hits
        ],
    }
