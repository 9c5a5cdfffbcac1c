"""OpenSearch's bulk interface: what is sent, and what the answer means. Pure."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from headrace.stores.derived import RowChange
from headrace.stores.errors import RowRefused, SinkError, SinkUnavailable

_HAS_NEWER: Final = 409  # the version it holds is not older: this change, or a later one, was written before
_NOT_THERE: Final = 404  # what was to be deleted
_LATER: Final = (408, 429)
_LONGEST_ID_BYTES: Final = 512
_MOST_CHANGES: Final = 2_000
_LARGEST_BYTES: Final = 8 * 1024 * 1024  # OpenSearch takes 100 MiB unless told otherwise, and holds it in memory


def bulk_bodies(
    changes: Sequence[RowChange], first: int, largest_bytes: int = _LARGEST_BYTES
) -> Iterator[tuple[list[RowChange], bytes]]:
    """Requests, each with the changes that it holds: not more than so many bytes, unless one row alone is larger.

    Versions count on from `first`.
    """
    held: list[RowChange] = []
    body = bytearray()
    for version, change in enumerate(changes, first):
        if not _is_possible(change):
            continue
        lines = _lines(change, version)
        if held and (len(body) + len(lines) > largest_bytes or len(held) == _MOST_CHANGES):
            yield held, bytes(body)
            held, body = [], bytearray()
        held.append(change)
        body += lines
    if held:
        yield held, bytes(body)


def _is_possible(change: RowChange) -> bool:
    """Whether the index can hold such a key; a deletion of one that it cannot hold is done already."""
    size = len(change.key_text.encode())
    if 0 < size <= _LONGEST_ID_BYTES:
        return True
    if change.row is None:
        return False
    what = f"is longer than {_LONGEST_ID_BYTES} bytes" if size else "is empty"
    raise RowRefused(f"the index refuses the row: its key {what}", partition=change.partition, offset=change.offset)


def _lines(change: RowChange, version: int) -> bytes:
    """One line for a deletion, two for a row."""
    action = {"_id": change.key_text, "version": version, "version_type": "external"}
    if change.row is None:
        return _line({"delete": action})
    return _line({"index": action}) + _line(change.row)


def check_bulk(answer: Mapping[str, Any], changes: Sequence[RowChange]) -> None:
    """Raise what went wrong; what may pass counts before what will not, because the batch is then sent again whole."""
    if not answer.get("errors"):
        return
    worst: SinkError | None = None
    for change, item in zip(changes, answer["items"], strict=True):
        (result,) = item.values()
        status = result["status"]
        if 200 <= status < 300 or status == _HAS_NEWER or (status == _NOT_THERE and change.row is None):
            continue
        error = result.get("error") or {}
        reason = error.get("reason") if isinstance(error, dict) else error
        if status >= 500 or status in _LATER:
            raise SinkUnavailable(f"the index is overloaded or away (status {status}): {reason}")
        if worst is None:
            text = f"the index refuses the row (status {status}): {reason}"
            worst = RowRefused(text, partition=change.partition, offset=change.offset)
    if worst is not None:
        raise worst


def _line(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
