"""`headrace webhook`: the endpoints that a gateway of kind `webhook-sender` sends records to.

Endpoints live in a compacted topic (`gateways/webhook_sender/registry.py` says in which form), which the gateway
follows: what is written here is effective there within a moment.
"""

import base64
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click
from rich.text import Text

from headrace.cli.output import json_option, print_json, print_table
from headrace.cli.parameters import bootstrap_option, complete_topic, connect, limit_option
from headrace.client.address import Address
from headrace.client.cluster import Cluster
from headrace.client.errors import UnknownTopic
from headrace.client.fetch import FetchOptions
from headrace.client.offsets import bounds
from headrace.client.reader import read_records
from headrace.dead_letters import LetterBox, topic_for
from headrace.errors import HeadraceError, harmless
from headrace.gateways.webhook_sender.courier import job_of
from headrace.gateways.webhook_sender.endpoint import (
    ENDPOINT_KEYS,
    ONLY_IN_SECTION,
    Endpoint,
    check_id,
    check_secret_name,
    read_endpoint,
)
from headrace.gateways.webhook_sender.registry import (
    DEFAULT_LOG,
    DEFAULT_TOPIC,
    Registry,
    as_record,
    endpoint_key,
    request_key,
    state_key,
)
from headrace.model import TopicPartition
from headrace.secret_files import write_private
from headrace.section_keys import Key
from headrace.stores.compacted_topic import CompactedTopic

_COMMITTED: Final = FetchOptions(committed=True)
_LOG_READ: Final = 20_000  # entries that are looked through at the most, the last ones
_SECRET_BYTES: Final = 24
_LOOK_EVERY_S: Final = 0.1

_endpoints_option = click.option(
    "--endpoints", default=DEFAULT_TOPIC, show_default=True, metavar="TOPIC", shell_complete=complete_topic,
    help="The compacted topic that the endpoints are in.",
)  # fmt: skip
_log_option = click.option(
    "--log", "log_topic", default=DEFAULT_LOG, show_default=True, metavar="TOPIC", shell_complete=complete_topic,
    help="The topic that each attempt is logged in.",
)  # fmt: skip
_ids_argument = click.argument("ids", metavar="ID…", nargs=-1, required=True)


class WebhookCommandError(HeadraceError):
    """What cannot be done with an endpoint."""


@click.group()
def webhook() -> None:
    """Send the records of topics to endpoints of others, by headrace gateway webhook-sender.

    \b
      headrace webhook secret shop --secrets secrets
      headrace webhook add shop --topic orders --url https://shop.example/hooks --secret-name shop
      headrace gateway webhook-sender --secrets secrets
      headrace webhook test shop
      headrace webhook log shop
    """


# --- registering


def _option(key: Key) -> Any:
    word = f"--{key.name.replace('_', '-')}"
    usual = "" if key.default in (None, "", False) else f" By default {key.default}."
    if key.name == "url":
        meaning = "Where they are sent; --url - reads it from standard input, for a URL that is a secret."
        return click.option(word, key.name, required=True, help=meaning)
    if key.type is bool:
        return click.option(word, key.name, is_flag=True, default=None, help=key.meaning)
    if key.type is list:
        return click.option(word, key.name, multiple=True, help=f"{key.meaning} May be given several times.")
    if key.type is dict:
        return click.option("--header", key.name, multiple=True, metavar="NAME=VALUE",
                            help="A header that each request has. May be given several times.")  # fmt: skip
    kind = click.Choice(key.choices) if key.choices else key.type
    return click.option(word, key.name, type=kind, required=key.is_needed, help=key.meaning + usual)


def _with_keys(command: Any) -> Any:
    for key in reversed([key for key in ENDPOINT_KEYS if key.name not in ONLY_IN_SECTION]):
        command = _option(key)(command)
    return command


@webhook.command()
@click.argument("endpoint_id", metavar="ID")
@_with_keys
@click.option("--replace", "replaces", is_flag=True, help="Replace the endpoint of this ID, if there is one.")
@_endpoints_option
@bootstrap_option
def add(endpoint_id: str, replaces: bool, endpoints: str, bootstrap: tuple[Address, ...], **given: Any) -> None:
    """Register an endpoint as ID: which records are sent there, and how.

    One that is replaced goes on in its topic where it was.
    """
    said = {name: value for name, value in given.items() if value is not None and value != ()}
    if said["url"] == "-":
        said["url"] = sys.stdin.readline().strip()
    if "forward_headers" in said:
        said["forward_headers"] = list(said["forward_headers"])
    if "headers" in said:
        said["headers"] = dict(_pair(each) for each in said["headers"])
    read_endpoint(endpoint_id, said, endpoint_id)
    with _opened(endpoints, bootstrap) as (topic, registry):
        is_there = endpoint_id in registry.endpoints or endpoint_id in registry.refused
        if is_there and not replaces:
            raise WebhookCommandError(f"endpoint {endpoint_id!r} is there already: give --replace, or another id")
        topic.write(endpoint_key(endpoint_id), as_record(said))
    click.echo(f"{'replaced' if is_there else 'registered'} {endpoint_id}")


