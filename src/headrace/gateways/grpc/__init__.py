"""Producing and consuming over gRPC; what is spoken is in `headrace.proto`.

`wire` has its messages, `errors` the status that each failure is (pure), `producing` and `consuming` do the work,
`service` is the methods, `server` the shell. Nothing is generated: `headrace.binpb` is the compiled `headrace.proto`
(`make proto` writes it again).
"""
