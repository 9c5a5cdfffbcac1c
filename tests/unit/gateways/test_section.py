"""`[gateways.NAME]`: what is refused, what a follower is made of, and the process that a stack starts."""

from pathlib import Path

import pytest

from headrace.gateways.files.kind import from_section
from headrace.gateways.section import KINDS, kind_of
from headrace.records import Codec
from headrace.stack.errors import InvalidStack
from headrace.stack.loading import parse
from headrace.stack.plan import members_of

FILE = Path("headrace.toml")
GOOD = 'kind = "file"\npaths = ["/log/a.log"]\n'


def test_a_section_is_a_member_with_a_command() -> None:
    (member,) = (one for one in members_of(parse(f"[gateways.access]\n{GOOD}", FILE, {})) if "access" in one.name)
    assert member.name == "gateways.access"
    assert member.command("127.0.0.1:9092").arguments[2:5] == ("gateway", "start", "access")


def test_a_follower_has_what_the_section_says() -> None:
    plain = from_section("access", {"kind": "file", "paths": ["/log/a.log"]})
    assert (plain.topic, plain.from_end, plain.with_path, plain.header) == ("access", False, False, None)
    section = {"paths": ["/a"], "topic": "t", "from": "end", "key": "path", "header": "p", "max_line": 9,
               "compression": "lz4"}  # fmt: skip
    full = from_section("access", section)
    assert (full.topic, full.from_end, full.with_path, full.header) == ("t", True, True, "p")
    assert (full.line_bytes, full.codec) == (9, Codec.LZ4)


@pytest.mark.parametrize("kind", KINDS)
def test_choices_are_the_words_that_a_file_has(kind: str) -> None:
    """An option of the command line would have an enumeration's names instead, in capitals."""
    assert {type(choice) for key in kind_of(kind).keys for choice in key.choices} <= {str}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('kind = "file"\n', "paths"),
        ('kind = "file"\npaths = []\n', "follows no file"),
        ('kind = "file"\npaths = "/log/a.log"\n', "paths"),
        ('kind = "file"\npaths = [7]\n', "paths"),
        ('kind = "file"\npaths = [""]\n', "paths"),
        ('kind = "mqtt"\npaths = ["/a"]\n', "mqtt"),
        (GOOD + "max_line = 0\n", "max_line"),
        (GOOD + "max_line = 99999999\n", "max_line"),
        (GOOD + 'from = "middle"\n', "from"),
        (GOOD + 'compression = "rar"\n', "compression"),
        (GOOD + 'topic = "a b"\n', "a b"),
        (GOOD + 'pahts = ["/a"]\n', "pahts"),
    ],
)
def test_refused(text: str, why: str) -> None:
    with pytest.raises(InvalidStack) as error:
        parse(f"[gateways.access]\n{text}", FILE, {})
    assert why in str(error.value)
    assert "gateways.access" in str(error.value)
