"""A program that counts in a stream until it is killed: python pipeline_counting.py FOLDER [BATCHES]

The count after each batch is written down in FOLDER/batches/<batch id>; with BATCHES it ends after that one.
"""

import sys
from pathlib import Path

from headrace.pipelines import session


def main() -> None:
    folder = Path(sys.argv[1])
    batches = int(sys.argv[2]) if len(sys.argv) > 2 else None
    out = folder / "batches"
    out.mkdir(exist_ok=True)
    spark = session("counting", master="local[2]", state_dir=folder / "state", conf={"spark.driver.memory": "512m"})
    numbers = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).option("numPartitions", 2).load()

    def write_down(frame, batch_id):
        (row,) = frame.collect()
        partial = out / f".{batch_id}"
        partial.write_text(str(row["count"]))
        partial.rename(out / str(batch_id))

    query = (
        numbers.selectExpr("value % 1 AS key")
        .groupBy("key")
        .count()
        .writeStream.outputMode("update")
        .queryName("counting")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .foreachBatch(write_down)
        .start()
    )
    if batches is None:
        query.awaitTermination()
        return
    while query.isActive and (query.lastProgress or {"batchId": -1})["batchId"] < batches:
        query.awaitTermination(0.1)
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
