"""The authorizer against a model that looks at every ACL for every question, over changes of the ACLs."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.security.acl import Acl, AclFilter, Operation, PatternType, Permission, ResourceType
from headrace.security.authorizer import Acls, Action, Authorizer
from headrace.security.explanation import Rules, explain, find_shadowed, hosts_that_differ
from headrace.security.principal import Principal

NAMES = ["a", "ab", "abc", "abd", "b", "*", "hardcode"]
HOSTS = ["10.0.0.1", "10.0.0.2", "::1"]
USERS = [Principal("alice"), Principal("bob"), Principal("alice", "Role")]
OPERATIONS = [
    Operation.READ,
    Operation.WRITE,
    Operation.DESCRIBE,
    Operation.DELETE,
    Operation.ALTER,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
    Operation.CREATE,
]
TYPES = [ResourceType.TOPIC, ResourceType.GROUP]
SUPER = Principal("root")

acls = st.builds(
    Acl,
    st.sampled_from(TYPES),
    st.sampled_from(NAMES),
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    st.sampled_from([*map(str, USERS), "User:*", "User:root"]),
    st.sampled_from([*HOSTS, "*", "0:0:0:0:0:0:0:1"]),
    st.sampled_from([*OPERATIONS, Operation.ALL]),
    st.sampled_from([Permission.ALLOW, Permission.DENY]),
)
questions = st.tuples(
    st.sampled_from([*USERS, SUPER]),
    st.sampled_from(HOSTS),
    st.sampled_from(OPERATIONS),
    st.sampled_from(TYPES),
    st.sampled_from([name for name in NAMES if name != "*"]),
)

DESCRIBES = {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER, Operation.DESCRIBE}
DESCRIBES_CONFIGS = {Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS}


def bears_on(acl, kind, name):
    if acl.resource_type != kind:
        return False
    if acl.pattern_type == PatternType.PREFIXED:
        return name.startswith(acl.resource_name)
    return acl.resource_name in (name, "*")


def speaks_of(acl, user, host, operation):
    if acl.principal not in (f"{user.kind}:{user.name}", "User:*"):
        return False
    if acl.host not in ("*", host) and not (acl.host == "0:0:0:0:0:0:0:1" and host == "::1"):
        return False
    if acl.operation in (operation, Operation.ALL):
        return True
    if acl.permission == Permission.DENY:
        return False
    return (operation == Operation.DESCRIBE and acl.operation in DESCRIBES) or (
        operation == Operation.DESCRIBE_CONFIGS and acl.operation in DESCRIBES_CONFIGS
    )


def allowed_by_model(held, user, host, operation, kind, name, *, otherwise):
    if user == SUPER:
        return True
    bearing = [acl for acl in held if bears_on(acl, kind, name)]
    if not bearing:
        return otherwise
    speaking = [acl for acl in bearing if speaks_of(acl, user, host, operation)]
    return bool(speaking) and all(acl.permission == Permission.ALLOW for acl in speaking)


@given(
    changes=st.lists(st.tuples(st.booleans(), acls), max_size=25),
    asked=st.lists(questions, min_size=1, max_size=8),
    otherwise=st.booleans(),
)
def test_every_decision_is_the_models(changes, asked, otherwise):
    held, indexed = set(), Acls()
    authorizer = Authorizer(lambda: indexed, super_users=frozenset({SUPER}), allow_if_no_acl=otherwise)
    for is_added, acl in [(True, None), *changes]:
        if acl is not None:
            if is_added:
                held.add(acl)
                indexed.add(acl)
            elif held:
                gone = sorted(held)[len(asked) % len(held)]
                held.discard(gone)
                indexed.remove(gone)
            indexed.remove(acl._replace(host="10.9.9.9"))  # one that is not there
            authorizer.forget()
        assert set(indexed) == held
        for question in asked:
            assert authorizer.allows(*question) is allowed_by_model(held, *question, otherwise=otherwise), question


@given(held=st.sets(acls, max_size=12), question=questions, otherwise=st.booleans())
def test_something_is_allowed_if_there_is_a_name_for_which_it_is(held, question, otherwise):
    """Kafka's rule looks at patterns, not at names, and at ACLs of this very operation: it may say yes too often."""
    user, host, _, kind, _ = question
    indexed = Acls()
    for acl in held:
        indexed.add(acl)
    authorizer = Authorizer(lambda: indexed, super_users=frozenset({SUPER}), allow_if_no_acl=otherwise)
    names = {name + tail for name in NAMES if name != "*" for tail in ("", "x", "-1")} | {"hardcode"}
    for operation in (Operation.READ, Operation.WRITE):
        if any(allowed_by_model(held, user, host, operation, kind, name, otherwise=False) for name in names):
            assert authorizer.allows_any(user, host, operation, kind)


