"""`headrace acl` against a broker that authorises: what it does, what it shows, and what it refuses."""

import shlex
from functools import partial

import pytest

from headrace import Broker
from headrace.client.acls import add_acls
from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.errors import HeadraceError
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from headrace.security.acl import Acl, Operation, PatternType, Permission, ResourceType
from tests.integration.cli_runs import assert_one_sentence, assert_wrong_call, run_cli
from tests.integration.wire import Wire

ADMIN = "User:ANONYMOUS"  # nobody logs in here


@pytest.fixture
def data_dir(tmp_path):
    return tmp_path / "data"


@pytest.fixture
def broker(data_dir):
    with Broker(data_dir, settings={"authorization": "on", "super.users": ADMIN}) as broker:
        yield broker


@pytest.fixture
def headrace(broker):
    return partial(run_cli, bootstrap=broker.bootstrap_servers)


def rows(run):
    return [line.split() for line in run.out.splitlines()]


def test_acls_are_added_listed_and_removed(headrace):
    assert headrace("acl", "list").out.startswith("no ACLs: add one with headrace acl add")
    added = headrace("acl", "add", "alice", "read,write", "--topic", "orders", "--topic", "payments")
    assert (added.code, rows(added)[0]) == (0, ["added", "4", "ACLs"])
    headrace("acl", "add", "User:bob", "all", "--topic", "or", "--prefix", "--host", "10.0.0.1", "--deny")
    headrace("acl", "add", "*", "describe", "--group", "*", "--cluster")
    listed = headrace("acl", "list", "--topic", "orders")
    assert rows(listed) == [
        ["principal", "permission", "operation", "resource", "name", "from"],
        ["User:bob", "deny", "all", "topic", "or…", "10.0.0.1"],
        ["User:alice", "allow", "read", "topic", "orders", "*"],
        ["User:alice", "allow", "write", "topic", "orders", "*"],
    ]
    assert {each["resource"] for each in headrace("acl", "list", "--principal", "*", "--json").json} == {
        "group",
        "cluster",
    }
    assert rows(headrace("acl", "remove", "alice", "write", "--topic", "orders"))[0] == ["removed", "1", "ACL"]
    removed = headrace("acl", "remove", "alice", "--json").json["removed"]
    assert {(each["name"], each["operation"]) for each in removed} == {
        ("orders", "read"),
        ("payments", "read"),
        ("payments", "write"),
    }
    assert headrace("acl", "remove", "alice").out == "removed 0 ACLs\n"


def test_acls_decide_and_outlive_a_restart(data_dir):
    settings = {"authorization": "on", "super.users": "User:somebody-else", "allow.everyone.if.no.acl.found": "true"}
    asked = MetadataRequest(topics=[MetadataRequestTopic(name="orders")], allow_auto_topic_creation=False)
    with Broker(data_dir, settings=settings) as broker:
        run_cli("topic", "create", "orders", bootstrap=broker.bootstrap_servers)
        run_cli("acl", "add", "bob", "read", "--topic", "orders", bootstrap=broker.bootstrap_servers)
    for _ in range(2):
        with Broker(data_dir, settings=settings) as broker, Wire(broker.bootstrap_servers) as wire:
            (topic,) = wire.ask(asked, MetadataResponse, 12).topics
            assert topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    with Broker(data_dir) as broker, Wire(broker.bootstrap_servers) as wire:
        (topic,) = wire.ask(asked, MetadataResponse, 12).topics
        assert topic.error_code == 0  # nothing is authorised, and the ACLs are kept
        assert_one_sentence(run_cli("acl", "list", bootstrap=broker.bootstrap_servers), "authorization=on")


def test_who_may_not_is_told_so(data_dir):
    with Broker(data_dir, settings={"authorization": "on", "super.users": "User:admin"}) as broker:
        headrace = partial(run_cli, bootstrap=broker.bootstrap_servers)
        assert_one_sentence(headrace("acl", "list"), "Cluster authorization failed")
        assert_one_sentence(headrace("acl", "add", "alice", "read", "--topic", "t"), "Cluster authorization failed")
        assert_one_sentence(headrace("topic", "create", "orders"), "orders", "uthorization failed")


def test_a_wrong_call_is_refused_before_anything_is_done(headrace):
    assert_wrong_call(headrace("acl", "add", "alice", "red", "--topic", "t"), "did you mean", "read")
    assert_wrong_call(headrace("acl", "add", "alice", "read"), "--topic")
    assert_wrong_call(headrace("acl", "add", "alice", "write", "--group", "g"), "--group", "read, delete, describe")
    assert_wrong_call(headrace("acl", "add", "alice", "read", "--topic", "*", "--prefix"), "--prefix")
    assert_wrong_call(headrace("acl", "add", "User:", "read", "--topic", "t"), "User:alice")
    assert_wrong_call(headrace("acl", "list", "--topic", "t", "--group", "g"), "either")
    assert headrace("acl", "list", "--json").json == []


def test_super_users_are_read_with_care(tmp_path):
    with pytest.raises(HeadraceError, match=r"^super\.users: .* write for example User:alice$"):
        Broker(tmp_path, settings={"authorization": "on", "super.users": "admin"}).start()


def test_a_broker_on_which_nobody_may_do_anything_says_so(tmp_path, caplog):
    with Broker(tmp_path / "data", settings={"authorization": "on"}):
        pass
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "super users" in line


