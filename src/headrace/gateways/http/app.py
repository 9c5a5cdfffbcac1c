"""Every path of the gateway.

    POST   /produce/TOPIC            records as JSON: one, or a batch; CloudEvents in each of their modes
    POST   /produce/TOPIC/raw        the body is the value              (?key= ?header.NAME= ?partition= ?timestamp=)
    GET    /consume/TOPIC            a long poll                        (?from= ?max_wait= ?max_bytes= ?max_records=)
    GET    /events/TOPIC             server-sent events                 (?from= ?slow= ?key= ?header.NAME= …)
    WS     /ws/TOPIC                 the same and produce, by WebSocket (?credit=)
    GET    /changes/NAME             changes of a database, a topic or a view as server-sent events; WS /changes/NAME

and the paths of Kafka's REST proxy (v2), in `rest_v2/`.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket

from headrace.client.address import Address
from headrace.client.errors import ClientError
from headrace.connect.errors import BadToken, InvalidConnectSetting
from headrace.errors import HeadraceError
from headrace.gateways.gateway import Progress
from headrace.gateways.http import idempotency
from headrace.gateways.http.changes_listeners import (
    CHANGES,
    ChangesListener,
    ChangesListeners,
    TooManyListeners,
    UnknownChanges,
)
from headrace.gateways.http.cloud_events import BATCH, is_event, media_type, read_events
from headrace.gateways.http.exact_json import read_exact
from headrace.gateways.http.feeds import Feeds, TooManyTopics
from headrace.gateways.http.idempotency import Crowded, Idempotency
from headrace.gateways.http.listening import HEADER, LISTENER, LiveRecord, Wish, read_wish
from headrace.gateways.http.polling import poll
from headrace.gateways.http.producing import (
    NotAllowed,
    Producing,
    retry_after,
    shown,
    status_of,
)
from headrace.gateways.http.record_form import Given, read_raw, read_records
from headrace.gateways.http.rest_v2.avro import AvroSchemas
from headrace.gateways.http.rest_v2.routes import RestPaths
from headrace.gateways.http.settings import HttpSettings
from headrace.gateways.http.socket_messages import Produce, event_message, message
from headrace.gateways.http.sockets import Outgoing, SocketSession
from headrace.gateways.http.topics import Topics
from headrace.gateways.inlet import Inlet
from headrace.serving.answers import json_answer, written_json
from headrace.serving.asking import Asked, Bodies, InvalidRequest, path_parts
from headrace.serving.guard import session_of
from headrace.serving.probes import Checks, probe_routes
from headrace.serving.record_feed import Dropped, Event, Found, InvalidPlace, Listener, Place, Replays, Slow, sent_event
from headrace.serving.sent_events import EventStream
from headrace.serving.sessions import Role

SHOWN_HEADERS: Final = ("retry-after", idempotency.REPLAYED)
_TIDY_EVERY_S: Final = 5.0
_LAST_S: Final = 1.0
_LONGEST_WAIT_MS: Final = 60_000
_MOST_RECORDS: Final = 10_000
_JSON_TYPES: Final = ("application/json", "text/json", "")
_RAW: Final = ("key", "partition", "timestamp")


class Service:
    """The routes, and all that they have in common."""

    def __init__(self, settings: HttpSettings, bootstrap: Sequence[Address], progress: Progress, inlet: Inlet) -> None:
        self.settings = settings
        self.progress = progress
        self.topics = Topics(bootstrap)
        self.feeds = Feeds(bootstrap, settings.followed, settings.kept_bytes)
        self.producing = Producing(settings, self.topics, inlet)
        self._idempotency = Idempotency(
            settings.name, self.producing, bootstrap, int(settings.idempotency_s * 1000), progress
        )
        self._replays = Replays()
        self._changes = ChangesListeners(dict(settings.changes), progress)
        schemas = AvroSchemas(settings.registry) if settings.registry else None
        self.bodies = Bodies(settings.body_bytes, settings.limit_bytes)
        self._rest = RestPaths(settings, bootstrap, self.topics, self.producing, progress, schemas, self.bodies)
        self.app = Starlette(
            routes=self._routes(),
            lifespan=self._lifespan,
            exception_handlers={HeadraceError: self._failed, HTTPException: self._refused},  # type: ignore[dict-item]
        )

    def _routes(self) -> list[BaseRoute]:
        return [
            *probe_routes(self._ready),
            Route("/produce/{rest:path}", self._produce, methods=["POST"]),
            Route("/consume/{topic}", self._consume, methods=["GET"]),
            Route("/events/{topic}", self._events, methods=["GET"]),
            WebSocketRoute("/ws/{topic}", self._socket),
            Route("/changes/{name}", self._changes_events, methods=["GET"]),
            WebSocketRoute("/changes/{name}", self._changes_socket),
            *self._rest.routes(),
        ]

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        tidying = asyncio.create_task(self._tidy())
        try:
            yield
        finally:
            tidying.cancel()

    async def _tidy(self) -> None:
        while True:
            await asyncio.sleep(_TIDY_EVERY_S)
            self.feeds.end_idle()
            self._rest.consumers.end_idle()
            self.progress.more["consumers"] = len(self._rest.consumers)
            self.progress.more["followed"] = self.feeds.topics

    @property
    def failure(self) -> HeadraceError | None:
        return self._idempotency.failure

    def end_streams(self) -> None:
        self._changes.end_streams()
        self.feeds.end_streams()

    def close(self) -> None:
        self._idempotency.close(_LAST_S)
        self._rest.consumers.close()
        self.feeds.join()
        self._replays.close()
        self.topics.close()

    async def _ready(self) -> Checks:
        try:
            await self.topics.ask(lambda cluster: cluster.brokers(refresh=True))
        except ClientError as error:
            return {"broker": str(error)}
        return {"broker": ""}

    # --- produce

    async def _produce(self, request: Request) -> Response:
        topic, *more = path_parts(request, "/produce/")
        if more not in ([], ["raw"]):
            raise HTTPException(404)
        asked = Asked(request, _RAW, beginnings=(HEADER,)) if more else Asked(request, ())
        async with self.bodies.of(request) as body:
            if more:
                given, is_batch = [self._read_raw(asked, body)], False
            else:
                given, is_batch = self._read(request, body)
            return await self._write_given(request, topic, given, is_batch=is_batch)

    async def _write_given(self, request: Request, topic: str, given: list[Given], *, is_batch: bool) -> Response:
        self.progress.received += len(given)
        key = request.headers.get(idempotency.HEADER)
        if key is not None and self.settings.idempotency_s:
            idempotency.check_key(key)
        await self.producing.check(topic, given)
        if key is None or not self.settings.idempotency_s or not given:
            outcomes, is_replayed = await self.producing.write(topic, given), False
        else:
            session = session_of(request)
            user = session.user if session else ""
            outcomes, is_replayed = await self._idempotency.write(key, user, topic, given)
        answer, status = shown(outcomes, is_batch=is_batch)
        self.progress.refused += sum(isinstance(each, HeadraceError) for each in outcomes)
        return json_answer(
            answer, status, {**retry_after(status), **({idempotency.REPLAYED: "true"} if is_replayed else {})}
        )

    def _read_raw(self, asked: Asked, body: bytes) -> Given:
        return read_raw(
            body,
            key=asked.text("key"),
            headers=asked.beginning(HEADER),
            partition=asked.text("partition"),
            timestamp=asked.text("timestamp"),
        )

    def _read(self, request: Request, body: bytes) -> tuple[list[Given], bool]:
        headers = dict(request.headers)
        if is_event(headers):
            return read_events(headers, body)
        if media_type(headers.get("content-type", "")) not in _JSON_TYPES:
            raise InvalidRequest(
                "the body is of a type that is not read here: send JSON records, CloudEvents, or POST to …/raw, where "
                "any body is the value of a record",
                415,
            )
        return read_records(read_exact(body))

    # --- consume

    def _check_consume(self, topic: str) -> None:
        if not self.settings.may_consume(topic):
            raise NotAllowed(f"topic {topic!r} cannot be read here")

    async def _consume(self, request: Request) -> Response:
        topic = request.path_params["topic"]
        asked = Asked(request, (*LISTENER, "max_wait", "max_bytes", "max_records"), beginnings=(HEADER,))
        self._check_consume(topic)
        is_events = BATCH in request.headers.get("accept", "")
        wish = read_wish(asked, request.headers.get("last-event-id"), self.settings.slow, usual="earliest")
        wish = wish._replace(is_events=wish.is_events or is_events)
        max_wait_s = asked.number("max_wait", 0, _LONGEST_WAIT_MS, 0) / 1000
        max_bytes = asked.number("max_bytes", 1, 64 * 1024 * 1024, 1024 * 1024)
        max_records = asked.number("max_records", 1, _MOST_RECORDS, 1_000)
        await self.topics.topic(topic)
        place = await self.topics.place(topic, wish.start)
        with self.feeds.using(topic) as feed:
            listener = Listener(
                feed, self._replays, wish.filter.takes, place, slow=Slow.REPLAY, heartbeat_s=_LONGEST_WAIT_MS / 1000
            )
            found = await poll(
                listener,
                lambda kept: wish.shown(topic, kept),
                max_wait_s=max_wait_s,
                max_bytes=max_bytes,
                max_records=max_records,
            )
        problem = found.problem
        if not found.place:  # whoever asks on with the next place would have lost his own
            problem = problem or f"the broker has not told in time what topic {topic!r} holds"
        if problem and not found.records:
            return json_answer({"error": problem, "next": found.place or None}, 503, retry_after(503))
        self._sent(len(found.records))
        listed = ",".join(found.records).encode(errors="backslashreplace")
        if is_events:
            headers = {"headrace-next": found.place, "headrace-missed": str(found.missed)}
            return Response(b"[" + listed + b"]", 200, {"cache-control": "no-store", **headers}, BATCH)
        about = json.dumps({"next": found.place or None, "missed": found.missed})
        return written_json(b'{"records":[' + listed + b"]," + about[1:].encode())

    async def _listener(
        self, connection: HTTPConnection, known: Sequence[str] = ()
    ) -> tuple[str, Wish, Asked, Place | None]:
        """What somebody wants to listen to, checked before he is let in."""
        topic = connection.path_params["topic"]
        asked = Asked(connection, (*LISTENER, *known), beginnings=(HEADER,))
        self._check_consume(topic)
        wish = read_wish(asked, connection.headers.get("last-event-id"), self.settings.slow)
        await self.topics.topic(topic)
        return topic, wish, asked, await self.topics.place(topic, wish.start)

    async def _listen(
        self, topic: str, wish: Wish, place: Place | None
    ) -> AsyncGenerator[list[Event[LiveRecord]], None]:
        with self.feeds.using(topic) as feed:
            self.progress.connections += 1
            try:
                listener = Listener(
                    feed, self._replays, wish.filter.takes, place, slow=wish.slow, heartbeat_s=wish.heartbeat_s
                )
                async for events in listener.events():
                    yield events
            finally:
                self.progress.connections -= 1

    async def _events(self, request: Request) -> Response:
        topic, wish, _, place = await self._listener(request)

        async def sent() -> AsyncGenerator[bytes, None]:
            async for events in self._listen(topic, wish, place):
                self._sent(sum(isinstance(event, Found) for event in events))
                yield b"".join(
                    sent_event(event, topic, "record", lambda kept: wish.shown(topic, kept)) for event in events
                )
                if any(isinstance(event, Dropped) for event in events):
                    self.progress.dropped += 1

        return EventStream(sent(), self.feeds.using(topic))

    async def _socket(self, socket: WebSocket) -> None:
        with ExitStack() as held:
            try:
                topic, wish, asked, place = await self._listener(socket, ("credit", "listen"))
                credit = asked.number("credit", 0, 1_000_000, 0) if "credit" in asked else None
                is_listening = asked.yes_or_no("listen", usual=True)
                if is_listening:
                    held.enter_context(self.feeds.using(topic))
            except (HeadraceError, HTTPException) as error:
                await self._deny(socket, error)
                return
            await self._talk(socket, topic, wish, place, credit=credit, is_listening=is_listening)

    async def _talk(
        self, socket: WebSocket, topic: str, wish: Wish, place: Place | None, *, credit: int | None, is_listening: bool
    ) -> None:
        session = session_of(socket)
        may_write = session is not None and session.role is Role.ADMIN and self.settings.may_produce(topic)

        async def outgoing() -> AsyncGenerator[list[Outgoing], None]:
            if not is_listening:
                yield [Outgoing(message("live", place=""))]
                await asyncio.Event().wait()
            async for events in self._listen(topic, wish, place):
                yield [self._outgoing(event, topic, wish) for event in events]

        await SocketSession(
            socket,
            outgoing(),
            (lambda said: self._write(topic, said)) if may_write else None,
            credit=credit,
            heartbeat_s=wish.heartbeat_s,
            refused=self._count_refused,
            sent=self._sent,
        ).run()

    # --- changes

    async def _follow_changes(self, connection: HTTPConnection) -> ChangesListener:
        asked = Asked(connection, CHANGES)
        return self._changes.listener(
            connection.path_params["name"],
            connection.headers.get("last-event-id") or asked.text("from"),
            tables=asked.texts("table"),
            snapshot=asked.yes_or_no("snapshot", usual=False),
            heartbeat_s=float(asked.number("heartbeat", 1, 60, 15)),
        )

    async def _changes_events(self, request: Request) -> Response:
        listener = await self._follow_changes(request)

        async def sent() -> AsyncGenerator[bytes, None]:
            async for change in listener.changes():
                yield change.as_event()

        return EventStream(sent(), listener.held())

    async def _changes_socket(self, socket: WebSocket) -> None:
        with ExitStack() as held:
            try:
                listener = await self._follow_changes(socket)
                held.enter_context(listener.held())
            except (HeadraceError, HTTPException) as error:
                await self._deny(socket, error)
                return

            async def outgoing() -> AsyncGenerator[list[Outgoing], None]:
                async for change in listener.changes():
                    yield [Outgoing(change.as_message())]

            await SocketSession(
                socket,
                outgoing(),
                None,
                credit=None,
                heartbeat_s=listener.heartbeat_s,
                refused=self._count_refused,
                sent=self._sent,
            ).run()

    def _outgoing(self, event: Event[LiveRecord], topic: str, wish: Wish) -> Outgoing:
        if isinstance(event, Found):
            return Outgoing(event_message(event, wish.shown(topic, event.kept)), costs=True)
        if isinstance(event, Dropped):
            self.progress.dropped += 1
        return Outgoing(event_message(event, ""), is_last=isinstance(event, Dropped))

    async def _write(self, topic: str, said: Produce) -> Awaitable[str]:
        self.progress.received += len(said.given)
        await self.producing.check(topic, said.given)
        outcomes = await self.producing.begin(topic, said.given)

        async def answer() -> str:
            told, status = shown(await outcomes, is_batch=True)
            return message("produced" if status == 200 else "refused", id=said.id, **told)

        return answer()

    # --- what is counted

    def _sent(self, records: int) -> None:
        self.progress.more["sent"] = self.progress.more.get("sent", 0) + records

    def _count_refused(self) -> None:
        self.progress.refused += 1

    # --- refusals

    async def _deny(self, socket: WebSocket, error: Exception) -> None:
        self._count_refused()
        answer = self._refusal(error)
        with suppress(RuntimeError):
            await socket.send_denial_response(answer)

    def _refusal(self, error: Exception) -> Response:
        if isinstance(error, HTTPException):
            sentence = "there is nothing here: see the guide on HTTP" if error.detail == "Not Found" else error.detail
            return json_answer({"error": sentence}, error.status_code, error.headers)
        status = failure_status(error)
        return json_answer({"error": str(error)}, status, retry_after(status))

    def _failed(self, _: Request, error: HeadraceError) -> Response:
        self._count_refused()
        return self._refusal(error)

    def _refused(self, _: Request, error: HTTPException) -> Response:
        self._count_refused()
        return self._refusal(error)


def failure_status(error: Exception) -> int:
    match error:
        case InvalidRequest():
            return error.status
        case InvalidPlace() | BadToken() | InvalidConnectSetting():
            return 400
        case UnknownChanges():
            return 404
        case TooManyTopics() | TooManyListeners() | Crowded():
            return 503
    return status_of(error)
