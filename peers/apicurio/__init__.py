"""Apicurio, a schema registry that speaks Confluent's interface, started on loopback."""
