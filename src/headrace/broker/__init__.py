"""The broker: the shell that speaks Kafka's protocol to the world, on the log.

`runtime.py` holds what the broker is made of; `server.py` and `connection.py` bring requests in and answers out;
`registry.py` lists what it can do, one file each in `handlers/`. Everything here runs on one event loop; what may wait
for a disk runs in threads and comes back.
"""
