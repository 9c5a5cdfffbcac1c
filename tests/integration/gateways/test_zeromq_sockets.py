"""ZeroMQ between processes, without a broker: policies with exact counts, deaths, keys, and plain programs of pyzmq."""

import asyncio
import multiprocessing
import os
import signal
import threading
import time
from contextlib import suppress

import pytest
import zmq

from headrace import zeromq
from headrace.gateways.errors import GatewayError
from headrace.gateways.messaging.message import encode, topic_prefix
from headrace.gateways.zeromq import (
    CurveClient,
    CurveServer,
    Keys,
    NotYours,
    Overfull,
    Publisher,
    Puller,
    Pusher,
    RemoteError,
    Requester,
    Responder,
    Subscriber,
    TimedOut,
)

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


# --- push and pull


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
    assert first.session == third.session == pusher.session
    assert (pusher.sent, pusher.dropped, puller.received, puller.invalid) == (3, 0, 3, 0)


def test_pushers_share_pullers_fairly(path):
    with Pusher(listen=path) as pusher, Puller(connect=path) as one, Puller(connect=path) as other:
        pusher.send(b"first")
        came = [one.receive(0.5), other.receive(0.5)]
        # Both have connected once each has had one.
        while not all(came):
            pusher.send(b"again")
            came = [seen or puller.receive(0.2) for seen, puller in zip(came, (one, other), strict=True)]
        for number in range(100):
            pusher.send(b"%d" % number)
        counts = [len([m for m in drain(each) if m.value.isdigit()]) for each in (one, other)]
    assert sum(counts) == 100
    assert min(counts) >= 40


def test_without_a_puller_the_policies_count_exactly(path):
    with Pusher(listen=path, overload="drop-newest", linger=0) as pusher:
        assert [pusher.send(b"x") for _ in range(20)] == [False] * 20
        assert (pusher.sent, pusher.dropped) == (0, 20)
    with Pusher(listen=path, overload="fail", linger=0) as pusher, pytest.raises(Overfull, match=path):
        pusher.send(b"x")
    with Pusher(listen=path, timeout=0.05, linger=0) as pusher, pytest.raises(TimedOut, match=r"within 0\.05 s"):
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
    """Nobody reads until all is sent: what came and what was dropped is all that was sent."""
    sent = 3_000
    with (
        Pusher(listen=path, overload=overload, high_water_mark=10) as pusher,
        Puller(connect=path, high_water_mark=10) as puller,
    ):
        failed = 0
        until_connected(pusher, puller)
        dropped_before, sent_before = pusher.dropped, pusher.sent
        for number in range(sent):
            try:
                pusher.send(b"%06d" % number + bytes(10_000))
            except Overfull:
                failed += 1
        came = [int(m.value[:6]) for m in drain(puller)]
        dropped = pusher.dropped - dropped_before
        handed = pusher.sent - sent_before
    assert came == sorted(set(came))
    assert len(came) + dropped + failed == sent
    assert dropped + failed > 0
    assert handed == {"drop-newest": len(came), "drop-oldest": sent, "fail": len(came)}[overload]
    if overload == "drop-oldest":
        assert came[-10:] == list(range(sent - 10, sent))
    else:
        assert came[:5] == list(range(5))


def until_connected(pusher, puller):
    message = None
    while message is None:
        with suppress(Overfull):
            pusher.send(b"hello")
        message = puller.receive(0.1)
    drain(puller, 0.2)


def test_a_slow_puller_blocks_and_nothing_is_lost(path):
    sent = 2_000
    done = threading.Event()

    def push():
        with Pusher(listen=path, high_water_mark=5) as pusher:
            for number in range(sent):
                pusher.send(b"%06d" % number + bytes(10_000))
            done.set()

    thread = threading.Thread(target=push)
    thread.start()
    with Puller(connect=path, high_water_mark=5) as puller:
        came = [int(puller.receive(10).value[:6])]
        assert not done.wait(0.3)  # it waits for us
        came += [int(puller.receive(10).value[:6]) for _ in range(sent - 1)]
        thread.join(10)
        assert done.is_set()
    assert came == list(range(sent))


