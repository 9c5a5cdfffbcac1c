"""Who is let in by the dashboard, the view server and the schema server: the users of one broker, and programs.

The three servers stand before one broker with logins and ACLs: admin may do everything, reader may look at the cluster,
worker may log in to the broker and nothing else.
"""

import base64
import http.client
import json
import ssl
import urllib.parse
from types import SimpleNamespace

import pytest

from headrace import Broker
from headrace.cli.dashboard import language
from headrace.client.acls import add_acls
from headrace.client.address import parse_bootstrap
from headrace.client.admin import ensure_topic
from headrace.client.cluster import Cluster
from headrace.client.offsets import bounds
from headrace.client.security import settings_from
from headrace.connect.avro.serving import SchemaServer
from headrace.dashboard.app import DashboardServer
from headrace.dashboard.settings import Settings
from headrace.pipelines.views import sqlite
from headrace.pipelines.views.serving.app import ViewServer
from headrace.pipelines.views.sink import ViewSink
from headrace.schema_registry import RegistryError, SchemaRegistry
from headrace.security.acl import CLUSTER_NAME, Acl, Operation, PatternType, Permission, ResourceType
from headrace.serving.access import Access, TokensFile, add_token, users_of
from headrace.serving.guard import HEADERS
from headrace.serving.sessions import Role
from headrace.telemetry.audit import EVERY_EVENT, AuditFile, AuditLog, read_events
from headrace.testing.contracts.view import KEY, batch, row
from tests.certificates import make_authority, make_certificate
from tests.integration.cli_runs import run_cli
from tests.integration.waiting import wait_until

PASSWORDS = {"admin": "geheim-1", "reader": "geheim-2", "worker": "geheim-3"}
SCHEMA = '{"type":"record","name":"R","fields":[]}'
DASHBOARD, VIEWS, SCHEMAS = "dashboard", "views", "schemas"
SERVERS = (DASHBOARD, VIEWS, SCHEMAS)
LOOKING = {DASHBOARD: "/api/topics", VIEWS: "/views/feed/7/a", SCHEMAS: "/subjects"}
PAGES = {DASHBOARD: "/topics", VIEWS: "/views", SCHEMAS: "/subjects"}


def login_of(user):
    return settings_from(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": PASSWORDS[user],
        }
    )


@pytest.fixture(scope="module")
def stand(tmp_path_factory):
    """A broker, the three servers before it, and a token of each role."""
    folder = tmp_path_factory.mktemp("logins")
    users = folder / "users"
    users.touch(0o600)
    users.write_text("".join(f"{name}={password}\n" for name, password in PASSWORDS.items()))
    settings = {"users.file": str(users), "authorization": "on", "super.users": "User:admin"}
    tokens = folder / "tokens"
    programs = {role: add_token(tokens, f"a-{role.value}-program", role) for role in Role}
    store = sqlite(folder / "views.db")
    store.write(batch(store, 0, [row(7, "a")]))
    with Broker(listen="SASL_PLAINTEXT://127.0.0.1:0", durability="os", settings=settings) as broker:
        bootstrap = parse_bootstrap(broker.bootstrap_servers)
        connection = login_of("admin")
        recorded = AuditLog(AuditFile(folder / "audit.log", 1 << 20, 2), EVERY_EVENT)
        access = Access(tokens=TokensFile(tokens), users=users_of(bootstrap, connection), audit=recorded)
        with Cluster(bootstrap, connection) as cluster, Cluster(bootstrap, connection) as other:
            look = Acl(
                ResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL, "User:reader", "*", Operation.DESCRIBE,
                Permission.ALLOW,
            )  # fmt: skip
            add_acls(cluster, [look])
            ensure_topic(cluster, "orders", partitions=1)
            board = Settings(bootstrap, language(), 0, True, access, 0.3, connection)
            views = {"feed": ViewSink("feed", KEY, store, ("posts",))}
            with (
                DashboardServer(board) as dashboard,
                ViewServer(views, 0, access=access) as view_server,
                SchemaServer(other, access=access) as schemas,
            ):
                ports = {DASHBOARD: dashboard.settings.port, VIEWS: view_server.port, SCHEMAS: schemas.port}
                found = SimpleNamespace(ports=ports, programs=programs, tokens=tokens, folder=folder, cluster=cluster)
                found.access, found.bootstrap, found.schemas_url = access, broker.bootstrap_servers, schemas.url
                wait_until(
                    lambda: "orders" in ask(found, DASHBOARD, "/api/topics", **basic("admin")).text,
                    "the dashboard does not see the topic",
                )
                yield found


