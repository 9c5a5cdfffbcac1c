"""Delta Lake through delta-rs, on a local disk or in an object store."""
