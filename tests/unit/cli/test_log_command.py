"""`headrace log`: what it shows, what it refuses, and that it changes nothing."""

import hashlib
import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from headrace.cli.main import cli, main
from headrace.model import TopicPartition
from headrace.records import ControlType, Header, Record
from headrace.storage.config import LogConfig
from headrace.storage.directory import LogDirectory
from headrace.testing import FakeClock
from tests.small_logs import EPOCH_MS, PARTITION, append, end_transaction, some_records

FIRST = "orders-0/00000000000000000000.log"


@pytest.fixture
def data_dir(tmp_path):
    """Two segments of records, a transaction, a tombstone, bytes that are no text; an empty partition beside it."""
    path = tmp_path / "data [one]"  # brackets are markup to the terminal's library
    with LogDirectory.open(str(path), clock=FakeClock(EPOCH_MS)) as directory:
        log = directory.create(PARTITION, LogConfig(segment_bytes=700))
        for n in range(6):
            append(log, some_records(2, first=2 * n))
        wild = Header(b"\xff".decode(errors="surrogateescape"), b"1")
        odd = [
            Record(
                0, EPOCH_MS + 12, b"\xff\x00", b"caf\xc3\xa9", (Header("trace", b"\xfe"), Header("none", None), wild)
            ),
            Record(1, EPOCH_MS + 13, None, None),
        ]
        append(log, odd, producer_id=77, producer_epoch=0, base_sequence=0, transactional=True)
        end_transaction(log, ControlType.ABORT, 77)
        directory.create(TopicPartition("empty", 3), LogConfig())
        directory.delete_records(PARTITION, 1)
    return path


def _tree(path):
    """Every name, content and modification time under `path`, as one hash."""
    found = hashlib.sha256()
    for entry in sorted(path.rglob("*")):
        found.update(f"{entry} {entry.stat().st_mtime_ns}".encode())
        found.update(entry.read_bytes() if entry.is_file() else b"")
    return found.hexdigest()


def _run(capsys, monkeypatch, *arguments):
    """Run the command as the shell does; exit code, standard output, standard error."""
    monkeypatch.setattr(sys, "argv", ["headrace", *map(str, arguments)])
    code = 0
    try:
        main()
    except SystemExit as done:
        code = done.code or 0
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.fixture
def headrace(capsys, monkeypatch):
    return lambda *arguments: _run(capsys, monkeypatch, *arguments)


@pytest.fixture
def unchanged(data_dir):
    before = _tree(data_dir)
    yield
    assert _tree(data_dir) == before


def _damage(data_dir, at=150):
    with (data_dir / FIRST).open("r+b") as file:
        file.seek(at)
        file.write(b"\xff\xff\xff")


# --- list


def test_list_shows_partitions(headrace, data_dir, unchanged):
    code, out, err = headrace("log", "list", data_dir)
    assert (code, err) == (0, "")
    header, *rows = [line.split() for line in out.splitlines()]
    assert header == ["topic", "partition", "segments", "start", "end", "records", "size"]
    size = sum(path.stat().st_size for path in (data_dir / "orders-0").glob("*.log"))
    assert rows == [
        ["empty", "3", "1", "0", "0", "0", "0", "B"],
        ["orders", "0", "2", "1", "15", "15", str(size), "B"],
    ]


def test_list_as_json(headrace, data_dir, unchanged):
    code, out, _ = headrace("log", "list", data_dir, "--json")
    assert code == 0
    empty, orders = json.loads(out)
    assert empty == {
        "topic": "empty",
        "partition": 3,
        "start_offset": 0,
        "end_offset": 0,
        "size_bytes": 0,
        "segments": 1,
    }
    assert (orders["topic"], orders["start_offset"], orders["end_offset"], orders["segments"]) == ("orders", 1, 15, 2)


def test_list_of_nothing(headrace, tmp_path):
    (tmp_path / "[bare]").mkdir()
    assert headrace("log", "list", tmp_path / "[bare]") == (0, f"no partitions in {tmp_path}/[bare]\n", "")
    assert headrace("log", "list", tmp_path / "[bare]", "--json") == (0, "[]\n", "")


# --- segments


def test_segments(headrace, data_dir, unchanged):
    code, out, err = headrace("log", "segments", data_dir, "orders-0")
    assert (code, err) == (0, "")
    header, first, second = out.splitlines()
    assert header.split() == ["base", "offset", "next", "offset", "batches", "records", "size", "oldest", "youngest"]
    assert first.split()[:4] == ["0", "10", "5", "10"]
    assert second.split()[:4] == ["10", "15", "3", "5"]
    assert "2023-11-14 22:13:20.000" in first
    assert "2023-11-14 22:13:20.009" in first


