"""Publishers and subscribers as processes in network namespaces, over a network that loses, doubles and delays."""

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.integration.gateways.multicast_worker import value_of

HERE = Path(__file__).parent
GROUP = "239.255.42.1:7400"
HUB, ENDS = "hub", ("one", "two", "three")
SIZES = [0, 10, 100, 1_000, 1_400, 5_000, 20_000]


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=20)


class Spaces:
    """Three namespaces, each with an interface `net` whose other end is in a fourth, where a forwarder stands."""

    def __init__(self) -> None:
        self.prefix = f"hrmc{os.getpid()}"

    def name(self, space: str) -> str:
        return f"{self.prefix}-{space}"

    def make(self) -> None:
        ip("netns", "add", self.name(HUB))
        for number, end in enumerate(ENDS):
            ip("netns", "add", self.name(end))
            ip(
                "link",
                "add",
                "net",
                "netns",
                self.name(end),
                "type",
                "veth",
                "peer",
                f"to-{end}",
                "netns",
                self.name(HUB),
            )
            ip("-n", self.name(end), "addr", "add", f"10.213.7.{number + 1}/24", "dev", "net")
            ip("-n", self.name(end), "link", "set", "net", "up")
            ip("-n", self.name(end), "link", "set", "lo", "up")
            ip("-n", self.name(HUB), "link", "set", f"to-{end}", "up")

    def remove(self) -> None:
        for space in (HUB, *ENDS):
            subprocess.run(["ip", "netns", "del", self.name(space)], check=False, capture_output=True, timeout=20)


@pytest.fixture(scope="module")
def spaces() -> Iterator[Spaces]:
    made = Spaces()
    try:
        made.make()
    except (OSError, subprocess.CalledProcessError) as error:
        made.remove()
        said = error.stderr.decode().strip() if isinstance(error, subprocess.CalledProcessError) else str(error)
        pytest.skip(f"network namespaces cannot be made here ({said}): run as root, with iproute2")
    yield made
    made.remove()


class Running:
    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process

    def line(self) -> Any:
        assert self.process.stdout is not None
        said = self.process.stdout.readline()
        assert said, "the process ended"
        return json.loads(said)

    def result(self) -> Any:
        result = self.line()
        assert self.process.wait(20) == 0
        return result


