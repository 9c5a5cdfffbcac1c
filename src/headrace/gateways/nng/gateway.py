"""Gateways of nng: how each of their sockets is opened, requests answered when durable, and surveys of a topic."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Event
from typing import Any, Final

from headrace.client.address import Address
from headrace.client.cluster import Cluster
from headrace.client.connection import ConnectionSettings
from headrace.client.errors import OffsetOutOfRange, Refused, TopicGrown, TopicReplaced
from headrace.client.fetch import FetchOptions
from headrace.client.offsets import bounds
from headrace.client.reader import read_records
from headrace.connect.keep_running import KeepRunning
from headrace.errors import HeadraceError
from headrace.gateways.bad_input import BadInput
from headrace.gateways.errors import GatewayError
from headrace.gateways.gateway import Gateway, Overload, Progress
from headrace.gateways.inlet import Inlet, Overloaded, Stopped
from headrace.gateways.inward import inlet_of
from headrace.gateways.messaging.calls import encode_error, encode_reply
from headrace.gateways.messaging.forms import DECODERS, Form, subscriptions
from headrace.gateways.messaging.inward import Incoming, answer_of, close_inlet, entry_of, error_body, offer
from headrace.gateways.messaging.message import InvalidMessage, Message
from headrace.gateways.messaging.outward import Outgoing
from headrace.gateways.messaging.settings import OUTWARD, PUB, PULL, PUSH, RESPONDENT, SUB, SocketSettings
from headrace.gateways.nng.requests import Respondent
from headrace.gateways.nng.wire import NngWire, Options, Tls, TlsClient, TlsServer, pynng
from headrace.gateways.writing import Lot
from headrace.model import TopicPartition
from headrace.retry import Backoff

_AT_A_TIME: Final = 32  # requests, each in a thread that waits until it is durable
_TICK_S: Final = 0.2
_FETCH: Final = FetchOptions(max_wait_ms=200, max_bytes=4 * 1024 * 1024, committed=True)
_MEBIBYTE: Final = 1024 * 1024
_LOOK_EVERY_S: Final = 2.0  # whether the topic has more partitions
_OVERHEAD: Final = 200  # of a value that is kept, beside its bytes


@dataclass(frozen=True, slots=True)
class NngSettings:
    """One gateway."""

    sockets: SocketSettings
    options: Options

    @classmethod
    def of(cls, name: str, values: Mapping[str, Any]) -> "NngSettings":
        """From a section with its defaults; raises the first thing that is wrong."""
        sockets = SocketSettings.of(name, values)
        if sockets.socket == PUB and values.get("overload"):
            raise GatewayError(
                f"[gateways.{name}] overload says nothing to a publisher of nng, which drops the oldest for a "
                "subscriber that is slow: leave it out"
            )
        options = Options(
            sockets.listen, sockets.connect, sockets.high_water_mark, tls=_tls(name, sockets, values),
            is_insecure=sockets.is_insecure,
        )  # fmt: skip
        options.check()
        if sockets.acks is not None:
            Options((sockets.acks,), tls=options.tls, is_insecure=sockets.is_insecure).check()
        return cls(sockets, options)


def _tls(name: str, sockets: SocketSettings, values: Mapping[str, Any]) -> Tls | None:
    certificate, clients, authorities, server_name = (
        values.get(each) or None for each in ("certificate", "clients", "authorities", "server_name")
    )
    for each in (certificate, clients, authorities, server_name):
        if each is not None and not each.isprintable():
            raise GatewayError(f"[gateways.{name}] names a file or a server with characters that are not printable")
    if sockets.listen and (authorities or server_name):
        raise GatewayError(
            f"[gateways.{name}] listens and has authorities or server_name, which are for who connects: leave them out"
        )
    if sockets.connect and clients:
        raise GatewayError(f"[gateways.{name}] connects and has clients, which are for who listens: leave it out")
    if sockets.listen and certificate:
        return TlsServer(certificate, clients)
    if sockets.connect and authorities:
        return TlsClient(authorities, certificate, server_name)
    return None


def make(name: str, values: Mapping[str, Any], bootstrap: Sequence[Address], stopping: Event) -> Gateway:
    settings = NngSettings.of(name, values)
    sockets = settings.sockets
    if sockets.socket in OUTWARD:
        return Outgoing(
            sockets, tuple(bootstrap), stopping, partial(_open_outward, settings),
            partial(_open_acks, settings) if sockets.acks is not None else None,
        )  # fmt: skip
    if sockets.socket == RESPONDENT:
        return Surveyed(settings, tuple(bootstrap), stopping, values["buffer_mb"] * _MEBIBYTE)
    values = {**values, "overload": sockets.overload.value}
    inlet = inlet_of(name, values, [sockets.topic, *sorted(sockets.topics)], bootstrap, Progress())
    if sockets.socket in (PULL, SUB):
        return Incoming(sockets, inlet, stopping, partial(_open_inward, settings))
    return Answering(settings, inlet, stopping)


def _open_inward(settings: NngSettings) -> NngWire:
    sockets = settings.sockets
    make_socket: Callable[..., Any] = pynng.Pull0
    if sockets.socket == SUB:
        make_socket = partial(pynng.Sub0, topics=subscriptions(sockets.subscribe, sockets.form))
    return NngWire(make_socket, settings.options, receive_buffer=sockets.high_water_mark)


def _open_outward(settings: NngSettings) -> NngWire:
    sockets = settings.sockets
    if sockets.socket == PUSH and sockets.overload is Overload.BLOCK:
        return NngWire(pynng.Push0, settings.options)  # the topic is the queue
    kind = pynng.Push0 if sockets.socket == PUSH else pynng.Pub0
    return NngWire(kind, settings.options, send_buffer=sockets.high_water_mark)


def _open_acks(settings: NngSettings) -> NngWire:
    sockets = settings.sockets
    options = Options(
        (sockets.acks or "",), (), sockets.high_water_mark, tls=settings.options.tls, is_insecure=sockets.is_insecure
    )
    return NngWire(pynng.Pull0, options, receive_buffer=sockets.high_water_mark)


class Answering:
    """A gateway for requests, each answered with where its record is once that is durable."""

    def __init__(self, settings: NngSettings, inlet: Inlet, stopping: Event) -> None:
        sockets = settings.sockets
        self.name = sockets.name
        self.source = sockets.end
        self.target = ", ".join([sockets.topic, *sorted(sockets.topics - {sockets.topic})])
        self.progress = inlet.progress
        self._settings = settings
        self._inlet = inlet
        self._stopping = stopping
        self._decode = DECODERS[sockets.form]
        self._is_raw = sockets.form is Form.RAW
        self._bad = BadInput(sockets.name, inlet.progress)
        self._lock = threading.Lock()
        self._error: Exception | None = None

    def run(self) -> None:
        wire = NngWire(pynng.Rep0, self._settings.options)
        self._inlet.start()
        ending = Event()
        contexts = [wire.socket.new_context() for _ in range(_AT_A_TIME)]
        threads = [
            threading.Thread(target=self._answer, args=(each, ending), name=f"headrace-{self.name}", daemon=True)
            for each in contexts
        ]
        try:
            for thread in threads:
                thread.start()
            while not self._stopping.wait(_TICK_S):
                if self._inlet.failure is not None or self._error is not None:
                    raise self._inlet.failure or self._error or AssertionError
                self.progress.connections = wire.connections()
        finally:
            ending.set()
            close_inlet(self._inlet, self.progress)
            for thread in threads:
                thread.join()
            for each in contexts:
                each.close()
            wire.close(0)

    def _answer(self, context: Any, ending: Event) -> None:
        """One request after the other, on a context of its own."""
        try:
            while not ending.is_set():
                try:
                    frame = context.recv()
                except pynng.Timeout:
                    continue
                reply = self._reply(bytes(frame), ending)
                if reply is not None:
                    try:
                        context.send(reply)
                    except pynng.NNGException:  # whoever asked has gone
                        with self._lock:
                            self.progress.more["undelivered"] = self.progress.more.get("undelivered", 0) + 1
        except Exception as error:  # noqa: BLE001 - raised where the gateway runs
            self._error = error

    def _reply(self, frame: bytes, ending: Event) -> bytes | None:
        with self._lock:
            self.progress.received += 1
        try:
            message = self._decode(frame)
        except InvalidMessage as error:
            self._bad.refuse(str(error))
            # Without an answer REQ would ask again and again, and its program wait for ever.
            return encode_error(Message(b""), "InvalidMessage", str(error))
        topic, entry = entry_of(message, self._settings.sockets)
        try:
            future = offer(self._inlet, Lot(topic, [entry]), ending)
        except Overloaded as error:
            with self._lock:
                self.progress.dropped += 1
            return self._refusal(message, error)
        except Stopped:
            return None
        if future is None:
            return None
        future.exception()  # waits
        body, refusal = answer_of(topic, future)
        return self._refusal(message, refusal) if refusal else (body if self._is_raw else encode_reply(message, body))

    def _refusal(self, message: Message, error: HeadraceError) -> bytes:
        return error_body(error) if self._is_raw else encode_error(message, type(error).__name__, str(error))


class Surveyed:
    """A gateway that answers surveys with the latest value of the key that is asked for.

    A question's value is the key; a key that is not there is not answered, so that several gateways may share a survey,
    each with a topic of its own. The values are kept in memory, up to `most_bytes`.
    """

    def __init__(self, settings: NngSettings, bootstrap: tuple[Address, ...], stopping: Event, most_bytes: int) -> None:
        self.name = settings.sockets.name
        self.source = settings.sockets.topic
        self.target = settings.sockets.end
        self.progress = Progress()
        self._settings = settings
        self._bootstrap = bootstrap
        self._stopping = stopping
        self._most_bytes = most_bytes
        self._values: dict[bytes, bytes] = {}
        self._bytes = 0
        self._error: Exception | None = None
        self._ending = Event()

    def run(self) -> None:
        sockets = self._settings.sockets
        options = self._settings.options
        bad = BadInput(self.name, self.progress)
        with Respondent(
            listen=options.listen, connect=options.connect, form=sockets.form, tls=options.tls,
            insecure=options.is_insecure,
        ) as respondent:  # fmt: skip
            reader = threading.Thread(target=self._follow, name=f"headrace-{self.name}", daemon=True)
            reader.start()
            try:
                while not self._stopping.is_set():
                    if self._error is not None:
                        raise self._error
                    request = respondent.receive(_TICK_S)
                    if respondent.invalid:
                        self.progress.received += respondent.invalid
                        bad.refuse("a question that is not in the form that is read", count=respondent.invalid)
                        respondent.invalid = 0
                    self.progress.connections = respondent.connections()
                    if request is None:
                        continue
                    self.progress.received += 1
                    value = self._values.get(request.message.value or b"")
                    if value is not None and respondent.reply(request, value):
                        self.progress.records += 1
                        self.progress.bytes += len(value)
            finally:
                self._ending.set()
                reader.join()

    def _follow(self) -> None:
        try:
            KeepRunning(
                self.name, self.progress, self._ending, lambda: len(self._values), self._refused, Backoff(0.1, 2.0)
            ).run(self._read)
        except Exception as error:  # noqa: BLE001 - raised where the gateway runs
            self._error = error

    def _refused(self, refusal: Refused) -> HeadraceError:
        return GatewayError(f"the broker refuses what {self.name} reads ({refusal}): see what it is allowed")

    def _read(self) -> None:
        """Keep the values of the whole topic, from its beginning, and then what comes."""
        topic = self._settings.sockets.topic
        with Cluster(self._bootstrap, ConnectionSettings(client_id=f"headrace-gateway-{self.name}")) as cluster:
            about = cluster.topic(topic, refresh=True)
            held = bounds(cluster, cluster.partitions(topic), committed=True)
            starts: dict[TopicPartition, int] = {where: bound.start for where, bound in held.items()}
            fresh: dict[bytes, bytes] | None = {}
            reached: dict[TopicPartition, int] = dict(starts)
            ends = {where: bound.end for where, bound in held.items()}
            size = 0
            looked_at = time.monotonic()
            try:
                ids = {topic: about.id_text}
                for records in read_records(cluster, starts, options=_FETCH, ids=ids, reached=reached):
                    target = self._values if fresh is None else fresh
                    for _, record in records:
                        if record.key is None:
                            continue
                        key = bytes(record.key)
                        before = target.get(key)
                        size -= _size(key, before)
                        if record.value is not None:
                            target[key] = bytes(record.value)
                            size += _size(key, target[key])
                        elif before is not None:
                            del target[key]
                    if size > self._most_bytes:
                        raise GatewayError(
                            f"the latest values of {topic} take more than {self._most_bytes // _MEBIBYTE} MiB: allow "
                            "more with buffer_mb, or survey a smaller topic"
                        )
                    if fresh is not None and all(reached[where] >= end for where, end in ends.items()):
                        self._values, fresh = fresh, None  # what was answered so far was of before
                    if fresh is None:
                        self.progress.waiting = self.progress.problem = ""
                        self.progress.more["keys"] = len(self._values)
                        self.progress.more["read_at"] = int(time.time())
                    if self._ending.is_set():
                        return
                    if time.monotonic() - looked_at >= _LOOK_EVERY_S:
                        looked_at = time.monotonic()
                        if len(cluster.topic(topic, refresh=True).partitions) > len(starts):
                            raise TopicGrown(topic)
            except (TopicReplaced, OffsetOutOfRange):
                self._values = {}
                raise


def _size(key: bytes, value: bytes | None) -> int:
    return 0 if value is None else len(key) + len(value) + _OVERHEAD
