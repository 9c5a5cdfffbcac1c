"""Digests: at most one an interval and so many a day, each hit in one; mails that no hit can break."""

import json
from email import message_from_bytes, policy
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.searches.digests import DAY_MS, Digest, Pace, Shown, Waiting
from headrace.searches.hits import Piece, SearchHit
from headrace.searches.letter import letter
from headrace.stores.mail.sender import InvalidAddress, check_address

BEGIN = 1_790_000_000_000


def hit(query: str = "bikes", offset: int = 0, text: str = "a racing bike") -> SearchHit:
    pieces = (Piece("title", text, ((2, 8),)),)
    return SearchHit(query, 1, "ann", ("sport",), 1.0, pieces, "listings", 0, offset, BEGIN, "k", 5)


PACES = st.builds(
    Pace,
    st.integers(1, 10_000_000),
    st.integers(0, 100_000),
    st.integers(1, 5),
    st.integers(1, 4),
)


@given(PACES, st.lists(st.integers(0, 3_000_000), min_size=1, max_size=40))
def test_no_owner_hears_more_often_than_was_said_and_each_hit_is_told_once(pace, gaps):
    waiting, clock_ms, made = Waiting("ann"), BEGIN, list[Digest]()

    def wait(until_ms):
        nonlocal waiting, clock_ms
        while (due_ms := waiting.due_ms(clock_ms, pace)) is not None and due_ms <= until_ms:
            clock_ms = max(clock_ms, due_ms)
            digest, waiting = waiting.digest(clock_ms, pace)
            made.append(digest)
            assert Waiting.from_json("ann", json.loads(json.dumps(waiting.as_json()))) == waiting
            assert Digest.from_json(json.loads(json.dumps(digest.as_json()))) == digest
        clock_ms = until_ms

    for number, gap in enumerate(gaps):
        wait(clock_ms + gap)
        waiting = waiting.with_hit(hit(offset=number), clock_ms, pace)
    wait(clock_ms + 50 * DAY_MS)
    assert sum(digest.count for digest in made) == len(gaps)
    at = 0
    for digest in made:
        shown = [each.offset for each in digest.hits]
        assert shown == list(range(at, at + min(digest.count, pace.most_hits))), "the first of them, in order"
        at += digest.count
    times = [digest.made_ms for digest in made]
    assert all(after - before >= pace.every_ms for before, after in pairwise(times))
    for number, time_ms in enumerate(times[pace.most_a_day :]):
        assert time_ms - times[number] >= DAY_MS
    assert len({digest.message_id("listings") for digest in made}) == len(made)


def test_a_clock_that_is_set_back_silences_nobody_for_long():
    pace = Pace()
    _, waiting = Waiting("ann").with_hit(hit(), BEGIN, pace).digest(BEGIN, pace)
    earlier = BEGIN - 30 * DAY_MS
    due_ms = waiting.with_hit(hit(), earlier, pace).due_ms(earlier, pace)
    assert due_ms == earlier + pace.every_ms


# A header's own notation for other alphabets would be decoded by whoever reads the header: to line ends, too.
ENCODED = st.sampled_from(["=?utf-8?q?=0D=0ABcc=3A_eve=40x?=", "=?utf-8?b?DQpCY2M6IGV2ZUB4?=", "=?", "?="])
TEXTS = st.text(st.characters(), max_size=60) | st.lists(ENCODED | st.text(max_size=5), max_size=5).map("".join)


@given(TEXTS.filter(bool), TEXTS, TEXTS)
def test_nothing_in_a_hit_breaks_a_mail(query, text, key):
    found = SearchHit(query, 1, "ann", (), 1.0, (Piece(key, text, ((0, 3), (1, 9), (5, 80))),), "t", 0, 1, -5, key, 5)
    digest = Digest("ann", 1, 3, (Shown.of(found),), BEGIN, BEGIN)
    sent = letter(digest, "listings", "from@example.org", "ann@example.org").as_bytes()
    read = message_from_bytes(sent, policy=policy.default)
    assert set(read.keys()) == {
        "From", "To", "Subject", "Date", "Message-ID", "Auto-Submitted", "MIME-Version", "Content-Type",
    }  # fmt: skip
    plain, page = (read.get_body((kind,)) for kind in ("plain", "html"))
    assert plain is not None
    assert page is not None
    assert "and 2 more that are not shown" in plain.get_content()
    content = page.get_content()
    assert {part.split(">")[0].split()[0] for part in content.split("<")[1:]} <= {
        "!doctype", "html", "meta", "body", "h2", "/h2", "ul", "/ul", "li", "/li", "p", "/p", "small", "/small",
        "mark", "/mark", "/body", "/html",
    }  # fmt: skip
    again = letter(digest, "listings", "from@example.org", "ann@example.org")
    assert again["Message-ID"] == letter(digest, "listings", "from@example.org", "ann@example.org")["Message-ID"]


def test_what_a_mail_says():
    digest = Digest("ann", 1, 2, (Shown.of(hit()), Shown.of(hit("<b>gnomes", 7, "a garden gnome"))), BEGIN, BEGIN)
    mail = letter(digest, "listings", "from@example.org", "ann@example.org")
    assert mail["Subject"] == "2 new hits: <b>gnomes, bikes"
    plain, page = (mail.get_body((kind,)) for kind in ("plain", "html"))
    assert "  title: a [racing] bike\n  2026-09-21 14:13:20 UTC, listings partition 0 offset 0, key k\n" in (
        plain.get_content()
    )
    assert "<h2>&lt;b&gt;gnomes</h2>" in page.get_content()
    assert "a <mark>garden</mark> gnome" in page.get_content()


@pytest.mark.parametrize(
    "text", ["ann", "ann@", "@b.org", "a b@c.org", "a@b.org\nBcc: x@y.org", "a@b.org, c@d.org", ""]
)
def test_what_is_no_address_is_refused(text):
    with pytest.raises(InvalidAddress, match="is no address"):
        check_address(text, "the address")
    assert check_address("ann@example.org", "the address")