@pytest.fixture
def start(spaces: Spaces) -> Iterator[Callable[..., Running]]:
    with ExitStack() as stack:

        def begin(space: str, *words: str) -> Running:
            process = subprocess.Popen(
                ["ip", "netns", "exec", spaces.name(space), sys.executable, *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=HERE.parent.parent.parent,
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            return Running(process)

        yield begin


@pytest.fixture
def weather(start: Callable[..., Running]) -> Callable[..., Running]:
    def begin(loss: float = 0.0, doubled: float = 0.0, delay_s: float = 0.0) -> Running:
        program = str(HERE / "multicast_forwarder.py")
        names = [f"to-{end}" for end in ENDS]
        running = start(HUB, program, "7", str(loss), str(doubled), str(delay_s), *names)
        assert running.process.stdout is not None
        assert running.process.stdout.readline() == "ready\n"
        return running

    return begin


@pytest.fixture
def work(start: Callable[..., Running]) -> Callable[..., Running]:
    def begin(space: str, role: str, **told: Any) -> Running:
        told = {"group": GROUP, "interface": "net"} | told
        return start(space, "-m", "tests.integration.gateways.multicast_worker", role, json.dumps(told))

    return begin


def expected(name: str, messages: int, sizes: list[int]) -> list[str]:
    return [hashlib.sha256(value_of(name, each, sizes[each % len(sizes)])).hexdigest() for each in range(messages)]


def of(result: Any, session: str) -> list[Any]:
    return [each for each in result["seen"] if each["session"] == session]


def test_loss_reordering_and_doubling_are_repaired(weather, work):
    """5 % lost on each way, 5 % doubled, up to 5 ms late, so most overtake each other: all comes once, in order."""
    weather(loss=0.05, doubled=0.05, delay_s=0.005)
    patient = {"silence_s": 30}  # on a busy machine the farewell itself may come late
    listeners = [work(end, "subscribe", sessions=2, settings=patient) for end in ("two", "three")]
    for each in listeners:
        assert each.line() == "ready"
    settings = {"rate_bytes_s": 3_000_000}
    first = work("one", "publish", name="a", messages=1_500, sizes=SIZES, settings=settings)
    second = work("three", "publish", name="b", messages=300, sizes=[50], settings=settings)
    sessions = {first.line(): ("a", 1_500, SIZES), second.line(): ("b", 300, [50])}
    results = [each.result() for each in listeners]
    for result in results:
        for session, published in sessions.items():
            seen = of(result, session)
            assert seen[0] == {"session": session, "began": None}
            assert seen[-1] == {"session": session, "ended": True}
            assert [each.get("value") for each in seen[1:-1]] == expected(*published)
            assert [each["number"] for each in seen[1:-1]] == list(range(published[1]))
    assert all(result["counts"]["repaired"] > 20 and result["counts"]["duplicates"] > 20 for result in results)
    assert first.result()["repairs"] > 50


def test_on_arrival_all_comes_once_in_spite_of_the_network(weather, work):
    weather(loss=0.05, doubled=0.05, delay_s=0.005)
    listener = work("two", "subscribe", sessions=1, settings={"on_arrival": True})
    assert listener.line() == "ready"
    publisher = work("one", "publish", name="a", messages=800, sizes=SIZES, settings={"rate_bytes_s": 3_000_000})
    session = publisher.line()
    seen = of(listener.result(), session)[1:-1]
    values = expected("a", 800, SIZES)
    assert sorted(each["number"] for each in seen) == list(range(800))
    assert all(each["value"] == values[each["number"]] for each in seen)
    assert [each["number"] for each in seen] != list(range(800))


def test_what_a_cut_takes_beyond_the_history_is_told_lost_once(weather, work):
    forwarder = weather()
    listener = work("two", "subscribe", sessions=1)
    assert listener.line() == "ready"
    publisher = work(
        "one", "publish", name="a", messages=3_000, sizes=[500], pause_s=0.0005, settings={"history_bytes": 50_000}
    )
    session = publisher.line()
    os.kill(forwarder.process.pid, signal.SIGUSR1)
    # What is sent meanwhile is more than the history holds.
    assert publisher.process.poll() is None
    try:
        publisher.process.wait(0.7)
    except subprocess.TimeoutExpired:
        os.kill(forwarder.process.pid, signal.SIGUSR2)
    seen = of(listener.result(), session)
    numbers: list[int] = []
    lost = 0
    for each in seen:
        if "number" in each:
            numbers.append(each["number"])
        elif "lost" in each:
            begin, end, count = each["lost"]
            assert count == end - begin + 1
            numbers += range(begin, end + 1)
            lost += count
    assert numbers == list(range(3_000))
    assert 0 < lost < 3_000


def test_a_publisher_that_is_killed_and_starts_again_is_seen_as_such(weather, work):
    weather(loss=0.02)
    listener = work("two", "subscribe", sessions=2, settings={"silence_s": 1.5})
    assert listener.line() == "ready"
    first = work("one", "publish", name="a", messages=200, sizes=[100], lingers=True)
    before = first.line()
    assert first.line() == "flushed"
    first.process.kill()
    second = work("one", "publish", name="a", messages=200, sizes=[100])
    after = second.line()
    result = listener.result()
    assert of(result, before)[0] == {"session": before, "began": None}
    assert of(result, before)[-1] == {"session": before, "ended": False}
    assert of(result, after)[0] == {"session": after, "began": before}
    assert of(result, after)[-1] == {"session": after, "ended": True}
    assert before != after
    assert before.partition("-")[0] == after.partition("-")[0]


def test_a_group_with_a_key_hears_nobody_without_it(weather, work):
    weather()
    key = "k" * 32
    listener = work("two", "subscribe", sessions=1, key=key)
    assert listener.line() == "ready"
    for other in ({}, {"key": "o" * 32}):
        stranger = work("one", "publish", name="x", messages=50, sizes=[100], **other)
        stranger.line()
        stranger.result()
    friend = work("three", "publish", name="a", messages=50, sizes=[100], key=key)
    session = friend.line()
    result = listener.result()
    assert [each["session"] for each in result["seen"]] == [session] * 52
    assert result["counts"]["invalid"] >= 100
    assert "sealed with another key" in result["problem"]


def test_datagrams_stay_on_the_loopback_by_default(weather, work):
    weather()
    elsewhere = work("two", "subscribe", sessions=1, seconds=2)
    assert elsewhere.line() == "ready"
    here = work("one", "subscribe", sessions=1, interface="127.0.0.1")
    assert here.line() == "ready"
    publisher = work("one", "publish", name="a", messages=20, sizes=[10], interface="127.0.0.1")
    session = publisher.line()
    assert len(of(here.result(), session)) == 22
    assert elsewhere.result()["seen"] == []