def _pair(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign:
        raise WebhookCommandError("--header is not NAME=VALUE: write for example X-Team=mill")
    return name, value


@webhook.command("list")
@_endpoints_option
@bootstrap_option
@json_option
def list_endpoints(endpoints: str, bootstrap: tuple[Address, ...], as_json: bool) -> None:
    """List the endpoints of the topic, and those that cannot be and why.

    Of a URL only the host is shown: its path is often a secret. How endpoints fare, headrace webhook log and headrace
    gateway list say.
    """
    with _opened(endpoints, bootstrap) as (_, registry):
        found = sorted(registry.endpoints.values(), key=lambda each: each.id)
        if as_json:
            print_json(
                {
                    "endpoints": [_as_json(each, registry) for each in found],
                    "refused": dict(sorted(registry.refused.items())),
                    "requests": [{"endpoint": each.endpoint, "do": each.do} for each in registry.requests.values()],
                }
            )
            return
        if not found and not registry.refused:
            click.echo("no endpoints yet: register one with headrace webhook add ID --topic TOPIC --url URL")
        if found:
            rows = [_row(each, registry) for each in found]
            print_table(["id", "topic", "host", "filter", "order", "signed by", "state"], rows)
        for endpoint_id, sentence in sorted(registry.refused.items()):
            click.echo(f"refused: {harmless(endpoint_id)}: {harmless(sentence)}", err=True)


def _as_json(endpoint: Endpoint, registry: Registry) -> dict[str, Any]:
    said = {name: value for name, value in endpoint.said.items() if name not in ("url", "headers")}
    headers = {"headers": sorted(endpoint.headers)} if endpoint.headers else {}
    return {
        "id": endpoint.id, **said, "host": endpoint.host, **headers, "paused": registry.control(endpoint.id).paused,
    }  # fmt: skip


def _row(endpoint: Endpoint, registry: Registry) -> list[object]:
    is_paused = registry.control(endpoint.id).paused
    return [
        endpoint.id, endpoint.topic, harmless(endpoint.host), harmless(endpoint.filter.text if endpoint.filter else ""),
        endpoint.order.value, endpoint.secret_name or "nobody",
        Text("paused", style="yellow") if is_paused else Text("active", style="green"),
    ]  # fmt: skip


@webhook.command()
@_ids_argument
@_endpoints_option
@bootstrap_option
def remove(ids: tuple[str, ...], endpoints: str, bootstrap: tuple[Address, ...]) -> None:
    """Remove these endpoints; what was not sent there yet is not."""
    with _opened(endpoints, bootstrap) as (topic, registry):
        for each in ids:
            if each not in registry.refused:
                _known(registry, each)
        for each in ids:
            topic.write(endpoint_key(each), None)
            topic.write(state_key(each), None)
            click.echo(f"removed {harmless(each)}")


@webhook.command()
@_ids_argument
@_endpoints_option
@bootstrap_option
def pause(ids: tuple[str, ...], endpoints: str, bootstrap: tuple[Address, ...]) -> None:
    """Send nothing to these endpoints until they are resumed; also to those of a section."""
    _control(ids, endpoints, bootstrap, paused=True)


@webhook.command()
@_ids_argument
@_endpoints_option
@bootstrap_option
def resume(ids: tuple[str, ...], endpoints: str, bootstrap: tuple[Address, ...]) -> None:
    """Send to these endpoints again, from where they were: after a pause, or when they were disabled."""
    _control(ids, endpoints, bootstrap, paused=False)


def _control(ids: Sequence[str], endpoints: str, bootstrap: tuple[Address, ...], *, paused: bool) -> None:
    for each in ids:
        check_id(each)
    with _opened(endpoints, bootstrap) as (topic, registry):
        for each in ids:
            resumed_ms = registry.control(each).resumed_ms if paused else time.time_ns() // 1_000_000
            topic.write(state_key(each), as_record({"paused": paused, "resumed_ms": resumed_ms}))
            more = "" if each in registry.endpoints else " (an endpoint of a section, if there is one)"
            click.echo(f"{'paused' if paused else 'resumed'} {each}{more}")


@webhook.command()
@click.argument("name")
@click.option("--secrets", type=click.Path(path_type=Path, file_okay=False), default="secrets", show_default=True,
              help="The folder of the gateway's secrets.")  # fmt: skip
@click.option("--add", "adds", is_flag=True, help="Sign with a further secret besides the ones there are.")
def secret(name: str, secrets: Path, adds: bool) -> None:
    """Make a secret for Standard Webhooks in the folder, and show it once: for whoever receives.

    To change one, add another, give it to the receiver, and remove the first line of the file once it is in use there:
    requests carry a signature of each meanwhile.
    """
    path = secrets / check_secret_name(name)
    is_there = path.exists()
    if is_there and not adds:
        raise WebhookCommandError(f"{path} is there already: give --add for a further secret, or another name")
    made = "whsec_" + base64.b64encode(os.urandom(_SECRET_BYTES)).decode()
    write_private(path, (path.read_text(encoding="utf-8").rstrip("\n") + "\n" if is_there else "") + made + "\n")
    click.echo(made)


# --- trying, looking, sending again


@webhook.command()
@click.argument("endpoint_id", metavar="ID")
@click.option("--timeout", default=60.0, show_default=True, help="How many seconds to wait for the gateway.")
@_endpoints_option
@_log_option
@bootstrap_option
@json_option
def test(
    endpoint_id: str, timeout: float, endpoints: str, log_topic: str, bootstrap: tuple[Address, ...], as_json: bool
) -> None:
    """Have the gateway send a test event to an endpoint, and say what was answered; also to one that is paused.

    Ends with 1 if it was not taken.
    """
    check_id(endpoint_id)
    request_id = os.urandom(8).hex()
    with _opened(endpoints, bootstrap) as (topic, _), connect(bootstrap) as cluster:
        at = _end_of_log(cluster, log_topic)
        topic.write(request_key(endpoint_id, request_id), as_record({"do": "test"}))
        ends = time.monotonic() + timeout
        found: dict[str, Any] | None = None
        while found is None and time.monotonic() < ends:
            time.sleep(_LOOK_EVERY_S)
            entries = _read_log(cluster, log_topic, at)
            found = next((each for each in entries if each.get("id") == f"test_{request_id}"), None)
        if found is None:
            topic.write(request_key(endpoint_id, request_id), None)
            raise WebhookCommandError(
                f"no gateway sent a test to {endpoint_id!r} within {timeout:g} s: is one running with this topic of "
                "endpoints, and is there such an endpoint?"
            )
    if as_json:
        print_json(found)
    else:
        click.echo(_sentence(found))
    sys.exit(0 if found["outcome"] == "delivered" else 1)


@webhook.command("log")
@click.argument("endpoint_id", metavar="[ID]", required=False)
@click.option("--failed", is_flag=True, help="Only attempts that were not taken.")
@limit_option("How many are shown, the last ones.")
@_log_option
@bootstrap_option
@json_option
def show_log(
    endpoint_id: str | None, failed: bool, limit: int, log_topic: str, bootstrap: tuple[Address, ...], as_json: bool
) -> None:
    """Show the attempts to deliver: when, which record, with what answer, and how long it took."""
    with connect(bootstrap) as cluster:
        entries = _read_log(cluster, log_topic)
    chosen = [
        each
        for each in entries
        if (endpoint_id is None or each.get("endpoint") == endpoint_id)
        and (not failed or each.get("outcome") != "delivered")
    ][-limit:]
    if as_json:
        print_json(chosen)
    elif not chosen:
        click.echo("nothing is logged")
    else:
        print_table(
            ["at", "endpoint", "record", ">attempt", "outcome", ">status", ">ms", "error"], map(_log_row, chosen)
        )


def _log_row(entry: Mapping[str, Any]) -> list[object]:
    outcome = str(entry.get("outcome", ""))
    record = "test" if entry.get("test") else f"{entry.get('topic')}-{entry.get('partition')}@{entry.get('offset')}"
    return [
        time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(entry["at_ms"] / 1000)), harmless(str(entry["endpoint"])),
        harmless(record) + (" again" if entry.get("resent") else ""), entry.get("attempt", 0),
        Text(outcome, style="green" if outcome == "delivered" else "red"), entry.get("status") or "",
        entry.get("ms", 0), harmless(str(entry.get("error", ""))),
    ]  # fmt: skip


