"""What the operating system is asked beside the libraries: which descriptors are readable, what is at a path."""

import os
import select
import stat


def wait_readable(timeout_s: float, *descriptors: int) -> None:
    """Until one of them is readable, or for so long; `select` cannot wait for those from 1024 on."""
    poller = select.poll()
    for each in descriptors:
        poller.register(each, select.POLLIN)
    poller.poll(timeout_s * 1000)


def is_in_the_way(endpoint: str) -> bool:
    """Whether anything but a socket is where one is to be: ZeroMQ and nng would both delete it."""
    try:
        return not stat.S_ISSOCK(os.lstat(endpoint.removeprefix("ipc://")).st_mode)
    except (OSError, ValueError):  # nothing is there, and what else is wrong the library says
        return False
