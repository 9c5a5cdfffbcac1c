"""The paths of the REST proxy's version 2.

GET    /topics  /topics/T  /topics/T/partitions  /topics/T/partitions/P  /topics/T/partitions/P/offsets
POST   /topics/T  /topics/T/partitions/P
POST   /consumers/GROUP                                        make a consumer
DELETE /consumers/GROUP/instances/NAME
GET    …/NAME/records                                          (?timeout= ?max_bytes=)
GET, POST           …/NAME/offsets
GET, POST, DELETE   …/NAME/subscription
GET, POST           …/NAME/assignments
POST   …/NAME/positions  …/positions/beginning  …/positions/end
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headrace.client.address import Address
from headrace.client.cluster import Partition, Topic
from headrace.client.errors import ClientError, LostConnection, Refused, UnknownPartition, UnknownTopic
from headrace.client.groups import Committed
from headrace.client.offsets import bounds
from headrace.errors import HeadraceError
from headrace.gateways.gateway import Progress
from headrace.gateways.http.producing import NotAllowed, Producing, retry_after, status_of
from headrace.gateways.http.rest_v2 import forms
from headrace.gateways.http.rest_v2.consumers import Consumers, Instance
from headrace.gateways.http.rest_v2.forms import RestError, Schemas, embedded_format
from headrace.gateways.http.settings import HttpSettings
from headrace.gateways.http.topics import Topics
from headrace.gateways.writing import Placed
from headrace.model import InvalidTopicName, TopicPartition
from headrace.serving.answers import json_answer, written_json
from headrace.serving.asking import Asked, Bodies, InvalidRequest, path_parts

T = TypeVar("T")
_LONGEST_MS: Final = 60_000
_MOST_BYTES: Final = 64 * 1024 * 1024
_PERMANENT, _PASSING = 1, 2  # of a record that was not written
_LONGEST_GROUP: Final = 249
Handler = Callable[[Request], Awaitable[Response]]


class RestPaths:
    """The routes, and the consumers behind them."""

    def __init__(
        self,
        settings: HttpSettings,
        bootstrap: Sequence[Address],
        topics: Topics,
        producing: Producing,
        progress: Progress,
        schemas: Schemas | None,
        bodies: Bodies,
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._producing = producing
        self._progress = progress
        self._schemas = schemas
        self._bodies = bodies
        self.consumers = Consumers(bootstrap, settings)

    def routes(self) -> list[Route]:
        return [
            Route("/topics", self._answering(self._list), methods=["GET"]),
            Route("/topics/{rest:path}", self._answering(self._topic), methods=["GET", "POST"]),
            Route("/consumers/{rest:path}", self._answering(self._consumer), methods=["GET", "POST", "DELETE"]),
        ]

    def _answering(self, handler: Handler) -> Handler:
        """With the proxy's form of errors."""

        async def answer(request: Request) -> Response:
            try:
                return await handler(request)
            except HeadraceError as error:
                self._progress.refused += 1
                code = code_of(error)
                status = int(str(code)[:3])
                return _json({"error_code": code, "message": str(error)}, status)

        return answer

    # --- topics

    async def _list(self, _: Request) -> Response:
        found = await self._topics.ask(lambda cluster: [topic.name for topic in cluster.topics()])
        return _json([name for name in found if self._settings.may_consume(name) or self._settings.may_produce(name)])

    async def _topic(self, request: Request) -> Response:
        name, *more = path_parts(request, "/topics/")
        if request.method == "POST":
            return await self._produce(request, name, more)
        if not (self._settings.may_consume(name) or self._settings.may_produce(name)):
            raise NotAllowed(f"topic {name!r} is not shown here")
        topic = await self._topics.topic(name)
        match more:
            case []:
                partitions = [_partition(each) for each in topic.partitions.values()]
                return _json({"name": name, "configs": {}, "partitions": partitions})
            case ["partitions"]:
                return _json([_partition(each) for each in topic.partitions.values()])
            case ["partitions", text]:
                return _json(_partition(topic.partitions[_index(topic, text)]))
            case ["partitions", text, "offsets"]:
                where = TopicPartition(name, _index(topic, text))
                held = await self._topics.ask(lambda cluster: bounds(cluster, [where], committed=True)[where])
                return _json({"beginning_offset": held.start, "end_offset": held.end})
        raise RestError(404, "there is nothing here: ask for /topics")

    async def _produce(self, request: Request, name: str, more: list[str]) -> Response:
        if not (more == [] or (len(more) == 2 and more[0] == "partitions")):
            raise RestError(404, "there is nothing here: POST to /topics/TOPIC or /topics/TOPIC/partitions/NUMBER")
        form = embedded_format(request.headers.get("content-type", ""), usual=forms.JSON) or forms.JSON
        async with self._bodies.of(request) as body:
            return await self._write(name, more, form, body)

    async def _write(self, name: str, more: list[str], form: str, body: bytes) -> Response:
        # Who may not write learns nothing of schemas, and makes none.
        await self._producing.check(name, ())
        partition = _index(await self._topics.topic(name), more[1]) if more else None
        if form == forms.AVRO:
            said = await asyncio.to_thread(forms.read_produce, body, form, name, partition, self._schemas)
        else:
            said = forms.read_produce(body, form, name, partition)
        self._progress.received += len(said.given)
        await self._producing.check(name, said.given)
        outcomes = await self._producing.write(name, said.given)
        offsets = [
            {"partition": each.partition, "offset": each.offset, "error_code": None, "error": None}
            if isinstance(each, Placed)
            else {"error_code": _PASSING if status_of(each) == 503 else _PERMANENT, "error": str(each)}
            for each in outcomes
        ]
        errors = [each for each in outcomes if isinstance(each, Exception)]
        self._progress.refused += len(errors)
        about = {"offsets": offsets, "key_schema_id": said.key_schema_id, "value_schema_id": said.value_schema_id}
        return _json(about, status_of(errors[0]) if errors else 200)

    # --- consumers

    async def _consumer(self, request: Request) -> Response:
        group, *more = path_parts(request, "/consumers/")
        if not 0 < len(group) <= _LONGEST_GROUP or group.startswith("__"):
            raise RestError(forms.UNPROCESSABLE, "the name of a group has 1 to 249 characters")
        async with self._bodies.of(request) as read:
            body = read  # which is small from here on, or refused at once
        if not more and request.method == "POST":
            return self._make(request, group, body)
        if len(more) < 2 or more[0] != "instances":
            raise RestError(404, "there is nothing here: POST to /consumers/GROUP, or ask …/instances/NAME")
        instance = self.consumers.get(group, more[1])
        match request.method, more[2:]:
            case "DELETE", []:
                self.consumers.remove(group, more[1])
                await asyncio.to_thread(instance.join)
                return _done()
            case "GET", ["records"]:
                return await self._records(request, instance)
            case "GET", ["subscription"]:
                return _json({"topics": await _do(instance, instance.subscription)})
            case "DELETE", ["subscription"]:
                await _do(instance, instance.unsubscribe)
                return _done()
            case "POST", ["subscription"]:
                topics, pattern = forms.read_subscription(body)
                self._check_topics(topics)
                await _do(instance, lambda: instance.subscribe(topics, pattern))
                return _done()
            case "GET", ["assignments"]:
                found = await _do(instance, instance.assignment)
                return _json({"partitions": [{"topic": each.topic, "partition": each.partition} for each in found]})
            case "POST", ["assignments"]:
                partitions = forms.read_partitions(body)
                self._check_topics([each.topic for each in partitions])
                await _do(instance, lambda: instance.assign(partitions))
                return _done()
            case "GET", ["offsets"]:
                return await self._offsets(instance, forms.read_partitions(body))
            case "POST", ["offsets"]:
                await self._commit(instance, body)
                return Response(status_code=200, media_type=forms.PLAIN)
            case "POST", ["positions"]:
                offsets = {where: at for where, (at, _) in (forms.read_offsets(body) or {}).items()}
                await _do(instance, lambda: instance.seek(offsets))
                return _done()
            case "POST", ["positions", ("beginning" | "end") as side]:
                chosen = forms.read_partitions(body)
                await _do(instance, lambda: instance.seek_to(chosen, beginning=side == "beginning"))
                return _done()
        raise RestError(405, "a consumer has no such path, or not with this method: see the guide on HTTP")

    def _make(self, request: Request, group: str, body: bytes) -> Response:
        made = forms.read_consumer(body)
        if made.form == forms.AVRO and self._schemas is None:
            raise RestError(
                forms.INVALID_CONSUMER, "avro needs a schema registry: start the gateway with registry = URL"
            )
        instance = self.consumers.make(group, made)
        base = f"{str(request.base_url).rstrip('/')}/consumers/{request.url.path.removeprefix('/consumers/')}"
        return _json({"instance_id": instance.name, "base_uri": f"{base}/instances/{instance.name}"})

    def _check_topics(self, topics: Sequence[str]) -> None:
        for topic in topics:
            if not self._settings.may_consume(topic):
                raise NotAllowed(f"topic {topic!r} cannot be read here")

    async def _records(self, request: Request, instance: Instance) -> Response:
        form = embedded_format(request.headers.get("accept", ""), usual=instance.form)
        if form != instance.form:
            raise RestError(
                forms.FORMAT_DIFFERS, f"this consumer was made for {instance.form}, not for {form}: ask for that"
            )
        asked = Asked(request, ("timeout", "max_bytes"))
        timeout_ms = asked.number("timeout", 0, _LONGEST_MS, instance.made.timeout_ms)
        max_bytes = asked.number("max_bytes", 1, _MOST_BYTES, 1024 * 1024)
        gone = threading.Event()
        watching = asyncio.create_task(_watch(request, gone))
        try:
            taken = await _do(instance, lambda: instance.records(timeout_ms, max_bytes, gone.is_set))
        finally:
            watching.cancel()
        self._progress.more["sent"] = self._progress.more.get("sent", 0) + len(taken)

        def show() -> bytes:
            listed = ",".join(forms.shown(*each, instance.form, self._schemas) for each in taken)
            return f"[{listed}]".encode(errors="backslashreplace")

        body = await asyncio.to_thread(show) if instance.form == forms.AVRO else show()
        return _typed(written_json(body), f"application/vnd.kafka.{instance.form}.v2+json")

    async def _offsets(self, instance: Instance, partitions: list[TopicPartition]) -> Response:
        self._check_topics([where.topic for where in partitions])
        found = await _do(instance, lambda: instance.committed(partitions))
        offsets = [
            {
                "topic": where.topic, "partition": where.partition,
                "offset": found[where].offset if where in found else -1,
                "metadata": found[where].metadata if where in found else "",
            }
            for where in partitions
        ]  # fmt: skip
        return _json({"offsets": [each for each in offsets if each["offset"] != -1]})

    async def _commit(self, instance: Instance, body: bytes) -> None:
        said = forms.read_offsets(body, may_be_empty=True)
        offsets = None if said is None else {where: Committed(at, about) for where, (at, about) in said.items()}
        self._check_topics([where.topic for where in offsets or ()])
        await _do(instance, lambda: instance.commit(offsets))


