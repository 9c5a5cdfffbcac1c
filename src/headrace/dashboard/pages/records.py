"""Records of one topic: the last ones as they come, a search through all of them, and writing one by hand."""

from collections.abc import AsyncGenerator, Mapping, Sequence

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from headrace.client.cluster import Cluster
from headrace.client.reader import ReadRecord
from headrace.client.writer import NewRecord, PartitionTotal, Writer
from headrace.clock import SystemClock
from headrace.dashboard.alerts import topic_link
from headrace.dashboard.errors import BadForm
from headrace.dashboard.format import pretty, text
from headrace.dashboard.page import Action, Asked, Desk, Model, Page, Params, Show, Stream, find_in
from headrace.dashboard.search import read_query
from headrace.dashboard.stream import Event, EventStream
from headrace.dashboard.values import difference_of
from headrace.errors import HeadraceError
from headrace.records import Header

SHOWN_CHARACTERS = 240  # of a value in its row
WHOLE_CHARACTERS = 20_000  # of a value once it is opened


def row(read: ReadRecord) -> Model:
    """A record as a row shows it; what is long is cut, and says so."""
    record = read.record
    value = text(record.value)
    whole = "" if value is None else pretty(value[:WHOLE_CHARACTERS])
    return {
        "partition": read.partition.partition,
        "offset": record.offset,
        "at_ms": record.timestamp,
        "key": text(record.key),
        "value": None if value is None else value[:SHOWN_CHARACTERS],
        "whole": whole,
        "difference": difference_of(record.value),
        "is_cut": value is not None and len(value) > WHOLE_CHARACTERS,
        "size_bytes": 0 if record.value is None else len(record.value),
        "headers": [(header.key, text(header.value)) for header in record.headers],
    }


async def view(desk: Desk, asked: Asked) -> Model:
    """What the page shows now: the frame; records come by a stream of their own."""
    topic = find_in(desk.snapshot.topics, "topic", asked.path["name"])
    fields = ("key", "text", "where", "from", "until", "partition")
    return {
        "topic": topic,
        "query": {name: asked.query.get(name, "") for name in fields},
        "wrote": _place(asked.query.get("wrote", "")),
        "form": {},
        "form_problem": "",
    }


def _place(text: str) -> str:
    partition, _, offset = text.partition(":")
    return f"partition {partition}, offset {offset}" if partition.isdecimal() and offset.isdecimal() else ""


async def stream(desk: Desk, request: Request, show: Show) -> Response:
    """The records that a query finds, as they are found."""
    name = request.path_params["name"]

    def rows(records: Sequence[ReadRecord]) -> str:
        # The youngest stand on top, as in the list that they are put before.
        return show.part("record_rows.html", {"rows": [row(read) for read in reversed(records)]})

    try:
        query = read_query(name, dict(request.query_params), desk.settings.language, SystemClock().now_ms())
    except HeadraceError as error:
        return EventStream(_report_problem(str(error)))
    return EventStream(desk.readers.events(query, rows))


async def _report_problem(sentence: str) -> AsyncGenerator[Event, None]:
    yield Event("problem", sentence)


def new_record(form: Params, now_ms: int) -> NewRecord:
    partition = form.get("partition", "").strip()
    if partition and not (partition.isdecimal() and len(partition) < 10):
        raise BadForm(f"partition {partition!r} is not a number: leave it empty to choose by key")
    headers = []
    for line in form.get("headers", "").splitlines():
        if line.strip():
            name, colon, value = line.partition(":")
            if not colon or not name.strip():
                raise BadForm(f"header {line.strip()!r} is not name: value")
            headers.append(Header(name.strip(), value.strip().encode()))
    is_tombstone = form.get("tombstone") == "1"
    key = form.get("key", "")
    if is_tombstone and not key:
        raise BadForm("a tombstone needs a key: it deletes that key")
    return NewRecord(
        key.encode() if key else None,
        None if is_tombstone else form.get("value", "").replace("\r\n", "\n").encode(),
        now_ms,
        headers,
        int(partition) if partition else None,
    )


async def produce(desk: Desk, path: Params, form: Params, show: Show) -> Response:  # noqa: ARG001 - of all actions
    name = path["name"]
    record = new_record(form, SystemClock().now_ms())

    def write(cluster: Cluster) -> Mapping[int, PartitionTotal]:
        writer = Writer(cluster, name)
        writer.add(record)
        writer.flush()
        return writer.totals

    ((partition, total),) = (await desk.ask(write)).items()
    return RedirectResponse(f"{topic_link(name)}/records?wrote={partition}:{total.last_offset}#produce", 303)


RECORDS = Page(
    "/topics/{name}/records",
    "Records",
    "records.html",
    view,
    parent="/topics",
    actions=(Action("/topics/{name}/produce", produce),),
    streams=(Stream("/topics/{name}/records/stream", stream),),
)
