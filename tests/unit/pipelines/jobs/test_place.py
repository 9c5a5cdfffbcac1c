from pathlib import Path

import pytest

from headrace.model import TopicPartition
from headrace.pipelines import Job, job, topic
from headrace.pipelines.errors import PipelineError
from headrace.pipelines.jobs.place import ForeignCheckpoint, Place, forget, lock_folder, mark_started, open_place
from headrace.pipelines.spark.checkpoint import read_done


def declared(name: str = "sums", reads: str = "orders", checkpoint: str | None = None) -> Job:
    return job(name=name, inputs={"rows": topic(reads)}, outputs=topic("out"), checkpoint=checkpoint)(lambda rows: rows)


def test_a_job_finds_its_place_again(tmp_path: Path) -> None:
    first = open_place(declared(), tmp_path)
    assert first == Place(tmp_path / "pipelines" / "sums", 1)
    mark_started(declared(), first)
    assert open_place(declared(), tmp_path) == first


def test_another_jobs_checkpoint_is_refused(tmp_path: Path) -> None:
    mine = declared(checkpoint=str(tmp_path / "here"))
    mark_started(mine, open_place(mine, tmp_path))
    with pytest.raises(ForeignCheckpoint, match="is the checkpoint of job 'sums', not of 'other'"):
        open_place(declared("other", checkpoint=str(tmp_path / "here")), tmp_path)
    with pytest.raises(ForeignCheckpoint, match="has read orders so far and is to read payments now"):
        open_place(declared(reads="payments", checkpoint=str(tmp_path / "here")), tmp_path)


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "letters.txt").write_text("dear")
    with pytest.raises(ForeignCheckpoint, match="holds something that is not a job's checkpoint"):
        open_place(declared(checkpoint=str(tmp_path / "here")), tmp_path)


def test_one_run_at_a_time(tmp_path: Path) -> None:
    with (
        lock_folder(tmp_path / "job"),
        pytest.raises(PipelineError, match="a run holds"),
        lock_folder(tmp_path / "job"),
    ):
        pass
    with lock_folder(tmp_path / "job"):
        pass


def test_what_spark_left_is_read_without_spark(tmp_path: Path) -> None:
    assert read_done(tmp_path).batch is None
    for number, offset in enumerate((10, 20, 30)):
        (tmp_path / "offsets").mkdir(exist_ok=True)
        (tmp_path / "offsets" / str(number)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{{"t":{{"0":{offset}}}}}\n-\n')
    (tmp_path / "commits").mkdir()
    for number in (0, 1):  # the third batch is not done
        (tmp_path / "commits" / str(number)).write_text("v1\n{}")
    found = read_done(tmp_path)
    assert (found.batch, found.offsets) == (1, {TopicPartition("t", 0): 20})


def test_forgetting_leaves_the_other_versions(tmp_path: Path) -> None:
    for version in (1, 2):
        Place(tmp_path, version).checkpoint("out").mkdir(parents=True)
    forget(Place(tmp_path, 1))
    assert [entry.name for entry in tmp_path.iterdir()] == ["v2"]
