"""What Spark runs as `python` here: `forked_python.py PYTHON SOCKET -m MODULE …` has the fork server run a module.

Run as a script in an isolated Python without site-packages, so it takes a hundredth of a second; it imports nothing
that takes longer. It hands its standard streams over and then only waits: asked to end, it has the forked process
asked; its own end is that process's. Where there is no server, or the server will not, it becomes the real Python.
"""

import os
import signal
import socket
import sys


def main() -> None:
    python, address, *arguments = sys.argv[1:]
    with socket.socket(socket.AF_UNIX) as server:
        try:
            server.connect(address)
            parts = [os.getcwdb(), b"%d" % len(arguments), *map(os.fsencode, arguments)]
            asked = b"\0".join([*parts, *(name + b"=" + value for name, value in os.environb.items())])
            socket.send_fds(server, [len(asked).to_bytes(4, "big")], [0, 1, 2])
            server.sendall(asked)
            is_forked = server.recv(1) == b"y"
        except OSError:
            is_forked = False
        if is_forked:
            signal.signal(signal.SIGTERM, lambda *_: server.send(b"t"))
            nothing = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):  # whoever reads or writes them waits for the forked process, not for this one
                os.dup2(nothing, stream)
            os._exit(int.from_bytes(server.recv(1) or b"\1", "big"))
    os.execv(python, [python, *arguments])  # noqa: S606 - what Spark asked for, as it is


if __name__ == "__main__":
    main()
