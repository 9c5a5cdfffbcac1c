"""Search on streams, pure: queries are stored and documents flow past.

    language.py  syntax.py       the language, and a query as it is written
    mapping.py  analysis.py      what fields mean; how texts are cut into words that can be compared
    reading.py  tree.py          what a query means once its words met the mapping
    documents.py                 a document as the leaves of a query see it
    dates.py  points.py          times and places as people write them
    evaluate.py                  what a query matches, its score and its highlights

What always holds: what a query matches is what `evaluate.py` says, whoever found the candidates; nothing here reads a
clock, a file or a socket.
"""
