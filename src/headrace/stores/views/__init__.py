"""The contract of stores of views, and what a view is made of: shape, values, questions, freshness. Pure: no Spark."""
