"""What Lucene Monitor and OpenSearch's percolator answer to the shared cases: asked anew, or as they did last.

    python -m tests.conformance.search_answers     asks them, and writes `search_answers.json`

An answer is the numbers of the documents that match; what a system refuses is None.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from peers.http_server import HttpServer, running
from peers.java import PeerError
from peers.lucene.monitor import LuceneMonitor
from peers.lucene.queries import as_json
from peers.opensearch.node import opensearch_node
from peers.opensearch.percolation import Percolation
from tests.conformance.search_cases import Case, cases, documents

if TYPE_CHECKING:
    from collections.abc import Iterator

LUCENE, OPENSEARCH = "lucene", "opensearch"
_FROZEN: Final = Path(__file__).with_suffix(".json")
Answers = dict[str, dict[str, Any]]


def ask_lucene(asked: list[Case]) -> dict[str, list[int] | None]:
    """Each document by itself, then all of them in one batch, which may make no difference."""
    refused = set[str]()
    with LuceneMonitor("term-plain") as monitor:
        for number, case in enumerate(asked):
            query = {"parse": ["title", case.text]} if case.text is not None else as_json(case.query)
            try:
                monitor.ask(add=[[str(number), query]])
            except PeerError:
                refused.add(case.name)
        rows = documents()
        one_by_one, together = (monitor.ask(match=rows, batch=size)["matches"] for size in (1, len(rows)))
        assert one_by_one == together
    return {
        case.name: None
        if case.name in refused
        else [row for row, found in enumerate(one_by_one) if str(number) in found]
        for number, case in enumerate(asked)
    }


def ask_opensearch(asked: list[Case], server: HttpServer) -> dict[str, list[int] | None]:
    """All queries in one index, all documents in one request."""
    percolation = Percolation(server.url, "shared-cases")
    accepted = percolation.add({case.name: (case.text if case.text is not None else case.query) for case in asked})
    found = percolation.match(documents())
    return {case.name: found.get(case.name, []) if case.name in accepted else None for case in asked}


def ask(server: HttpServer) -> Answers:
    """By the name of the case what each system answers, and what it was asked (`asked`)."""
    asked = cases()
    lucene, opensearch = ask_lucene(asked), ask_opensearch(asked, server)
    return {
        case.name: {"asked": digest(case), LUCENE: lucene[case.name], OPENSEARCH: opensearch[case.name]}
        for case in asked
    }


def frozen() -> Answers:
    """What they answered."""
    answers: Answers = json.loads(_FROZEN.read_text())
    stale = [case.name for case in cases() if answers.get(case.name, {}).get("asked") != digest(case)]
    if stale:
        raise AssertionError(f"these cases were changed since: {stale}; run python -m tests.conformance.search_answers")
    return answers


def digest(case: Case) -> str:
    """What a case asks, in short; a text is its own."""
    asked = case.text if case.text is not None else repr(case.tree)
    return hashlib.sha256(f"{asked}{documents()}".encode()).hexdigest()[:8]


def _lines(answers: Answers) -> Iterator[str]:
    for name, answer in answers.items():
        yield f"{json.dumps(name, ensure_ascii=False)}: {json.dumps(answer)}"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, running(opensearch_node(Path(folder))) as server:
        answers = ask(server)
    _FROZEN.write_text("{\n" + ",\n".join(_lines(answers)) + "\n}\n")
    print(f"{len(answers)} cases in {_FROZEN}")


if __name__ == "__main__":
    sys.exit(main())