def test_a_puller_that_is_full_when_its_pusher_dies_goes_on(path):
    """With heartbeats libzmq ends the process then, or takes whoever is full for dead."""
    process = SPAWN.Process(target=push_forever, args=(path,), daemon=True)
    process.start()
    with Puller(listen=path, high_water_mark=1) as puller:
        assert puller.receive(SOON_S) is not None
        threading.Event().wait(7)  # the longest that heartbeats would have been waited for
        process.kill()
        process.join()
        threading.Event().wait(3)
        left = [m.sequence for m in drain(puller)]
        assert left == list(range(1, len(left) + 1))  # nothing was lost in between
        with Pusher(connect=path) as pusher:
            pusher.send(b"next")
            assert puller.receive(5).value == b"next"


def test_close_lingers_for_what_is_not_sent_yet(path):
    with Pusher(connect=path, linger=10) as pusher:
        for number in range(500):
            pusher.send(b"%d" % number)
        listening = threading.Timer(0.2, lambda: None)
        puller = Puller(listen=path)
    listening.cancel()
    assert [int(m.value) for m in drain(puller)] == list(range(500))
    puller.close()


def test_close_without_linger_is_at_once(path):
    pusher = Pusher(connect=path, linger=0)
    pusher.send(b"x")
    began = time.monotonic()
    pusher.close()
    assert time.monotonic() - began < 1


def pull_forever(path, count, queue):
    with Puller(connect=path, high_water_mark=5) as puller:
        for number, message in enumerate(puller, 1):
            queue.put(int(message.value))
            if number == count:
                threading.Event().wait()


def test_a_puller_that_is_killed_loses_only_what_it_had(path):
    """What it had not read is lost with it; the pusher goes on with the next that connects, without an error."""
    queue, queue_of_second = SPAWN.Queue(), SPAWN.Queue()  # who is killed may have the lock of its queue
    first = SPAWN.Process(target=pull_forever, args=(path, 100, queue), daemon=True)
    first.start()
    with Pusher(listen=path, high_water_mark=5, timeout=20) as pusher:
        for number in range(200):
            pusher.send(b"%d" % number, timestamp_ms=0)
            if number == 150:
                break
        came = [queue.get(timeout=SOON_S) for _ in range(100)]
        os.kill(first.pid, signal.SIGKILL)
        first.join()
        second = SPAWN.Process(target=pull_forever, args=(path, 10_000, queue_of_second), daemon=True)
        second.start()
        for number in range(151, 400):
            pusher.send(b"%d" % number)
        while came[-1] != 399:
            came.append(queue_of_second.get(timeout=SOON_S))
        second.kill()
        second.join()
    assert came == sorted(set(came))
    assert came[:100] == list(range(100))
    assert len(came) >= 100 + 400 - 151 - 60


def push_forever(path):
    with Pusher(connect=path, high_water_mark=50) as pusher:
        number = 0
        while True:
            pusher.send(b"%d" % number)
            number += 1


def test_a_pusher_that_is_killed_is_followed_by_the_next(path):
    with Puller(listen=path, high_water_mark=50) as puller:
        sessions = []
        for _ in range(2):
            process = SPAWN.Process(target=push_forever, args=(path,), daemon=True)
            process.start()
            came = [puller.receive(SOON_S)]
            while came[-1].session in sessions:
                came = [puller.receive(SOON_S)]
            came += [puller.receive(SOON_S) for _ in range(500)]
            assert [m.sequence for m in came] == list(range(501))
            assert {m.session for m in came} == {came[0].session}
            sessions.append(came[0].session)
            process.kill()
            process.join()
        assert puller.invalid == 0


# --- publish and subscribe


def test_topics_are_those_subscribed_to(path):
    with (
        Publisher(listen=path) as publisher,
        Subscriber("orders", connect=path) as exact,
        Subscriber(["orders.*", "cash"], connect=path) as several,
        Subscriber(connect=path) as every,
    ):
        publisher.wait_for_subscriptions(4)
        for topic in ("orders", "orders.eu", "cash", "cashier", ""):
            publisher.send(topic.encode(), topic=topic)
        assert [m.topic for m in drain(exact)] == ["orders"]
        assert [m.topic for m in drain(several)] == ["orders.eu", "cash"]
        assert [m.topic for m in drain(every)] == ["orders", "orders.eu", "cash", "cashier", ""]
        assert [exact.missed, several.missed, every.missed] == [0, 0, 0]


