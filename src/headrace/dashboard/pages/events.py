"""Events: the stores that are known, their streams, a stream's events, and its aggregate's states step by step."""

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import quote

from headrace.client.admin import configs_of_topics
from headrace.client.cluster import Cluster
from headrace.client.events import FEATURE
from headrace.dashboard.errors import NotThere
from headrace.dashboard.event_stores import (
    EVENTS as EVENTS_ON_PAGE,
)
from headrace.dashboard.event_stores import (
    LOOKED_AT,
    TOPIC,
    Listing,
    StateStep,
    find_request,
    hide_sealed,
    list_categories,
    list_streams,
)
from headrace.dashboard.format import pretty
from headrace.dashboard.page import Asked, Desk, Menu, Model, Page
from headrace.dashboard.statuses import row as status_row
from headrace.dashboard.statuses import rows as status_rows
from headrace.dashboard.values import Column, Difference
from headrace.delivery.redaction import STAND_IN
from headrace.errors import HeadraceError
from headrace.eventsourcing.flow import SECTION
from headrace.eventsourcing.model import StoredEvent
from headrace.eventsourcing.store import EventStore
from headrace.eventsourcing.traces import is_archived
from headrace.status import CAPTURES
from headrace.status import EVENTS as FOLLOWERS

R = TypeVar("R")
_MOST_TOPICS: Final = 1_000  # that are asked whether they keep events
_MOST_FIELDS: Final = 200  # of a state
_LETTERS: Final = 160  # of an event's data in one line
_MOST_LETTERS: Final = 20_000
_MOST_BYTES: Final = 2 * _MOST_LETTERS  # of an event's data that are looked at: a page has many events
_SELDOM_S: Final = 10.0
_ABSENT: Final = object()


def store_link(store: str) -> str:
    return f"/events/{quote(store, safe='')}"


def stream_link(store: str, stream: str, version: int | None = None) -> str:
    link = f"{store_link(store)}/{quote(stream, safe='')}"
    return link if version is None else f"{link}?version={version}#state"


async def _try(desk: Desk, store: str, key: object, seconds: float, ask: Callable[[], R]) -> tuple[R | None, str]:
    """What a store answers, or what is wrong with it; either is good for a while."""

    async def find() -> tuple[R | None, str]:
        try:
            return await desk.events.ask(store, ask), ""
        except NotThere:
            raise
        except HeadraceError as error:
            return None, str(error)

    return await desk.remember(key, seconds, find)


async def _topics(desk: Desk) -> list[str]:
    """Topics of the cluster that keep events, and that no section names."""
    there = [
        topic.name for topic in desk.snapshot.topics.values() if len(topic.partitions) == 1 and not topic.is_internal
    ]

    def ask(cluster: Cluster) -> list[str]:
        if FEATURE not in cluster.any_broker().features:
            return []
        found = configs_of_topics(cluster, there[:_MOST_TOPICS], [FEATURE], skip_refused=True)
        return sorted(
            name for name, configs in found.items() if FEATURE in configs and configs[FEATURE].value == "true"
        )

    return await desk.ask_seldom("topics with events", _SELDOM_S, ask) if there else []


async def _position(desk: Desk, name: str) -> tuple[int | None, str]:
    return await _try(desk, name, ("position", name), 2.0, lambda: desk.events.open(name).last_position())


async def view_events(desk: Desk, _: Asked) -> Model:
    """All stores: where each is, how far it is, and how what flows from it does."""
    stores = desk.events
    named = [(section.name, section.topic, section.aggregates) for section in stores.sections]
    named += [(f"{TOPIC}{name}", name, ()) for name in await _topics(desk)]
    rows = []
    positions = await asyncio.gather(*(_position(desk, name) for name, _, _ in named))
    for (name, topic, aggregates), (position, problem) in zip(named, positions, strict=True):
        flow = desk.state.statuses.get(CAPTURES, {}).get(f"{SECTION}.{name}")
        rows.append(
            {
                "name": name,
                "link": store_link(name),
                "where": stores.describe(name),
                "topic": topic,
                "aggregates": list(aggregates),
                "position": position,
                "problem": problem,
                "flow": None if flow is None else status_row(flow, desk.state.at_ms),
            }
        )
    return {"rows": rows, "followers": status_rows(desk.state.statuses.get(FOLLOWERS, {}), desk.state.at_ms)}