def _sentence(entry: Mapping[str, Any]) -> str:
    if entry["outcome"] == "delivered":
        return f"it was taken: status {entry['status']} after {entry['ms']} ms"
    return f"it was not taken: {harmless(str(entry.get('error', '')))} ({entry['ms']} ms)"


@webhook.command()
@click.argument("endpoint_id", metavar="ID")
@click.option("--partition", type=click.IntRange(min=0), default=0, show_default=True,
              help="The partition of the topic.")  # fmt: skip
@click.option("--offset", type=click.IntRange(min=0), help="Send this record again, or with --to those from here on.")
@click.option("--to", "end", type=click.IntRange(min=0), help="The last record that is sent again.")
@click.option("--dead-letters", is_flag=True, help="Send all again that were given up.")
@_endpoints_option
@bootstrap_option
def resend(
    endpoint_id: str,
    partition: int,
    offset: int | None,
    end: int | None,
    dead_letters: bool,
    endpoints: str,
    bootstrap: tuple[Address, ...],
) -> None:
    """Send records of its topic to an endpoint again, as they were, with the same webhook-id.

    The filter of the endpoint counts. The gateway sends them beside what comes, in the order of the endpoint.

    \b
      headrace webhook resend shop --partition 0 --offset 4711
      headrace webhook resend shop --partition 0 --offset 4711 --to 4800
      headrace webhook resend shop --dead-letters
    """
    if dead_letters is (offset is not None) or (end is not None and offset is None):
        raise click.UsageError("give --offset, perhaps with --to, or --dead-letters")
    with _opened(endpoints, bootstrap) as (topic, registry), connect(bootstrap) as cluster:
        endpoint = _known(registry, endpoint_id)
        if offset is not None:
            last = offset if end is None else end
            if last < offset:
                raise click.UsageError("--to is before --offset")
            ranges = [(partition, offset, last + 1)]
        else:
            ranges = _given_up(cluster, endpoint)
        for where, start, after in ranges:
            said = {"do": "resend", "partition": where, "from": start, "to": after, "dead_letters": dead_letters}
            topic.write(request_key(endpoint_id, os.urandom(8).hex()), as_record(said))
    count = sum(after - start for _, start, after in ranges)
    click.echo(f"{count:,} {'record is' if count == 1 else 'records are'} to be sent to {endpoint_id} again")


