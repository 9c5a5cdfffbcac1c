"""nng between processes, without a broker: policies with exact counts, deaths, TLS, and plain programs of pynng."""

import asyncio
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from itertools import pairwise

import pynng
import pytest

from headrace import nng
from headrace.gateways.errors import GatewayError
from headrace.gateways.messaging.calls import ERROR
from headrace.gateways.messaging.message import encode, topic_prefix
from headrace.gateways.nng import (
    Bus,
    NotYours,
    Overfull,
    Pair,
    Publisher,
    Puller,
    Pusher,
    RemoteError,
    Requester,
    Respondent,
    Responder,
    Subscriber,
    Surveyor,
    TimedOut,
    TlsClient,
    TlsServer,
)
from tests.certificates import make_authority, make_certificate

SPAWN = multiprocessing.get_context("spawn")
ANY = "tcp://127.0.0.1:0"
SOON_S = 20.0


def until(condition, what):
    ends = time.monotonic() + SOON_S
    while not condition():
        assert time.monotonic() < ends, what
        threading.Event().wait(0.01)


@pytest.fixture
def path(tmp_path):
    return f"ipc://{tmp_path}/s"


def drain(receiver, quiet_s=0.5):
    """All that still comes."""
    found = []
    while (message := receiver.receive(quiet_s)) is not None:
        found.append(message)
    return found


@pytest.mark.parametrize("is_listening", [True, False])
def test_what_is_pushed_is_pulled(path, is_listening):
    with (
        Pusher(**{"listen" if is_listening else "connect": path}) as pusher,
        Puller(**{"connect" if is_listening else "listen": path}) as puller,
    ):
        assert pusher.send(b"one", b"key", topic="t", headers={"a": "1", "b": None}, timestamp_ms=5)
        assert pusher.send(None)
        assert pusher.send(b"")
        first, second, third = (puller.receive(5) for _ in range(3))
    assert first[:5] == (b"one", b"key", "t", (("a", b"1"), ("b", None)), 5)
    assert (second.value, second.key, third.value) == (None, None, b"")
    assert [first.sequence, second.sequence, third.sequence] == [0, 1, 2]


def test_without_a_puller_the_policies_count_exactly(path):
    with Pusher(listen=path, overload="drop-newest", high_water_mark=5, linger=0) as pusher:
        assert [pusher.send(b"x") for _ in range(20)] == [True] * 5 + [False] * 15
        assert (pusher.sent, pusher.dropped) == (5, 15)
    with Pusher(listen=path, overload="fail", high_water_mark=1, linger=0) as pusher:
        pusher.send(b"x")
        with pytest.raises(Overfull, match=path):
            pusher.send(b"x")
    with Pusher(listen=path, timeout=0.05) as pusher, pytest.raises(TimedOut, match=r"within 0\.05 s"):
        pusher.send(b"x")
    with Pusher(listen=path, overload="drop-oldest", high_water_mark=10) as pusher:
        for number in range(50):
            assert pusher.send(b"%d" % number)
        assert pusher.dropped == 40
        with Puller(connect=path) as puller:
            assert [int(m.value) for m in drain(puller)] == list(range(40, 50))
        assert (pusher.sent, pusher.dropped) == (50, 40)


@pytest.mark.parametrize("overload", ["drop-newest", "drop-oldest", "fail"])
def test_a_slow_puller_and_each_policy(path, overload):
    sent = 3_000
    with (
        Pusher(listen=path, overload=overload, high_water_mark=10) as pusher,
        Puller(connect=path, high_water_mark=10) as puller,
    ):
        pusher.send(b"hello")
        assert puller.receive(10) is not None
        failed = 0
        for number in range(sent):
            try:
                pusher.send(b"%06d" % number + bytes(10_000))
            except Overfull:
                failed += 1
        came = [int(m.value[:6]) for m in drain(puller)]
        dropped, handed = pusher.dropped, pusher.sent - 1
    assert came == sorted(set(came))
    assert len(came) + dropped + failed == sent
    assert dropped + failed > 0
    assert handed == {"drop-newest": len(came), "drop-oldest": sent, "fail": len(came)}[overload]
    if overload == "drop-oldest":
        assert came[-10:] == list(range(sent - 10, sent))


