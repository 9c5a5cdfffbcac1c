"""The subprotocol `headrace.v1` of a WebSocket: one JSON object a message, with a `type`. Pure.

From the client:
    {"type": "produce", "id": 7, "records": [{"key": "a", "value": 1}]}     or "record" for one
    {"type": "credit", "records": 100}                                      so many more may be sent
From the server:
    {"type": "live", "place": "0-18"}                     all that was there was sent
    {"type": "record", "place": "0-19", "record": {…}}    `place` is where to go on from
    {"type": "missed", "missed": 3, "place": "0-22"}      so many are gone, or were skipped
    {"type": "dropped", "behind": 900, "place": "0-22"}   too slow: the connection ends
    {"type": "heartbeat", "place": "0-22"}
    {"type": "problem", "error": "…"}
    {"type": "produced", "id": 7, "records": [{"partition": 0, "offset": 22}]}
    {"type": "refused", "id": 7, "error": "…"}
"""

import json
from typing import Any, Final, NamedTuple

from headrace.gateways.http.exact_json import ExactNumber, read_exact
from headrace.gateways.http.record_form import Given, read_record, read_records
from headrace.serving.asking import InvalidRequest
from headrace.serving.record_feed import Dropped, Event, Found, Live, Missed, Problem, Quiet

PROTOCOL: Final = "headrace.v1"
_MOST_CREDIT: Final = 1_000_000
_LONGEST_ID: Final = 200


class Produce(NamedTuple):
    """Records to be written; the answer carries the same id."""

    id: Any
    given: list[Given]


class Credit(NamedTuple):
    """So many more records may be sent."""

    records: int


class RefusedMessage(InvalidRequest):
    """A message that is wrong; `id` is the one that it carries, if it can be read."""

    def __init__(self, sentence: str, given_id: Any = None) -> None:
        super().__init__(sentence)
        self.id = given_id


def read_message(text: str) -> Produce | Credit:
    """What a client says; raises `RefusedMessage`."""
    try:
        said = read_exact(text)
    except InvalidRequest as error:
        raise RefusedMessage(str(error)) from None
    if not isinstance(said, dict):
        raise RefusedMessage("a message is a JSON object with a type")
    given_id = said.get("id")
    if isinstance(given_id, ExactNumber | dict | list) or (isinstance(given_id, str) and len(given_id) > _LONGEST_ID):
        raise RefusedMessage(f"an id is a number, or a text of at most {_LONGEST_ID} characters")
    try:
        match said.get("type"):
            case "produce":
                return Produce(given_id, _records(said))
            case "credit":
                return Credit(_credit(said.get("records")))
    except InvalidRequest as error:
        raise RefusedMessage(str(error), given_id) from None
    raise RefusedMessage("the type of a message is produce or credit", given_id)


def _records(said: dict[str, Any]) -> list[Given]:
    if "record" in said and "records" not in said:
        return [read_record(said["record"], "the record")]
    if not isinstance(said.get("records"), list):
        raise InvalidRequest('a message of type produce has "records", a list, or "record"')
    return read_records(said["records"])[0]


def _credit(records: Any) -> int:
    if isinstance(records, bool) or not isinstance(records, int) or not 1 <= records <= _MOST_CREDIT:
        raise InvalidRequest(f"credit is a number of records from 1 to {_MOST_CREDIT:,}")
    return records


def event_message(event: Event[Any], shown: str) -> str:
    """An event of a listener; `shown` is the record of one that was found."""
    match event:
        case Found(_, place):
            return f'{{"type":"record","place":"{place}","record":{shown}}}'
        case Live(place):
            return message("live", place=place)
        case Missed(records, place):
            return message("missed", missed=records, place=place)
        case Dropped(behind, place):
            return message("dropped", behind=behind, place=place)
        case Quiet(place):
            return message("heartbeat", place=place)
        case Problem(reason):
            return message("problem", error=reason)


def message(kind: str, **more: Any) -> str:
    return json.dumps({"type": kind, **more}, ensure_ascii=False, separators=(",", ":"))
