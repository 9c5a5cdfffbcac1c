"""Home timelines of a social network, as a view: the newest posts of everyone that a user follows.

headrace pipeline run examples/timelines_views.py
headrace view serve examples/timelines_views.py

Posts and follows are compacted topics of rows, as a capture with `form = "rows"` or an application writes them. A post
that is edited or deleted, or a follow that ends, takes back exactly what it had brought into each timeline.
"""

import os

from pyspark.sql import DataFrame

from headrace.pipelines.operators import group_changes, join_tables, row_schema, table_changes, top_n
from headrace.pipelines.views import sqlite, topic, view

POSTS = topic("posts", format="json", schema=row_schema("post long, author string, text string, at timestamp"))
FOLLOWS = topic("follows", format="json", schema=row_schema("user string, author string"))
NEWEST = 3


@view(
    key="user",
    inputs={"posts": POSTS, "follows": FOLLOWS},
    store=sqlite(os.environ.get("HEADRACE_TIMELINES", "data/timelines/views.db")),
    trigger="100 ms",
)
def home(posts: DataFrame, follows: DataFrame) -> DataFrame:
    """For each user the newest posts of those whom the user follows."""
    written = posts.transform(table_changes(key="post", form="rows"))
    followed = follows.transform(table_changes(key=["user", "author"], form="rows"))
    return followed.transform(join_tables(written, on="author")).transform(
        group_changes(by="user", posts=top_n(NEWEST, ["-at", "-post"], "post", "author", "text"))
    )
