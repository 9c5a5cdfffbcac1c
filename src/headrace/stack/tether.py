"""Runs a module of ours as a child that does not outlive its parent: `python -m headrace.stack.tether PID MODULE …`.

The kernel kills the child when its parent is gone, however that ended; everything that runs here is made to be killed
at any time. What the child itself has started (Spark's JVM) hangs on a pipe to it, and goes too.
"""

import runpy
import sys

from headrace.tether import tie_to


def main() -> None:
    """Become the module, with the arguments that follow it."""
    parent, module = int(sys.argv[1]), sys.argv[2]
    tie_to(parent)
    sys.argv = [module, *sys.argv[3:]]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
