"""One contender in a process of its own, told over a socket what to run: `pipelines_worker.py NAME ADDRESS FOLDER`.

An order is a JSON object, `do` the name of the contender's method and the rest its arguments; the answer is what the
method returned, or `{"failed": …}`. The first message goes the other way: `{"ready": true}` when orders can come, or
`{"missing": …}` when what the contender is made of is not here.
"""

import json
import os
import sys
import traceback
from importlib import import_module
from multiprocessing.connection import Client
from pathlib import Path

WHERE = {
    "headrace": ("pipelines_spark", "Headrace"),
    "spark": ("pipelines_spark", "PlainSpark"),
    "spark-2": ("pipelines_spark", "TwoPartitionSpark"),
    "real-time": ("pipelines_spark", "RealTimeSpark"),
    "flink": ("pipelines_flink", "Flink"),
    "flink-once": ("pipelines_flink", "ExactlyOnceFlink"),
}


def _in_short(error: Exception) -> str:
    """The first lines, and of a Java stack trace what caused what; the whole is in the worker's output."""
    lines = str(error).splitlines()
    causes = [line for line in lines[3:] if line.startswith("Caused by")]
    return "\n".join([f"{type(error).__name__}: {lines[0] if lines else ''}", *lines[1:3], *causes])


def main() -> None:
    name, address, folder = sys.argv[1:]
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with Client(address) as parent:
        module, kind = WHERE[name]
        try:
            contender = getattr(import_module(module), kind)(Path(folder))
        except ImportError as error:
            parent.send_bytes(json.dumps({"missing": str(error)}).encode())
            return
        parent.send_bytes(b'{"ready": true}')
        while True:
            try:
                order = json.loads(parent.recv_bytes())
            except EOFError:
                break
            try:
                answer = getattr(contender, order.pop("do"))(**order)
            except Exception as error:  # noqa: BLE001  an engine may fail in any way; the parent decides
                traceback.print_exc()
                answer = {"failed": _in_short(error)}
            parent.send_bytes(json.dumps(answer).encode())
        contender.close()


if __name__ == "__main__":
    main()
