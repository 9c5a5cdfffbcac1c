"""Aggregates: each is declared once, and knows what is kept of it in a window, in a group, and by Spark itself.

`algebra` says what an aggregate is. In windows it is a partial result that combines with others (`cells`, `fold`); in
groups of a table, which lose rows too, a part that every change is added to or taken from. `sums` has those that count
and add, on exact numbers (`exact`); `ordered`, `distinct` and `top_n` those that go by an order (`ordering`), which
groups keep as the head of all rows (`heads`).
"""
