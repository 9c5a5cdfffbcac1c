"""Names in certificates, as Java writes them, and users' names out of them."""

import pytest

from headrace.security.certificates import InvalidRule, format_name, map_name, parse_rules


def test_a_name_begins_with_its_narrowest_part():
    subject = ((("countryName", "DE"),), (("organizationName", "Acme"),), (("commonName", "alice"),))
    assert format_name(subject) == "CN=alice,O=Acme,C=DE"


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("Acme, Inc.", "Acme\\, Inc."),
        ('a+b"c\\d<e>f;g', 'a\\+b\\"c\\\\d\\<e\\>f\\;g'),
        ("#1", "\\#1"),
        (" a ", "\\ a\\ "),
        ("Ärger", "Ärger"),
        ("a=b", "a=b"),
    ],
)
def test_what_is_special_is_escaped(value, written):
    assert format_name(((("organizationName", value),),)) == f"O={written}"


def test_an_attribute_without_a_word_is_told_by_its_number():
    subject = ((("emailAddress", "a@b.c"), ("commonName", "alice")),)
    assert format_name(subject) == "1.2.840.113549.1.9.1=#16056140622e63+CN=alice"


@pytest.mark.parametrize(
    ("rules", "mapped"),
    [
        ("DEFAULT", "CN=Alice,OU=data,O=Acme"),
        ("", "CN=Alice,OU=data,O=Acme"),
        ("RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/L,DEFAULT", "alice@data"),
        ("RULE:^CN=(.*?),.*$/$1/U", "ALICE"),
        ("RULE:^CN=(.*?),.*$/$1/", "Alice"),
        ("RULE:CN=Bob.*/bob/, DEFAULT", "CN=Alice,OU=data,O=Acme"),
        ("RULE:Alice/found/,DEFAULT", "CN=Alice,OU=data,O=Acme"),  # a pattern is the whole name or nothing
        ("RULE:CN=(.*?),.*/a\\/$1/", "a/Alice"),
        ("RULE:CN=Bob.*/bob/", None),
    ],
)
def test_rules(rules, mapped):
    assert map_name("CN=Alice,OU=data,O=Acme", parse_rules(rules)) == mapped


@pytest.mark.parametrize("rules", ["RULE:a", "RULE:a/b", "RULE:a/b/X", "ALICE", "RULE:(/b/", "DEFAULT,RULE"])
def test_a_rule_that_cannot_be_read_is_a_sentence(rules):
    with pytest.raises(InvalidRule, match=r"ssl\.principal\.mapping\.rules"):
        parse_rules(rules)
