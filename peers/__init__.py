"""The real systems that Headrace is measured against, fetched and run on this machine.

One folder a peer, all of one shape: `pom.xml` names what `peers/fetch <peer>` brings into `.cache/peers/<peer>/lib`,
and the Python beside it runs it. `kafka` is here; `debezium`, `flink` and `spark` (its own Kafka connector) get their
folders beside it. Only tests and benchmarks import from here: nothing under `src` ever does.
"""
