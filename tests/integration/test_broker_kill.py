"""kill -9 under load: nothing that was acknowledged is lost, and nothing torn is served."""

import os
import random
import signal
import threading
import time
from pathlib import Path

import pytest

from headrace.broker.embedded import Broker
from headrace.records import Record, build_batch
from tests.integration.wire import Wire

KILLS = [12, pytest.param(50, marks=pytest.mark.long)]


def batch_of(number: int, chance: random.Random) -> bytes:
    """Records that tell of themselves: number, place in the batch, and a filling that can be checked."""
    count = chance.randrange(1, 20)
    return build_batch(
        [
            Record(
                place, 1_700_000_000_000, b"%d" % number, b"%d/%d/%d " % (number, place, count) + b"x" * (number % 3000)
            )
            for place in range(count)
        ]
    )


class Writer(threading.Thread):
    """Sends batches with acks=all, five in flight, and remembers where each acknowledged one went."""

    def __init__(self, bootstrap: str, first: int, seed: int) -> None:
        super().__init__()
        self.acknowledged: dict[int, int] = {}
        self.next_number = first
        self.servers = bootstrap
        self._chance = random.Random(seed)

    def run(self) -> None:
        from headrace.protocol.messages.produce import ProduceResponse

        in_flight: list[int] = []
        try:
            with Wire(self.servers) as wire:
                while True:
                    while len(in_flight) < 5:
                        batch = batch_of(self.next_number, self._chance)
                        wire.send(wire.produce_request("orders", batch), 9)
                        in_flight.append(self.next_number)
                        self.next_number += 1
                    _, answer = wire.receive(ProduceResponse, 9)
                    (partition,) = answer.responses[0].partition_responses
                    assert partition.error_code == 0
                    self.acknowledged[in_flight.pop(0)] = partition.base_offset
        except OSError:
            pass  # killed: what was not answered is not acknowledged


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kills", KILLS)
def test_kills_lose_nothing_that_was_acknowledged(tmp_path: Path, kills: int) -> None:
    seed = int(os.environ.get("HEADRACE_SEED", time.time_ns() % 1_000_000))
    print(f"HEADRACE_SEED={seed}")
    chance = random.Random(seed)
    acknowledged: dict[int, int] = {}
    next_number = 0
    for kill in range(kills):
        broker = Broker(tmp_path / "data", own_process=True, settings={"log.segment.bytes": "1048576"}).start()
        if kill == 0:
            with Wire(broker.bootstrap_servers) as wire:
                wire.create("orders")
        writer = Writer(broker.bootstrap_servers, next_number, chance.randrange(1 << 30))
        writer.start()
        goal = chance.randrange(1, 60)  # die while this many are under way: a place in the work, not a time
        while len(writer.acknowledged) < goal and writer.is_alive():
            writer.join(0.001)
        os.kill(broker.pid, signal.SIGKILL)
        writer.join()
        broker.stop()
        assert len(writer.acknowledged) >= goal
        acknowledged |= writer.acknowledged
        next_number = writer.next_number

    with Broker(tmp_path / "data") as broker, Wire(broker.bootstrap_servers) as wire:
        records = wire.read_all("orders")
    assert [record.offset for record in records] == list(range(len(records)))
    by_number: dict[int, list[Record]] = {}
    for record in records:
        by_number.setdefault(int(record.key or b""), []).append(record)
    missing = [number for number in acknowledged if number not in by_number]
    assert not missing
    for number, offset in acknowledged.items():
        assert by_number[number][0].offset == offset
    for number, found in by_number.items():  # whole batches only, each once, whether acknowledged or not
        count = int((found[0].value or b"").split(b" ")[0].split(b"/")[2])
        assert [record.value for record in found] == [
            b"%d/%d/%d " % (number, place, count) + b"x" * (number % 3000) for place in range(count)
        ]
    assert len(acknowledged) >= kills
