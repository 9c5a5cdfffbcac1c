"""A cleaning job in a process of its own: used for large jobs, and of the same result as one done in place."""

import fcntl
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from headrace.model import TopicPartition
from headrace.records import ControlType, Record
from headrace.storage.compaction import cleaner, job
from headrace.storage.compaction.job import CleaningFailed, run, run_in_process
from headrace.storage.config import LogConfig
from headrace.storage.directory import LogDirectory
from headrace.testing import FakeClock, MemoryFileSystem
from tests.integration.waiting import wait_until
from tests.small_logs import EPOCH_MS, append, end_transaction, new_log, records_from, some_records

CUSTOMERS = TopicPartition("customers", 0)
CONFIG = LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=8 * 1024 * 1024)
CLOCK = FakeClock(EPOCH_MS)


def _fill(log, value_bytes, records_a_turn=50):
    for turn in range(40):
        records = [
            Record(
                n, EPOCH_MS + turn, b"key-%d" % (n * (turn + 1) % 97), None if n == 13 else bytes([turn]) * value_bytes
            )
            for n in range(records_a_turn)
        ]
        append(log, records)
    for kind in ControlType:
        append(log, some_records(3), producer_id=kind, producer_epoch=0, base_sequence=0, transactional=True)
        end_transaction(log, kind, kind)
    log.roll(EPOCH_MS)
    append(log, some_records(2))


@pytest.fixture
def jobs(monkeypatch):
    """The jobs that went to a process of their own."""
    started = []

    def spy(job, folder):
        started.append(job)
        return run_in_process(job, folder)

    monkeypatch.setattr(cleaner, "run_in_process", spy)
    return started