def test_segments_as_json_and_with_a_problem(headrace, data_dir):
    _damage(data_dir, at=131 + 8)
    code, out, _ = headrace("log", "segments", data_dir, "orders-0", "--json")
    assert code == 0
    first, second = json.loads(out)
    assert (first["base_offset"], first["next_offset"], first["batches"]) == (0, 2, 1)
    assert "at byte 131" in first["problem"]
    assert (second["records"], second["problem"]) == (5, "")
    assert "at byte 131" in headrace("log", "segments", data_dir, "orders-0")[1]


# --- dump


def test_dump_shows_records_markers_and_what_is_no_text(headrace, data_dir, unchanged):
    code, out, err = headrace("log", "dump", data_dir, "orders-0")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert [int(line.split()[0]) for line in lines] == list(range(1, 15)), "from where readers may begin"
    assert lines[0].split()[1:] == ["2023-11-14", "22:13:20.001", "key-0001", "value-1", "............"]
    assert lines[-3].split()[3:] == ["0xff00", "café"]
    assert lines[-2].split()[3:] == ["–", "∅", "(tombstone)"]
    assert lines[-1].split()[-1] == "abort"


def test_dump_as_json_is_an_object_a_line(headrace, data_dir, unchanged):
    code, out, _ = headrace("log", "dump", data_dir, "orders-0", "--json", "--from", "12")
    assert code == 0
    odd, tombstone, marker = map(json.loads, out.splitlines())
    assert odd == {
        "offset": 12,
        "timestamp": EPOCH_MS + 12,
        "key": "0xff00",
        "value": "café",
        "headers": [["trace", "0xfe"], ["none", None], ["0xff", "1"]],
        "producer_id": 77,
        "transactional": True,
        "marker": None,
    }
    assert (tombstone["key"], tombstone["value"]) == (None, None)
    assert (marker["marker"], marker["key"], marker["offset"]) == ("abort", None, 14)


@pytest.mark.parametrize(
    ("options", "offsets"),
    [
        (["--limit", "2"], [1, 2]),
        (["--limit", "0"], []),
        (["--from", "9", "--limit", "3"], [9, 10, 11]),
        (["--from", "99"], []),
    ],
)
def test_dump_of_a_part(headrace, data_dir, options, offsets):
    code, out, _ = headrace("log", "dump", data_dir, "orders-0", *options)
    assert code == 0
    assert [int(line.split()[0]) for line in out.splitlines()] == offsets


def test_dump_of_a_damaged_file_shows_what_is_before_and_names_the_file(headrace, data_dir):
    _damage(data_dir)
    code, out, err = headrace("log", "dump", data_dir, "orders-0")
    assert code == 1
    assert [int(line.split()[0]) for line in out.splitlines()] == [1]
    assert err.startswith("headrace: ")
    assert err.count("\n") == 1
    assert FIRST in err


# --- verify


def test_verify_of_a_good_directory(headrace, data_dir, unchanged):
    code, out, err = headrace("log", "verify", data_dir)
    assert (code, err) == (0, "")
    size = sum(path.stat().st_size for path in data_dir.rglob("*.log"))
    assert out == f"3 segments, {size} B of whole batches\n"
    code, out, _ = headrace("log", "verify", data_dir, "--json")
    assert json.loads(out) == {"files": 3, "good_bytes": size, "problems": []}


def test_verify_names_the_damage_and_exits_with_1(headrace, data_dir):
    _damage(data_dir)
    before = _tree(data_dir)
    code, out, err = headrace("log", "verify", data_dir)
    assert code == 1
    assert f"damaged {data_dir}/{FIRST} at byte 131, 131 bytes: the checksum does not match" in out
    assert err == f"headrace: 1 damaged stretch(es) in {data_dir}: restore the files named above\n"
    code, out, err = headrace("log", "verify", data_dir, "--json")
    assert code == 1
    (problem,) = json.loads(out)["problems"]
    assert problem == {
        "path": f"{data_dir}/{FIRST}",
        "position": 131,
        "size": 131,
        "reason": "the checksum does not match",
    }
    assert _tree(data_dir) == before


