"""Who did what, as the broker records it: every change, every denial, every login that fails; and who reads it."""

import json
import os
import signal
from functools import partial
from types import SimpleNamespace

import pytest

from headrace import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.client.errors import AuthenticationFailed
from headrace.client.security import settings_from
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntryData,
    OpData,
)
from headrace.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialUpsertion,
)
from headrace.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from headrace.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from headrace.protocol.messages.fetch import FetchResponse
from headrace.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from headrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from headrace.protocol.messages.shared import EntityPart
from headrace.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from headrace.records import Record, build_batch
from headrace.telemetry.audit import read_events
from tests.integration.cli_runs import assert_one_sentence, run_cli
from tests.integration.waiting import wait_until
from tests.integration.wire import Wire

ADMIN = "User:ANONYMOUS"  # on the listener where nobody logs in
PASSWORD = "nobody-may-read-this"


@pytest.fixture
def broker(tmp_path):
    users = tmp_path / "users"
    users.touch(0o600)
    users.write_text(f"alice={PASSWORD}\n")
    settings = {
        "authorization": "on",
        "super.users": ADMIN,
        "users.file": str(users),
        "audit.file": str(tmp_path / "audit" / "audit.log"),
        "audit.events": "changes,denials,failed-logins,logins",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "connection.failed.authentication.delay.ms": "0",
    }
    listen = ["127.0.0.1:0", "SASL_PLAINTEXT://127.0.0.1:0"]
    with Broker(tmp_path / "data", listen=listen, settings=settings) as running:
        plain, login = running.bootstrap_servers.split(",")
        path = tmp_path / "audit" / "audit.log"
        yield SimpleNamespace(plain=plain, login=login, path=path, run=partial(run_cli, bootstrap=plain))


def reach(broker, user="alice", password=PASSWORD, mechanism="SCRAM-SHA-256"):
    login = {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password}
    return Cluster(parse_bootstrap(broker.login), settings_from({"security.protocol": "SASL_PLAINTEXT", **login}))


def events(broker, **wanted):
    """What was recorded with these fields: it is there before its request is answered."""
    return [event for event in read_events(broker.path) if all(event.get(key) == each for key, each in wanted.items())]


def new_topic(name):
    return CreatableTopic(name=name, num_partitions=1, replication_factor=1)


def fetch_request(broker, name):
    """As newer clients ask: by the topic's id."""
    with Wire(broker.plain) as wire:
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        (topic,) = wire.ask(asked, MetadataResponse, 12).topics
        request = wire.fetch_request(name, 0)
    request.topics[0].topic_id = topic.topic_id
    return request


def resources(event):
    return [(each["type"], each["name"]) for each in event["resources"]]


def test_every_change_of_the_command_line_is_recorded(broker):
    run = broker.run
    assert run("topic", "create", "orders", "--partitions", "2", "--config", "retention.ms=60000").code == 0
    (made,) = events(broker, api="CREATE_TOPICS")
    assert (made["event"], made["outcome"], made["principal"], made["listener"]) == ("change", "ok", ADMIN, "PLAINTEXT")
    assert made["client"].startswith("127.0.0.1:")
    assert made["client_id"] == "headrace-cli"
    assert made["resources"] == [
        {"type": "topic", "name": "orders", "partitions": 2, "settings": {"retention.ms": "60000"}}
    ]
    assert run("topic", "create", "orders").code == 1
    failed = events(broker, api="CREATE_TOPICS")[-1]
    assert (failed["outcome"], failed["error"]) == ("failed", "TOPIC_ALREADY_EXISTS")
    assert run("topic", "alter", "orders", "--partitions", "3", "--config", "retention.ms=1000").code == 0
    (grown,) = events(broker, api="CREATE_PARTITIONS")  # and not the one that only asks whether it is possible
    assert grown["resources"] == [{"type": "topic", "name": "orders", "partitions": 3}]
    (altered,) = events(broker, api="INCREMENTAL_ALTER_CONFIGS")
    assert altered["resources"] == [{"type": "topic", "name": "orders", "settings": {"retention.ms": "1000"}}]
    assert run("acl", "add", "alice", "read", "--topic", "or", "--prefix").code == 0
    (allowed,) = events(broker, api="CREATE_ACLS")
    assert allowed["resources"] == [
        {"type": "acl", "name": "or", "permission": "allow", "principal": "User:alice", "host": "*",
         "operation": "read", "on": "topic", "pattern": "prefixed"}
    ]  # fmt: skip
    assert run("acl", "remove", "alice").code == 0
    (taken,) = events(broker, api="DELETE_ACLS")
    assert taken["resources"] == allowed["resources"]
    assert run("user", "add", "bob", stdin=f"{PASSWORD}\n").code == 0
    assert run("user", "remove", "bob").code == 0
    users = [event["resources"][0] for event in events(broker, api="ALTER_USER_SCRAM_CREDENTIALS")]
    assert [(user["name"], user["password"], user["mechanism"]) for user in users] == [
        ("bob", "set", "SCRAM-SHA-256"),
        ("bob", "set", "SCRAM-SHA-512"),
        ("bob", "removed", "SCRAM-SHA-256"),
        ("bob", "removed", "SCRAM-SHA-512"),
    ]
    assert run("topic", "delete", "orders", "--yes").code == 0
    (gone,) = events(broker, api="DELETE_TOPICS")
    assert resources(gone) == [("topic", "orders")]


