"""OpenSearch's bulk interface: what is sent, and what the answer means. Pure."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from headrace.connect.sink import RowChange, RowRefused, SinkError, SinkUnavailable

_HAS_NEWER: Final = 409  # the version it holds is not older: this change, or a later one, was written before
_NOT_THERE: Final = 404  # what was to be deleted
_LATER: Final = (408, 429)


def bulk_body(changes: Sequence[RowChange], base: int) -> bytes:
    """One line a deletion, two lines a row; each with a version that the log's order gives."""
    lines = []
    for change in changes:
        action = {"_id": change.key_text, "version": base + change.offset + 1, "version_type": "external"}
        if change.row is None:
            lines.append(_line({"delete": action}))
        else:
            lines.append(_line({"index": action}))
            lines.append(_line(change.row))
    return ("\n".join(lines) + "\n").encode()


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


def _line(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
