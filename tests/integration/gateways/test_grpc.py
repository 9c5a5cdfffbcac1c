"""gRPC with clients that have the proto alone: durable before it is answered, statuses, deadlines, streams, groups."""

import importlib
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from headrace import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.admin import create_topic, delete_topics
from headrace.client.cluster import Cluster
from headrace.gateways.grpc import wire
from headrace.gateways.grpc.kind import KIND
from headrace.gateways.grpc.server import GrpcGateway
from headrace.records import Header
from headrace.serving.access import add_token
from headrace.serving.sessions import Role
from headrace.testing.contracts.gateway import write_topic
from tests.certificates import make_authority, make_certificate
from tests.integration.gateways.running import checked, running, values_of, wait_for
from tests.ports import free_port

PROTO = Path(wire.__file__).parent / "headrace.proto"
Status = grpc.StatusCode


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with Broker(durability="os") as broker:
        yield broker.bootstrap_servers


@pytest.fixture(scope="module")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What a stranger generates from the proto: its messages and its stub."""
    folder = tmp_path_factory.mktemp("stubs")
    arguments = ["-I", str(PROTO.parent), f"--python_out={folder}", f"--grpc_python_out={folder}", PROTO.name]
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *arguments], check=True)
    sys.path.insert(0, str(folder))
    try:
        yield importlib.import_module("headrace_pb2"), importlib.import_module("headrace_pb2_grpc").LogStub
    finally:
        sys.path.remove(str(folder))


@pytest.fixture(scope="module")
def pb(stubs: Any) -> Any:
    return stubs[0]


def make(bootstrap: str, topic: str, partitions: int = 1, **configs: str) -> None:
    with Cluster(parse_bootstrap(bootstrap)) as cluster:
        create_topic(cluster, topic, partitions=partitions, configs=configs)


def channel_to(gateway: GrpcGateway) -> grpc.Channel:
    wait_for(lambda: gateway.progress.more.get("url"), "it listens")
    channel = grpc.insecure_channel(f"127.0.0.1:{gateway.port}")
    grpc.channel_ready_future(channel).result(20)
    return channel


def records(pb: Any, *values: bytes) -> list[Any]:
    return [pb.NewRecord(value=value) for value in values]


def failure(call: Any, *arguments: Any, **named: Any) -> tuple[grpc.StatusCode, str]:
    """How a call ends that has to fail."""
    try:
        found = call(*arguments, **{"timeout": 30, **named})
        said = list(found) if hasattr(found, "__next__") else found
    except grpc.RpcError as error:
        return error.code(), error.details()
    raise AssertionError(f"it does not fail: {said}")


def test_the_compiled_form_is_that_of_the_proto(tmp_path: Path) -> None:
    compiled = tmp_path / "compiled"
    arguments = ["-I", str(PROTO.parent), f"--descriptor_set_out={compiled}", PROTO.name]
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *arguments], check=True)
    assert compiled.read_bytes() == PROTO.with_suffix(".binpb").read_bytes(), "make proto"


def test_produce_and_consume(bootstrap: str, stubs: Any) -> None:
    pb, stub_of = stubs
    make(bootstrap, "plain", 3)
    with running(KIND, bootstrap, port=0) as gateway, channel_to(gateway) as channel:
        stub = stub_of(channel)
        sent = [
            pb.NewRecord(key=b"a", value=b"one", timestamp_ms=77, headers=[pb.Header(key="from", value=b"me")]),
            pb.NewRecord(key=b"a"), pb.NewRecord(value=b"two"),
        ]  # fmt: skip
        said = stub.Produce(pb.ProduceRequest(topic="plain", records=sent, id=9), timeout=30)
        assert (said.id, len(said.places)) == (9, 3)
        assert (said.places[0].partition, said.places[0].offset) == (said.places[1].partition, 0)
        assert said.places[1].offset == 1
        chosen = stub.Produce(pb.ProduceRequest(topic="plain", records=records(pb, b"three"), partition=2), timeout=30)
        assert chosen.places[0].partition == 2
        asked = pb.ConsumeRequest(topic="plain", reset=pb.RESET_EARLIEST, until_end=True)
        found = {
            (each.partition, each.offset): each
            for response in stub.Consume(asked, timeout=30) for each in response.records
        }  # fmt: skip
        assert len(found) == 4
        for record, place in zip(sent, said.places, strict=True):
            read = found[place.partition, place.offset]
            assert [read.HasField(name) for name in ("key", "value")] == [record.HasField(n) for n in ("key", "value")]
            assert (read.key, read.value, read.topic) == (record.key, record.value, "plain")
        first = found[said.places[0].partition, 0]
        assert (first.timestamp_ms, first.headers[0].key, first.headers[0].value) == (77, "from", b"me")
        assert gateway.progress.more["consumed"] == 4
        topics = {each.name: each.partitions for each in stub.ListTopics(pb.ListTopicsRequest(), timeout=30).topics}
        assert topics["plain"] == 3
        held = stub.DescribeTopic(pb.DescribeTopicRequest(topic="plain"), timeout=30).partitions
        assert sum(each.end - each.start for each in held) == 4


def test_a_header_whose_name_is_no_text_holds_nobody_up(bootstrap: str, stubs: Any) -> None:
    pb, _ = stubs
    write_topic(bootstrap, "odd", [b"odd"], [Header("a\udcff", b"held")])
    with running(KIND, bootstrap, port=0) as gateway, channel_to(gateway) as channel:
        stub = stubs[1](channel)
        (said,) = stub.Consume(pb.ConsumeRequest(topic="odd", reset=pb.RESET_EARLIEST, limit=1), timeout=30)
        assert [(each.key, each.value) for each in said.records[0].headers] == [("a\ufffd", b"held")]


def test_a_call_does_not_go_on_in_another_topic_of_the_same_name(bootstrap: str, stubs: Any) -> None:
    pb, _ = stubs
    write_topic(bootstrap, "again", [b"%d" % number for number in range(5)])
    with running(KIND, bootstrap, port=0) as gateway, channel_to(gateway) as channel:
        call = stubs[1](channel).Consume(pb.ConsumeRequest(topic="again", reset=pb.RESET_EARLIEST), timeout=30)
        assert len(next(call).records) == 5
        with Cluster(parse_bootstrap(bootstrap)) as cluster:
            delete_topics(cluster, ["again"])
            create_topic(cluster, "again", partitions=1)
        write_topic(bootstrap, "again", [b"new %d" % number for number in range(20)])
        code, sentence = failure(lambda **_: call)
    assert code is Status.ABORTED
    assert "deleted and made again" in sentence


def test_a_record_that_is_too_large_for_a_message_is_named(bootstrap: str, stubs: Any) -> None:
    pb, _ = stubs
    make(bootstrap, "large", **{"max.message.bytes": "3000000"})
    write_topic(bootstrap, "large", [b"first", bytes(2 * 1024 * 1024), b"last"])
    with running(KIND, bootstrap, port=0, max_message=1) as gateway, channel_to(gateway) as channel:
        stub = stubs[1](channel)
        call = stub.Consume(pb.ConsumeRequest(topic="large", reset=pb.RESET_EARLIEST), timeout=30)
        assert [record.value for record in next(call).records] == [b"first"]
        code, sentence = failure(lambda **_: call)
        assert code is Status.RESOURCE_EXHAUSTED
        assert "offset 1 of large-0" in sentence
        (said,) = stub.Consume(pb.ConsumeRequest(topic="large", offsets={0: 2}, limit=1), timeout=30)
        assert [record.value for record in said.records] == [b"last"]


def test_places_to_begin_and_to_end(bootstrap: str, stubs: Any) -> None:
    pb, stub_of = stubs
    make(bootstrap, "places")
    with running(KIND, bootstrap, port=0) as gateway, channel_to(gateway) as channel:
        stub = stub_of(channel)
        sent = [pb.NewRecord(value=b"%d" % number, timestamp_ms=1000 + number) for number in range(20)]
        stub.Produce(pb.ProduceRequest(topic="places", records=sent), timeout=30)

        def consumed(**asked: Any) -> list[int]:
            request = pb.ConsumeRequest(topic="places", **asked)
            return [int(each.value) for said in stub.Consume(request, timeout=30) for each in said.records]

        assert consumed(offsets={0: 15}, until_end=True) == [15, 16, 17, 18, 19]
        assert consumed(from_timestamp_ms=1018, until_end=True) == [18, 19]
        assert consumed(reset=pb.RESET_EARLIEST, limit=3) == [0, 1, 2]
        assert consumed(until_end=True) == []
        request = pb.ConsumeRequest(topic="places", reset=pb.RESET_EARLIEST, until_end=True, max_records=6)
        responses = list(stub.Consume(request, timeout=30))
        assert [len(each.records) for each in responses] == [6, 6, 6, 2]
        assert [dict(each.next_offsets) for each in responses] == [{0: 6}, {0: 12}, {0: 18}, {0: 20}]
        # What comes later is handed on as it comes, from the moment at which the call says that it has begun.
        live = stub.Consume(pb.ConsumeRequest(topic="places"), timeout=60)
        live.initial_metadata()
        stub.Produce(pb.ProduceRequest(topic="places", records=records(pb, b"99")), timeout=30)
        assert next(live).records[0].value == b"99"
        live.cancel()
        wait_for(lambda: gateway.progress.connections == 0, "who cancelled is gone")


def test_statuses(bootstrap: str, stubs: Any) -> None:
    pb, stub_of = stubs
    make(bootstrap, "statuses", 2, **{"max.message.bytes": "1000"})
    make(bootstrap, "private")
    allowed = {"produce": ["statuses", "nowhere"], "consume": ["statuses", "nowhere"], "consumers": 1}
    with running(KIND, bootstrap, port=0, **allowed) as gateway, channel_to(gateway) as channel:
        stub = stub_of(channel)

        def produced(topic: str, *values: bytes, **more: Any) -> tuple[grpc.StatusCode, str]:
            return failure(stub.Produce, pb.ProduceRequest(topic=topic, records=records(pb, *values), **more))

        assert produced("", b"x")[0] is Status.INVALID_ARGUMENT
        assert produced("no topic", b"x")[0] is Status.INVALID_ARGUMENT
        assert produced("statuses") == (Status.INVALID_ARGUMENT, "there are no records: send at least one")
        assert produced("statuses", b"x", partition=7)[0] is Status.INVALID_ARGUMENT
        assert produced("statuses", b"x", partition=-1)[0] is Status.INVALID_ARGUMENT
        assert produced("statuses", b"x" * 2000)[0] is Status.INVALID_ARGUMENT
        assert produced("private", b"x")[0] is Status.PERMISSION_DENIED
        assert produced("nowhere", b"x")[0] is Status.NOT_FOUND
        assert produced("statuses", b"x" * 5_000_000)[0] is Status.RESOURCE_EXHAUSTED  # a message has 4 MiB at most
        old = pb.ProduceRequest(topic="statuses", records=[pb.NewRecord(timestamp_ms=-1)])
        assert failure(stub.Produce, old)[0] is Status.INVALID_ARGUMENT

        def consumed(**asked: Any) -> grpc.StatusCode:
            return failure(stub.Consume, pb.ConsumeRequest(**{"topic": "statuses", **asked}))[0]

        assert consumed(topic="private") is Status.PERMISSION_DENIED
        assert consumed(topic="nowhere") is Status.NOT_FOUND
        assert consumed(partitions=[5]) is Status.INVALID_ARGUMENT
        assert consumed(offsets={5: 0}) is Status.INVALID_ARGUMENT
        assert consumed(offsets={0: 5}) is Status.OUT_OF_RANGE
        assert consumed(max_records=1_000_000) is Status.INVALID_ARGUMENT
        assert consumed(from_timestamp_ms=-5) is Status.INVALID_ARGUMENT
        assert failure(stub.DescribeTopic, pb.DescribeTopicRequest(topic="nowhere"))[0] is Status.NOT_FOUND
        first = stub.Consume(pb.ConsumeRequest(topic="statuses"), timeout=60)
        first.initial_metadata()
        assert consumed() is Status.RESOURCE_EXHAUSTED  # as many consume as may
        first.cancel()
        assert gateway.progress.refused >= 10
        assert values_of(bootstrap, "statuses") == []


def test_a_stream_of_requests_has_an_answer_for_each(bootstrap: str, stubs: Any) -> None:
    pb, stub_of = stubs
    make(bootstrap, "streamed")
    with running(KIND, bootstrap, port=0) as gateway, channel_to(gateway) as channel:
        requests = [
            pb.ProduceRequest(id=n, topic="streamed" if n % 10 else "no topic", records=records(pb, b"%d" % n))
            for n in range(300)
        ]
        answers = list(stub_of(channel).ProduceStream(iter(requests), timeout=60))
    assert [each.id for each in answers] == list(range(300))
    for each in answers:
        assert (each.error.code == Status.INVALID_ARGUMENT.value[0]) == (each.id % 10 == 0)
        assert len(each.places) == (each.id % 10 > 0)
    assert [int(value) for value in values_of(bootstrap, "streamed")] == [n for n in range(300) if n % 10]


def test_where_the_broker_is_away_calls_end_unavailable(stubs: Any) -> None:
    pb, stub_of = stubs
    nobody = f"127.0.0.1:{free_port()}"
    with running(KIND, nobody, port=0) as gateway, channel_to(gateway) as channel:
        stub = stub_of(channel)
        healthy = health_pb2_grpc.HealthStub(channel)
        request = pb.ProduceRequest(topic="away", records=records(pb, b"x"))
        wait_for(lambda: gateway.progress.waiting, "it says that it waits")
        assert healthy.Check(health_pb2.HealthCheckRequest(), timeout=30).status == 2  # NOT_SERVING
        code, sentence = failure(stub.Produce, request)
        assert (code, sentence.split(":")[0]) == (Status.UNAVAILABLE, "nothing is written")
        assert failure(stub.Consume, pb.ConsumeRequest(topic="away"))[0] is Status.UNAVAILABLE
        assert failure(stub.ListTopics, pb.ListTopicsRequest())[0] is Status.UNAVAILABLE


def test_deadlines_end_calls_that_wait_and_overload_is_said(tmp_path: Path, stubs: Any) -> None:
    pb, stub_of = stubs
    port = free_port()
    with Broker(tmp_path / "data", listen=f"127.0.0.1:{port}", own_process=True) as broker:
        bootstrap = broker.bootstrap_servers
        make(bootstrap, "slow")
        for overload, expected in (("block", Status.DEADLINE_EXCEEDED), ("fail", Status.RESOURCE_EXHAUSTED)):
            values = {"overload": overload, "buffer_mb": 1}
            with running(KIND, bootstrap, overload, port=0, **values) as gateway, channel_to(gateway) as channel:
                stub = stub_of(channel)
                stub.Produce(pb.ProduceRequest(topic="slow", records=records(pb, b"first")), timeout=30)
                subprocess.run(["kill", "-STOP", str(broker.pid)], check=True)  # it is there, and answers nothing
                try:
                    large = pb.ProduceRequest(topic="slow", records=records(pb, *[b"x" * 100_000] * 9))
                    began = time.monotonic()
                    assert failure(stub.Produce, large, timeout=0.5)[0] is Status.DEADLINE_EXCEEDED
                    assert failure(stub.Produce, large, timeout=0.5)[0] is expected
                    assert time.monotonic() - began < 5
                    assert gateway._inlet.bytes_waiting <= 2**20
                finally:
                    subprocess.run(["kill", "-CONT", str(broker.pid)], check=True)
                wait_for(lambda: not gateway._inlet.bytes_waiting, "what was taken is written")


def test_a_client_that_does_not_read_is_not_fetched_for(bootstrap: str, stubs: Any) -> None:
    pb, stub_of = stubs
    make(bootstrap, "unread")
    with running(KIND, bootstrap, port=0) as gateway, channel_to(gateway) as channel:
        stub = stub_of(channel)
        for _ in range(30):
            stub.Produce(pb.ProduceRequest(topic="unread", records=records(pb, *[b"x" * 100_000] * 20)), timeout=30)
        asked = pb.ConsumeRequest(topic="unread", reset=pb.RESET_EARLIEST, until_end=True, max_records=5)
        reading = stub.Consume(asked, timeout=120)
        next(reading)
        seen = -1
        while seen != (seen := gateway.progress.more.get("consumed", 0)):
            time.sleep(0.5)  # until nothing more is sent
        assert seen < 200  # of 600: what fits into the windows of HTTP/2 on both sides
        assert sum(len(each.records) for each in reading) == 595


def test_members_of_a_group_share_a_topic_and_commit(bootstrap: str, stubs: Any) -> None:
    pb, stub_of = stubs
    make(bootstrap, "shared", 4)

    class Member(threading.Thread):
        def __init__(self, stub: Any) -> None:
            super().__init__()
            self.values: list[int] = []
            self.partitions: set[int] = set()
            self.committed: list[tuple[int, str]] = []
            self.requests: list[Any] = [pb.GroupRequest(join=join)]
            self.news = threading.Condition()
            self.call = stub.ConsumeGroup(self.asking(), timeout=120)
            self.start()

        def asking(self) -> Iterator[Any]:
            while True:
                with self.news:
                    self.news.wait_for(lambda: self.requests)
                    request = self.requests.pop(0)
                if request is None:
                    return
                yield request

        def ask(self, request: Any) -> None:
            with self.news:
                self.requests.append(request)
                self.news.notify()

        def run(self) -> None:
            try:
                for said in self.call:
                    match said.WhichOneof("response"):
                        case "assigned":
                            self.partitions = {each.partition for each in said.assigned.partitions}
                        case "records":
                            self.values += [int(each.value) for each in said.records.records]
                            nexts = {each.partition: each.offset + 1 for each in said.records.records}
                            offsets = [pb.GroupOffset(topic="shared", partition=p, offset=o) for p, o in nexts.items()]
                            self.ask(pb.GroupRequest(commit=pb.Commit(offsets=offsets, id=len(self.committed))))
                        case "committed":
                            self.committed.append((said.committed.id, said.committed.error.message))
            except grpc.RpcError:
                pass

    join = pb.Join(group="readers", topics=["shared"], reset=pb.RESET_EARLIEST)
    with running(KIND, bootstrap, port=0) as gateway, channel_to(gateway) as channel:
        stub = stub_of(channel)

        def produce(first: int) -> None:
            for number in range(first, first + 40):
                one = pb.ProduceRequest(topic="shared", records=records(pb, b"%d" % number), partition=number % 4)
                stub.Produce(one, timeout=30)

        first, second = Member(stub), Member(stub)
        wait_for(lambda: len(first.partitions) == len(second.partitions) == 2, "each has its half")
        assert first.partitions | second.partitions == {0, 1, 2, 3}
        produce(0)
        wait_for(lambda: len(first.values + second.values) == 40, "all came")
        assert sorted(first.values + second.values) == list(range(40))
        theirs = pb.GroupOffset(topic="shared", partition=min(second.partitions), offset=1)
        first.ask(pb.GroupRequest(commit=pb.Commit(offsets=[theirs], id=77)))
        wait_for(lambda: any(each[0] == 77 for each in first.committed), "it is answered")
        assert "is not this member's" in dict(first.committed)[77]
        wait_for(lambda: first.committed and second.committed, "both committed")
        second.call.cancel()
        wait_for(lambda: len(first.partitions) == 4, "who is left has all")
        produce(40)
        wait_for(lambda: len(first.values) >= 60, "and reads on")
        first.ask(None)
        first.join(30)
        assert not first.is_alive()
        third = Member(stub)
        produce(80)
        wait_for(lambda: len(third.values) >= 40, "what comes next comes")
        assert sorted(third.values) == list(range(80, 120))
        third.call.cancel()
        wrong = iter([pb.GroupRequest(commit=pb.Commit())])
        assert failure(stub.ConsumeGroup, wrong)[0] is Status.INVALID_ARGUMENT
        nowhere = iter([pb.GroupRequest(join=pb.Join(group="readers", topics=["nowhere"]))])
        assert failure(stub.ConsumeGroup, nowhere)[0] is Status.NOT_FOUND


def test_tokens_and_tls(bootstrap: str, stubs: Any, tmp_path: Path) -> None:
    pb, stub_of = stubs
    make(bootstrap, "guarded")
    tokens = tmp_path / "tokens"
    writer, reader = (add_token(tokens, role.value, role) for role in (Role.ADMIN, Role.READ_ONLY))
    authority = make_authority(tmp_path, "authority")
    server = make_certificate(tmp_path, "server", "authority", alternative="IP:127.0.0.1")
    make_certificate(tmp_path, "client", "authority", alternative="DNS:client")
    secrets = {"certificate": str(server), "tokens": str(tokens), "clients": str(authority)}
    with running(KIND, bootstrap, port=0, **secrets) as gateway:
        wait_for(lambda: gateway.progress.more.get("url"), "it listens")
        assert gateway.source == f"grpcs://127.0.0.1:{gateway.port}"
        shown = ((tmp_path / "client.key").read_bytes(), (tmp_path / "client.crt").read_bytes())
        credentials = grpc.ssl_channel_credentials(authority.read_bytes(), *shown)
        request = pb.ProduceRequest(topic="guarded", records=records(pb, b"secret"))
        with grpc.secure_channel(f"127.0.0.1:{gateway.port}", credentials) as channel:
            stub = stub_of(channel)
            assert failure(stub.Produce, request)[0] is Status.UNAUTHENTICATED
            wrong = (("authorization", "Bearer nothing"),)
            assert failure(stub.Produce, request, metadata=wrong)[0] is Status.UNAUTHENTICATED
            may_read, may_write = ((("authorization", f"Bearer {token}"),) for token in (reader, writer))
            assert failure(stub.Produce, request, metadata=may_read)[0] is Status.PERMISSION_DENIED
            stub.Produce(request, metadata=may_write, timeout=30)
            asked = pb.ConsumeRequest(topic="guarded", reset=pb.RESET_EARLIEST, limit=1)
            (said,) = stub.Consume(asked, metadata=may_read, timeout=30)
            assert said.records[0].value == b"secret"
        nobody = grpc.ssl_channel_credentials(authority.read_bytes())
        with grpc.secure_channel(f"127.0.0.1:{gateway.port}", nobody) as channel:
            assert failure(stub_of(channel).Produce, request, metadata=may_write, timeout=5)[0] is Status.UNAVAILABLE


def test_health_and_reflection(bootstrap: str) -> None:
    with running(KIND, bootstrap, port=0) as gateway, channel_to(gateway) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for service in ("", wire.SERVICE):
            request = health_pb2.HealthCheckRequest(service=service)
            wait_for(lambda request=request: stub.Check(request, timeout=30).status == 1, "it is SERVING")
        seen = ProtoReflectionDescriptorDatabase(channel)
        assert wire.SERVICE in seen.get_services()
        file = seen.FindFileContainingSymbol(wire.SERVICE)
        assert [each.name for each in file.service[0].method] == [each.name for each in wire.methods()]


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"host": "0.0.0.0"}, "0.0.0.0 can be reached from other machines"),
        ({"clients": "a.pem"}, "clients needs TLS"),
    ],
)
def test_what_makes_no_sense_is_said_in_a_sentence(values: dict[str, object], sentence: str) -> None:
    with pytest.raises(Exception, match=sentence):
        checked(KIND, values)


def test_a_port_that_is_taken_is_one_sentence(bootstrap: str) -> None:
    with running(KIND, bootstrap, port=0) as gateway:
        wait_for(lambda: gateway.progress.more.get("url"), "it listens")
        with (
            pytest.raises(AssertionError, match=f"cannot listen on 127.0.0.1:{gateway.port}"),
            running(KIND, bootstrap, port=gateway.port),
        ):
            pass
