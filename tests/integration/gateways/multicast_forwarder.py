"""A bad network between interfaces: what comes in on one goes out on all others, unless it is lost; or twice, or later.

    python multicast_forwarder.py SEED LOSS DOUBLED DELAY_S INTERFACE INTERFACE …

SIGUSR1 cuts it, SIGUSR2 mends it. It stands in for `tc … netem`, which not every kernel has.
"""

import heapq
import itertools
import random
import select
import signal
import socket
import sys
import time

ETHERNET, UDP = 14, 17
_ALL = 3


def without_checksum(frame: bytearray) -> bytes:
    """A frame between virtual interfaces has no whole checksum yet; 0 says that there is none."""
    if frame[12:14] == b"\x08\x00" and frame[ETHERNET] == 0x45 and frame[ETHERNET + 9] == UDP:
        frame[ETHERNET + 26 : ETHERNET + 28] = b"\0\0"
    return bytes(frame)


def main() -> None:
    seed, loss, doubled, delay_s = int(sys.argv[1]), *map(float, sys.argv[2:5])
    chance = random.Random(seed)
    is_cut = False

    def cut(number: int, frame: object) -> None:
        nonlocal is_cut
        is_cut = number == signal.SIGUSR1

    signal.signal(signal.SIGUSR1, cut)
    signal.signal(signal.SIGUSR2, cut)
    ports = []
    for name in sys.argv[5:]:
        port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL))
        port.setsockopt(socket.SOL_SOCKET, 33, 32 * 1024 * 1024)  # SO_RCVBUFFORCE
        port.bind((name, 0))
        port.setblocking(False)
        ports.append(port)
    waiting: list[tuple[float, int, bytes, socket.socket]] = []
    numbers = itertools.count()
    print("ready", flush=True)
    while True:
        timeout = max(waiting[0][0] - time.monotonic(), 0) if waiting else 1.0
        for port in select.select(ports, [], [], timeout)[0]:
            for _ in range(64):
                try:
                    frame, address = port.recvfrom(65_536)
                except BlockingIOError:
                    break
                if address[2] == socket.PACKET_OUTGOING:
                    continue
                sent = without_checksum(bytearray(frame))
                for other in ports:
                    if other is port or is_cut or chance.random() < loss:
                        continue
                    for _ in range(2 if chance.random() < doubled else 1):
                        due = time.monotonic() + chance.random() * delay_s
                        heapq.heappush(waiting, (due, next(numbers), sent, other))
        while waiting and waiting[0][0] <= time.monotonic():
            _, _, frame, port = heapq.heappop(waiting)
            port.send(frame)


if __name__ == "__main__":
    main()