def ask(stand, server, path, body=None, method=None, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", stand.ports[server], timeout=20)
    try:
        connection.request(method or ("GET" if body is None else "POST"), path, body, headers)
        answer = connection.getresponse()
        return SimpleNamespace(status=answer.status, headers=answer.headers, text=answer.read().decode())
    finally:
        connection.close()


def basic(user, password=None):
    shown = f"{user}:{PASSWORDS[user] if password is None else password}"
    return {"Authorization": f"Basic {base64.b64encode(shown.encode()).decode()}"}


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


FORM = {"Content-Type": "application/x-www-form-urlencoded"}
JSON = {"Content-Type": "application/json"}


def enter(stand, server, user, password=None, **headers):
    """Log in as a browser does."""
    form = {"user": user, "password": PASSWORDS[user] if password is None else password}
    return ask(stand, server, "/enter", urllib.parse.urlencode(form), **FORM, **headers)


def cookie_of(stand, server, user):
    answer = enter(stand, server, user)
    assert (answer.status, answer.headers["location"]) == (303, "/")
    return {"Cookie": answer.headers["set-cookie"].partition(";")[0]}


def change(stand, server, csrf=None, **headers):
    """Something that only an admin may do; views have nothing to change."""
    proof = {} if csrf is None else {"x-csrf-token": csrf}
    if server == SCHEMAS:
        body = json.dumps({"schema": SCHEMA})
        return ask(stand, server, "/subjects/s-value/versions", body, **JSON, **headers, **proof)
    form = {"key": "k", "value": "v", "kind": "text"} | ({} if csrf is None else {"csrf": csrf})
    return ask(stand, server, "/topics/orders/produce", urllib.parse.urlencode(form), **FORM, **headers)


def csrf_of(stand, cookie):
    page = ask(stand, DASHBOARD, "/topics/orders/records", **cookie).text
    return page.split('name="csrf" value="')[1].split('"')[0]


# --- looking


@pytest.mark.parametrize("server", SERVERS)
def test_who_does_not_log_in_sees_nothing(stand, server):
    answer = ask(stand, server, LOOKING[server])
    assert answer.status == 401
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert "Log in" in answer.text
    page = ask(stand, server, PAGES[server], Accept="text/html")
    assert (page.status, page.headers["location"]) == (303, "/enter")
    door = ask(stand, server, "/enter")
    assert door.status == 401
    assert "Password" in door.text
    assert "orders" not in answer.text + door.text
    for name, value in HEADERS.items():
        assert {found.headers[name] for found in (answer, page, door)} == {value}


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize(
    "wrong",
    [
        bearer("wrong"),
        bearer(""),
        {"Authorization": "Basic %%%"},
        {"Authorization": "Basic caf\u00e9"},
        {"Authorization": "Digest x"},
        {"Cookie": "headrace=wrong"},
    ],
)
def test_what_is_wrong_does_not_help(stand, server, wrong):
    assert ask(stand, server, LOOKING[server], **wrong).status == 401


@pytest.mark.parametrize("server", SERVERS)
def test_probes_need_no_login(stand, server):
    for path in ("/healthz", "/readyz"):
        assert ask(stand, server, path).status == 200


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("user", ["reader", "admin"])
def test_users_of_the_broker_look(stand, server, user):
    assert ask(stand, server, LOOKING[server], **basic(user)).status == 200
    answer = enter(stand, server, user)
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert "Secure" not in cookie, "this server does not speak TLS"
    assert PASSWORDS[user] not in cookie
    assert ask(stand, server, LOOKING[server], Cookie=cookie.partition(";")[0]).status == 200


@pytest.mark.parametrize("server", SERVERS)
def test_a_wrong_password_and_an_unknown_user_look_alike(stand, server):
    wrong, unknown = enter(stand, server, "worker", "wrong"), enter(stand, server, "nobody", "wrong")
    assert (wrong.status, unknown.status) == (401, 401)
    assert wrong.text == unknown.text
    assert "Wrong name or password" in wrong.text
    assert wrong.headers["set-cookie"] is None
    assert ask(stand, server, LOOKING[server], **basic("worker", "wrong")).status == 401


def test_who_may_not_look_at_the_cluster_is_told_what_is_missing(stand):
    answer = enter(stand, VIEWS, "worker")
    assert answer.status == 401
    assert "headrace acl add worker describe --cluster" in answer.text


@pytest.mark.parametrize("server", SERVERS)
def test_programs_look_by_their_tokens(stand, server):
    for token in stand.programs.values():
        assert ask(stand, server, LOOKING[server], **bearer(token)).status == 200


# --- changing


def changes_so_far(stand, server):
    """How much there is of what `change` adds to."""
    if server == SCHEMAS:
        return ask(stand, SCHEMAS, "/subjects", **basic("admin")).text.count("s-value")
    (bound,) = bounds(stand.cluster, stand.cluster.partitions("orders")).values()
    return bound.end


@pytest.mark.parametrize("server", [DASHBOARD, SCHEMAS])
def test_who_may_only_look_changes_nothing(stand, server):
    before = changes_so_far(stand, server)
    for shown in (basic("reader"), bearer(stand.programs[Role.READ_ONLY]), cookie_of(stand, server, "reader")):
        answer = change(stand, server, **shown)
        assert answer.status == 403
        assert "may only look" in answer.text
    assert change(stand, server).status == 401
    assert changes_so_far(stand, server) == before


@pytest.mark.parametrize("server", [DASHBOARD, SCHEMAS])
def test_an_admin_changes_things(stand, server):
    before = changes_so_far(stand, server)
    for shown in (basic("admin"), bearer(stand.programs[Role.ADMIN])):
        assert change(stand, server, **shown).status in (200, 303)
    assert changes_so_far(stand, server) == (before + 2 if server == DASHBOARD else 1)


@pytest.mark.parametrize("server", [DASHBOARD, SCHEMAS])
def test_a_change_by_a_browser_carries_its_proof(stand, server):
    cookie, before = cookie_of(stand, server, "admin"), changes_so_far(stand, server)
    for csrf in (None, "", "wrong"):
        answer = change(stand, server, csrf, **cookie)
        assert answer.status == 403
        assert "from another site" in answer.text
    elsewhere = {"Origin": "http://evil.example"}
    assert change(stand, server, **elsewhere, **cookie).status == 403
    assert change(stand, server, **elsewhere, **basic("admin")).status == 403, "browsers may know a password too"
    assert changes_so_far(stand, server) == before


@pytest.mark.parametrize("server", [DASHBOARD, SCHEMAS])
def test_changes_denials_and_logins_are_recorded(stand, server):
    def recorded(since=0):
        fields = ("event", "outcome", "principal", "method", "status")
        here = [each for each in read_events(stand.folder / "audit.log") if each["listener"].endswith(f":{port}")]
        return [tuple(each.get(field) for field in fields) for each in here[since:]]

    port = stand.ports[server]
    before = len(recorded())
    assert ask(stand, server, LOOKING[server], **basic("reader")).status == 200
    status = change(stand, server, **bearer(stand.programs[Role.ADMIN])).status
    change(stand, server, **basic("reader"))
    enter(stand, server, "admin", f"wrong-{PASSWORDS['worker']}")
    enter(stand, server, "admin")
    assert ask(stand, server, "/enter?token=not-to-be-kept").status == 401
    denial = ("http", "denied", "User:reader", "POST", 403)
    assert [each for each in recorded(before) if each != denial] == [  # one like it may have been recorded before
        ("http", "ok", "User:token a-admin-program", "POST", status),
        ("login", "denied", "User:admin", "POST", 401),
        ("login", "ok", "User:admin", "POST", 303),
    ]
    assert denial in recorded()
    text = (stand.folder / "audit.log").read_text()
    assert not any(secret in text for secret in (*PASSWORDS.values(), *stand.programs.values(), "not-to-be-kept"))


def test_a_form_of_ours_is_taken_from_an_admin_and_not_shown_to_others(stand):
    cookie = cookie_of(stand, DASHBOARD, "admin")
    other = cookie_of(stand, DASHBOARD, "admin")
    before = changes_so_far(stand, DASHBOARD)
    assert change(stand, DASHBOARD, csrf_of(stand, cookie), **cookie).status in (200, 303)
    assert changes_so_far(stand, DASHBOARD) == before + 1
    assert change(stand, DASHBOARD, csrf_of(stand, other), **cookie).status == 403, "of another session"
    reader = cookie_of(stand, DASHBOARD, "reader")
    page = ask(stand, DASHBOARD, "/topics/orders/records", **reader).text
    assert "Read-only" in page
    assert "/produce" not in page
    assert change(stand, DASHBOARD, csrf_of(stand, reader), **reader).status == 403


def test_who_signs_out_is_out(stand):
    cookie = cookie_of(stand, DASHBOARD, "reader")
    csrf = csrf_of(stand, cookie)
    assert ask(stand, DASHBOARD, "/leave", "", **FORM, **cookie).status == 403, "not from another site's form"
    assert ask(stand, DASHBOARD, "/leave", f"csrf={csrf}", **FORM, **cookie).headers["location"] == "/enter"
    assert ask(stand, DASHBOARD, "/api/topics", **cookie).status == 401


@pytest.mark.parametrize("server", SERVERS)
def test_a_name_of_another_site_is_not_answered(stand, server):
    assert ask(stand, server, LOOKING[server], Host="evil.example", **basic("admin")).status == 421


# --- the schemas, as their clients ask


def test_a_registrys_client_logs_in(stand):
    reader = SchemaRegistry(stand.schemas_url, user="reader", password=PASSWORDS["reader"])
    admin = SchemaRegistry(stand.schemas_url, user="admin", password=PASSWORDS["admin"])
    number = admin.register("a/b-value", SCHEMA)
    assert reader.look_up(number) == SCHEMA
    with pytest.raises(RegistryError):
        reader.register("c-value", SCHEMA)
    body = json.dumps({"schema": SCHEMA})
    found = ask(stand, SCHEMAS, "/subjects/a%2Fb-value", body, **JSON, **basic("reader"))
    assert json.loads(found.text)["id"] == number, "to look up by the text changes nothing"


# --- too many


def test_guesses_are_limited_for_each_user_and_address(stand):
    with ViewServer({}, 0, access=stand.access) as server:  # one of its own: the others' users are not shut out
        fresh = SimpleNamespace(ports={VIEWS: server.port})
        answers = [enter(fresh, VIEWS, "reader", f"guess-{number}") for number in range(11)]
        assert [answer.status for answer in answers] == [401] * 10 + [429]
        assert 0 < int(answers[-1].headers["retry-after"]) <= 60
        assert enter(fresh, VIEWS, "reader").status == 429, "not even with the right one"
        assert ask(fresh, VIEWS, "/views", **basic("admin")).status == 429, "not from this address"
        assert ask(fresh, VIEWS, "/views", **bearer(stand.programs[Role.ADMIN])).status == 200


def test_a_broker_that_is_away_is_named(stand, tmp_path):
    users = users_of(parse_bootstrap("127.0.0.1:1"), login_of("admin"))
    with ViewServer({}, 0, access=Access(users=users)) as server:
        answer = ask(SimpleNamespace(ports={VIEWS: server.port}), VIEWS, "/views", **basic("admin"))
    assert answer.status == 503
    assert "The broker cannot be asked who you are" in answer.text


# --- TLS


def test_under_tls_cookies_are_for_tls_alone(stand, tmp_path):
    authority = make_authority(tmp_path, "authority")
    store = make_certificate(tmp_path, "server", "authority", alternative="IP:127.0.0.1")
    access = Access(users=stand.access.users, certificate=str(store))
    with ViewServer({}, 0, access=access) as server:
        assert server.url.startswith("https://")
        context = ssl.create_default_context(cafile=str(authority))
        connection = http.client.HTTPSConnection("127.0.0.1", server.port, context=context, timeout=20)
        form = urllib.parse.urlencode({"user": "reader", "password": PASSWORDS["reader"]})
        connection.request("POST", "/enter", form, FORM)
        answer = connection.getresponse()
        connection.close()
    assert answer.status == 303
    assert "Secure" in answer.headers["set-cookie"]


# --- commands


def test_tokens_are_added_listed_and_removed_by_commands(stand, tmp_path):
    file = tmp_path / "tokens"
    made = run_cli("user", "token", "add", "reports", "--file", str(file))
    token = made.out.strip()
    assert len(token) >= 43
    admin = json.loads(run_cli("user", "token", "add", "loader", "--role", "admin", "--file", str(file), "--json").out)
    listed = json.loads(run_cli("user", "token", "list", "--file", str(file), "--json").out)
    assert listed == [{"name": "reports", "role": "read-only"}, {"name": "loader", "role": "admin"}]
    tokens = TokensFile(file)
    assert (tokens.find(token).name, tokens.find(admin["token"]).role) == ("reports", Role.ADMIN)
    assert run_cli("user", "token", "remove", "reports", "--file", str(file)).code == 0
    assert tokens.find(token) is None
    assert run_cli("user", "token", "remove", "reports", "--file", str(file)).code == 1


@pytest.mark.parametrize(
    "command",
    [("dashboard", "start"), ("cdc", "serve-schemas"), ("view", "serve", "views.py")],
    ids=lambda words: words[0],
)
def test_a_public_address_without_a_login_is_refused(command):
    refused = run_cli(*command, "--host", "0.0.0.0", "--port", "0", bootstrap="127.0.0.1:1")
    assert refused.code == 1
    assert "0.0.0.0 can be reached from other machines, and nobody has to log in" in refused.err
