"""RabbitMQ of Debian, as the measure of queues."""