async def view_store(desk: Desk, asked: Asked) -> Model:
    """The streams of a store, all or of one category; or what followed from one request."""
    name, query = asked.path["store"], asked.query
    category, after, correlation = (query.get(key, "").strip() for key in ("category", "after", "correlation"))
    model: dict[str, Any] = {
        "name": name,
        "where": desk.events.describe(name),
        "category": category,
        "after": after,
        "correlation": correlation,
        "looked_at": LOOKED_AT,
        "store": store_link(name),
        "problem": "",
    }

    def look() -> tuple[Listing, list[str], list[dict[str, Any]]]:
        store = desk.events.open(name)
        request = [_event(name, each) for each in find_request(store, correlation)] if correlation else []
        return list_streams(store, category, after), list_categories(store), request

    found, problem = await _try(desk, name, ("store", name, category, after, correlation), _SELDOM_S, look)
    if found is None:
        return model | {
            "problem": problem,
            "rows": [],
            "categories": [],
            "events": [],
            "ids": {},
            "next": "",
            "is_whole": True,
        }
    listing, categories, request = found
    following = f"{store_link(name)}?category={quote(category, safe='')}&after={quote(listing.next_after, safe='')}"
    return model | {
        "rows": [
            {"name": each.name, "version": each.version, "link": stream_link(name, each.name)}
            for each in listing.streams
        ],
        "categories": [
            {"name": each, "link": f"{store_link(name)}?category={quote(each, safe='')}"} for each in categories
        ],
        "events": request,
        "ids": {each["id"]: f"{each['version']} of {each['stream']}" for each in request},
        "next": following if listing.next_after else "",
        "is_whole": listing.is_whole,
    }


async def view_stream(desk: Desk, asked: Asked) -> Model:
    """A page of a stream's events, the last first; and the states around one of them."""
    name, stream, query = asked.path["store"], asked.path["stream"], asked.query
    before, version = _number(query.get("before")), _number(query.get("version"))
    stores = desk.events
    model: dict[str, Any] = {
        "name": stream,
        "store_name": name,
        "store": store_link(name),
        "where": stores.describe(name),
        "link": stream_link(name, stream),
        "problem": "",
    }

    def look() -> tuple[list[dict[str, Any]], int]:
        store = stores.open(name)
        page = [_event(name, each) for each in _events(store, stream, before, version)]  # takes its time, in a thread
        return page, _last_version(store, stream)

    found, problem = await _try(desk, name, ("stream", name, stream, before, version), 2.0, look)
    if found is None:
        return model | {
            "problem": problem,
            "events": [],
            "last": 0,
            "older": "",
            "newer": "",
            "state_step": None,
            "chosen": 0,
            "ids": {},
        }
    events, last = found
    if not last:
        raise NotThere(f"There is no stream {stream!r} in store {name!r}: it is misspelt, or has no event yet.")
    newest, oldest = (events[0]["version"], events[-1]["version"]) if events else (last, 0)
    chosen = version or newest
    older = oldest if oldest > 1 else 0
    newer = newest + EVENTS_ON_PAGE + 1 if newest < last else 0
    return model | {
        "events": events,
        "last": last,
        "older": f"{model['link']}?before={older}" if older else "",
        "newer": f"{model['link']}?before={newer}" if newer else "",
        "chosen": chosen,
        "ids": {each["id"]: each["version"] for each in events},
        "state_step": await _state(desk, name, stream, chosen, last),
    }


def _number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 16 else 0


def _last_version(store: EventStore, stream: str) -> int:
    return next((event.version for event in store.read_stream(stream, backward=True, limit=1)), 0)


