"""Regular expressions: their language, and subscriptions by them."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.coordinator.expression import Expression, InvalidExpression
from headrace.protocol.errors import ErrorCode
from tests.property.storage_model import examples
from tests.unit.coordinator.group_consumer.harness import Shell, assigned, parts


@pytest.mark.parametrize(
    ("text", "matching", "others"),
    [
        ("orders", ["orders"], ["order", "orders2", "my.orders"]),
        (r"orders\..*", ["orders.eu", "orders."], ["orders", "ordersXeu"]),
        ("(eu|us)-[0-9]{2,3}", ["eu-12", "us-123"], ["eu-1", "us-1234", "uk-12"]),
        ("^a$|^b.$", ["a", "bc"], ["ab", "b"]),
        ("(?i)orders", ["Orders", "ORDERS"], ["order"]),
        ("a(?i:B)c", ["abc", "aBc"], ["Abc", "abC"]),
        ("[[:digit:]]+[^a-z_]", ["12.", "1A"], ["1a", "1_"]),
        (r"\Qa.b\E+", ["a.b"], ["aXb"]),
        (r"\x61\x{62}", ["ab"], ["x61"]),
        ("(?P<env>dev|prod)?", ["", "dev", "prod"], ["devprod"]),
        ("a{,2}", [], ["", "a", "aa"]),
        ("é|[é]", ["é"], ["e"]),
        (r"\bab\b|\pL\d|\141", ["ab", "ж1", "a"], ["b"]),
        ("a{99999999999}", ["a{99999999999}"], ["aa"]),
    ],
)
def test_the_language_is_that_of_re2(text, matching, others):
    expression = Expression(text)
    assert [name for name in matching + others if expression.matches(name)] == matching


@pytest.mark.parametrize(
    "text",
    ["(a", "a)", "*a", "a**", "a*+", "[a", "[b-a]", "(?=a)", "(?<!a)", "(?>a)", r"\1", "\\", "a{3,2}",
     "a{1001}", "(?P=x)", "((a{100}){100}){100}", "[[:nothing:]]", r"\pX", "a" * 100_000],
)  # fmt: skip
def test_what_is_not_understood_is_refused(text):
    with pytest.raises(InvalidExpression):
        Expression(text)


pieces = st.recursive(
    st.sampled_from(["a", "b", ".", r"\.", "[ab]", "[^a]", "-", "^", "$"]),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=1, max_size=3).map(lambda some: f"(?:{'|'.join(some)})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{0,2}", "{2}", "{1,}", "*?"])).map(
            lambda both: f"(?:{both[0]}){both[1]}"
        ),
    ),
    max_leaves=8,
)


@examples(100)
@given(pieces, st.lists(st.text("ab.-", max_size=7), min_size=1, max_size=8))
def test_where_the_languages_overlap_it_agrees_with_python(text, names):
    expression = Expression(text)
    for name in names:
        assert expression.matches(name) == bool(re.fullmatch(text, name))


def test_no_expression_makes_the_broker_wait():
    for text in ("(a+)+b", "(a|a)*b", ".*a.*a.*a.*a.*a.*b", "(.*)*x"):
        began = time.thread_time()
        assert not Expression(text).matches("a" * 30_000)
        assert time.thread_time() - began < 0.1


def test_a_subscription_by_expression_follows_the_topics():
    shell = Shell(orders__eu=2, payments=1)
    response = shell.join("a", subscribed_topic_regex=r"orders\..*")
    assert assigned(response) == {"orders.eu": [0, 1]}
    assert shell.written()[:3] == ["MemberMetadata", "RegularExpression", "Metadata"]
    shell.set_topics(orders__eu=2, payments=1, orders__us=1)
    response = shell.beat("a", 1)
    assert assigned(response) == {"orders.eu": [0, 1], "orders.us": [0]}
    shell.set_topics(orders__eu=2, payments=2, orders__us=1)
    shell.beat("a", 2)
    assert shell.written() == []


def test_an_expression_stands_for_topics_that_the_member_may_know_of():
    shell = Shell(orders=1, secret=2)
    shell.sees = {"orders"}.__contains__
    assert assigned(shell.join("a", subscribed_topic_regex=".*")) == {"orders": [0]}
    shell.set_topics(orders=1, secret=2, secret__too=1)
    shell.beat("a", 1)
    assert shell.written() == []
    shell.sees = {"orders", "secret"}.__contains__  # as when an ACL was added, which makes another version of topics
    shell.set_topics(orders=1, secret=2, secret__too=1)
    assert assigned(shell.beat("a", 1)) == {"orders": [0], "secret": [0, 1]}


def test_an_expression_is_resolved_when_a_member_asks_and_not_when_another_is_gone():
    shell = Shell(orders=1)
    shell.sees = {"orders", "orders.eu"}.__contains__
    epoch = shell.join("a", subscribed_topic_regex=".*").member_epoch
    shell.join("b", "orders", rebalance_timeout_ms=60_000)
    shell.set_topics(orders=1, orders__eu=1, secret=1)
    shell.sees = None
    epoch = shell.beat("a", epoch).member_epoch
    assert shell.group.expressions == {".*": {"orders"}}
    shell.beat("b", -1)
    assert shell.group.expressions == {".*": {"orders"}}
    shell.sees = {"orders", "orders.eu"}.__contains__
    shell.beat("a", epoch)
    assert shell.group.expressions == {".*": {"orders", "orders.eu"}}


def test_names_and_expression_add_up():
    shell = Shell(orders__eu=1, payments=1)
    response = shell.join("a", "payments", subscribed_topic_regex="orders.*")
    assert assigned(response) == {"orders.eu": [0], "payments": [0]}
    assert shell.kind.is_subscribed("billing", "orders.eu")
    assert not shell.kind.is_subscribed("billing", "orders.us")


def test_an_expression_that_nobody_uses_is_forgotten():
    shell = Shell(orders=1, payments=1)
    shell.join("a", subscribed_topic_regex="orders")
    shell.join("b", subscribed_topic_regex="orders")
    assert "RegularExpression" not in shell.written()  # it is known already
    shell.beat("b", 2, subscribed_topic_regex="pay.*")
    assert set(shell.group.expressions) == {"orders", "pay.*"}
    shell.beat("b", -1)
    assert "-RegularExpression" in shell.written()
    assert set(shell.group.expressions) == {"orders"}
    shell.beat("a", 1, subscribed_topic_regex="", subscribed_topic_names=["payments"])
    assert shell.group.expressions == {}
    assert assigned(shell.beat("a", 1, {})) == {"payments": [0]}


def test_a_bad_expression_changes_nothing():
    shell = Shell(orders=1)
    shell.join("a", "orders")
    refused = shell.beat("a", 1, parts(orders=[0]), subscribed_topic_regex="a**")
    assert refused.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert shell.last.records == ()
