"""What the shop's tables look like in the log: envelopes of rows, as `headrace cdc` writes them."""

from headrace.pipelines.operators import envelope_schema

ORDERS = envelope_schema(
    "id long, customer_id long, product_id long, quantity int, cents long, status string, ordered_at timestamp"
)
CUSTOMERS = envelope_schema("id long, name string, city string")