def test_every_other_change_is_recorded(broker):
    with Wire(broker.plain) as wire:
        asked = MetadataRequest(topics=[MetadataRequestTopic(name="made")], allow_auto_topic_creation=True)
        assert wire.ask(asked, MetadataResponse, 12).topics[0].error_code == 0
        (made,) = events(broker, api="METADATA")
        assert (made["outcome"], resources(made)) == ("ok", [("topic", "made")])
        entity = [
            EntityPart(entity_type="user", entity_name="bob"),
            EntityPart(entity_type="client-id", entity_name=None),
        ]
        entry = EntryData(entity=entity, ops=[OpData(key="producer_byte_rate", value=1e6, remove=False)])
        wire.ask(AlterClientQuotasRequest(entries=[entry]), AlterClientQuotasResponse, 1)
        (quota,) = events(broker, api="ALTER_CLIENT_QUOTAS")
        assert quota["resources"] == [
            {"type": "quota", "name": "user bob, client-id (default)", "quotas": {"producer_byte_rate": 1e6}}
        ]
        update = FeatureUpdateKey(feature="metadata.version", max_version_level=99)
        wire.ask(UpdateFeaturesRequest(feature_updates=[update]), UpdateFeaturesResponse, 1)
        (feature,) = events(broker, api="UPDATE_FEATURES")
        assert (feature["outcome"], feature["error"]) == ("failed", "INVALID_UPDATE_VERSION")
        partitions = [DeleteRecordsPartition(partition_index=index, offset=0) for index in (0, 7)]
        topics = [DeleteRecordsTopic(name="made", partitions=partitions)]
        wire.ask(DeleteRecordsRequest(topics=topics, timeout_ms=1000), DeleteRecordsResponse, 2)
        deleted = {event["outcome"]: event["resources"] for event in events(broker, api="DELETE_RECORDS")}
        assert deleted == {
            "ok": [{"type": "topic", "name": "made", "before": {"0": 0}}],
            "failed": [{"type": "topic", "name": "made", "before": {"7": 0}}],
        }
        committed = [OffsetCommitRequestPartition(partition_index=0, committed_offset=0, committed_metadata="")]
        reset = OffsetCommitRequest(
            group_id="billing", topics=[OffsetCommitRequestTopic(name="made", partitions=committed)]
        )
        for _ in range(3):  # as a reader does that is not a member
            wire.ask(reset, OffsetCommitResponse, 8)
        (moved,) = events(broker, api="OFFSET_COMMIT")
        assert moved["resources"] == [{"type": "group", "name": "billing", "topic": "made", "offsets": {"0": 0}}]
    assert broker.run("group", "delete", "billing", "--yes").code == 0
    assert [resources(event) for event in events(broker, api="DELETE_GROUPS")] == [[("group", "billing")]]


