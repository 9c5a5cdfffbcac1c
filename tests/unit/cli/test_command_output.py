"""How values are shown to people."""

import pytest

from headrace.cli.output import human_bytes, human_time, print_json, print_table, text


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (5 * 1024**2, "5.0 MiB"),
        (3 * 1024**3, "3.0 GiB"),
        (2**50, "1024.0 TiB"),
    ],
)
def test_sizes(size, shown):
    assert human_bytes(size) == shown


@pytest.mark.parametrize(
    ("timestamp", "shown"),
    [(-1, "–"), (0, "1970-01-01 00:00:00.000"), (1_700_000_000_123, "2023-11-14 22:13:20.123"), (2**62, str(2**62))],
)
def test_times(timestamp, shown):
    assert human_time(timestamp) == shown


def test_bytes_are_text_where_they_are_text():
    assert [text(data) for data in (None, b"", "größe".encode(), b"\xff\x00")] == [None, "", "größe", "0xff00"]


def test_a_table_in_a_pipe_is_not_cut_and_no_markup_is_lost(capsys):
    print_table(["name", ">count"], [("x" * 300, 1), ("[red]orders[/red]", 22)])
    header, long, marked = capsys.readouterr().out.splitlines()
    assert header.split() == ["name", "count"]
    assert long.split() == ["x" * 300, "1"]
    assert marked.split() == ["[red]orders[/red]", "22"]
    assert len(long) == len(marked), "numbers are set to the right"


def test_json_is_one_line(capsys):
    print_json({"a": ["ä", 1]})
    assert capsys.readouterr().out == '{"a": ["ä", 1]}\n'
