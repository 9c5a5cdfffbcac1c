"""Operators that take the rows of a key one behind the other, in the order of event time.

`in_order` holds rows until the watermark has reached them and then hands them to a step, which keeps what it needs of
earlier ones: `rolling`, `batches`, `first_rows`, and what flags anomalies, in `anomalies/`.
"""
