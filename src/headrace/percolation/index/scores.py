"""Scores that are known when a query is stored: what all its matches are worth alike.

Most queries ask for all of something, so each match has the same score; only where some of several branches are
enough does it depend on the document.
"""

from headrace.percolation.tree import Boolean, Boost, ConstantScore, Either, Nested, Query, Term

Tally = tuple[float, tuple[tuple[Term, float], ...]]
"""What every match is worth, and the words that add to it, in the order in which they do."""


def constant_score(query: Query) -> float | None:
    """The score of every match, as `evaluate.score` adds it up; None if it depends on the document."""
    match query:
        case Boolean():
            return _boolean(query)
        case Either():
            scores = {constant_score(each) for each in query.queries}
            return scores.pop() if len(scores) == 1 else None
        case Nested():
            return constant_score(query.query)
        case Boost():
            inner = constant_score(query.query)
            return None if inner is None else inner * query.factor
        case ConstantScore():
            return query.score
        case _:
            return 1.0


def _boolean(query: Boolean) -> float | None:
    if not query.must and not query.should:
        return 1.0
    if query.should and query.minimum_should_match < len(query.should):
        return None
    total = 0.0
    for each in (*query.must, *query.should):
        worth = constant_score(each)
        if worth is None:
            return None
        total += worth
    return total


def tally(query: Query) -> Tally | None:
    """How the score of some of several words is added up; None if it takes more than that."""
    if not isinstance(query, Boolean) or not all(isinstance(_unboosted(each), Term) for each in query.should):
        return None
    base = 0.0
    for each in query.must:
        worth = constant_score(each)
        if worth is None:
            return None
        base += worth
    words = []
    for each in query.should:
        term, worth = _unboosted(each), constant_score(each)
        if not isinstance(term, Term) or worth is None:
            return None
        words.append((term, worth))
    return base, tuple(words)


def _unboosted(query: Query) -> Query:
    while isinstance(query, Boost | ConstantScore):
        query = query.query
    return query