def _given_up(cluster: Cluster, endpoint: Endpoint) -> list[tuple[int, int, int]]:
    """The records with dead letters, those behind each other as one range."""
    box = LetterBox(topic_for(endpoint.topic, None), endpoint.topic, job_of(endpoint.id))
    places = sorted({(letter.partition, letter.offset) for letter in box.look(cluster, keep=True)})
    ranges: list[tuple[int, int, int]] = []
    for partition, offset in places:
        if ranges and ranges[-1][0] == partition and ranges[-1][2] == offset:
            ranges[-1] = (partition, ranges[-1][1], offset + 1)
        else:
            ranges.append((partition, offset, offset + 1))
    return ranges


# --- what is there


@contextmanager
def _opened(endpoints: str, bootstrap: tuple[Address, ...]) -> Iterator[tuple[CompactedTopic, Registry]]:
    """The topic, and what it says now."""
    with connect(bootstrap) as cluster:
        topic, registry = CompactedTopic(cluster, endpoints, is_for_others=True), Registry()
        for record in topic.read_news():
            registry.apply(record.key, record.value)
        yield topic, registry


def _known(registry: Registry, endpoint_id: str) -> Endpoint:
    found = registry.endpoints.get(endpoint_id)
    if found is None:
        raise WebhookCommandError(
            f"there is no endpoint {endpoint_id[:100]!r}: headrace webhook list shows those that are registered"
        )
    return found


def _end_of_log(cluster: Cluster, log_topic: str) -> int:
    where = TopicPartition(log_topic, 0)
    try:
        return bounds(cluster, [where], committed=True)[where].end
    except UnknownTopic:
        return 0


def _read_log(cluster: Cluster, log_topic: str, since: int = 0) -> list[dict[str, Any]]:
    where = TopicPartition(log_topic, 0)
    try:
        held = bounds(cluster, [where], committed=True)[where]
    except UnknownTopic:
        return []
    start = max(held.start, held.end - _LOG_READ, min(since, held.end))
    if start >= held.end:
        return []
    found = []
    for records in read_records(cluster, {where: start}, until={where: held.end}, options=_COMMITTED):
        for _, record in records:
            try:
                entry = json.loads(record.value or b"")
            except (ValueError, RecursionError):
                continue
            if isinstance(entry, dict) and isinstance(entry.get("at_ms"), int) and "endpoint" in entry:
                found.append(entry)
    return found
