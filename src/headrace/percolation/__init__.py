"""Search on streams, pure: queries are stored and documents flow past.

    language.py  syntax.py       the language, and a query as it is written
    mapping.py  analysis.py      what fields mean; how texts are cut into words that can be compared
    reading.py  tree.py          what a query means once its words met the mapping
    documents.py                 a document as the leaves of a query see it
    dates.py  points.py          times and places as people write them
    evaluate.py  explain.py      what a query matches, its score and its highlights; why, and why not
    snippets.py                  pieces of a document around its highlights
    stored.py  catalog.py        stored queries as records, and what stands after each record of their topic
    percolator.py                queries held, and documents held against them
    index/                       which queries a document could match, compiled

What always holds: what a query matches is what `evaluate.py` says, whoever found the candidates; nothing here reads a
clock, a file or a socket.
"""

from typing import TYPE_CHECKING

from headrace.extras import export_lazily

if TYPE_CHECKING:
    from headrace.percolation.catalog import Catalog, Change, Effect
    from headrace.percolation.errors import (
        InvalidDocument,
        InvalidMapping,
        InvalidQuery,
        InvalidStoredQuery,
        PercolationError,
        UnknownQuery,
    )
    from headrace.percolation.evaluate import Highlight
    from headrace.percolation.explain import Explanation
    from headrace.percolation.language import Policy
    from headrace.percolation.mapping import Mapping, read_mapping
    from headrace.percolation.percolator import Hit, Percolator
    from headrace.percolation.snippets import Snippet
    from headrace.percolation.stored import StoredQuery, read_stored

__all__ = [
    "Catalog", "Change", "Effect", "Explanation", "Highlight", "Hit", "InvalidDocument", "InvalidMapping",
    "InvalidQuery", "InvalidStoredQuery", "Mapping", "PercolationError", "Percolator", "Policy", "Snippet",
    "StoredQuery", "UnknownQuery", "read_mapping", "read_stored",
]  # fmt: skip

_HOMES = {
    "catalog": ("Catalog", "Change", "Effect"),
    "errors": (
        "InvalidDocument", "InvalidMapping", "InvalidQuery", "InvalidStoredQuery", "PercolationError", "UnknownQuery",
    ),
    "evaluate": ("Highlight",),
    "explain": ("Explanation",),
    "language": ("Policy",),
    "mapping": ("Mapping", "read_mapping"),
    "percolator": ("Hit", "Percolator"),
    "snippets": ("Snippet",),
    "stored": ("StoredQuery", "read_stored"),
}  # fmt: skip

__getattr__, __dir__ = export_lazily(
    __name__, {name: f"{__name__}.{home}" for home, names in _HOMES.items() for name in names}
)