def test_an_ipv4_host_is_the_same_on_a_listener_for_both(tmp_path):
    settings = {"authorization": "on", "super.users": "User:admin", "allow.everyone.if.no.acl.found": "true"}
    with Broker(tmp_path / "data", listen="[::ffff:127.0.0.1]:0", settings=settings, is_insecure=True) as broker:
        port = broker.bootstrap_servers.rpartition(":")[2]
        headrace = partial(run_cli, bootstrap=f"127.0.0.1:{port}")
        headrace("topic", "create", "orders")
        everybody = ("acl", "add", "*", "all", "--topic", "orders")
        assert headrace(*everybody).code == 0
        assert headrace("topic", "alter", "orders", "--partitions", 2).code == 0
        assert headrace(*everybody, "--host", "127.0.0.1", "--deny").code == 0
        assert_one_sentence(headrace("topic", "delete", "orders", "--yes"), "orders")


@pytest.mark.parametrize("host", ["127.0.0.1/8", "localhost", "10.0.0", "::ffff:10.0.0.1", ""])
def test_a_host_that_is_nobodys_is_refused(headrace, host):
    run = headrace("acl", "add", "alice", "read", "--topic", "orders", "--host", host)
    assert_wrong_call(run, f"{host!r} is not the address of a client", "write one as 10.0.0.7")
    assert headrace("acl", "list", "--json").json == []


@pytest.mark.parametrize("host", ["10.0.0.1", "2001:db8::1", "*"])
def test_a_host_that_may_be_somebodys_is_taken(headrace, host):
    assert headrace("acl", "add", "alice", "read", "--topic", "orders", "--host", host).code == 0


def test_a_host_that_is_nobodys_and_was_added_by_another_tool_is_pointed_out(headrace, broker):
    with Cluster(parse_bootstrap(broker.bootstrap_servers)) as cluster:
        where = (ResourceType.TOPIC, "orders", PatternType.LITERAL, "User:alice")
        hosts = ("10.0.0.0/8", "10.0.0.1")
        add_acls(cluster, [Acl(*where, host, Operation.READ, Permission.DENY) for host in hosts])
    listed = headrace("acl", "list")
    assert listed.err == "warning: '10.0.0.0/8' is not the address of a client: what is said of it bears on nobody\n"
    assert headrace("acl", "remove", "alice", "--host", "10.0.0.0/8").code == 0
    assert headrace("acl", "list").err == ""


# --- why


def test_why_names_what_is_missing_and_the_command_helps(headrace):
    asked = ("acl", "why", "alice", "read", "--topic", "orders", "--group", "billing")
    headrace("acl", "add", "alice", "write", "--topic", "orders")
    run = headrace(*asked)
    assert run.code == 1
    assert run.out.splitlines() == [
        "User:alice may not read topic orders: no ACL allows it",
        "  to change that: headrace acl add alice read --topic orders",
        "  there is, but for something else: User:alice: allow write topic orders",
        "User:alice may not read group billing: no ACL bears on it",
        "  to change that: headrace acl add alice read --group billing",
    ]
    for answer in headrace(*asked, "--json").json:
        for mend in answer["mend"]:
            assert headrace(*shlex.split(mend)[1:]).code == 0
    assert headrace(*asked).code == 0
    assert headrace(*asked).out.splitlines()[1] == "  User:alice: allow read topic orders"


def test_why_names_the_acl_that_denies_and_the_command_removes_it(headrace):
    headrace("acl", "add", "*", "all", "--topic", "or", "--prefix", "--host", "10.0.0.7", "--deny")
    headrace("acl", "add", "a b", "read", "--topic", "*")
    asked = ("acl", "why", "a b", "read", "--topic", "orders")
    anywhere = headrace(*asked)
    assert anywhere.code == 0
    assert "  from 10.0.0.7 it is denied: an ACL denies it, which outweighs all that allow" in anywhere.out
    (answer,) = headrace(*asked, "--host", "10.0.0.7", "--json").json
    assert (answer["allowed"], answer["deciding"][0]["principal"]) == (False, "User:*")
    assert answer["mend"] == ["headrace acl remove '*' all --topic or --prefix --host 10.0.0.7 --deny"]
    assert headrace(*shlex.split(answer["mend"][0])[1:]).code == 0
    assert headrace(*asked, "--host", "10.0.0.7").code == 0


def test_why_knows_super_users_and_a_broker_without_authorization(headrace, tmp_path):
    run = headrace("acl", "why", "ANONYMOUS", "alter", "--cluster")
    assert (run.code, run.out) == (0, "User:ANONYMOUS may alter cluster kafka-cluster: it is one of super.users\n")
    assert_wrong_call(headrace("acl", "why", "alice", "read"), "name what it is about")
    assert_wrong_call(headrace("acl", "why", "alice", "read", "--topic", "a", "--prefix"), "name one resource")
    with Broker(tmp_path / "open") as open_to_all:
        run = run_cli("acl", "why", "alice", "read", "--topic", "a", bootstrap=open_to_all.bootstrap_servers)
    assert (run.code, run.out) == (0, "everything is allowed to everybody: the broker runs without authorization\n")


def test_the_doctor_looks_through_users_and_acls(headrace):
    headrace("user", "add", "alice", stdin="geheim\n")
    headrace("acl", "add", "alice", "read", "--topic", "orders")
    headrace("acl", "add", "ghost", "read", "--topic", "orders")
    found = {each["check"]: each for each in headrace("doctor", "--json").json}
    assert found["acls"]["found"] == "2 ACLs, super users: User:ANONYMOUS"
    assert (found["acl users"]["verdict"], found["acl users"]["found"]) == (
        "note",
        "users without a password: User:ghost",
    )
