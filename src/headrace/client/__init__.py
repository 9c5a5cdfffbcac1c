"""A small Kafka client of our own, for the columnar source and sink and for the command line; on any Kafka.

`connection` is one socket; `cluster` knows who leads what and keeps the connections; `leaders` asks a question of every
partition's leader and asks again where that may help. On these stand `offsets`, `fetch`, `produce` and `admin`, one
kind of request each, and `reader` and `writer`, which deal in records instead of bytes. `coordinators` finds who looks
after a group; on it stand `groups`, `group_lag`, which sees a group whole, and `resets`, which move one; and `share`, a
member of a share group, on `share_session`, which is pure.

What always holds: everything blocks, nothing here starts a thread, an object belongs to one thread, and every wait has
an end. Users bring the Kafka client they like: nothing here is a public API but `look`, which `headrace` exports.
"""