def test_a_publisher_waits_for_subscribers_or_says_that_none_came(path):
    with Publisher(listen=path) as publisher, pytest.raises(TimedOut, match="nobody subscribed 1 times"):
        publisher.wait_for_subscriptions(1, timeout=0.1)
    with Publisher(listen=path, overload="drop-oldest") as publisher, Subscriber("a", connect=path) as subscriber:
        publisher.wait_for_subscriptions(1)
        publisher.send(b"1", topic="a")
        assert subscriber.receive(5).value == b"1"


@pytest.mark.parametrize("size", [100, 10_000])
def test_a_slow_subscriber_knows_how_many_it_missed_and_no_other_misses_any(path, size):
    sent = 5_000
    with (
        Publisher(listen=path, high_water_mark=20) as publisher,
        Subscriber("a", connect=path, high_water_mark=20) as slow,
        Subscriber("b", connect=path, high_water_mark=20) as other,
    ):
        publisher.wait_for_subscriptions(2)
        for number in range(sent):
            publisher.send(bytes(size), topic="a")
            if number % 1000 == 0:
                publisher.send(b"", topic="b")
                assert other.receive(5) is not None
        came = len(drain(slow))
        publisher.send(b"", topic="a")  # the one behind the last gap
        assert slow.receive(5).sequence == sent
        assert came + slow.missed == sent
        assert slow.missed > 0
        assert slow.losses.before == 0
        assert other.missed == 0
        assert publisher.dropped == 0  # it does not know


def fill(publisher):
    while True:
        publisher.send(bytes(50_000), topic="a")


def test_publishing_with_fail_and_block_waits_for_the_slowest(path):
    with (
        Publisher(listen=path, overload="fail", high_water_mark=20) as publisher,
        Subscriber("a", connect=path, high_water_mark=20) as slow,
    ):
        publisher.wait_for_subscriptions()
        with pytest.raises(Overfull):
            fill(publisher)
        assert len(drain(slow)) == publisher.sent
        publisher.send(b"", topic="a")
        assert slow.receive(5) is not None
        assert slow.missed == 0
    with (
        Publisher(listen=path, overload="block", high_water_mark=20, timeout=0.1) as publisher,
        Subscriber("a", connect=path, high_water_mark=20) as slow,
    ):
        publisher.wait_for_subscriptions()
        with pytest.raises(TimedOut):
            fill(publisher)
        assert len(drain(slow)) == publisher.sent
        assert slow.missed == 0


def test_publishing_with_drop_oldest_keeps_the_newest(path):
    sent = 2_000
    with (
        Publisher(listen=path, overload="drop-oldest", high_water_mark=20) as publisher,
        Subscriber("a", connect=path, high_water_mark=1) as slow,
    ):
        publisher.wait_for_subscriptions()
        for _ in range(sent):
            publisher.send(bytes(50_000), topic="a")
        came = [m.sequence for m in drain(slow)]
        assert len(came) + publisher.dropped == sent
        assert came[-20:] == list(range(sent - 20, sent))
        assert slow.missed + slow.losses.before == publisher.dropped > 0


def publish_forever(path):
    with Publisher(listen=path) as publisher:
        publisher.wait_for_subscriptions(timeout=60)
        while True:
            publisher.send(b"x", topic="a")
            time.sleep(0.0005)


def test_a_publisher_that_is_killed_and_comes_back_is_a_new_session(path):
    with Subscriber("a", connect=path) as subscriber:
        sessions = set()
        for turn in (1, 2):
            process = SPAWN.Process(target=publish_forever, args=(path,), daemon=True)
            process.start()
            while len(sessions) < turn:
                sessions.add(subscriber.receive(SOON_S).session)
            for _ in range(50):
                subscriber.receive(SOON_S)
            process.kill()
            process.join()
        assert subscriber.losses.sessions == 2
        assert subscriber.missed == 0


# --- plain programs on the other side


@pytest.fixture
def plain():
    with zmq.Context() as context:
        yield context


def test_a_plain_program_reads_and_writes_our_form(path, plain):
    with plain.socket(zmq.PULL) as pull, Pusher(connect=path) as pusher:
        pull.bind(path)
        pusher.send(b"value", b"key", topic="orders")
        topic, _, rest = pull.recv().partition(b"\0")
        assert topic == b"orders"
        assert rest[36:] == b"keyvalue"
    with plain.socket(zmq.PUSH) as push, Puller(listen=path + "2") as puller:
        push.linger = 0
        push.connect(path + "2")
        push.send(encode(b"v", b"k", topic_prefix("t")))
        push.send(b"not ours")
        push.send_multipart([b"two", b"frames"])
        push.send(encode(b"w"))
        assert [puller.receive(5).value, puller.receive(5).value] == [b"v", b"w"]
        assert puller.invalid == 3


