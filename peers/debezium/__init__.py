"""Debezium's embedded engine, as the measure of change capture."""