def test_denials_are_recorded_once_each_and_counted(broker):
    assert broker.run("topic", "create", "orders").code == 0
    with reach(broker) as cluster:
        connection = cluster.any_broker()
        for _ in range(20):
            connection.request(fetch_request(broker, "orders"), FetchResponse)
        assert {topic.name for topic in cluster.topics()} == set()  # a list leaves out, and denies nothing
        made = connection.request(CreateTopicsRequest(topics=[new_topic("mine")]), CreateTopicsResponse)
        assert made.topics[0].error_code
        connection.request(AlterClientQuotasRequest(entries=[]), AlterClientQuotasResponse)
    assert [
        (event["principal"], event["listener"], event["api"], event["operation"], resources(event))
        for event in events(broker, event="denial")
    ] == [
        ("User:alice", "SASL_PLAINTEXT", "FETCH", "read", [("topic", "orders")]),
        ("User:alice", "SASL_PLAINTEXT", "CREATE_TOPICS", "create", [("topic", "mine")]),
        ("User:alice", "SASL_PLAINTEXT", "ALTER_CLIENT_QUOTAS", "alter-configs", [("cluster", "kafka-cluster")]),
    ]
    assert not events(broker, event="change", principal="User:alice")  # a denial is not told twice


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_logins_are_recorded_by_name_and_never_by_password(broker, mechanism):
    with reach(broker, mechanism=mechanism) as cluster:
        assert cluster.brokers().addresses
    (login,) = events(broker, event="login")
    assert (login["outcome"], login["principal"], login["mechanism"]) == ("ok", "User:alice", mechanism)
    wrong = f"wrong-{PASSWORD}"
    for user in ("alice", "nobody"):
        with reach(broker, user, wrong, mechanism) as cluster, pytest.raises(AuthenticationFailed):
            cluster.brokers()
        wait_until(lambda user=user: events(broker, event="login", principal=f"User:{user}", outcome="denied"), user)
    refused = events(broker, event="login", outcome="denied")
    assert {event["listener"] for event in refused} == {"SASL_PLAINTEXT"}
    assert PASSWORD not in broker.path.read_text()


def test_secrets_are_not_recorded(broker):
    with Wire(broker.plain) as wire:
        configs = [
            AlterableConfig(name=name, config_operation=0, value=PASSWORD)
            for name in ("ssl.key.password", "sasl.jaas.config", "ssl.keystore.password")
        ]
        resource = AlterConfigsResource(resource_type=4, resource_name="1", configs=configs)
        wire.ask(IncrementalAlterConfigsRequest(resources=[resource]), IncrementalAlterConfigsResponse, 1)
        secret = PASSWORD.encode()
        user = ScramCredentialUpsertion(name="bob", mechanism=1, iterations=4096, salt=secret, salted_password=secret)
        wire.ask(AlterUserScramCredentialsRequest(upsertions=[user]), AlterUserScramCredentialsResponse, 0)
    (settings,) = events(broker, api="INCREMENTAL_ALTER_CONFIGS")
    assert set(settings["resources"][0]["settings"].values()) == {"(hidden)"}
    assert events(broker, api="ALTER_USER_SCRAM_CREDENTIALS")
    assert PASSWORD not in broker.path.read_text()


def test_who_leaves_before_the_answer_is_recorded_too(broker):
    names = [f"t-{number}" for number in range(200)]
    with Wire(broker.plain) as wire:
        wire.send(CreateTopicsRequest(topics=[new_topic(name) for name in names], timeout_ms=60_000), 7)

    def recorded():
        return {name for event in events(broker, api="CREATE_TOPICS") for _, name in resources(event)}

    wait_until(lambda: recorded() == set(names), "not everything was recorded")
    left = {event["outcome"] for event in events(broker, api="CREATE_TOPICS")}
    assert left in ({"unknown"}, {"ok"})  # it was answered, if the broker was quicker than the socket's end


def test_topics_made_on_demand_are_recorded_for_who_leaves_too_and_once(broker):
    names = [f"d-{number}" for number in range(30)]
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=True)
    with Wire(broker.plain) as wire:
        wire.send(asked, 12)
    with Wire(broker.plain) as wire:
        wire.ask(asked, MetadataResponse, 12)

    def recorded():
        return {name for event in events(broker, api="METADATA") for _, name in resources(event)}

    wait_until(lambda: recorded() == set(names), "what was made for who left is not on record")
    made = [name for event in events(broker, api="METADATA", outcome="ok") for _, name in resources(event)]
    assert len(made) == len(set(made))


