"""Who may come in, and what may be done."""

import pytest
from starlette.testclient import TestClient

from headrace.cli.dashboard import language
from headrace.dashboard.pages import PAGES
from headrace.dashboard.settings import Settings
from headrace.serving.access import Access, NotSafe
from headrace.serving.guard import HEADERS, cookie_name, is_own_name, session_by_token
from tests.unit.dashboard.dashboard_cases import NOWHERE, TOKEN, dashboard, state

OWN = "http://127.0.0.1:8088"
COOKIE, SESSION = session_by_token(TOKEN)


def client(base_url=OWN, *, cookie=False, **settings):
    made = TestClient(dashboard(state(), **settings).app, base_url, follow_redirects=False)
    if cookie:
        made.cookies.set(cookie_name(8088), COOKIE)
    return made


def writing(**others):
    return client(allow_writes=True, token=TOKEN, **others)


# --- how it is started


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"host": "0.0.0.0"}, "other machines"),
        ({"host": "kafka.example"}, "other machines"),
        ({"token": "short"}, "easy to guess"),
    ],
)
def test_it_does_not_start_in_the_open(settings, reason):
    with pytest.raises(NotSafe, match=reason):
        Access(**settings)


def test_a_dashboard_that_may_write_asks_who_comes():
    with pytest.raises(NotSafe, match="needs a token or logins"):
        Settings(NOWHERE, language(), allow_writes=True)


# --- names


@pytest.mark.parametrize("host", ["127.0.0.1:8088", "localhost:8088", "localhost", "[::1]:8088", "127.9.9.9"])
def test_it_answers_to_its_own_names(host):
    assert client().get("/api/topics", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8088",
        "127.0.0.1.evil.example",
        "",
        "10.0.0.7",
        "[",
        "a@b",
        "127.0.0.1/static/x?",
        "127.0.0.1#",
        "localhost?",
        "127.0.0.1:8088/static/",
    ],
)
def test_it_answers_to_no_other_name(host):
    assert client().get("/api/topics", headers={"host": host}).status_code in (400, 421)


def test_more_names_are_given_on_purpose():
    assert client(host_names=("board.example",)).get("/", headers={"host": "board.example"}).status_code == 200
    assert is_own_name("10.0.0.7:80", (), any_address=True)
    assert not is_own_name("rebound.example", (), any_address=True)


# --- headers


@pytest.mark.parametrize("path", ["/", "/api/overview", "/static/style.css", "/nowhere", "/enter"])
def test_every_answer_carries_the_headers(path):
    answer = client().get(path)
    for name, value in HEADERS.items():
        assert answer.headers[name] == value
    assert "unsafe" not in answer.headers["content-security-policy"]


def test_even_a_refusal_does():
    assert "content-security-policy" in client().get("/", headers={"host": "evil.example"}).headers


@pytest.mark.parametrize("page", [page for page in PAGES if "{" not in page.path], ids=lambda page: page.path)
def test_no_page_has_code_or_style_inside(page):
    html = client().get(page.path).text
    assert "style=" not in html
    assert "<style" not in html
    assert " onclick" not in html
    assert html.count("<script") == html.count("<script src=")


# --- the token


def test_without_the_cookie_there_is_only_the_door():
    browser = writing()
    assert browser.get("/topics").headers["location"] == "/enter"
    assert browser.get("/api/topics").status_code == 401
    assert browser.get("/live?path=/").status_code == 401
    assert browser.get("/topics/orders/records/stream").status_code == 303
    assert "orders" not in browser.get("/enter").text
    assert browser.get("/static/style.css").status_code == 200


def test_a_host_header_does_not_make_a_path_of_its_own():
    answer = writing().get("/api/topics", headers={"host": "127.0.0.1/static/x?"})
    assert answer.status_code in (400, 421)
    assert "orders" not in answer.text


def test_a_program_may_send_the_token_in_a_header():
    assert writing().get("/api/topics", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200
    assert writing().get("/api/topics", headers={"authorization": "Bearer wrong"}).status_code == 401


def test_the_token_is_not_guessed_for_ever():
    browser = writing()
    assert [browser.post("/enter", data={"token": f"guess-{n}"}).status_code for n in range(11)] == [401] * 10 + [429]
    assert browser.post("/enter", data={"token": TOKEN}).status_code == 429
    assert browser.get(f"/topics?token={TOKEN}").headers["location"] == "/enter"
    browser.cookies.set(cookie_name(8088), COOKIE)
    assert browser.get("/topics").status_code == 200, "who is in stays in"


def test_the_printed_address_gives_the_cookie_and_hides_the_token():
    answer = writing().get(f"/topics?q=or&token={TOKEN}")
    assert (answer.status_code, answer.headers["location"]) == (303, "/topics?q=or")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert TOKEN not in cookie


def test_a_wrong_token_or_cookie_does_not_help():
    browser = writing()
    assert browser.get("/topics?token=wrong").headers["location"] == "/enter"
    browser.cookies.set(cookie_name(8088), "wrong")
    assert browser.get("/topics").headers["location"] == "/enter"


def test_the_token_can_be_given_at_the_door():
    assert writing().post("/enter", data={"token": "wrong"}).status_code == 401
    answer = writing().post("/enter", data={"token": TOKEN})
    assert (answer.status_code, answer.headers["location"]) == (303, "/")


def test_a_token_does_not_lead_to_another_site():
    answer = writing().get(f"//evil.example/?token={TOKEN}")
    assert not answer.headers.get("location", "/").startswith("//")


# --- writing

FORM = {"key": "c7", "value": "{}", "csrf": SESSION.csrf}


def test_a_dashboard_that_only_looks_takes_no_form():
    answer = client().post("/topics/orders/produce", data=FORM)
    assert answer.status_code == 403
    assert "--allow-writes" in answer.text
    assert "csrf" not in client().get("/topics/orders/records").text


@pytest.mark.parametrize("csrf", [None, "", "wrong", TOKEN])
def test_a_form_without_its_proof_is_refused(csrf):
    form = {**FORM, "csrf": csrf} if csrf is not None else {"key": "c7"}
    for path in ("/topics/orders/produce", "/groups/billing/plan", "/groups/billing/move"):
        assert writing(cookie=True).post(path, data=form).status_code == 403


@pytest.mark.parametrize(
    "headers", [{"origin": "http://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}]
)
def test_a_form_from_elsewhere_is_refused(headers):
    assert writing(cookie=True).post("/topics/orders/produce", data=FORM, headers=headers).status_code == 403


def test_a_form_of_ours_gets_through_to_the_broker():
    answer = writing(cookie=True).post("/topics/orders/produce", data=FORM, headers={"origin": OWN})
    assert answer.status_code == 400
    assert "Cannot reach a broker" in answer.text, "nobody listens in this test"


def test_a_form_is_not_larger_than_one_writes_by_hand():
    answer = writing(cookie=True).post("/topics/orders/produce", data={"value": "x" * 3_000_000})
    assert answer.status_code == 413


def test_changing_takes_a_post():
    assert writing(cookie=True).get("/topics/orders/produce").status_code == 405