filters = st.builds(
    AclFilter,
    st.sampled_from([*TYPES, ResourceType.ANY]),
    st.sampled_from([*NAMES, None]),
    st.sampled_from([PatternType.ANY, PatternType.MATCH, PatternType.LITERAL, PatternType.PREFIXED]),
    st.sampled_from(["User:alice", None]),
    st.sampled_from(["*", None]),
    st.sampled_from([Operation.READ, Operation.ANY]),
    st.sampled_from([Permission.ALLOW, Permission.ANY]),
)


@given(held=st.sets(acls, max_size=20), asked=filters)
def test_a_filter_that_asks_for_matches_lists_what_bears_on_the_resource(held, asked):
    indexed = Acls()
    for acl in held:
        indexed.add(acl)
    listed = set(indexed.matching(asked))
    rest = asked._replace(resource_name=None, pattern_type=PatternType.ANY)
    for acl in held:
        if asked.resource_name is None:
            fits = asked.pattern_type in (PatternType.ANY, PatternType.MATCH, acl.pattern_type)
        elif asked.pattern_type == PatternType.MATCH:
            fits = bears_on(acl, acl.resource_type, asked.resource_name)
        else:
            fits = asked.resource_name == acl.resource_name and asked.pattern_type in (
                PatternType.ANY,
                acl.pattern_type,
            )
        assert (acl in listed) is (fits and rest.matches(acl))


@given(st.lists(acls, max_size=12), questions, st.booleans())
def test_an_explanation_decides_as_the_authorizer_and_its_mends_help(rules, question, otherwise):
    held = Acls()
    for acl in rules:
        held.add(acl)
    authorizer = Authorizer(lambda: held, super_users=frozenset([SUPER]), allow_if_no_acl=otherwise)
    action = Action(*question)
    known = Rules(list(held), frozenset([SUPER]), otherwise)
    found = explain(known, action)
    assert found.is_allowed == authorizer.allows(*question)
    assert all(acl.permission is (Permission.ALLOW if found.is_allowed else Permission.DENY) for acl in found.deciding)
    if not found.is_allowed:
        mended = [acl for acl in known.acls if acl not in found.deciding]
        if found.needs_allowing:
            pattern = (action.resource_type, action.name, PatternType.LITERAL)
            mended.append(Acl(*pattern, str(action.principal), "*", action.operation, Permission.ALLOW))
        assert explain(known._replace(acls=mended), action).is_allowed
    for host, there in hosts_that_differ(known, action).items():
        assert there.is_allowed != found.is_allowed
        assert host != "*"


@given(st.lists(acls, max_size=12), st.sampled_from(USERS), st.sampled_from(HOSTS), st.sampled_from(NAMES[:-2]))
def test_what_is_shadowed_could_as_well_not_be_there(rules, user, host, name):
    for allow, deny in find_shadowed(rules):
        assert (allow.permission, deny.permission) == (Permission.ALLOW, Permission.DENY)
        if allow.operation is Operation.ALL:
            continue  # any operation would be
        action = Action(user, host, allow.operation, allow.resource_type, name)
        less = [acl for acl in rules if acl != allow]
        assert explain(Rules(rules), action).is_allowed == explain(Rules(less), action).is_allowed