def test_a_slow_puller_blocks_and_nothing_is_lost(path):
    sent = 2_000
    done = threading.Event()

    def push():
        with Pusher(listen=path, high_water_mark=5, linger=10) as pusher:
            for number in range(sent):
                pusher.send(b"%06d" % number + bytes(10_000))
            done.set()

    thread = threading.Thread(target=push)
    thread.start()
    with Puller(connect=path, high_water_mark=5) as puller:
        came = [int(puller.receive(10).value[:6])]
        assert not done.wait(0.3)
        came += [int(puller.receive(10).value[:6]) for _ in range(sent - 1)]
        thread.join(10)
    assert came == list(range(sent))


def pull_forever(path, count, queue):
    with Puller(connect=path, high_water_mark=5) as puller:
        for number, message in enumerate(puller, 1):
            queue.put(int(message.value))
            if number == count:
                threading.Event().wait()


def test_a_puller_that_is_killed_loses_only_what_it_had(path):
    queue, queue_of_second = SPAWN.Queue(), SPAWN.Queue()  # who is killed may have the lock of its queue
    first = SPAWN.Process(target=pull_forever, args=(path, 100, queue), daemon=True)
    first.start()
    with Pusher(listen=path, high_water_mark=5, timeout=20) as pusher:
        for number in range(101):
            pusher.send(b"%d" % number)
        came = [queue.get(timeout=SOON_S) for _ in range(100)]
        os.kill(first.pid, signal.SIGKILL)
        first.join()
        second = SPAWN.Process(target=pull_forever, args=(path, 10_000, queue_of_second), daemon=True)
        second.start()
        for number in range(101, 400):
            pusher.send(b"%d" % number)
        while came[-1] != 399:
            came.append(queue_of_second.get(timeout=SOON_S))
        second.kill()
        second.join()
    assert came == sorted(set(came))
    assert came[:100] == list(range(100))
    assert len(came) >= 400 - 30


def test_topics_and_a_slow_subscriber(path):
    sent = 5_000
    with (
        Publisher(listen=path, high_water_mark=20) as publisher,
        Subscriber("a", connect=path, high_water_mark=20) as slow,
        Subscriber("b.*", connect=path, high_water_mark=20) as other,
    ):
        for subscriber, topic in ((slow, "a"), (other, "b.x")):
            while subscriber.receive(0.02) is None:
                publisher.send(b"hello", topic=topic)
            drain(subscriber, 0.1)
        seen = slow.received + slow.losses.before
        for _ in range(sent):
            publisher.send(bytes(10_000), topic="a")
        came = len(drain(slow))
        publisher.send(b"", topic="a")
        last = slow.receive(5)
        assert last.sequence == seen + sent
        assert came + slow.missed == sent
        assert slow.missed > 0
        assert [m.topic for m in drain(other)] == []
        assert other.missed == 0


def test_a_publisher_knows_one_policy(path):
    for overload in ("block", "drop-newest", "fail"):
        with pytest.raises(GatewayError, match="drops the oldest"):
            Publisher(listen=path, overload=overload)


def test_a_pair_speaks_both_ways(path):
    with Pair(listen=path) as one, Pair(connect=path) as other:
        one.send(b"there", b"k")
        assert other.receive(5).key == b"k"
        other.send(b"and back")
        assert one.receive(5).value == b"and back"
        assert one.receive(0.01) is None
        assert (one.sent, one.received, one.invalid) == (1, 1, 0)
    with pytest.raises(NotYours, match="closed"):
        one.receive()
    with pytest.raises(NotYours, match="closed"):
        one.send(b"")
    with pytest.raises(GatewayError, match="drop-oldest"):
        Pair(listen=path, overload="drop-oldest")