def test_it_looks_at_a_directory_that_is_in_use(headrace, data_dir):
    with LogDirectory.open(str(data_dir), clock=FakeClock(EPOCH_MS)) as directory:
        append(directory.log(PARTITION), some_records(1, first=500))
        code, out, _ = headrace("log", "dump", data_dir, "orders-0", "--from", "15")
        assert (code, "key-0500" in out) == (0, True)
        assert headrace("log", "verify", data_dir)[0] == 0


# --- what is refused


@pytest.mark.parametrize("command", [["list"], ["verify"]])
def test_a_directory_that_is_not_there(headrace, tmp_path, command):
    path = tmp_path / "nowhere"
    assert headrace("log", *command, path) == (1, "", f"headrace: {path} does not exist: name a data directory\n")
    assert not path.exists()


@pytest.mark.parametrize("command", ["segments", "dump"])
def test_a_partition_that_is_not_there(headrace, data_dir, unchanged, command):
    code, out, err = headrace("log", command, data_dir, "none-0")
    assert (code, out) == (1, "")
    assert err == f"headrace: {data_dir}/none-0 does not exist: check the topic and partition\n"


def test_a_checkpoint_that_is_none_is_named_with_its_line(headrace, data_dir):
    path = data_dir / "log-start-offset-checkpoint"
    path.write_text("0\n1\nwhat\n")
    code, out, err = headrace("log", "list", data_dir)
    assert (code, out) == (1, "")
    assert err.startswith(f"headrace: {path}:3: 'what' is not 'topic partition offset'")
    assert err.count("\n") == 1


def test_what_the_operating_system_refuses_is_one_sentence_with_the_path(headrace, data_dir):
    (data_dir / FIRST).unlink()
    (data_dir / FIRST).symlink_to(data_dir / "gone")
    for command in (["list", data_dir], ["verify", data_dir], ["dump", data_dir, "orders-0"]):
        code, out, err = headrace("log", *command)
        remedy = "check the name, and whether its folder is there"
        assert (code, out, err) == (1, "", f"headrace: {data_dir}/{FIRST}: no such file or directory: {remedy}\n")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["log", "segments", "{dir}", "orders"],
            "'orders' is not a partition: write the topic, a dash and a number, as in orders-0",
        ),
        (["log", "dump", "{dir}", "orders-x"], "'orders-x' is not a partition"),
        (["log", "dump", "{dir}", "orders-0", "--limit", "-1"], "Invalid value for '--limit'"),
        (["log", "dump", "{dir}", "orders-0", "--from", "x"], "Invalid value for '--from'"),
        (["log", "dump", "{dir}"], "Missing argument 'PARTITION'"),
        (["log", "list"], "Missing argument 'DATA_DIR'"),
        (["log", "list", "{dir}/meta"], "is a file"),
        (["log", "nonsense"], "No such command 'nonsense'"),
        (["--log-level", "loud", "log", "list", "{dir}"], "Invalid value for '--log-level'"),
    ],
)
def test_a_wrong_call_is_exit_code_2_with_a_sentence(headrace, data_dir, arguments, sentence):
    (data_dir / "meta").write_text("")
    code, out, err = headrace(*(part.replace("{dir}", str(data_dir)) for part in arguments))
    assert (code, out) == (2, "")
    assert sentence in err
    assert "Traceback" not in err


@pytest.mark.parametrize("arguments", [["--help"], ["log", "--help"], ["log", "dump", "-h"], ["--version"]])
def test_help_and_version(headrace, arguments):
    code, out, err = headrace(*arguments)
    assert (code, err) == (0, "")
    assert "headrace" in out


def test_every_command_says_what_it_does():
    for name, command in cli.commands["log"].commands.items():
        assert command.help, name
        result = CliRunner().invoke(cli, ["log", name, "--help"])
        assert result.exit_code == 0
        assert "--json" in result.output


def test_as_a_program_a_closed_pipe_and_a_traceback_are_nobodys_business(data_dir):
    headrace = [sys.executable, "-m", "headrace.cli.main", "log"]
    with LogDirectory.open(str(data_dir), clock=FakeClock(EPOCH_MS)) as directory:
        for _ in range(30):
            append(directory.log(PARTITION), some_records(60))
    shell = " ".join([*headrace, "dump", f"'{data_dir}'", "orders-0", "| head -1"])
    piped = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, check=False, timeout=60)
    assert (piped.returncode, piped.stdout.count("\n"), piped.stderr) == (0, 1, "")
    refused = subprocess.run(
        [*headrace, "list", f"{data_dir}/no"], capture_output=True, text=True, check=False, timeout=60
    )
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == f"headrace: {data_dir}/no does not exist: name a data directory\n"
