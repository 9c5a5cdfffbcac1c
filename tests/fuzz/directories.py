"""Data directories that were damaged in any way, opened again.

A few directories with everything in them are made once: records of every codec in several segments, transactions that
were committed, aborted and left open, compacted logs, groups, offsets, ACLs; closed in order, or left by a crash. Each
run damages a copy, one to three files of it: bits, bytes, pages, lengths, fields of batches and lines of checkpoints,
files that are missing, empty, exchanged, too long, or of somebody else's making. Then the broker opens it.

What has to hold, or the run ends with `Broken`:
- the broker opens it, or refuses it in one sentence;
- a batch that is whole by its checksum is one that was written there, at that offset. What was durable when the
  directory was left is not read again, as Kafka does not: what the checksum does not cover there, the offset in front
  of a batch, is as the file says (counted as `moved`);
- every batch before the damage is served, and all batches if only what is made from them was damaged;
- each log takes new records, and after another crash they are there.
"""

import asyncio
import traceback
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from random import Random
from typing import NamedTuple

from headrace.errors import HeadraceError
from headrace.model import TopicPartition
from headrace.records import ControlType, Record, build_batch, build_marker, crc_of, headers_in
from headrace.storage.errors import DamagedLog
from headrace.storage.log import Log
from headrace.storage.names import offset_of
from headrace.testing.clock import FakeClock
from headrace.testing.memory_filesystem import MemoryFileSystem
from tests.fuzz.frames import damage, damaged_batch
from tests.fuzz.life import Broken, Complaints, Loop
from tests.simulation.filled_broker import FilledBroker, acl_for
from tests.simulation.simulated_broker import SETTINGS, SimulatedRuntime, run_simulation

NOW = 1_700_000_000_000
ENDS = ("clean", "killed", "power cut")
_DERIVED = (".index", ".timeindex", ".txnindex", ".snapshot", "leader-epoch-checkpoint", "partition.metadata", ".sums")
_STARTS = "log-start-offset-checkpoint"
_NUMBERS = (b"-1", b"0", b"1", b"7", b"9223372036854775807", b"9223372036854775808", b"x", b"", b"1 1", b"\xff")


class Batch(NamedTuple):
    """Where a batch was, and what of it no append rewrites."""

    segment: int
    position: int
    size: int
    content: bytes


@dataclass
class Directory:
    """A directory before the damage: its disk, and every batch by partition and offset."""

    disk: MemoryFileSystem
    is_clean: bool
    batches: dict[TopicPartition, dict[int, Batch]]

    def copy(self) -> MemoryFileSystem:
        return self.disk.crash(mode="keep_everything")


@dataclass
class Damaged:
    """What was done to a copy."""

    notes: list[str] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)  # the first byte that may be wrong, by path
    is_forged: bool = False  # with a checksum that fits: nobody can tell

    def note(self, path: str, position: int, what: str) -> None:
        self.notes.append(f"{path}: {what} at byte {position}")
        self.places[path] = min(position, self.places.get(path, position))


# --- directories to begin with


