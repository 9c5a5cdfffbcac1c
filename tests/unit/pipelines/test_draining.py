"""A query's ending in its checkpoint, at every step that a kill may come after; files as Spark writes them."""

import json
from pathlib import Path

import pytest

from headrace.pipelines.errors import PipelineError
from headrace.pipelines.spark.draining import FINAL_WATERMARK_MS, Stage, begin_ending, stage_of
from headrace.pipelines.spark.watermarks import (
    InputWatermarks,
    inputs_in,
    keep,
    read_kept,
    runs_again,
    to_restore,
)

PLAN = """
~Join LeftOuter, (k#1 = k#2)
:- ~EventTimeWatermark 1a96adef-9fcd-4592-981f-f788d067a4b0, timestamp#0: timestamp, 2 seconds
:  +- ~StreamingRelationV2 rate
+- ~EventTimeWatermark 416ccff7-05b3-4efc-97e4-d57e81f113ad, t2#2: timestamp, 3 seconds
   +- ~StreamingRelationV2 rate
"""


def plan(checkpoint: Path, batch: int, watermark_ms: int) -> None:
    about = {"batchWatermarkMs": watermark_ms, "batchTimestampMs": 1000 + batch, "conf": {"spark.x": "1"}}
    (checkpoint / "offsets").mkdir(parents=True, exist_ok=True)
    (checkpoint / "offsets" / str(batch)).write_text(f'v1\n{json.dumps(about)}\n{{"topic":{{"0":7}}}}\n-')


def commit(checkpoint: Path, batch: int) -> None:
    (checkpoint / "commits").mkdir(parents=True, exist_ok=True)
    (checkpoint / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')


def test_the_ending_is_a_batch_that_was_planned_and_not_run(tmp_path: Path) -> None:
    assert stage_of(tmp_path) is Stage.OPEN
    assert not begin_ending(tmp_path, 5000), "nothing was read, so nothing waits"
    plan(tmp_path, 0, 0)
    with pytest.raises(PipelineError, match=r"batch 0 in .* is not done"):
        begin_ending(tmp_path, 5000)
    commit(tmp_path, 0)
    assert stage_of(tmp_path) is Stage.OPEN
    assert begin_ending(tmp_path, 5000)
    assert stage_of(tmp_path) is Stage.ENDING
    version, about, *sources = (tmp_path / "offsets" / "1").read_text().splitlines()
    assert (version, sources) == ("v1", ['{"topic":{"0":7}}', "-"]), "no row more is read"
    final = {"batchWatermarkMs": FINAL_WATERMARK_MS, "batchTimestampMs": 5000, "conf": {"spark.x": "1"}}
    assert json.loads(about) == final
    commit(tmp_path, 1)
    assert stage_of(tmp_path) is Stage.DRAINED


def test_the_clock_of_the_ending_does_not_go_back(tmp_path: Path) -> None:
    plan(tmp_path, 3, 0)
    commit(tmp_path, 3)
    begin_ending(tmp_path, 10)
    assert json.loads((tmp_path / "offsets" / "4").read_text().splitlines()[1])["batchTimestampMs"] == 1004


def test_an_offset_log_of_another_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text("v2\n{}\n{}")
    with pytest.raises(PipelineError, match="of version v2, and only v1 is supported"):
        stage_of(tmp_path)


def test_inputs_are_known_by_column_and_delay_in_the_order_of_the_plan() -> None:
    assert list(inputs_in(PLAN).values()) == ["timestamp: timestamp, 2 seconds", "t2: timestamp, 3 seconds"]


def test_watermarks_of_inputs_are_handed_back_unless_the_checkpoint_is_older_or_another(tmp_path: Path) -> None:
    assert read_kept(tmp_path) is None
    kept = InputWatermarks(4, ("a", "b"), (17, None))
    keep(tmp_path, kept)
    assert read_kept(tmp_path) == kept
    assert to_restore(kept, ["a", "b"], 4) == (17, None)
    assert to_restore(kept, ["a", "b"], 6) == (17, None), "lower than they were, which delays and loses nothing"
    assert to_restore(kept, ["a", "b"], 3) is None, "of a checkpoint that was put back"
    assert to_restore(kept, ["a", "c"], 4) is None
    assert to_restore(kept, ["a", "b"], None) is None
    assert [runs_again(kept, committed) for committed in (None, 4, 5)] == [False, False, True]
    assert not runs_again(None, 5)
    (tmp_path / "input-watermarks.json").write_text("{")
    assert read_kept(tmp_path) is None
