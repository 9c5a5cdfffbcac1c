"""Kafka's command-line tools, run by main class from the fetched jars.

A tool's standard output is its answer, untouched; what it logs (warnings and worse) is on standard error. Nothing here
needs a running broker unless the tool itself does.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from peers.java import PeerError, java_command
from peers.kafka.tools_jvm import ToolsJvm

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

STORAGE_TOOL: Final = "kafka.tools.StorageTool"
DUMP_LOG_SEGMENTS: Final = "org.apache.kafka.tools.DumpLogSegments"

_LOGGING: Final = Path(__file__).with_name("log4j2.xml")

_HEAP: Final = "256m"

# Java writes in the locale's encoding otherwise, and a build machine's locale may be ASCII. (17 heeds the first only.)
_UTF8: Final = {"file.encoding": "UTF-8", "stdout.encoding": "UTF-8", "stderr.encoding": "UTF-8"}


class ToolFailedError(PeerError):
    """A tool ended with a status other than 0."""

    def __init__(self, main_class: str, finished: subprocess.CompletedProcess[str]) -> None:
        said = (finished.stderr.strip() or finished.stdout.strip())[-4000:]
        super().__init__(f"{main_class} ended with status {finished.returncode}:\n{said}")
        self.main_class = main_class
        self.finished = finished


def kafka_logging(level: str) -> dict[str, str]:
    """Return the Java system properties that make a Kafka program log from `level` up, to standard error."""
    return {"log4j2.configurationFile": _LOGGING.as_uri(), "peer.log.level": level}


def run_tool(
    main_class: str,
    *args: str,
    timeout_s: float = 120,
    check: bool = True,
    standard_input: str = "",
    own_jvm: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run a tool to its end and return what it said; `ToolFailedError` if `check` and its status is not 0.

    `own_jvm` is for programs that count on the end of their JVM.
    """
    properties = kafka_logging("WARN") | _UTF8
    if own_jvm:
        finished = subprocess.run(
            java_command("kafka", main_class, *args, heap=_HEAP, system_properties=properties),
            check=False,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=timeout_s,
            input=standard_input,
        )
    else:
        jvm = ToolsJvm.shared(heap=_HEAP, system_properties=properties)
        finished = jvm.run(main_class, args, standard_input=standard_input, timeout_s=timeout_s)
    if check and finished.returncode != 0:
        raise ToolFailedError(main_class, finished)
    return finished


@dataclass(frozen=True)
class DumpedBatch:
    """A record batch's header as the dump tool tells it; -1 stands for none in the producer's fields."""

    base_offset: int
    last_offset: int
    count: int
    base_sequence: int
    last_sequence: int
    producer_id: int
    producer_epoch: int
    leader_epoch: int
    is_transactional: bool
    is_control: bool
    delete_horizon_ms: int | None
    position: int
    timestamp_type: str
    max_timestamp_ms: int
    size_bytes: int
    magic: int
    codec: str
    crc: int
    is_valid: bool


@dataclass(frozen=True)
class DumpedRecord:
    """A record as the dump tool tells it.

    Key and value are decoded from UTF-8 (a tool for eyes: other bytes come out replaced, a comma in a header's key
    splits it, and a line break in a value ends the record). They are None where they are null (then the size is -1) and
    where the dump was made without data.
    """

    offset: int
    timestamp_type: str
    timestamp_ms: int
    key_size_bytes: int
    value_size_bytes: int
    sequence: int
    header_keys: tuple[str, ...]
    key: str | None
    value: str | None
    end_transaction: str | None
    """`COMMIT` or `ABORT` in a transaction's marker, None in all other records."""


@dataclass(frozen=True)
class Dump:
    """What the dump tool says of one file: parsed where it is a log, and always the text itself."""

    text: str
    batches: tuple[DumpedBatch, ...]
    records: tuple[DumpedRecord, ...]
    gaps: tuple[tuple[int, int], ...]
    """Offsets that follow each other without being consecutive: right in a compacted log, wrong in any other."""
    complaints: tuple[str, ...]
    """The lines in which the tool finds fault; a sound file has none."""


def dump_log(path: Path, *, deep: bool = True, data: bool = True) -> Dump:
    """Dump a `.log` file: batches, and their records too if `deep`, with keys and values if `data` (implies `deep`)."""
    return dump_files([path], deep=deep, data=data)[path]


def check_indexes(paths: Iterable[Path]) -> dict[Path, Dump]:
    """Have `.index` and `.timeindex` files held against the logs beside them, entry by entry: see `Dump.complaints`."""
    return dump_files(paths, deep=False, data=False, options=("--verify-index-only",))


def check_index_sanity(paths: Iterable[Path]) -> dict[Path, Dump]:
    """Run on index files the check that a starting broker runs; `ToolFailedError` if one fails it."""
    return dump_files(paths, deep=False, data=False, options=("--index-sanity-check",))


def dump_files(
    paths: Iterable[Path], *, deep: bool = True, data: bool = True, options: Sequence[str] = ()
) -> dict[Path, Dump]:
    """Dump any of a log's files (`.log`, `.index`, `.timeindex`, `.txnindex`, `.snapshot`) in one run of the tool."""
    by_name = {str(path.resolve()): path for path in paths}
    if not by_name:
        return {}
    flags = [*options, *(["--deep-iteration"] if deep else []), *(["--print-data-log"] if data else [])]
    said = run_tool(DUMP_LOG_SEGMENTS, "--files", ",".join(by_name), *flags)
    dumped = _by_file(_DUMPING, said.stdout, by_name)
    faults = _by_file(_FAULT, said.stderr, by_name)
    return {path: _parse(dumped.get(name, []), faults.get(name, [])) for name, path in by_name.items()}


