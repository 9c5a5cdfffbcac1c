"""Record batches to Arrow columns and back, with no Python per record. Pure: no socket, no file, no Spark.

`records` turns fetched bytes into `RecordColumns`: places and numbers, one array each, over one arena of bytes. `arrow`
makes Arrow arrays of them; a decoder (`json`, `csv`, `avro`, `protobuf`, or none) makes columns of the values. `encode`
goes the other way, from Arrow columns to batches that are ready to be produced. What runs once per record is compiled
(`jit`).

What always holds: a compiled loop never reads outside its arena, whatever the bytes say; and a record that cannot be
decoded is named with its reason, never dropped and never guessed.
"""