def test_what_was_answered_is_on_record_after_a_kill(tmp_path):
    path = tmp_path / "audit.log"
    with (
        Broker(tmp_path / "data", own_process=True, settings={"audit.file": str(path)}) as running,
        Wire(running.bootstrap_servers) as wire,
    ):
        wire.create("orders")
        os.kill(running.pid, signal.SIGKILL)
    assert [resources(event) for event in read_events(path)] == [[("topic", "orders")]]


def test_the_command_filters_and_shows(broker, tmp_path):
    run = partial(run_cli, "audit", broker.path)
    broker.run("topic", "create", "orders")
    broker.run("topic", "create", "orders")
    with reach(broker) as cluster:
        cluster.any_broker().request(fetch_request(broker, "orders"), FetchResponse)
    assert [event["outcome"] for event in run("--resource", "orders", "--json").json_lines] == [
        "ok",
        "failed",
        "denied",
    ]
    assert [event["api"] for event in run("--principal", "alice", "--event", "denial", "--json").json_lines] == [
        "FETCH"
    ]
    assert len(run("--client", "127.0.0.1", "--api", "create_topics", "--json").json_lines) == 2
    assert run("--since", "2100-01-01").out == "nothing that matches was recorded\n"
    assert run("--until", "2100-01-01", "--limit", "1", "--json").json_lines[0]["outcome"] == "denied"
    header, *rows = run("--outcome", "denied").out.splitlines()
    assert header.split() == ["time", "event", "outcome", "principal", "client", "what", "on"]
    assert "FETCH read" in rows[0]
    assert "topic orders" in rows[0]
    assert_one_sentence(run_cli("audit", tmp_path / "none.log"), "there is no audit log", "check the name")
    assert json.loads(run("--json").out.splitlines()[0])["time"].endswith("Z")


def test_a_topic_of_the_brokers_own_keeps_it_too(tmp_path):
    settings = {"authorization": "on", "super.users": ADMIN, "audit.topic": "true"}
    for number in range(2):
        with Broker(tmp_path / "data", settings=settings) as broker:
            run = partial(run_cli, bootstrap=broker.bootstrap_servers)
            assert run("topic", "create", f"orders-{number}").code == 0
            wanted = ["orders-0", "orders-1"][: number + 1]
            # Readers see what is durable: the answer to the request does not wait for that.
            wait_until(lambda run=run, wanted=wanted: topics_made(run) == wanted, f"{wanted} are not recorded")
            with Wire(broker.bootstrap_servers) as wire:
                batch = build_batch([Record(0, 1, None, b'{"event":"forged"}')])
                assert wire.produce("__headrace_audit", batch)[0] == ErrorCode.INVALID_TOPIC_EXCEPTION
            assert "forged" not in run("audit", "--json").out


def topics_made(run):
    events = run("audit", "--api", "create_topics", "--json").json_lines
    return [event["resources"][0]["name"] for event in events]


def test_the_topic_is_made_again_and_what_was_lost_meanwhile_is_counted(tmp_path):
    with Broker(tmp_path / "data", settings={"audit.topic": "true"}) as broker:
        run = partial(run_cli, bootstrap=broker.bootstrap_servers)
        assert run("topic", "delete", "__headrace_audit", "--yes").code == 0

        def is_recorded():
            run("topic", "create", "later")  # once it is there that fails, which is recorded too
            return "later" in run("audit", "--json").out

        wait_until(is_recorded, "the topic is not made again")
        assert "lost" in {event["event"] for event in run("audit", "--json").json_lines}
    with Broker(tmp_path / "data") as without:
        assert run_cli("topic", "delete", "__headrace_audit", "--yes", bootstrap=without.bootstrap_servers).code == 0
        assert_one_sentence(run_cli("audit", bootstrap=without.bootstrap_servers), "start it with audit.topic=true")
        made = run_cli("topic", "create", "__headrace_audit", bootstrap=without.bootstrap_servers)
        assert_one_sentence(made, "the broker keeps its audit log there")  # else a client says how long


def test_a_file_that_cannot_be_written_is_refused_and_leaves_no_data_folder(tmp_path):
    (tmp_path / "folder").mkdir()
    started = Broker(tmp_path / "data", settings={"audit.file": str(tmp_path / "folder")})
    with pytest.raises(Exception, match=r"the audit log .* cannot be written"):
        started.start()
    assert not (tmp_path / "data").exists()
