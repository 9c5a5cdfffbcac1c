"""Views over HTTP: `app.py` the questions and answers and who serves them, `live.py` what changes as it changes.

    GET /views                          all views, and how fresh they are
    GET /views/NAME/KEY[/KEY…]          one row
    GET /views/NAME?user=7&order=-at    rows; field.gt, .ge, .lt, .le, .ne, .in, .null; limit, after
    GET /views/NAME/live                server-sent events, and /views/NAME/KEY/live for one row

Every answer says how fresh it is. Whatever goes wrong is JSON with one sentence, `{"error": …}`.
"""