@pytest.mark.parametrize("overload", ["block", "fail", "drop-newest"])
def test_a_pair_lingers_for_what_is_not_sent_yet(path, overload):
    with Pair(connect=path) as other:
        with Pair(listen=path, overload=overload, linger=20) as one:
            until(lambda: one._wire.connections(), "it is connected")
            for _ in range(300):
                one.send(bytes(20_000))
            closing = threading.Thread(target=lambda: came.extend(drain(other)))
            came = []
            closing.start()
        closing.join()
        assert len(came) == one.sent == 300
        assert one.dropped == 0


def test_everybody_on_a_bus_hears_everybody(path):
    places = [f"{path}{number}" for number in range(3)]
    buses = []
    for number, place in enumerate(places):
        buses.append(Bus(listen=place, connect=places[:number]))
    try:
        until(lambda: all(bus._wire.connections() == 2 for bus in buses), "all are connected")
        for number, bus in enumerate(buses):
            bus.send(b"%d" % number)
        for number, bus in enumerate(buses):
            assert sorted(m.value for m in drain(bus)) == [b"%d" % each for each in range(3) if each != number]
    finally:
        for bus in buses:
            bus.close()


# --- plain programs


def test_plain_programs(path):
    with pynng.Pull0(listen=path, recv_timeout=5000) as pull, Pusher(connect=path) as pusher:
        pusher.send(b"value", b"key", topic="orders")
        topic, _, rest = pull.recv().partition(b"\0")
        assert topic == b"orders"
        assert rest[36:] == b"keyvalue"
    with pynng.Push0(send_timeout=5000) as push, Puller(listen=path + "2") as puller:
        push.dial(path + "2")
        push.send(b"not ours")
        push.send(encode(b"v", b"k", topic_prefix("t")))
        assert puller.receive(5).value == b"v"
        assert puller.invalid == 1
    with pynng.Push0(send_timeout=5000) as push, Puller(listen=path + "3", form="raw") as puller:
        push.dial(path + "3")
        push.send(b"bare")
        assert puller.receive(5).value == b"bare"
    with pytest.raises(GatewayError, match="no second frame"):
        Puller(listen=path, form="topic")


# --- questions


def respond(path, name, die_at=None):
    count = 0

    def answer(request):
        nonlocal count
        count += 1
        if count == die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if request.value == b"fail":
            raise ValueError("no such thing")
        return request.value + b" by " + name

    with Responder(answer, listen=path) as responder:
        responder.run()


def attend(path, name):
    def answer(question):
        if question.value == b"fail":
            raise ValueError(name.decode())
        return name if question.value == b"who?" else None

    with Respondent(answer, connect=path) as respondent:
        respondent.run()


@pytest.fixture
def workers():
    started = []

    def start(target, *arguments):
        process = SPAWN.Process(target=target, args=arguments, daemon=True)
        process.start()
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.join()


def test_requests_are_answered_also_where_responders_die(path, workers):
    workers(respond, f"{path}1", b"1", 20)
    workers(respond, f"{path}2", b"2")
    with Requester(connect=[f"{path}1", f"{path}2"], timeout=30) as requester:
        until(lambda: requester.connections == 2, "both are there")
        by = []
        for number in range(100):
            value, _, name = requester.call(b"%d" % number).value.partition(b" by ")
            assert value == b"%d" % number
            by.append(name)
        assert set(by) == {b"1", b"2"}
        with pytest.raises(RemoteError, match="ValueError: no such thing"):
            requester.call(b"fail")


def test_a_request_times_out_and_the_next_gets_its_own_reply(path):
    stopping = threading.Event()
    with Requester(connect=path, timeout=0.2) as requester:
        with pytest.raises(TimedOut, match="0 connected"):
            requester.call(b"x")

        def slowly(request):
            if request.value == b"slow":
                stopping.wait(0.6)
            return request.value

        def run():
            with Responder(slowly, listen=path) as responder:
                responder.run(stopping)

        thread = threading.Thread(target=run)
        thread.start()
        assert requester.call(b"quick", timeout=10).value == b"quick"
        with pytest.raises(TimedOut):
            requester.call(b"slow", timeout=0.2)
        assert requester.call(b"next", timeout=10).value == b"next"
        stopping.set()
        thread.join()