# -- Reading what the tool says. It has no machine-readable output; these are the lines of Kafka 4.3.

_DUMPING: Final = re.compile(r"Dumping (?P<file>.+)")
_FAULT: Final = re.compile(r"(?P<fault>Non-consecutive offsets in |(?:Mismatches|[TF].+) in :)(?P<file>/.+)")
_GAP: Final = re.compile(r"\s*(?P<before>-?\d+) is followed by (?P<after>\d+)")
_BATCH: Final = re.compile(
    r"baseOffset: (?P<base_offset>-?\d+) lastOffset: (?P<last_offset>-?\d+) count: (?P<count>-?\d+) "
    r"baseSequence: (?P<base_sequence>-?\d+) lastSequence: (?P<last_sequence>-?\d+) "
    r"producerId: (?P<producer_id>-?\d+) producerEpoch: (?P<producer_epoch>-?\d+) "
    r"partitionLeaderEpoch: (?P<leader_epoch>-?\d+) isTransactional: (?P<is_transactional>\w+) "
    r"isControl: (?P<is_control>\w+) deleteHorizonMs: OptionalLong(?:\.empty|\[(?P<delete_horizon_ms>\d+)\]) "
    r"position: (?P<position>\d+) (?P<timestamp_type>\w+): (?P<max_timestamp_ms>-?\d+) size: (?P<size_bytes>\d+) "
    r"magic: (?P<magic>\d+) compresscodec: (?P<codec>\w+) crc: (?P<crc>\d+) isvalid: (?P<is_valid>\w+)"
)
_RECORD: Final = re.compile(
    r"\| offset: (?P<offset>\d+) (?P<timestamp_type>\w+): (?P<timestamp_ms>-?\d+) "
    r"keySize: (?P<key_size_bytes>-?\d+) valueSize: (?P<value_size_bytes>-?\d+) sequence: (?P<sequence>-?\d+) "
    r"headerKeys: \[(?P<header_keys>.*?)\]"
    r"(?: endTxnMarker: (?P<end_transaction>COMMIT|ABORT) coordinatorEpoch: -?\d+)?"
    r"(?: key: (?P<key>.*?))?(?: payload: (?P<value>.*))?"
)


def _by_file(heading: re.Pattern[str], text: str, names: Iterable[str]) -> dict[str, list[str]]:
    """Cut `text` into the lines under each file's headings; what comes before the first heading is everybody's."""
    lines: dict[str, list[str]] = {name: [] for name in names}
    current = list(lines.values())
    for line in filter(None, text.split("\n")):
        headed = heading.fullmatch(line)
        if headed and headed["file"] in lines:
            current = [lines[headed["file"]]]
            if "fault" not in headed.groupdict() or headed["fault"].startswith("Non-consecutive"):
                continue
        for each in current:
            each.append(line)
    return lines


def _parse(lines: Sequence[str], faults: Sequence[str]) -> Dump:
    batches: list[DumpedBatch] = []
    records: list[DumpedRecord] = []
    gaps: list[tuple[int, int]] = []
    complaints: list[str] = []
    for line in lines:
        if found := _BATCH.fullmatch(line):
            batches.append(_batch(found))
            if not batches[-1].is_valid:
                complaints.append(line)
        elif found := _RECORD.fullmatch(line):
            records.append(_record(found))
        elif "invalid bytes at the end of" in line:
            complaints.append(line)
    for line in faults:
        if found := _GAP.fullmatch(line):
            # The tool starts counting at -1 and finds a gap at the head of every segment but the first: no gap.
            if found["before"] != "-1":
                gaps.append((int(found["before"]), int(found["after"])))
        else:
            complaints.append(line)
    return Dump("\n".join(lines), tuple(batches), tuple(records), tuple(sorted(gaps)), tuple(complaints))


def _batch(found: re.Match[str]) -> DumpedBatch:
    return DumpedBatch(
        base_offset=int(found["base_offset"]),
        last_offset=int(found["last_offset"]),
        count=int(found["count"]),
        base_sequence=int(found["base_sequence"]),
        last_sequence=int(found["last_sequence"]),
        producer_id=int(found["producer_id"]),
        producer_epoch=int(found["producer_epoch"]),
        leader_epoch=int(found["leader_epoch"]),
        is_transactional=found["is_transactional"] == "true",
        is_control=found["is_control"] == "true",
        delete_horizon_ms=int(found["delete_horizon_ms"]) if found["delete_horizon_ms"] else None,
        position=int(found["position"]),
        timestamp_type=found["timestamp_type"],
        max_timestamp_ms=int(found["max_timestamp_ms"]),
        size_bytes=int(found["size_bytes"]),
        magic=int(found["magic"]),
        codec=found["codec"],
        crc=int(found["crc"]),
        is_valid=found["is_valid"] == "true",
    )


def _record(found: re.Match[str]) -> DumpedRecord:
    return DumpedRecord(
        offset=int(found["offset"]),
        timestamp_type=found["timestamp_type"],
        timestamp_ms=int(found["timestamp_ms"]),
        key_size_bytes=int(found["key_size_bytes"]),
        value_size_bytes=int(found["value_size_bytes"]),
        sequence=int(found["sequence"]),
        header_keys=tuple(found["header_keys"].split(",")) if found["header_keys"] else (),
        key=found["key"],
        value=found["value"],
        end_transaction=found["end_transaction"],
    )