def test_a_plain_program_with_bare_values(path, plain):
    with plain.socket(zmq.PUSH) as push, Puller(listen=path, form="raw") as puller:
        push.linger = 0
        push.connect(path)
        push.send(b"bare")
        push.send_multipart([b"two", b"frames"])
        push.send(b"")
        assert [puller.receive(5).value, puller.receive(5).value] == [b"bare", b""]
        assert puller.invalid == 1
    with plain.socket(zmq.SUB) as sub, Publisher(listen=path, form="topic") as publisher:
        sub.subscribe(b"orders")
        sub.connect(path)
        publisher.wait_for_subscriptions()
        publisher.send(b"v", topic="orders")
        assert sub.recv_multipart() == [b"orders", b"v"]
    with plain.socket(zmq.PUB) as pub, Subscriber("orders", connect=path + "3", form="topic") as subscriber:
        pub.bind(path + "3")
        message = None
        while message is None:
            pub.send_multipart([b"orders", b"v"])
            message = subscriber.receive(0.05)
        assert (message.topic, message.value) == ("orders", b"v")


def test_a_message_that_is_too_large_is_not_read(path, plain):
    with plain.socket(zmq.PUSH) as push, Puller(listen=path, largest_bytes=1000) as puller:
        push.linger = 0
        push.connect(path)
        push.send(encode(bytes(5_000)))
        assert puller.receive(0.3) is None
        while True:
            push.send(encode(b"small"))
            if puller.receive(0.2):
                break


# --- request and reply


def respond(path, name, delay_s=0.0, die_at=None):
    count = 0

    def answer(request):
        nonlocal count
        count += 1
        if count == die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if request.value == b"fail":
            raise ValueError("no such thing")
        if delay_s:
            time.sleep(delay_s)
        return request.value + b" by " + name

    with Responder(answer, listen=path) as responder:
        responder.run()


@pytest.fixture
def workers():
    started = []

    def start(*arguments, **more):
        process = SPAWN.Process(target=respond, args=arguments, kwargs=more, daemon=True)
        process.start()
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.join()


def test_requests_are_answered_each_with_its_own_reply(path, workers):
    for number in (1, 2):
        workers(f"{path}{number}", b"%d" % number)
    with Requester([f"{path}1", f"{path}2"], timeout=20) as requester:
        until(lambda: requester.responders == 2, "both are there")
        futures = [requester.submit(b"%d" % number, topic="t") for number in range(500)]
        replies = [future.result() for future in futures]
        assert [reply.value.split()[0] for reply in replies] == [b"%d" % number for number in range(500)]
        assert {reply.value.split()[-1] for reply in replies} == {b"1", b"2"}
        with pytest.raises(RemoteError, match="ValueError: no such thing") as failed:
            requester.call(b"fail")
        assert (failed.value.kind, failed.value.text) == ("ValueError", "no such thing")

        async def many():
            return await asyncio.gather(*(requester.call_async(b"%d" % number) for number in range(50)))

        assert [reply.value.split()[0] for reply in asyncio.run(many())] == [b"%d" % number for number in range(50)]
        assert requester.invalid == requester.late == 0


def test_workers_that_die_leave_their_requests_to_others(path, workers):
    """Every third request of a worker kills it, until the last one is left: each request has its own reply."""
    for number in range(4):
        workers(f"{path}{number}", b"%d" % number, die_at=None if number == 0 else 10 * number)
    with Requester([f"{path}{number}" for number in range(4)], timeout=30, most_each=20) as requester:
        until(lambda: requester.responders == 4, "all are there")
        futures = [requester.submit(b"%d" % number) for number in range(300)]
        assert [int(each.result().value.split()[0]) for each in futures] == list(range(300))
        until(lambda: requester.responders == 1, "three are gone")


def test_without_repeat_a_request_of_a_dead_worker_fails(path, workers):
    workers(path, b"1", die_at=1)
    with (
        Requester(path, timeout=20, repeat=False) as requester,
        pytest.raises(GatewayError, match="may have been handled or not"),
    ):
        requester.call(b"x")


