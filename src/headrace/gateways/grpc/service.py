"""The methods of the service, on an event loop.

What always holds: whoever is not let in learns nothing but that; a call that fails ends with a status and a sentence,
and in streams of records to write only the request does; what one client does not read holds up nobody else.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, TypeVar

import grpc

from headrace.client.address import Address
from headrace.client.offsets import bounds
from headrace.errors import HeadraceError
from headrace.gateways.bad_input import BadInput
from headrace.gateways.grpc.consuming import Reading, most_records
from headrace.gateways.grpc.errors import CallFailed, Code, code_of
from headrace.gateways.grpc.producing import Producing
from headrace.gateways.grpc.settings import GrpcSettings, check_topic, is_allowed
from headrace.gateways.grpc.sharing import MOST_UNDONE, Sharing
from headrace.gateways.grpc.watch import Watch
from headrace.gateways.grpc.wire import message
from headrace.gateways.inlet import Inlet
from headrace.gateways.writing import Placed
from headrace.serving.access import TokensFile
from headrace.serving.sessions import Role

T = TypeVar("T")
_UNANSWERED: Final = 64  # requests of a stream
_SOON_S: Final = 0.05
_BEARER: Final = "bearer "
_STATUS: Final = {code.value[0]: code for code in grpc.StatusCode}
_BAD: Final = (Code.INVALID_ARGUMENT, Code.UNAUTHENTICATED, Code.PERMISSION_DENIED, Code.OUT_OF_RANGE)


class Service:
    def __init__(
        self,
        settings: GrpcSettings,
        bootstrap: Sequence[Address],
        inlet: Inlet,
        watch: Watch,
        bad_input: BadInput,
        tokens: TokensFile | None,
    ) -> None:
        self._settings = settings
        self._bootstrap = bootstrap
        self._progress = inlet.progress
        self._watch = watch
        self._bad_input = bad_input
        self._tokens = tokens
        self._producing = Producing(inlet, settings, watch)
        self._readers = ThreadPoolExecutor(settings.consumers, f"headrace-{settings.name}-reader")
        self._consumers = 0

    def close(self) -> None:
        self._readers.shutdown()

    def handlers(self) -> dict[str, Any]:
        """The methods as gRPC calls them, by their names."""
        return {
            "Produce": self._unary("ProduceRequest", Role.ADMIN, self._produce),
            "ProduceStream": self._streams("ProduceRequest", Role.ADMIN, self._produce_stream),
            "Consume": self._answers("ConsumeRequest", Role.READ_ONLY, self._consume),
            "ConsumeGroup": self._streams("GroupRequest", Role.READ_ONLY, self._consume_group),
            "ListTopics": self._unary("ListTopicsRequest", Role.READ_ONLY, self._list_topics),
            "DescribeTopic": self._unary("DescribeTopicRequest", Role.READ_ONLY, self._describe_topic),
        }

    def _unary(self, request: str, role: Role, run: Callable[[Any, Any], Awaitable[Any]]) -> Any:
        read, write = message(request).FromString, _serialized
        return grpc.unary_unary_rpc_method_handler(self._guarded(role, run), read, write)

    def _answers(self, request: str, role: Role, run: Callable[[Any, Any], Awaitable[None]]) -> Any:
        read, write = message(request).FromString, _serialized
        return grpc.unary_stream_rpc_method_handler(self._guarded(role, run), read, write)

    def _streams(self, request: str, role: Role, run: Callable[[Any, Any], Awaitable[None]]) -> Any:
        read, write = message(request).FromString, _serialized
        return grpc.stream_stream_rpc_method_handler(self._guarded(role, run), read, write)

    def _guarded(self, role: Role, run: Callable[[Any, Any], Awaitable[T]]) -> Callable[[Any, Any], Awaitable[T]]:
        async def call(request: Any, context: Any) -> T:
            self._progress.connections += 1
            try:
                self._admit(context, role)
                return await run(request, context)
            except HeadraceError as error:
                code = code_of(error)
                if code in _BAD:
                    self._bad_input.refuse(str(error), context.peer())
                await context.abort(_STATUS[code], str(error))
                raise AssertionError("an aborted call goes on") from error
            finally:
                self._progress.connections -= 1

        return call

    def _admit(self, context: Any, role: Role) -> None:
        if self._tokens is None:
            return
        given = next((value for name, value in context.invocation_metadata() or () if name == "authorization"), "")
        token = self._tokens.find(given[len(_BEARER) :]) if given[: len(_BEARER)].lower() == _BEARER else None
        if token is None:
            raise CallFailed(Code.UNAUTHENTICATED, "show a token: metadata authorization, Bearer and the token")
        if role is Role.ADMIN and token.role is not Role.ADMIN:
            raise CallFailed(Code.PERMISSION_DENIED, f"the token {token.name} may consume, and not produce")

    # --- producing

    async def _produce(self, request: Any, context: Any) -> Any:
        lot = self._producing.lot(request)
        future = await self._producing.begin(lot, context.time_remaining())
        return _placed(request.id, await self._producing.end(future, context.time_remaining()))

    async def _produce_stream(self, requests: AsyncIterator[Any], context: Any) -> None:
        unanswered: asyncio.Queue[tuple[int, asyncio.Future[list[Placed]] | HeadraceError] | None]
        unanswered = asyncio.Queue(_UNANSWERED)

        async def answer() -> None:
            while (one := await unanswered.get()) is not None:
                number, outcome = one
                try:
                    if isinstance(outcome, HeadraceError):
                        raise outcome
                    response = _placed(number, await self._producing.end(outcome, context.time_remaining()))
                except HeadraceError as error:
                    code = code_of(error)
                    if code in _BAD:
                        self._bad_input.refuse(str(error), context.peer())
                    response = message("ProduceResponse")(id=number, error={"code": code, "message": str(error)})
                await context.write(response)

        async def take() -> None:
            async for request in requests:
                outcome: asyncio.Future[list[Placed]] | HeadraceError
                try:
                    outcome = await self._producing.begin(self._producing.lot(request), context.time_remaining())
                except HeadraceError as error:
                    outcome = error
                await unanswered.put((request.id, outcome))
            await unanswered.put(None)

        await together(take(), answer())

    # --- consuming

    @asynccontextmanager
    async def _consuming(self) -> AsyncIterator[None]:
        if self._consumers >= self._settings.consumers:
            raise CallFailed(
                Code.RESOURCE_EXHAUSTED, f"there are {self._consumers} who consume, as many as may: try again later"
            )
        self._consumers += 1
        try:
            yield
        finally:
            self._consumers -= 1

    async def _consume(self, request: Any, context: Any) -> None:
        check_topic(request.topic, self._settings.consume, "read")
        most_records(request.max_records)
        async with self._consuming():
            reading = Reading(self._bootstrap, self._settings.name, request)
            try:
                await self._in_thread(reading.begin)
                await context.send_initial_metadata(())  # so a client knows from when on nothing is missed
                while not reading.is_over:
                    found = await self._in_thread(reading.poll)
                    for response in reading.responses(found, self._settings.message_bytes):
                        await self._hand_on(context, response, response.records)
            finally:
                await asyncio.shield(self._in_thread(reading.close))

    async def _consume_group(self, requests: AsyncIterator[Any], context: Any) -> None:
        first = await anext(aiter(requests), None)
        if first is None or first.WhichOneof("request") != "join":
            raise CallFailed(Code.INVALID_ARGUMENT, "the first request of a group is a join: send one")
        join = first.join
        for topic in join.topics:
            check_topic(topic, self._settings.consume, "read")
        most_records(join.max_records)
        async with self._consuming():
            sharing = Sharing(self._bootstrap, self._settings.name, join)
            try:
                await self._in_thread(sharing.begin)
                await context.send_initial_metadata(())

                async def take() -> None:
                    async for request in requests:
                        sharing.ask(request)
                        while sharing.undone >= MOST_UNDONE:  # noqa: ASYNC110 - a thread takes them
                            await asyncio.sleep(_SOON_S)

                taking = asyncio.get_running_loop().create_task(take())
                try:
                    while not taking.done() or sharing.undone:
                        turn = partial(sharing.turn, self._settings.message_bytes)
                        for response in await self._in_thread(turn):
                            await self._hand_on(context, response, response.records.records)
                    taking.result()
                finally:
                    taking.cancel()
            finally:
                await asyncio.shield(self._in_thread(sharing.close))

    async def _hand_on(self, context: Any, response: Any, records: Sequence[Any]) -> None:
        limit = self._settings.message_bytes
        if len(records) == 1 and (size := response.ByteSize()) > limit:  # or else it was cut to fit
            first = records[0]
            raise CallFailed(
                Code.RESOURCE_EXHAUSTED,
                f"the record at offset {first.offset} of {first.topic}-{first.partition} makes a message of {size} "
                f"bytes and max_message allows {limit}: raise it, or go on behind that record",
            )
        await context.write(response)
        more = self._progress.more
        more["consumed"] = more.get("consumed", 0) + len(records)

    async def _in_thread(self, function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._readers, function)

    # --- topics

    async def _list_topics(self, _: Any, __: Any) -> Any:
        allowed = [*self._settings.consume, *self._settings.produce]
        topics = await self._watch.ask(lambda cluster: cluster.topics())
        found = [
            {"name": topic.name, "partitions": len(topic.partitions)}
            for topic in sorted(topics, key=lambda topic: topic.name)
            if not topic.is_internal and is_allowed(topic.name, allowed)
        ]
        return message("ListTopicsResponse")(topics=found)

    async def _describe_topic(self, request: Any, _: Any) -> Any:
        check_topic(request.topic, [*self._settings.consume, *self._settings.produce], "looked at")
        held = await self._watch.ask(lambda cluster: bounds(cluster, cluster.partitions(request.topic)))
        found = [
            {"partition": where.partition, "start": bound.start, "end": bound.end}
            for where, bound in sorted(held.items())
        ]
        return message("DescribeTopicResponse")(name=request.topic, partitions=found)


async def together(*parts: Any) -> None:
    """Run parts of a call until all are done; the first that fails ends the others, and is raised."""
    tasks = [asyncio.get_running_loop().create_task(part) for part in parts]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _placed(number: int, placed: Sequence[Placed]) -> Any:
    return message("ProduceResponse")(
        id=number, places=[{"partition": each.partition, "offset": each.offset} for each in placed]
    )


def _serialized(response: Any) -> bytes:
    return bytes(response.SerializeToString())
