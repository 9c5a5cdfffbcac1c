"""Server-sent events: to those who read them."""

import asyncio

from headrace.dashboard.stream import MAX_CLIENTS, Event, EventStream, LivePages
from tests.unit.dashboard.dashboard_cases import dashboard, state


async def never_leaves():
    await asyncio.Event().wait()


async def numbers(closed, most=10**6):
    try:
        for number in range(most):
            yield Event("number", number)
    finally:
        closed.set()


def test_an_event_is_one_line_of_json():
    assert Event("part", {"html": "a\nb"}).encode() == b'event: part\ndata: {"html": "a\\nb"}\n\n'


def test_a_stream_ends_with_its_events():
    async def run():
        sent, closed = [], asyncio.Event()

        async def send(message):
            sent.append(message)

        await EventStream(numbers(closed, 2))({"type": "http"}, never_leaves, send)
        assert closed.is_set()
        return sent

    start, first, second, last = asyncio.run(run())
    assert dict(start["headers"])[b"content-type"].startswith(b"text/event-stream")
    assert first["body"] == b"event: number\ndata: 0\n\n"
    assert second["more_body"]
    assert not last["more_body"]


def test_a_client_that_does_not_read_is_let_go():
    async def run():
        closed, sent = asyncio.Event(), []

        async def send(message):
            sent.append(message)
            if len(sent) > 3:
                await asyncio.Event().wait()  # its buffers are full

        async with asyncio.timeout(5):
            await EventStream(numbers(closed), timeout_s=0.05)({"type": "http"}, never_leaves, send)
        assert closed.is_set()
        assert len(sent) == 4, "nothing was made ahead of what was read"

    asyncio.run(run())


def test_a_client_that_leaves_ends_the_stream():
    async def run():
        closed = asyncio.Event()

        async def send(message):
            await asyncio.sleep(0.001)

        async def leaves():
            await asyncio.sleep(0.02)
            return {"type": "http.disconnect"}

        async with asyncio.timeout(5):
            await EventStream(numbers(closed))({"type": "http"}, leaves, send)
        assert closed.is_set()

    asyncio.run(run())


def test_only_what_changed_is_sent_and_clients_are_bounded():
    async def run():
        watch = dashboard(state()).desk.watch
        live = LivePages(watch)
        shown = {"main": "one", "bell": "0"}

        async def parts():
            return dict(shown)

        events = live.events(parts)
        first = [await anext(events) for _ in range(3)]
        assert [event.kind for event in first] == ["part", "part", "seen"]
        shown["main"] = "two"
        watch._publish(watch.state)
        assert (await anext(events)).data == {"name": "main", "html": "two"}
        assert (await anext(events)).kind == "seen"
        others = [live.events(parts) for _ in range(MAX_CLIENTS - 1)]
        for other in others:
            await anext(other)
        assert (await anext(live.events(parts))).kind == "full"
        for other in (*others, events):
            await other.aclose()
        assert live.clients == 0

    asyncio.run(run())


def test_a_page_that_has_become_another_one_is_loaded_anew():
    async def run():
        live = LivePages(dashboard(state()).desk.watch)

        async def parts():
            return None

        assert [event.kind async for event in live.events(parts)] == ["reload"]
        assert live.clients == 0

    asyncio.run(run())
