"""A digest as a mail: plain text and HTML, the same whenever it is written. Pure.

What always holds: what a hit holds can break neither the headers nor the page: it is text everywhere.
"""

import html
from collections.abc import Callable
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import format_datetime
from itertools import groupby

from headrace.searches.digests import Digest, Shown
from headrace.searches.hits import Piece
from headrace.stores.mail.sender import header_text


def letter(digest: Digest, name: str, sender: str, to: str) -> EmailMessage:
    """The mail of a digest."""
    message = EmailMessage()
    message["From"] = sender
    message["To"] = to
    message["Subject"] = f"{digest.count:,} new {'hit' if digest.count == 1 else 'hits'}: {_queries(digest)}"
    message["Date"] = format_datetime(datetime.fromtimestamp(digest.made_ms / 1000, UTC))
    message["Message-ID"] = f"<{digest.message_id(name)}@{sender.rpartition('@')[2]}>"
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(_plain(digest))
    message.add_alternative(_page(digest), subtype="html")
    return message


def _queries(digest: Digest) -> str:
    names = sorted({hit.query for hit in digest.hits})
    shown = ", ".join(header_text(name) for name in names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"


def _groups(digest: Digest) -> list[tuple[str, list[Shown]]]:
    ordered = sorted(digest.hits, key=lambda hit: hit.query)
    return [(query, list(hits)) for query, hits in groupby(ordered, key=lambda hit: hit.query)]


def _more(digest: Digest) -> str:
    left = digest.count - len(digest.hits)
    return f"and {left:,} more that are not shown" if left else ""


def _place(hit: Shown) -> str:
    at = datetime.fromtimestamp(min(max(hit.timestamp_ms, 0) / 1000, 253_402_300_799), UTC)
    key = f", key {hit.document_key}" if hit.document_key else ""
    return f"{at:%Y-%m-%d %H:%M:%S} UTC, {hit.topic} partition {hit.partition} offset {hit.offset}{key}"


def _plain(digest: Digest) -> str:
    lines = []
    for query, hits in _groups(digest):
        lines += [query, "=" * min(len(query), 70)]
        for hit in hits:
            lines += [f"  {piece.field}: {_marked(piece, '[', ']', str)}" for piece in hit.pieces]
            lines += [f"  {_place(hit)}", ""]
    if more := _more(digest):
        lines.append(more)
    text = "\n".join("".join(each if each.isprintable() else " " for each in line) for line in lines)
    return text.encode(errors="replace").decode() + "\n"


def _page(digest: Digest) -> str:
    parts = ['<!doctype html><html lang="en"><meta charset="utf-8"><body style="font-family:sans-serif">']
    for query, hits in _groups(digest):
        parts.append(f"<h2>{_safe(query)}</h2><ul>")
        for hit in hits:
            pieces = "".join(
                f"<p>{_safe(piece.field)}: {_marked(piece, '<mark>', '</mark>', _safe)}</p>" for piece in hit.pieces
            )
            parts.append(f"<li>{pieces}<p><small>{_safe(_place(hit))}</small></p></li>")
        parts.append("</ul>")
    if more := _more(digest):
        parts.append(f"<p>{more}</p>")
    return "".join((*parts, "</body></html>")).encode(errors="replace").decode() + "\n"


def _safe(text: str) -> str:
    return html.escape(text)


def _marked(piece: Piece, before: str, after: str, show: Callable[[str], str]) -> str:
    parts, at = list[str](), 0
    for start, end in piece.marks:
        if start >= at:
            parts += (show(piece.text[at:start]), before, show(piece.text[start:end]), after)
            at = end
    return "".join((*parts, show(piece.text[at:])))