@pytest.mark.parametrize(("value_bytes", "records_a_turn"), [(9000, 50), (180, job.COMPILED_FROM_RECORDS // 40)])
def test_a_large_job_runs_in_a_process_of_its_own_with_the_same_result(tmp_path, jobs, value_bytes, records_a_turn):
    with LogDirectory.open(str(tmp_path / "one"), clock=CLOCK) as directory:
        _fill(directory.create(CUSTOMERS, CONFIG), value_bytes, records_a_turn)
    shutil.copytree(tmp_path / "one", tmp_path / "other")

    outcomes, contents = [], []
    for name, runner in (("one", cleaner.run_where_it_fits), ("other", run)):
        with LogDirectory.open(str(tmp_path / name), clock=CLOCK, config_for=lambda _: CONFIG) as directory:
            log = directory.log(CUSTOMERS)
            assert log.size_bytes > cleaner.OWN_PROCESS_BYTES
            latest = {record.key: record.value for record in records_from(log)}
            outcomes.append(cleaner.clean(log, checkpoint=0, now_ms=EPOCH_MS, runner=runner))
            assert log.size_bytes < cleaner.OWN_PROCESS_BYTES
            remaining = records_from(log)
            assert {r.key: r.value for r in remaining if r.offset < 2000} == {
                key: value for key, value in latest.items() if key in {r.key for r in remaining if r.offset < 2000}
            }
        folder = tmp_path / name / "customers-0"
        contents.append(
            {p.name: p.read_bytes() for p in folder.iterdir() if p.suffix in (".log", ".index", ".txnindex")}
        )
    assert [job._record_count(each) >= job.COMPILED_FROM_RECORDS for each in jobs] == [records_a_turn > 50]
    assert outcomes[0] == outcomes[1]
    assert contents[0] == contents[1]


def test_a_small_job_and_another_file_system_need_no_process(tmp_path, jobs):
    with LogDirectory.open(str(tmp_path), clock=CLOCK) as directory:
        log = directory.create(CUSTOMERS, CONFIG)
        _fill(log, 10)
        assert cleaner.clean(log, checkpoint=0, now_ms=EPOCH_MS)
    filesystem = MemoryFileSystem()
    log = new_log(filesystem, cleanup_policy=frozenset({"compact"}))
    _fill(log, 9000)
    assert log.size_bytes > cleaner.OWN_PROCESS_BYTES
    assert cleaner.clean(log, checkpoint=0, now_ms=EPOCH_MS)
    assert jobs == []


def test_a_worker_that_fails_is_one_sentence_and_changes_nothing(tmp_path, monkeypatch):
    with LogDirectory.open(str(tmp_path), clock=CLOCK) as directory:
        log = directory.create(CUSTOMERS, CONFIG)
        _fill(log, 10)
        log.flush()
        before = records_from(log)
        path = log.segments[0].path
        with open(path, "r+b") as file:
            file.seek(200)
            file.write(b"\xff\xff\xff")
        monkeypatch.setattr(cleaner, "OWN_PROCESS_BYTES", 0)
        with pytest.raises(CleaningFailed, match=r"compaction of .*customers-0 failed: .*checksum") as caught:
            cleaner.clean(log, checkpoint=0, now_ms=EPOCH_MS)
        assert "\n" not in str(caught.value)
        assert not [name for name in os.listdir(log.directory) if name.endswith((".cleaned", ".swap"))]
        assert next(segment.path for segment in log.segments) == path
        assert records_from(log, 50) == before[50:]


def test_a_worker_takes_nothing_from_the_folder_where_the_broker_was_started(tmp_path, monkeypatch):
    (tmp_path / "json.py").write_text("raise SystemExit('of the user')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cleaner, "OWN_PROCESS_BYTES", 0)
    with LogDirectory.open(str(tmp_path / "data"), clock=CLOCK) as directory:
        log = directory.create(CUSTOMERS, CONFIG)
        _fill(log, 10)
        assert cleaner.clean(log, checkpoint=0, now_ms=EPOCH_MS)


_BROKER = """
import fcntl, sys
from headrace.storage.compaction.job import CleaningJob, run_in_process
from headrace.storage.filesystem import OsFileSystem

job = CleaningJob(
    directory=sys.argv[1], segments=((0, 100),), dirty_offset=0, uncleanable_offset=9, segment_bytes=1,
    delete_retention_ms=0, now_ms=0, max_keys=10, aborted=(), producers={},
)
folder = OsFileSystem().open_directory(job.directory)
fcntl.flock(folder.fileno(), fcntl.LOCK_EX)  # which the worker has, too, since it has the folder
run_in_process(job, folder)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel ties a child to its parent on Linux alone")
def test_a_worker_ends_with_its_broker_and_writes_nothing_among_the_next_ones_files(tmp_path):
    segment = tmp_path / "00000000000000000000.log"
    os.mkfifo(segment)  # whoever opens it waits for somebody who writes
    broker = subprocess.Popen([sys.executable, "-c", _BROKER, str(tmp_path)])
    wait_until(lambda: tmp_path in _folders_of_children(broker.pid), "the worker has not begun")
    broker.kill()
    broker.wait()
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        wait_until(lambda: _is_free(folder), "the worker is still there", patience_s=20)
    finally:
        os.close(folder)
        with suppress(OSError):  # nobody waits
            os.close(os.open(segment, os.O_WRONLY | os.O_NONBLOCK))


def _folders_of_children(process):
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [Path(f"/proc/{child}/cwd").readlink() for child in children]


def _is_free(folder):
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def test_a_job_and_its_result_survive_json():
    assert job._decode_result(
        {
            "groups": [{"segments": [1, 2], "aborted": [[1, 2, 3, 4]], "size": 5}],
            "end_offset": 9,
            "bytes_read": 1,
            "bytes_written": 2,
        }
    ).groups[0].aborted == ((1, 2, 3, 4),)


def _job_of(segments, *, dirty_offset, end):
    return job.CleaningJob(
        directory=".", segments=segments, dirty_offset=dirty_offset, uncleanable_offset=end, segment_bytes=1,
        delete_retention_ms=0, now_ms=0, max_keys=10, aborted=(), producers={},
    )  # fmt: skip


def test_the_compiled_map_is_used_where_it_works_and_the_dictionary_elsewhere(monkeypatch):
    many = _job_of(((0, 10_000_000),), dirty_offset=0, end=job.COMPILED_FROM_RECORDS)
    assert type(job._best_map(many)).__name__ == "OffsetTable"
    monkeypatch.setattr("headrace.storage.compaction.columnar.select_records", None)
    assert type(job._best_map(many)).__name__ == "OffsetMap"
    monkeypatch.setitem(sys.modules, "headrace.storage.compaction.columnar", None)
    assert type(job._best_map(many)).__name__ == "OffsetMap"


def test_few_records_are_not_worth_what_is_compiled():
    assert type(job._best_map(_job_of(((0, 200_000_000),), dirty_offset=0, end=99_999))).__name__ == "OffsetMap"
    # Offsets of what was cleaned say nothing of how many records are left there; bytes do.
    sparse = ((0, 50_000_000), (900_000_000, 50_000_000))
    assert job._record_count(_job_of(sparse, dirty_offset=900_000_000, end=900_050_000)) == 100_000
    assert job._record_count(_job_of(sparse, dirty_offset=900_050_000, end=900_050_000)) == 0