def test_a_deadline_passes_and_a_request_waits_for_a_worker(path, workers):
    with Requester(path, timeout=0.2) as requester:
        began = time.monotonic()
        with pytest.raises(TimedOut, match="with 0 responders connected"):
            requester.call(b"x")
        assert 0.15 < time.monotonic() - began < 2
        future = requester.submit(b"y", timeout=20)
        workers(path, b"1")
        assert future.result().value == b"y by 1"
        cancelled = requester.submit(b"z", timeout=20)
        cancelled.cancel()
        assert requester.call(b"w", timeout=20).value == b"w by 1"


def test_a_stopped_worker_is_given_up(path, workers):
    """One that says nothing for six seconds has its requests taken over."""
    stopped = workers(f"{path}1", b"1")
    with Requester([f"{path}1", f"{path}2"], timeout=30) as requester:
        until(lambda: requester.responders == 1, "the first is there")
        os.kill(stopped.pid, signal.SIGSTOP)
        try:
            future = requester.submit(b"x")
            workers(f"{path}2", b"2")
            assert future.result().value == b"x by 2"
        finally:
            os.kill(stopped.pid, signal.SIGCONT)


def test_a_request_that_no_responder_takes_harms_no_other(path, workers):
    """It is refused; a responder would cut the connection off, with all that is on it."""
    workers(path, b"a")
    with Requester(path, timeout=10, largest_bytes=100_000) as requester:
        with pytest.raises(GatewayError, match="larger than the 100,000"):
            requester.submit(bytes(100_000))
        assert requester.call(bytes(90_000)).value == bytes(90_000) + b" by a"


def test_too_many_open_requests_are_refused(path):
    with Requester(path, most_open=3, timeout=5) as requester:
        futures = [requester.submit(b"x") for _ in range(3)]
        with pytest.raises(Overfull, match="3 requests"):
            requester.submit(b"x")
    assert all(future.cancelled() for future in futures)
    with pytest.raises(NotYours, match="is closed"):
        requester.call(b"x")


def test_plain_req_and_dealer_programs_ask(path, plain):
    stopping = threading.Event()

    def run(form):
        with Responder(lambda request: request.value.upper(), listen=path, form=form) as responder:
            responder.run(stopping)

    for form in ("message", "raw"):
        stopping.clear()
        thread = threading.Thread(target=run, args=(form,))
        thread.start()
        for kind in (zmq.REQ, zmq.DEALER):
            with plain.socket(kind) as ask:
                ask.linger = 0
                ask.rcvtimeo = 10_000
                ask.connect(path)
                ask.send(b"hello" if form == "raw" else encode(b"hello", session=3, sequence=4))
                reply = ask.recv()
                assert (reply if form == "raw" else zeromq.decode(reply).value) == b"HELLO"
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
        assert "another thread" in errors[0]
    with pytest.raises(NotYours, match="is closed"):
        puller.receive()
    puller.close()


def test_a_socket_does_not_outlive_a_fork(path):
    with Pusher(listen=path) as pusher, Requester(path + "2") as requester:
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            said = []
            for use in (lambda: pusher.send(b"x"), lambda: requester.call(b"x")):
                try:
                    use()
                except NotYours as error:
                    said.append(str(error))
            with Pusher(listen=path + "3", linger=0), Puller(connect=path + "3"):
                said.append("own")
            os.write(write, "|".join(said).encode())
            os._exit(0)
        os.waitpid(child, 0)
        said = os.read(read, 10_000).decode().split("|")
        os.close(read)
        os.close(write)
        assert len(said) == 3
        assert all("forked" in each for each in said[:2])
        with Puller(connect=path) as puller:
            pusher.send(b"still ours")
            assert puller.receive(5).value == b"still ours"


def test_a_place_that_is_taken(path):
    with Puller(listen=path), pytest.raises(GatewayError, match="cannot be listened at"):
        Puller(listen=path)
    with Puller(listen=ANY) as puller:
        assert puller.endpoint.startswith("tcp://127.0.0.1:")
        with pytest.raises(GatewayError, match="cannot be listened at"):
            Puller(listen=puller.endpoint)


