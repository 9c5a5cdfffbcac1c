"""Media monitoring on a stream of articles: who writes about a company, a product, a person, and in which words.

python examples/searches/articles.py > articles.jsonl          # fifteen hundred articles, always the same
headrace search test articles.jsonl --query '"oil spill"~5 AND acme'
"""

import json
import random
import sys
from collections.abc import Iterator

MAPPING = {
    "fields": {
        "headline": {"type": "text", "analyzer": "english"},
        "body": {"type": "text", "analyzer": "english"},
        "outlet": "keyword",
        "language": "keyword",
        "published": "date",
    },
    "default_fields": ["headline", "body"],
}
QUERIES = {
    "acme, anything bad": {
        "query": 'acme AND (lawsuit OR recall OR "oil spill"~5 OR scandal)',
        "owner": "press office",
        "tags": ["urgent"],
    },
    "acme in the headline": {"query": "headline:acme^3", "owner": "press office"},
    "our founder": {"query": 'mentions:nested(name:"jane roe" AND role:founder)', "owner": "board"},
    "rivals raise money": {
        "query": "(globex OR initech) AND fund* AND million",
        "owner": "strategy",
        "tags": ["weekly"],
    },
    "misspelt": {"query": "headline:acme~1 NOT headline:acme", "owner": "press office"},
}
SUBJECTS = ["the council", "a football club", "the weather service", "a bakery", "the railway", "a museum"]
DEEDS = ["opens its doors", "changes its mind", "wins a prize", "asks for patience", "is closed on Monday"]
OUTLETS = ["Daily Post", "Evening Star", "Morning Wire"]
BEGIN_MS = 1_790_000_000_000

PLANTED: dict[int, dict[str, object]] = {
    50: {"headline": "Acme recalls toasters", "body": "The recall concerns forty thousand of them."},
    150: {
        "headline": "Beach closed",
        "body": "The oil company says that the spill is small; Acme's ship left at noon.",
    },
    250: {"headline": "Acme opens a school", "body": "There were balloons."},
    350: {"headline": "Oil prices rise", "body": "A spill of milk was seen elsewhere, says a farmer."},
    450: {"headline": "A talk at the fair", "mentions": [{"name": "Jane Roe", "role": "founder"}]},
    # She is there, and a founder is, but they are two.
    550: {
        "headline": "Another talk",
        "mentions": [{"name": "Jane Roe", "role": "guest"}, {"name": "X", "role": "founder"}],
    },
    650: {"headline": "Globex has a new funder", "body": "It gave ninety million."},
    750: {"headline": "Acmo toasters tested", "body": "The name was misprinted."},
}
EXPECTED = {
    ("acme, anything bad", 50),
    ("acme in the headline", 50),
    ("acme, anything bad", 150),
    ("acme in the headline", 250),
    ("our founder", 450),
    ("rivals raise money", 650),
    ("misspelt", 750),
}
"""Which query finds which article, by its number."""


def documents(count: int = 1_500, seed: int = 7) -> Iterator[dict[str, object]]:
    """Articles as they are published, a minute apart; what is planted stands at its number."""
    chance = random.Random(seed)
    for number in range(count):
        subject, deed = chance.choice(SUBJECTS), chance.choice(DEEDS)
        words = {"headline": f"{subject.capitalize()} {deed}", "body": f"It was said that {subject} {deed} again."}
        yield {
            "number": number,
            "outlet": chance.choice(OUTLETS),
            "language": "en",
            "published": BEGIN_MS + 60_000 * number,
            **PLANTED.get(number, words),
        }


if __name__ == "__main__":
    if sys.argv[1:] == ["queries"]:
        for name, parts in {"mapping:articles": MAPPING, **QUERIES}.items():
            print(json.dumps({"key": name, "value": parts}))
    else:
        for document in documents():
            print(json.dumps(document))