def _events(store: EventStore, stream: str, before: int, version: int) -> list[StoredEvent]:
    """The page before a version, or the one around a version, or the last one."""
    if not before and version:
        before = version + EVENTS_ON_PAGE // 2
    to = before - 1 if before else None
    return list(store.read_stream(stream, to=to, limit=EVENTS_ON_PAGE, backward=True))


def _event(store: str, event: StoredEvent) -> dict[str, Any]:
    whole = hide_sealed(event.data[:_MOST_BYTES].decode(errors="replace"))
    shown = pretty(whole)
    return {
        "stream": event.stream,
        "version": event.version,
        "position": event.position,
        "type": event.type,
        "at_ms": event.time_ms,
        "id": event.id,
        "link": stream_link(store, event.stream, event.version),
        "summary": whole[:_LETTERS] + ("…" if len(whole) > _LETTERS else ""),
        "data": shown[:_MOST_LETTERS],
        "is_cut": len(shown) > _MOST_LETTERS or len(event.data) > _MOST_BYTES,
        "is_archived": is_archived(event),
        "is_redacted": event.data.startswith(STAND_IN),
        "schema": event.schema,
        "tags": list(event.tags),
        "causation_id": event.causation_id,
        "correlation_id": event.correlation_id,
        "correlation_link": f"{store_link(store)}?correlation={quote(event.correlation_id, safe='')}",
        "command_id": event.command_id,
        "headers": dict(event.headers),
    }


# --- states


async def _state(desk: Desk, name: str, stream: str, version: int, last: int) -> dict[str, Any] | None:
    """The states before and after an event; None if nobody knows what folds this stream."""
    try:
        aggregate = await desk.events.ask(name, lambda: desk.events.aggregate_of(name, stream))
    except HeadraceError as error:
        return {"problem": str(error), "aggregate": "", "difference": None, **_steps(name, stream, version, last)}
    if aggregate is None:
        return None
    found, problem = await _try(
        desk,
        name,
        ("state", name, stream, version),
        _SELDOM_S,
        lambda: desk.events.step(name, aggregate, stream, version),
    )
    return {
        "problem": problem,
        "aggregate": aggregate.name,
        "difference": None if found is None else difference(found, version),
        **_steps(name, stream, version, last),
    }


def _steps(name: str, stream: str, version: int, last: int) -> dict[str, Any]:
    return {
        "version": version,
        "first": stream_link(name, stream, 1) if version > 1 else "",
        "back": stream_link(name, stream, version - 1) if version > 1 else "",
        "forward": stream_link(name, stream, version + 1) if version < last else "",
        "end": stream_link(name, stream, last) if version < last else "",
    }


def difference(step: StateStep, version: int) -> Difference:
    """All fields of two states; those that differ first where there are too many."""
    before, after = (dict(_leaves(state)) for state in step)
    names = [*after, *(name for name in before if name not in after)]
    columns = [Column(name, _shown(before, name), _shown(after, name)) for name in names]
    if len(columns) > _MOST_FIELDS:
        columns = sorted(columns, key=lambda column: not column.is_changed)[:_MOST_FIELDS]
    return Difference(f"event {version}", tuple(columns))


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    inner: Iterable[tuple[str, Any]] = ()
    if isinstance(value, Mapping):
        inner = ((f"{path}.{name}" if path else str(name), each) for name, each in value.items())
    elif isinstance(value, list):
        inner = ((f"{path}[{number}]", each) for number, each in enumerate(value))
    if value and isinstance(value, Mapping | list):
        for name, each in inner:
            yield from _leaves(each, name)
    else:
        yield path or "state", value


def _shown(state: Mapping[str, Any], name: str) -> str | None:
    value = state.get(name, _ABSENT)
    if value is _ABSENT:
        return None
    text = hide_sealed(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    return text[:_LETTERS] + ("…" if len(text) > _LETTERS else "")


EVENTS = Page("/events", "Events", "events.html", view_events, Menu("Log", "Events", "e", "events"))
STORE = Page("/events/{store}", "Store of events", "event_store.html", view_store, parent="/events")
STREAM = Page("/events/{store}/{stream:path}", "Stream", "event_stream.html", view_stream, parent="/events")
