"""Answers of JSON, and refusals as `{"error": SENTENCE}`: the same from every server that programs ask.

What always holds: nobody on the way keeps an answer, and half a character, which JSON can hold and UTF-8 cannot, is
written as JSON itself escapes it.
"""

import json
from collections.abc import Callable, Mapping

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from headrace.errors import HeadraceError


def json_answer(content: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return written_json(as_json(content), status, headers)


def as_json(content: object) -> bytes:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode(errors="backslashreplace")


def written_json(body: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """An answer that is JSON already."""
    return Response(body, status, {"cache-control": "no-store", **(headers or {})}, "application/json")


def refuse(_: Request, status: int, sentence: str) -> Response:
    """How a guard's refusal looks."""
    return json_answer({"error": sentence}, status)


Handlers = dict[type[Exception], Callable[[Request, Exception], Response]]


def error_handlers(
    kind: type[HeadraceError], status_of: Callable[[HeadraceError], int], *, try_instead: str
) -> Handlers:
    """What an application answers where it fails: by an error of ours with its status, by another path, …"""

    def failed(_: Request, error: Exception) -> Response:
        assert isinstance(error, HeadraceError)
        return json_answer({"error": str(error)}, status_of(error))

    def refused(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        sentence = f"there is nothing here: ask for {try_instead}" if error.detail == "Not Found" else error.detail
        return json_answer({"error": sentence}, error.status_code, error.headers)

    return {kind: failed, HTTPException: refused}
