"""Apache Kafka as it is released: a broker (`broker`) and the command-line tools (`tools`)."""
