"""Columns sealed and opened by Spark, whose workers open the key store by themselves."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.errors import PipelineError
from headrace.forgetting import open_keys
from headrace.forgetting.master_key import create_master_key
from headrace.pipelines.sealed import open_columns, seal_columns

pytestmark = pytest.mark.java


def test_sealed_and_opened_by_workers(spark: SparkSession, tmp_path: Path) -> None:
    create_master_key(tmp_path / "master.key")
    where = {"keys": f"sqlite:///{tmp_path}/keys.db", "master_key_file": str(tmp_path / "master.key")}
    rows = [(7, "Ada", 1.5), (8, "Grace", 2.5), (9, None, 3.5)]
    frame = spark.createDataFrame(rows, "id long, name string, amount double")
    sealed = seal_columns(frame, ["name"], subject="id", **where)
    kept = sealed.collect()
    assert {row.name[:9] for row in kept if row.name} == {"sealed:1:"}
    again = spark.createDataFrame(kept, frame.schema)
    assert sorted(map(tuple, open_columns(again, ["name"], **where).collect())) == rows
    keys = open_keys(where["keys"], master_key_file=where["master_key_file"])
    keys.forget("7")
    keys.close()
    wanted = [(7, None, 1.5), *rows[1:]]

    def opened() -> list[tuple[object, ...]]:
        return sorted(map(tuple, open_columns(again, ["name"], **where).collect()))

    while opened() != wanted:  # workers ask again within a second; the test's own time limit ends it
        pass
    with pytest.raises(PipelineError, match="did you mean 'name'"):
        open_columns(frame, ["nme"], **where)
    with pytest.raises(PipelineError, match="cast it"):
        open_columns(frame, ["amount"], **where)
