"""Ports for servers that are killed and started again at the same address."""

import random
import socket

# Below what the system hands out by itself (from 32768 on, as Linux is set up): else, while the server is down, a
# client anywhere on the machine could be given its port to call from; even one that tries to reach the server, which
# then would have reached itself.
_PORTS = range(20_000, 32_000)


def free_port() -> int:
    """A port of loopback that nobody listens on."""
    for port in random.SystemRandom().sample(_PORTS, 100):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("a hundred ports were tried, and none is free")
