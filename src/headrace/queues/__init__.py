"""Queues as Python people want them: put, take, workers, request and reply; and a look at them from outside.

`message.py` is what is put and what comes; `receiver.py` holds messages for a program, in a thread of its own, on the
member of `client/share.py`; `queue.py` is the face on both, `transaction.py` finishes messages and puts others
together, `worker.py` runs a function for each message, `rpc.py` is request and reply on top, `section.py` a worker as
`headrace.toml` describes it. `overview.py` and `moving.py` look at queues and change them from outside. A queue is a
topic and a share group: every Kafka client can put into it, and other groups take the same messages for themselves.

What always holds: what `put` returned from is durable; a message that was taken is redelivered unless it was
acknowledged, to somebody else if its program dies; and what a broker cannot do is said before anything is lost.
"""