def test_a_survey_asks_everybody_until_its_deadline(path, workers):
    with Surveyor(listen=path) as surveyor:
        for number in range(3):
            workers(attend, path, b"%d" % number)
        until(lambda: surveyor.connections == 3, "all are there")
        assert sorted(m.value for m in surveyor.ask(b"who?", deadline=5, most=3)) == [b"0", b"1", b"2"]
        began = time.monotonic()
        assert list(surveyor.ask(b"nobody knows", deadline=0.3)) == []
        assert 0.2 < time.monotonic() - began < 2
        errors = list(surveyor.ask(b"fail", deadline=5, most=3))
        assert sorted((m.header(ERROR), m.value) for m in errors) == [(b"ValueError", b"%d" % n) for n in range(3)]
        before = surveyor.ask(b"who?", deadline=5)
        assert len(list(surveyor.ask(b"who?", deadline=5, most=3))) == 3
        assert list(before) == []  # a new survey ended it


def test_plain_surveyors_and_requesters(path):
    stopping = threading.Event()

    def run(make):
        with make(lambda request: request.value.upper(), listen=path, form="raw") as one:
            one.run(stopping)

    for make, plain in ((Responder, pynng.Req0), (Respondent, pynng.Surveyor0)):
        stopping.clear()
        thread = threading.Thread(target=run, args=(make,))
        thread.start()
        with plain(dial=path, recv_timeout=10_000, block_on_dial=False) as ask:
            until(lambda: ask.pipes, "connected")
            ask.send(b"hello")
            assert ask.recv() == b"HELLO"
        stopping.set()
        thread.join()


# --- whose it is


def test_a_socket_belongs_to_one_thread(path):
    with Puller(listen=path) as puller:
        assert puller.receive(0) is None
        errors = []

        def use():
            try:
                puller.receive(0)
            except NotYours as error:
                errors.append(str(error))

        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
        assert len(errors) == 1


def test_nng_does_not_outlive_a_fork(path):
    """The library itself would end the process."""
    with Pusher(listen=path) as pusher:
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            said = []
            for use in (lambda: pusher.send(b"x"), lambda: Puller(listen=path + "2")):
                try:
                    use()
                except NotYours as error:
                    said.append(str(error))
            pusher.close()
            del pusher
            os.write(write, "|".join(said).encode())
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert status == 0
        said = os.read(read, 10_000).decode().split("|")
        os.close(read)
        os.close(write)
        assert len(said) == 2
        assert all("forked" in each for each in said)
        with Puller(connect=path) as puller:
            pusher.send(b"still ours")
            assert puller.receive(5).value == b"still ours"


def test_a_place_that_is_taken(path):
    with Puller(listen=path), pytest.raises(GatewayError, match="cannot be listened at"):
        Puller(listen=path)
    with Puller(listen=ANY) as puller, pytest.raises(GatewayError, match="cannot be listened at"):
        Puller(listen=puller.endpoint)


def test_a_file_is_not_deleted_for_a_socket(tmp_path):
    """Both libraries remove whatever is at the path."""
    precious = tmp_path / "precious"
    precious.write_text("precious")
    with pytest.raises(GatewayError, match="a file is there"):
        Puller(listen=f"ipc://{precious}")
    assert precious.read_text() == "precious"


def test_descriptors_may_be_many():
    """A program that serves thousands has descriptors that `select` cannot wait for."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, most[1]), most[1]))
    held = [os.dup(0) for _ in range(1100)]
    try:
        with Pusher(listen=ANY, overload="drop-oldest", linger=5) as pusher:
            pusher.send(b"x")
            with Puller(connect=pusher.endpoint) as puller:
                assert puller.receive(5).value == b"x"
                assert puller.receive(0.01) is None
    finally:
        for each in held:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, most)


def test_an_answer_in_another_form_is_a_sentence():
    with pynng.Rep0(listen=ANY, recv_timeout=5000) as plain:

        def answer():
            for _ in range(2):
                plain.recv()
                plain.send(b"plain")

        thread = threading.Thread(target=answer)
        thread.start()
        with Requester(connect=f"tcp://{plain.listeners[0].local_address}", timeout=5) as requester:
            for _ in range(2):
                with pytest.raises(nng.InvalidMessage, match="not in our form"):
                    requester.call(b"?")
            assert requester.invalid == 2
        thread.join()


FORKS = """
import os, sys
from headrace import nng
with nng.Puller(listen="tcp://127.0.0.1:0") as puller:
    puller.receive(0.01)