async def _fill(world: FilledBroker) -> None:
    chance = world.chance
    topics = world.broker.topics
    topics.create("out", 1, {})
    topics.create("plain", 2, {})
    topics.create("compacted", 1, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"})
    topics.create("marked", 1, {})
    for who in ("good", "fuzz"):
        await world.fill(who)
    for number in range(40):
        for topic in ("plain", "compacted"):
            for log in topics.by_name[topic].partitions:
                records = [
                    Record(n, NOW + number, b"key-%d" % chance.randrange(9), b"%d-%d" % (number, n) * 4)
                    for n in range(chance.choice((1, 3)))
                ]
                log.append(build_batch(records, codec=number % 5), now_ms=NOW + number)
                if number in (12, 25):
                    log.roll(NOW)
        log = topics.by_name["marked"].partitions[0]
        producer = number % 3
        log.append(
            build_batch(
                [Record(0, NOW, b"k", b"m%d" % number)],
                producer_id=900 + producer,
                producer_epoch=0,
                base_sequence=number // 3,
                transactional=True,
            ),
            now_ms=NOW,
        )
        if number % 7 == 6:
            kind = ControlType.COMMIT if number % 2 else ControlType.ABORT
            marker = build_marker(
                kind, producer_id=900 + producer, producer_epoch=0, coordinator_epoch=0, timestamp=NOW
            )
            log.append(marker, now_ms=NOW, from_client=False)
        if number == 20:
            log.roll(NOW)
    world.broker.directory.compact()
    world.broker.directory.checkpoint()


@cache
def directory(end: str) -> Directory:
    """A directory that ended so, made once a process."""
    disks: list[MemoryFileSystem] = []

    async def simulate(chance: Random, clock: FakeClock) -> Counter[str]:
        world = FilledBroker(chance, clock, SETTINGS)
        await _fill(world)
        for log in world.broker.directory.logs.values():
            log.flush()
        if end == "clean":
            world.broker.close()
        else:
            for partition, log in world.broker.directory.logs.items():  # and some that nobody synced
                if partition.topic == "plain":
                    log.append(build_batch([Record(0, NOW, b"k", b"not synced")]), now_ms=NOW)
            world.broker.is_up = False
            world.close()
        disks.append(world.disk.crash(mode="lose_everything" if end == "power cut" else "keep_everything"))
        return world.steps

    run_simulation(4711, simulate, Loop)
    disk = disks[0]
    made = Directory(disk, end == "clean", {})
    served: dict[TopicPartition, dict[int, Batch]] = {}

    async def look(chance: Random, clock: FakeClock) -> Counter[str]:
        runtime = SimulatedRuntime(made.copy(), clock, chance, SETTINGS)  # not started: it writes nothing
        for partition, log in runtime.directory.logs.items():
            served[partition] = {
                header: Batch(segment, position, size, content)
                for header, segment, position, size, content in _places(log)
            }
        runtime.directory.abandon()
        return Counter()

    run_simulation(4712, look, Loop)
    made.batches = served
    return made


def _places(log: Log) -> list[tuple[int, int, int, int, bytes]]:
    places = []
    for segment in log.segments:
        data = segment.file.read_at(segment.size, 0)
        for at, header in headers_in(data):
            content = data[at + 16 : at + header.size]
            places.append((header.base_offset, segment.base_offset, at, header.size, content))
    return places


# --- damage


def _files(disk: MemoryFileSystem, folder: str = "/data") -> list[str]:
    found = []
    for name in disk.list(folder):
        path = f"{folder}/{name}"
        try:
            disk.list(path)
        except OSError:
            found.append(path)
        else:
            found += _files(disk, path)
    return found


def _kind(path: str) -> str:
    name = path.rpartition("/")[2]
    if name.endswith(".json"):
        return "json"
    return next((end for end in (".log", *_DERIVED) if name.endswith(end)), name)


def _write(disk: MemoryFileSystem, path: str, data: bytes) -> None:
    if disk.exists(path):
        disk.remove(path)
    file = disk.open(path, create=True)
    file.write_at([data], 0)
    file.sync()


def break_it(disk: MemoryFileSystem, chance: Random) -> Damaged:
    """Damage one to three files."""
    done = Damaged()
    by_kind: dict[str, list[str]] = {}
    for path in _files(disk):
        if not path.endswith((".lock", ".kafka_cleanshutdown")):
            by_kind.setdefault(_kind(path), []).append(path)
    for _ in range(chance.choice((1, 1, 2, 3))):
        kind = ".log" if chance.random() < 0.4 else chance.choice(sorted(by_kind))
        path = chance.choice(by_kind[kind])
        if disk.exists(path):
            _break_file(disk, path, kind, chance, done, by_kind[kind])
    if chance.random() < 0.05:
        _leave_behind(disk, chance, done)
    return done


def _break_file(disk: MemoryFileSystem, path: str, kind: str, chance: Random, done: Damaged, others: list[str]) -> None:
    data = disk.read(path)
    roll = chance.random()
    if roll < 0.06:
        disk.remove(path)
        done.note(path, 0, "removed")
    elif roll < 0.1:
        other = chance.choice(others)
        if other != path and disk.exists(other):
            theirs = disk.read(other)
            _write(disk, path, theirs)
            _write(disk, other, data)
            done.note(path, 0, f"exchanged with {other}")
            done.note(other, 0, f"exchanged with {path}")
            done.is_forged = done.is_forged or kind == ".log"
    elif roll < 0.25:
        size = chance.choice((0, len(data) // 2, max(len(data) - chance.randrange(1, 70), 0)))
        _write(disk, path, data[:size])
        done.note(path, size, "cut")
    elif roll < 0.35:
        extra = chance.choice((bytes(chance.choice((1, 61, 4096))), chance.randbytes(100), data[-80:]))
        _write(disk, path, data + extra)
        done.note(path, len(data), f"{len(extra)} bytes more")
    elif kind == ".log" and data:
        _break_log(disk, path, data, chance, done)
    elif kind in _DERIVED and not kind.startswith(("leader", "partition")) and data:
        at = chance.randrange(len(data))
        changed = bytearray(data)
        changed[at : at + chance.choice((1, 4, 8, 512))] = chance.choice((b"\xff" * 8, bytes(8), chance.randbytes(4)))
        _write(disk, path, bytes(changed[: len(data)]))
        done.note(path, at, "changed")
    else:
        _write(disk, path, _changed_text(data, chance))
        done.note(path, 0, "changed")


def _break_log(disk: MemoryFileSystem, path: str, data: bytes, chance: Random, done: Damaged) -> None:
    changed = bytearray(data)
    batches: list[tuple[int, int]] = []
    with suppress(HeadraceError):
        batches += [(at, header.size) for at, header in headers_in(data)]
    if batches and chance.random() < 0.5:
        at, size = chance.choice(batches)
        batch = bytes(data[at : at + size])
        if chance.random() < 0.2:  # what is whole, at a place that is another's
            other, length = chance.choice(batches)
            new = data[other : other + length]
        else:
            new = damaged_batch(batch, chance)
        changed[at : at + size] = new
        is_whole = len(new) >= 61 and crc_of(new) == int.from_bytes(new[17:21], "big")
        done.is_forged = done.is_forged or (is_whole and new[16:] != batch[16:])
        done.note(path, at, "a batch changed")
    else:
        at = chance.randrange(len(data))
        if chance.random() < 0.3:
            at -= at % 512
            changed[at : at + 512] = bytes(len(changed[at : at + 512]))
        elif chance.random() < 0.5:
            changed[at] ^= 1 << chance.randrange(8)
        else:
            changed[at:] = damage(bytes(changed[at:]), chance)
        done.note(path, at, "bytes changed")
    _write(disk, path, bytes(changed))


def _changed_text(data: bytes, chance: Random) -> bytes:
    lines = data.split(b"\n")
    line = chance.randrange(len(lines))
    match chance.randrange(5):
        case 0:
            words = lines[line].split(b" ")
            words[chance.randrange(len(words))] = chance.choice(_NUMBERS)
            lines[line] = b" ".join(words)
        case 1:
            del lines[line]
        case 2:
            lines.insert(line, lines[line])
        case 3:
            return data.replace(b"\n", b"\r\n")
        case _:
            return damage(data, chance)
    return b"\n".join(lines)


def _leave_behind(disk: MemoryFileSystem, chance: Random, done: Damaged) -> None:
    """Files and folders of somebody else's making."""
    name = chance.choice(
        (
            "plain-99999999999",
            "plain-7",
            "x-0.deadbeef-delete",
            "-0",
            "a-",
            "topics/x.json.tmp",
            "plain-0/notes.txt",
            "..-1",
        )
    )
    path = f"/data/{name}"
    if not disk.exists(path):
        if "." in name.rpartition("/")[2] and not name.endswith("-delete"):
            if not name.startswith(".."):
                _write(disk, path, chance.randbytes(10))
        else:
            disk.make_directory(path)
        done.notes.append(f"{path}: somebody's")


# --- what has to hold


class Result(NamedTuple):
    counts: Counter[str]
    notes: list[str]
    failure: str | None


def open_damaged(seed: int, index: int) -> Result:
    """Damage a copy by the seed, open it, and look at everything."""
    chance = Random(f"{seed}:{index}")
    end = ENDS[index % len(ENDS)]
    counts: Counter[str] = Counter({"directories": 1, f"directory {end}": 1})
    done = Damaged()
    failure = None

    async def simulate(_: Random, clock: FakeClock) -> Counter[str]:
        before = directory(end)
        disk = before.copy()
        damaged = break_it(disk, chance)
        done.notes, done.places, done.is_forged = damaged.notes, damaged.places, damaged.is_forged
        with Complaints().listening() as complaints:
            await _open_and_check(disk, before, done, clock, chance, counts)
        for line, count in complaints.lines.items():
            counts[f"log {line}"] += count
        if complaints.broken and "Traceback" in complaints.broken:
            raise Broken(f"the broker logged: {complaints.broken}")
        return counts

    directory(end)  # made before, and not within, the simulation
    try:
        run_simulation(index, simulate, Loop)
    except Exception as error:
        failure = str(error) if isinstance(error, Broken) else "".join(traceback.format_exception(error))
    return Result(counts, done.notes, failure)


async def _open_and_check(
    disk: MemoryFileSystem, before: Directory, done: Damaged, clock: FakeClock, chance: Random, counts: Counter[str]
) -> None:
    opened = _open(disk, clock, chance, counts)
    if opened is None:
        return
    runtime, ends = opened
    counts["opened"] += 1
    for partition, batches in before.batches.items():
        log = runtime.directory.logs.get(partition)
        if log is None:
            if not any(f"/{partition.topic}" in path for path in done.places):
                raise Broken(f"{partition} is gone")
            continue
        _check_served(log, partition, batches, before, done, counts, ends[partition])
    _check_books(runtime, done)
    appended = {}
    for partition, log in runtime.directory.logs.items():
        batch = build_batch([Record(0, NOW, b"after", b"the damage")])
        appended[partition] = log.append(batch, now_ms=NOW, from_client=False).base_offset
        log.flush()
    runtime.is_up = False
    for shell in (runtime.metadata, runtime.groups, runtime.transactions):
        shell.close()
    await asyncio.sleep(0)
    again = _open(disk.crash(mode="lose_everything"), clock, chance, counts)
    if again is None:
        raise Broken("what was opened once is refused the second time")
    runtime, _ = again
    for partition, offset in appended.items():
        log = runtime.directory.logs[partition]
        found = log.read(offset, 1000).slice
        if found is None or b"the damage" not in found.read():
            raise Broken(f"the record that was appended to {partition} at {offset} is gone")
        if partition in before.batches:
            _check_served(log, partition, before.batches[partition], before, done, counts, ends[partition])
    runtime.close()


def _open(
    disk: MemoryFileSystem, clock: FakeClock, chance: Random, counts: Counter[str]
) -> tuple[SimulatedRuntime, dict[TopicPartition, int]] | None:
    """The broker, and where its logs ended when it opened them; None if it refuses, which it does in a sentence."""
    try:
        runtime = SimulatedRuntime(disk, clock, chance, SETTINGS)
        ends = {partition: log.end_offset for partition, log in runtime.directory.logs.items()}
        runtime.start()
    except HeadraceError as error:
        text = str(error)
        if "\n" in text or len(text) > 500:
            raise Broken(f"a refusal of more than one sentence: {text!r}") from error
        counts["refused"] += 1
        counts[f"refusal {type(error).__name__}"] += 1
        if "/data/" not in text:
            raise Broken(f"a refusal that names no file: {text!r}") from error
        return None
    return runtime, ends


def _check_served(
    log: Log,
    partition: TopicPartition,
    batches: dict[int, Batch],
    before: Directory,
    done: Damaged,
    counts: Counter[str],
    end: int,
) -> None:
    """`end` is where the log ended when it was opened for the first time."""
    served = set()
    last = max((batch.segment for batch in batches.values()), default=0)
    for offset, batch in _serve(log):
        if crc_of(batch) != int.from_bytes(batch[17:21], "big"):
            counts["served, and the checksum tells"] += 1
            continue
        was = batches.get(offset)
        if was is not None and was.content == batch[16:]:
            served.add(offset)
        elif done.is_forged:
            counts["forged"] += 1
        elif offset >= end:
            counts["written since"] += 1  # by the broker, which ends transactions that nobody else would
        elif any(each.content == batch[16:] and (before.is_clean or each.segment < last) for each in batches.values()):
            counts["moved"] += 1
        else:
            raise Broken(f"{partition} serves at offset {offset} what was never there")
    missing = _due(partition, batches, done) - served
    missing = {offset for offset in missing if offset >= log.start_offset or f"/data/{_STARTS}" not in done.places}
    if missing:
        raise Broken(f"{partition} does not serve offsets {sorted(missing)[:5]}, which were left alone: {log}")


def _serve(log: Log) -> list[tuple[int, bytes]]:
    """What a consumer gets that reads from the start: each batch with its offset, up to what cannot be read."""
    served: list[tuple[int, bytes]] = []
    offset = log.start_offset
    while offset < log.end_offset:
        try:
            found = log.read(offset, 1 << 16).slice
        except DamagedLog as error:
            if error.next_offset <= offset:
                raise Broken(f"a reader is sent back from {offset}: {error}") from error
            offset = error.next_offset
            continue
        except HeadraceError:
            return served
        if found is None:
            return served
        data = found.read()
        reached = offset
        with suppress(HeadraceError):
            for at, header in headers_in(data):
                served.append((header.base_offset, data[at : at + header.size]))
                reached = max(reached, header.next_offset)
        if reached == offset:
            return served
        offset = reached
    return served


def _due(partition: TopicPartition, batches: dict[int, Batch], done: Damaged) -> set[int]:
    """The offsets of the batches that have to be there: those before the damage."""
    folder = f"/data/{partition.topic}-{partition.partition}/"
    hurt = [
        (base, position)
        for path, position in done.places.items()
        if path.startswith(folder) and (base := offset_of(path.rpartition("/")[2], ".log")) is not None
    ]
    first = min(hurt, default=None)
    return {
        offset
        for offset, batch in batches.items()
        if first is None or (batch.segment, batch.position + batch.size) <= first or batch.segment < first[0]
    }


def _check_books(runtime: SimulatedRuntime, done: Damaged) -> None:
    """Groups, transactions and ACLs of those whose records nobody touched are as they were."""
    hurt = {path.split("/")[2].rpartition("-")[0] for path in done.places}
    hurt |= {path.rpartition("/")[2].removesuffix(".json") for path in done.places}  # how many partitions it has
    if f"/data/{_STARTS}" in done.places:
        return
    if "__headrace_metadata" not in hurt and acl_for("good") not in runtime.metadata.image.acls:
        raise Broken("an ACL is gone")
    if "__consumer_offsets" not in hurt and runtime.groups.coordinator._classic.group("good-old").generation != 1:
        raise Broken("a group is gone")
    if "__transaction_state" not in hurt and not runtime.transactions.coordinator.transactions["good-open"].is_ongoing:
        raise Broken("a transaction is gone")