def test_a_file_is_not_deleted_for_a_socket(tmp_path):
    """Both libraries remove whatever is at the path."""
    precious = tmp_path / "precious"
    precious.write_text("precious")
    with pytest.raises(GatewayError, match="a file is there"):
        Puller(listen=f"ipc://{precious}")
    assert precious.read_text() == "precious"


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Pusher(), "nowhere to listen"),
        (lambda: Pusher(listen="tcp://0.0.0.0:0"), "other machines"),
        (lambda: Pusher(listen="nonsense"), "no endpoint"),
        (lambda: Pusher(listen=ANY, high_water_mark=0), "high_water_mark=0"),
        (lambda: Pusher(listen=ANY, curve=CurveClient(Keys.new(), "x" * 40)), "CurveServer"),
        (lambda: Pusher(connect=ANY, curve=CurveServer(Keys.new())), "CurveClient"),
        (lambda: Puller(connect="tcp://127.0.0.1:5", curve=CurveClient(Keys.new(), "short")), "not a key"),
        (lambda: Puller(listen=ANY, curve=CurveServer(Keys.new(), {Keys.new().public.encode()})), "not a key"),
        (lambda: Puller(listen=ANY, curve=CurveServer(Keys("x", "y"))), "not a key"),
        (lambda: Subscriber([], connect="tcp://127.0.0.1:5"), "no topic"),
    ],
)
def test_what_cannot_be_is_a_sentence(make, says):
    with pytest.raises(GatewayError, match=says) as caught:
        make()
    assert "\n" not in str(caught.value)


# --- keys


def test_only_those_with_a_key_get_in(tmp_path, plain):
    server, client, stranger = Keys.new(), Keys.new(), Keys.new()
    server.write(tmp_path / "server.key_secret")
    assert Keys.read(tmp_path / "server.key_secret") == server
    assert server.secret not in repr(server)
    with Puller(listen=ANY, curve=CurveServer(server, clients={client.public}), high_water_mark=1) as puller:
        with Pusher(connect=puller.endpoint, curve=CurveClient(client, server.public)) as pusher:
            pusher.send(b"sealed")
            assert puller.receive(5).value == b"sealed"
        with Pusher(
            connect=puller.endpoint, curve=CurveClient(stranger, server.public), linger=0, high_water_mark=1
        ) as pusher:
            pusher.send(b"stranger")
            assert puller.receive(0.5) is None
        with plain.socket(zmq.PUSH) as push:
            push.linger = 0
            push.connect(puller.endpoint)
            push.send(encode(b"open"))
            assert puller.receive(0.5) is None
        assert puller.received == 1


def test_a_responder_with_a_key(path):
    server, client = Keys.new(), Keys.new()
    stopping = threading.Event()

    def run():
        with Responder(lambda request: b"yes", listen=path, curve=CurveServer(server, {client.public})) as responder:
            responder.run(stopping)

    thread = threading.Thread(target=run)
    thread.start()
    with Requester(path, curve=CurveClient(client, server.public), timeout=10) as requester:
        assert requester.call(b"?").value == b"yes"
    with (
        Requester(path, curve=CurveClient(Keys.new(), server.public), timeout=0.5) as requester,
        pytest.raises(TimedOut),
    ):
        requester.call(b"?")
    stopping.set()
    thread.join()


# --- on an event loop


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
            assert await puller.receive_async(0.01) is None
        assert came == list(range(400))

    asyncio.run(run())


def test_publishing_on_an_event_loop_lets_nobody_miss_what_came(path):
    """Coroutines that wait for room send in another order than they came in; numbers are those of the wire."""

    async def run():
        with (
            Publisher(listen=path, overload="block", high_water_mark=10) as publisher,
            Subscriber("*", connect=path, high_water_mark=10) as subscriber,
        ):
            publisher.wait_for_subscriptions()

            async def publish():
                for _ in range(50):
                    await publisher.send_async(bytes(50_000))

            async with asyncio.TaskGroup() as group:
                for _ in range(8):
                    group.create_task(publish())
                for _ in range(400):
                    assert await subscriber.receive_async(10) is not None
                    await asyncio.sleep(0)
            assert (subscriber.missed, subscriber.losses.repeated) == (0, 0)

    asyncio.run(run())


def test_a_send_on_an_event_loop_times_out(path):
    async def run():
        with Pusher(listen=path, timeout=0.1, linger=0) as pusher:
            await pusher.send_async(b"x")

    with pytest.raises(TimedOut):
        asyncio.run(run())