child = os.fork()
if child:
    sys.exit(os.waitpid(child, 0)[1])
"""


def test_a_process_that_is_forked_ends_also_when_all_was_closed():
    subprocess.run([sys.executable, "-c", FORKS], check=True, timeout=SOON_S)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Pusher(), "nowhere to listen"),
        (lambda: Pusher(listen="tcp://0.0.0.0:0"), "other machines"),
        (lambda: Pusher(listen=ANY, high_water_mark=10_000), "8192"),
        (lambda: Pusher(listen="tls+tcp://127.0.0.1:0"), "no certificate"),
        (lambda: Pusher(connect="tls+tcp://127.0.0.1:1"), "no authorities"),
        (lambda: Pusher(connect="tls+tcp://127.0.0.1:1", tls=TlsClient("/no/such/file")), "cannot be used"),
        (lambda: Subscriber([], connect="tcp://127.0.0.1:5"), "no topic"),
    ],
)
def test_what_cannot_be_is_a_sentence(make, says):
    with pytest.raises(GatewayError, match=says) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_tls(tmp_path):
    authority = make_authority(tmp_path, "authority")
    make_authority(tmp_path, "stranger")
    server = make_certificate(tmp_path, "server", "authority", alternative="DNS:localhost,IP:127.0.0.1")
    client = make_certificate(tmp_path, "client", "authority", alternative="DNS:client")
    other = make_certificate(tmp_path, "other", "stranger", alternative="DNS:other")
    tls = TlsServer(str(server), clients=str(authority))
    with Puller(listen="tls+tcp://127.0.0.1:0", tls=tls) as puller:
        place = puller.endpoint
        good = TlsClient(str(authority), str(client), server_name="localhost")
        with Pusher(connect=place, tls=good, timeout=10) as pusher:
            pusher.send(b"sealed")
            assert puller.receive(10).value == b"sealed"
        with Pusher(connect=place, tls=TlsClient(str(authority), str(client)), timeout=10) as pusher:
            pusher.send(b"by its address")
            assert puller.receive(10).value == b"by its address"
        for wrong in (
            TlsClient(str(authority), str(client), server_name="elsewhere"),
            TlsClient(str(authority), str(other), server_name="localhost"),
            TlsClient(str(tmp_path / "stranger.pem"), str(client), server_name="localhost"),
            TlsClient(str(authority), server_name="localhost"),
        ):
            with Pusher(connect=place, tls=wrong, timeout=0.4) as pusher, pytest.raises(TimedOut):
                pusher.send(b"stranger")
        with Pusher(connect=place.replace("tls+tcp", "tcp"), timeout=0.4) as pusher, pytest.raises(TimedOut):
            pusher.send(b"open")
        assert puller.receive(0.1) is None


def test_on_an_event_loop(path):
    async def run():
        with (
            Pusher(listen=path, high_water_mark=2, timeout=10) as pusher,
            Puller(connect=path, high_water_mark=2) as puller,
        ):
            came = []

            async def pull():
                async for message in puller:
                    came.append(int(message.value[:4]))
                    if len(came) == 400:
                        return

            async with asyncio.TaskGroup() as group:
                group.create_task(pull())
                for number in range(400):
                    await pusher.send_async(b"%04d" % number + bytes(20_000))
        assert all(one < other for one, other in pairwise(came))
        assert len(came) == 400

    asyncio.run(run())


def test_one_import_has_all():
    for name in nng.__all__:
        assert getattr(nng, name) is not None
