"""The real systems that Headrace is measured against, fetched and run on this machine.

One folder a peer, all of one shape: `pom.xml` names what `peers/fetch <peer>` brings into `.cache/peers/<peer>`, and
the Python beside it runs it. `kafka`, `streams`, `rabbitmq`, `debezium`, `flink`, `esper`, `statsd` (from npm) and
`spark` (its own Kafka connector) are what we are compared with; `postgres` (14 to 18), `mysql`, `opensearch` and
`apicurio` (a schema registry) are what `connect` must get on with. Only tests and benchmarks import from here: nothing
in `src` ever does.
"""