async def _watch(request: Request, gone: threading.Event) -> None:
    """See whether whoever asked goes away, once all of the request was read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    gone.set()


async def _do(instance: Instance, do: Callable[[], T]) -> T:
    return await asyncio.shield(asyncio.wrap_future(instance.order(do)))


def _partition(each: Partition) -> dict[str, Any]:
    replicas = [
        {"broker": broker, "leader": broker == each.leader, "in_sync": broker in each.in_sync}
        for broker in each.replicas
    ]
    return {"partition": each.index, "leader": each.leader, "replicas": replicas}


def _index(topic: Topic, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and int(text) in topic.partitions):
        raise RestError(forms.PARTITION_UNKNOWN, f"topic {topic.name!r} has no partition {text[:20]!r}")
    return int(text)


def code_of(error: HeadraceError) -> int:
    """The proxy's number for a failure."""
    match error:
        case RestError():
            return error.code
        case UnknownTopic() | InvalidTopicName():
            return forms.TOPIC_UNKNOWN
        case UnknownPartition():
            return forms.PARTITION_UNKNOWN
        case NotAllowed():
            return forms.NOT_ALLOWED
        case InvalidRequest():
            return forms.UNPROCESSABLE if error.status == 400 else error.status
        case LostConnection():
            return 50301
        case Refused():
            return forms.KAFKA_RETRIABLE if error.code.retriable else forms.KAFKA_ERROR
        case ClientError():
            return forms.KAFKA_ERROR
    status = status_of(error)
    return 50301 if status == 503 else status * 100 + (2 if status == 500 else 0)


def _json(content: object, status: int = 200) -> Response:
    return _typed(json_answer(content, status, retry_after(status)), forms.PLAIN)


def _typed(answer: Response, media: str) -> Response:
    answer.headers["content-type"] = media
    return answer


def _done() -> Response:
    return Response(status_code=204)
