"""`make bench-log`: the log against the disk's own speed.

Appending and reading are compared with plain `pwritev`, `pread` and `fdatasync` loops over the same bytes, in turn, in
one run. Recovery and compaction have no such measure; they are shown at three sizes, to see how the cost grows.
"""

import os
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from harness import OURS, Comparison, Figure, alternate, headline, keep, scratch, verdict
from headrace.model import TopicPartition
from headrace.records import Codec, Record, build_batch, header_at
from headrace.storage.compaction.cleaner import clean
from headrace.storage.config import LogConfig
from headrace.storage.filesystem import OsFileSystem
from headrace.storage.log import Log
from headrace.storage.log_loader import open_log

MIB = 1024 * 1024
TOTAL = 256 * MIB
PARTITION = TopicPartition("bench", 0)
FILESYSTEM = OsFileSystem()
NOW = 1_700_000_000_000
PLAIN = "pwritev and pread"
ROUNDS = 5
console = Console(highlight=False)


def batch_of(size: int, record_size: int = 1024) -> bytes:
    count = max(1, size // record_size)
    value = random.Random(size).randbytes(max(1, size // count - 16))
    return build_batch([Record(n, NOW, b"key", value) for n in range(count)])


def open_bench_log(path: Path, config: LogConfig | None = None, **options: int) -> Log:
    path.mkdir(exist_ok=True)
    log, _ = open_log(FILESYSTEM, str(path), PARTITION, config or LogConfig(), now_ms=NOW, **options)
    return log


def timed_log(folder: Path, batch: bytes, sync_every: int) -> Callable[[], float]:
    def run() -> float:
        log = open_bench_log(folder / "log")
        started = time.perf_counter()
        for number in range(TOTAL // len(batch)):
            log.append(batch, now_ms=NOW)
            if sync_every and number % sync_every == sync_every - 1:
                log.flush()
        elapsed = time.perf_counter() - started
        log.abandon()
        shutil.rmtree(folder / "log")
        return TOTAL / MIB / elapsed

    return run


def timed_plain(folder: Path, batch: bytes, sync_every: int) -> Callable[[], float]:
    def run() -> float:
        fd = os.open(folder / "plain", os.O_RDWR | os.O_CREAT)
        head, rest = batch[:16], memoryview(batch)[16:]
        started = time.perf_counter()
        position = 0
        for number in range(TOTAL // len(batch)):
            position += os.pwritev(fd, [head, rest], position)
            if sync_every and number % sync_every == sync_every - 1:
                os.fdatasync(fd)
        elapsed = time.perf_counter() - started
        os.close(fd)
        (folder / "plain").unlink()
        return TOTAL / MIB / elapsed

    return run


def appends(folder: Path) -> list[tuple[str, Comparison, float | None]]:
    rows: list[tuple[str, Comparison, float | None]] = []
    for size in (1024, 16 * 1024, 64 * 1024, MIB):
        batch = batch_of(size)
        found = alternate({"log": timed_log(folder, batch, 0), "plain": timed_plain(folder, batch, 0)}, ROUNDS)
        rows.append((f"append {size // 1024} KiB batches", found, 0.8 if size == 64 * 1024 else None))
    batch = batch_of(64 * 1024)
    found = alternate({"log": timed_log(folder, batch, 16), "plain": timed_plain(folder, batch, 16)}, ROUNDS)
    rows.append(("append 64 KiB batches, sync every 1 MiB", found, 0.8))
    return rows


def reads(folder: Path) -> list[tuple[str, Comparison, float | None]]:
    log = open_bench_log(folder / "read")
    batch = batch_of(64 * 1024)
    for _ in range(TOTAL // len(batch)):
        log.append(batch, now_ms=NOW)
    total = log.end_offset
    per_batch = header_at(batch).last_offset_delta + 1
    file = log.segments[0].file
    rows: list[tuple[str, Comparison, float | None]] = []
    for size in (64 * 1024, MIB):
        step = max(1, size // len(batch)) * per_batch
        max_bytes = max(1, size // len(batch)) * len(batch)

        def through_log(step: int = step, max_bytes: int = max_bytes) -> float:
            started = time.perf_counter()
            count = 0
            for offset in range(0, total, step):
                found = log.read(offset, max_bytes).slice
                assert found is not None
                count += len(found.read())
            return count / MIB / (time.perf_counter() - started)

        def plain(max_bytes: int = max_bytes) -> float:
            started = time.perf_counter()
            count = 0
            for position in range(0, log.segments[0].size, max_bytes):
                count += len(os.pread(file.fileno(), max_bytes, position))
            return count / MIB / (time.perf_counter() - started)

        rows.append((f"read {size // 1024} KiB", alternate({"log": through_log, "plain": plain}, ROUNDS), 0.8))
    log.abandon()
    shutil.rmtree(folder / "read")
    return rows


def recoveries(folder: Path) -> list[tuple[str, float, float]]:
    rows = []
    for batch_size in (1024, 16 * 1024, 64 * 1024):
        for total in (64 * MIB, 256 * MIB, 1024 * MIB):
            log = open_bench_log(folder / "recover", LogConfig(segment_bytes=2**31 - 1))
            batch = batch_of(batch_size)
            for _ in range(total // len(batch)):
                log.append(batch, now_ms=NOW)
            log.abandon()
            started = time.perf_counter()
            open_bench_log(folder / "recover").abandon()
            elapsed = time.perf_counter() - started
            rows.append(
                (f"{batch_size // 1024} KiB batches, {total // MIB} MiB", elapsed, elapsed * 1024 * MIB / total)
            )
            shutil.rmtree(folder / "recover")
    return rows


def compactions(folder: Path) -> list[tuple[str, float, float, float]]:
    rows = []
    config = LogConfig(segment_bytes=32 * MIB, cleanup_policy=frozenset({"compact"}))
    for record_size, codec in ((100, Codec.NONE), (1024, Codec.NONE), (1024, Codec.LZ4)):
        for total in (32 * MIB, 64 * MIB, 128 * MIB):
            log = open_bench_log(folder / "compact", config)
            chance = random.Random(1)
            keys = total // record_size // 10  # each key is written ten times
            written = 0
            while written < total:
                records = [
                    Record(n, NOW, b"key-%08d" % chance.randrange(keys), chance.randbytes(record_size - 20))
                    for n in range(16 * 1024 // record_size)
                ]
                log.append(build_batch(records, codec=codec), now_ms=NOW)
                written += 16 * 1024
            log.roll(NOW)
            before = log.size_bytes
            started = time.perf_counter()
            clean(log, checkpoint=0, now_ms=NOW)
            elapsed = time.perf_counter() - started
            name = f"{record_size} B records, {codec.name.lower()}, {total // MIB} MiB"
            rows.append((name, before / MIB / elapsed, before / MIB, log.size_bytes / MIB))
            log.abandon()
            shutil.rmtree(folder / "compact")
    return rows


def main() -> None:
    console.print(headline("[bold]the log against the disk[/bold]"))
    with scratch() as folder:
        table = Table("", "log MB/s", "plain MB/s", "ratio", "rounds from – to", "", box=None)
        kept: list[Figure] = []
        for name, found, goal in [*appends(folder), *reads(folder)]:
            low, high = found.spread
            medians = {OURS: found.medians["log"], PLAIN: found.medians["plain"]}
            kept.append(Figure(name, "MB/s", medians, {PLAIN: found.ratio}, {PLAIN: found.spread}))
            table.add_row(
                name,
                f"{found.medians['log']:.0f}",
                f"{found.medians['plain']:.0f}",
                f"{found.ratio:.2f}×",
                f"{low:.2f} – {high:.2f}",
                verdict(found.ratio, goal) if goal else "",
            )
        console.print(table)
        table = Table("recovery after a crash", "seconds", "seconds per GiB", box=None)
        for name, elapsed, per_gib in recoveries(folder):
            kept.append(Figure(f"recovery, {name}", "s per GiB", {OURS: per_gib}))
            table.add_row(name, f"{elapsed:.2f}", f"{per_gib:.2f}")
        console.print(table)
        table = Table("compaction", "MB/s", "MiB before", "MiB after", box=None)
        for name, rate, before, after in compactions(folder):
            kept.append(Figure(f"compaction, {name}", "MB/s", {OURS: rate}))
            table.add_row(name, f"{rate:.0f}", f"{before:.0f}", f"{after:.1f}")
        console.print(table)
        keep("log", kept, ROUNDS)


if __name__ == "__main__":
    main()
