"""What a client can see that differs from Kafka on purpose: the one table of it.

`docs/reference/differences.md` tells each entry to users under its title; a test holds the page against this table.
Each entry names the places where the conformance tests see it, as `scenario[client]/path of the value`, with `*` for
anything; one that no longer differs there fails its test. In a pattern `[[]` stands for `[`.
"""

from __future__ import annotations

from typing import NamedTuple


class Difference(NamedTuple):
    """Something that Kafka does in another way; `at` is empty where no comparison could show it."""

    title: str
    reason: str
    at: tuple[str, ...]


def _at(scenario: str, client: str, path: str) -> str:
    return f"{scenario}[[]{client}]/{path}"


# Kafka's APIs that our broker does not announce; those with a number are not in `headrace.protocol` either.
NOT_SERVED = (
    *(f"api {key}" for key in (38, 39, 40, 41)),  # delegation tokens
    *(f"api {key}" for key in range(83, 88)),  # brokers among themselves, about the state of share groups
)

DIFFERENCES: tuple[Difference, ...] = (
    Difference(
        "Some APIs are not served",
        "A client learns at its connect which APIs there are. Delegation tokens are not planned, and the APIs by which "
        "Kafka's brokers keep the state of share groups have no use on a single one.",
        tuple(_at("announced", "wire", f"version *.apis.{name}") for name in NOT_SERVED),
    ),
    Difference(
        "Topics have settings of queues, of events, of memory and of overload",
        "Those that begin with `headrace.` are told beside Kafka's own. A topic that is given none of them is as it is "
        "in Kafka.",
        (
            _at("topic_settings", "wire", "*configs.headrace.*"),
            _at("creations", "wire", "*configs.headrace.*"),
            _at("create_versions", "wire", "*configs.headrace.*"),
            _at("settings_told", "*", "told.headrace.*"),
            _at("configs_tool", "java", "described.headrace.*"),
        ),
    ),
    Difference(
        "Some requests and answers have fields of ours",
        "They are tagged fields from 10000 on, which every client and every broker skips that does not know them: what "
        "is in flight, and how often records were delivered again, in the offsets of share groups; in "
        "acknowledgements, why a record is released or rejected, when it may come again, and the transaction that "
        "finishes it or has it come again; in a Fetch, which events of a topic are wanted, and in its answer where to "
        "go on; in the answer to a Produce, whether a command was appended before.",
        (),
    ),
    Difference(
        "Some topics refuse records",
        "A topic with `headrace.events=true` takes events alone: records whose key and headers say which event of "
        "which stream they are. A batch with any other record is refused with INVALID_RECORD, one whose events are not "
        "the next ones of their streams with POLICY_VIOLATION, and one in a transaction with INVALID_TXN_STATE.",
        (),
    ),
    Difference(
        "A quota for an address names the address",
        "Kafka takes the name of a host too, which it looks up. Here connection_creation_rate is set for IP addresses.",
        (_at("setting_quotas", "wire", "name of a host*"),),
    ),
    Difference(
        "A batch larger than a quota allows is sent",
        "A consumer whose quota allows less in ten seconds than a single batch has gets an empty answer from Kafka, "
        "however often it asks, and never gets past that batch. Here it gets the batch once it has fetched nothing for "
        "ten seconds, and waits for it afterwards. Nor is what a client has to wait for forgotten: Kafka forgets a "
        "burst after eleven seconds, so that large requests go at up to twice their quota there.",
        (_at("throttled", "wire", "batch larger than the quota.partitions"),),
    ),
    Difference(
        "An ACL that is invalid is refused alone",
        "Kafka answers a CreateAcls in which one ACL is for any operation, any type of resource or the like, as only a "
        "filter may be, with UNKNOWN_SERVER_ERROR for all of them. Here that one is refused with INVALID_REQUEST, and "
        "the others are made.",
        (_at("change_acls", "wire", "only a filter's*"),),
    ),
    Difference(
        "A login that is cut short is refused with an answer",
        "Kafka closes the connection when a client's last message of a SCRAM login does not parse. Here it is "
        "answered with SASL_AUTHENTICATION_FAILED, and then closed.",
        (),
    ),
    Difference(
        "A filter of ACLs with an unknown element matches nothing",
        "Kafka closes the connection of a DescribeAcls whose filter has a type, an operation or a permission that is "
        "unknown to it. Here the answer is an empty list.",
        (),
    ),
    Difference(
        "Whoever names a transactional id needs the permission for it",
        "Kafka asks for WRITE on the transactional id of a produce only if a batch in it is transactional. Here it is "
        "asked for whenever the request names one, as clients do in transactions only.",
        (),
    ),
    Difference(
        "A feature has one level",
        "Kafka can lower `group.version` and `transaction.version`, so that clients of other days find what they knew, "
        "and has features of its own (`metadata.version`, `kraft.version`). Here the two have the level that is built "
        "in, `kafka-features` describes that one alone, and an update to any other is refused with "
        "INVALID_UPDATE_VERSION.",
        (
            _at("feature_updates", "wire", "down[[]0]"),
            _at("feature_updates", "wire", "transactions down[[]0]"),
            _at("feature_updates", "wire", "of the metadata[[]0]"),
            _at("features_tool", "java", "disabled"),
        ),
    ),
    Difference(
        "The only broker stays registered",
        "Kafka lets UnregisterBroker remove a broker that runs. Here there is no other, and it is refused with "
        "INVALID_REQUEST.",
        (),
    ),
    Difference(
        "A user that does not exist is refused as late as a wrong password",
        "A user that does not exist is answered by SCRAM like one that does, with a salt that is always the same, "
        "and is refused with the proof, as a wrong password is. Kafka refuses it at its first message, which "
        "tells who exists.",
        (),
    ),
    Difference(
        "A user that is removed is served nothing more",
        "Kafka serves the connections on that a removed user has, until they have to log in again. Here the next "
        "request on them is refused.",
        (),
    ),
    Difference(
        "A request in the middle of a login is not answered",
        "Kafka answers a request that comes between SaslHandshake and the end of the login with "
        "ILLEGAL_SASL_STATE and closes the connection. Here it is closed without an answer, as Kafka does before "
        "SaslHandshake.",
        (),
    ),
    Difference(
        "PLAIN and SCRAM have the same users",
        "Kafka's users of PLAIN stand in its JAAS configuration and those of SCRAM in its metadata. Here they are "
        "the same: each user of `users.file` or of AlterUserScramCredentials may log in by any of the two that a "
        "listener offers.",
        (),
    ),
    Difference(
        "A topic that is made on demand is there in the first answer",
        "Kafka asks its controller to make the topic and meanwhile answers UNKNOWN_TOPIC_OR_PARTITION, so a client "
        "asks again; here the topic is made before the answer. A topic that cannot be made, for a name that collides "
        "with another's, is refused with INVALID_TOPIC_EXCEPTION at once, where a Kafka client would ask until it "
        "gives up.",
        (_at("auto_creation", "wire", "first asked"), _at("auto_creation", "wire", "colliding")),
    ),
    Difference(
        "`min.insync.replicas` is an ordinary default",
        "A new Kafka cluster keeps it as a dynamic setting of the cluster (eligible leader replicas, KIP-966) and "
        "tells that as its source; here it is a default like the others. The value is the same.",
        (
            _at("creations", "wire", "*.configs.min.insync.replicas.config_source"),
            _at("create_versions", "wire", "*.configs.min.insync.replicas.config_source"),
            _at("topic_settings", "wire", "*.configs.min.insync.replicas.*"),
            _at("broker_settings", "wire", "*.configs.min.insync.replicas.*"),
            _at("settings_told", "*", "told.min.insync.replicas*"),
            _at("topics_tool", "java", "described.configs.min.insync.replicas"),
            _at("configs_tool", "java", "described.min.insync.replicas"),
        ),
    ),
    Difference(
        "Dead letters keep their records, and their topic is made",
        "Kafka has the settings for dead letters of share groups (`errors.deadletterqueue.…`, KIP-1191) from 4.4 on. "
        "`errors.deadletterqueue.copy.record.enable` and `errors.deadletterqueue.auto.create.topics.enable` are true "
        "by default here, and false in Kafka: a record that failed is not archived here before its letter is durable, "
        "so a topic that is not there would hold the group up, and a letter without its record could not be sent back.",
        (
            *(
                _at(each, "wire", "*configs.errors.deadletterqueue.*")
                for each in ("creations", "create_versions", "topic_settings")
            ),
            _at("settings_told", "*", "told.errors.deadletterqueue.*"),
            _at("configs_tool", "java", "described.errors.deadletterqueue.*"),
        ),
    ),
    Difference(
        "Internal topics have one partition by default",
        "Kafka spreads `__consumer_offsets` and `__transaction_state` over its brokers by their 50 partitions. On one "
        "broker that is 50 times the files for nothing; `offsets.topic.num.partitions` and "
        "`transaction.state.log.num.partitions` set another number.",
        (
            _at("broker_settings", "wire", "*.configs.offsets.topic.num.partitions.*"),
            _at("broker_settings", "wire", "*.configs.transaction.state.log.num.partitions.*"),
        ),
    ),
    Difference(
        "Client metrics are taken without a plugin",
        "Kafka takes the metrics that clients push (KIP-714) only with a plugin, written in Java, that does "
        "something with them; without one it does not announce the APIs. Here they are always taken, and the "
        "latest values of each client are kept: 1,000 clients, 500 series of each. Metrics that are not "
        "OTLP's protobuf are answered with INVALID_RECORD.",
        tuple(
            _at("announced", "wire", f"version *.apis.{name}")
            for name in ("GET_TELEMETRY_SUBSCRIPTIONS", "PUSH_TELEMETRY")
        ),
    ),
    Difference(
        "The broker's settings are the ones that take effect",
        "`kafka-configs` changes those settings of the broker that Kafka can change while it runs, of all "
        "that are here. Kafka keeps settings that it has never heard of too; here an unknown one is refused "
        "with INVALID_REQUEST, and so is a number that makes no sense, such as a negative retention other "
        "than -1. Certificates and listeners change with their files and at a start.",
        (),
    ),
    Difference(
        "A group's settings are those of its members' sessions",
        "`consumer.session.timeout.ms` and `consumer.heartbeat.interval.ms`, the same of `streams`, and "
        "`streams.num.standby.replicas` and `streams.initial.rebalance.delay.ms`, and all that say how share groups "
        "deliver records. Kafka also has "
        "`consumer.assignment.interval.ms` and `streams.assignment.interval.ms`, which put off assignments, "
        "`….assignor.offload.enable`, which moves them to another thread, and the same of `share`; here they are "
        "refused with INVALID_CONFIG.",
        (),
    ),
    Difference(
        "An application of Kafka Streams is told at once what became of its topics",
        "The topics that a streams group needs (`group.protocol=streams`) are made before its heartbeat is answered; "
        "why one could not be made is told in that answer, where Kafka tells it in the next. An answer that was lost "
        "is given again with its tasks. Which of several even assignments is chosen need not be Kafka's choice: tasks "
        "stay where they are, or go where a copy of their state is. An application may have 10,000 tasks, and is else "
        "refused with STREAMS_INVALID_TOPOLOGY. As in Kafka 4.3 there are no warm-up tasks, no static members, no "
        "sources by regular expression, and no new topology for a group that has one.",
        (),
    ),
    Difference(
        "A share group's start is the first record that is not finished",
        "Kafka moves the start offset of a share group when all records that were acquired together are finished, and "
        "counts those behind it that are; here it is moved by every record. The lag is the same.",
        (),
    ),
    Difference(
        "A share group has its partitions, and its place in them, at once",
        "A member that joins is assigned partitions by the answer to its first heartbeat; from Kafka it gets them "
        "with a later one. Where the group begins is kept from its first fetch on, while Kafka resets an idle group to "
        "the end again at its next start. Markers, aborted transactions and what compaction has removed are passed "
        "over by the broker: no client has to acknowledge them. And a session that names an unknown topic is told so "
        "for that topic, where Kafka answers the whole request with UNKNOWN_SERVER_ERROR.",
        (),
    ),
    Difference(
        "Records of a share group are for groups that are there",
        "A fetch for a share group that nobody has joined, or of a topic that no member has subscribed to, is answered "
        "with GROUP_ID_NOT_FOUND; Kafka answers each partition with UNKNOWN_SERVER_ERROR. A member whose session has "
        "ended may begin the next one at once; on Kafka what it acquires there in the first moment may be taken back "
        "with what it had before, and so is delivered twice.",
        (_at("strangers", "wire", "*"),),
    ),
    Difference(
        "Loggers are the broker's own",
        "`kafka-configs --entity-type broker-loggers` describes and changes the levels of the loggers that "
        "this broker has, which are Python modules; `root` is the one above them.",
        (),
    ),
    Difference(
        "A batch is held against its header, not opened",
        "Kafka reads every record of every batch that it is sent. Here a batch is opaque: its length, checksum, "
        "counts, timestamps and producer are checked, which finds all damage on the way, and it is stored as it came."
        " A client that builds batches whose records contradict their header is not found out until somebody reads "
        "them. The exception is a compacted topic, whose records must have keys.",
        (
            _at("lying_batches", "wire", "more records than there are"),
            _at("lying_batches", "wire", "compressed, and it is not"),
        ),
    ),
    Difference(
        "A batch that claims the broker's clock is refused",
        "Kafka takes a batch that is marked as log-append time in a topic of create time, and changes the mark. No "
        "client sends one; it is answered with INVALID_TIMESTAMP.",
        (_at("lying_batches", "wire", "the broker's clock"),),
    ),
    Difference(
        "A batch with a producer id has an epoch",
        "Kafka takes a batch that has a producer id and no epoch (-1) for one of a producer whose epochs begin below "
        "zero. No client sends one; it is answered with INVALID_RECORD, as is one with an id and no sequence.",
        (
            _at("odd_producers", "wire", "an id and no epoch"),
            _at("odd_producers", "wire", "an id and an epoch below"),
            _at("odd_producers", "wire", "back to no epoch"),
        ),
    ),
    Difference(
        "A topic's `compression.type` does not compress",
        "Kafka compresses a batch anew when its topic names another codec than its producer used. Here batches stay as "
        "they came (see above), so the setting is kept and told, and has no effect: set it on the producer.",
        (_at("another_codec", "wire", "stored"),),
    ),
    Difference(
        "The youngest of no records is none",
        "Asked for the offset of the largest timestamp after DeleteRecords has removed everything, Kafka names a "
        "record that can no longer be read. Here there is none: offset -1, as in an empty log.",
        (_at("deleted_records", "wire", "nothing left, the youngest.*"),),
    ),
    Difference(
        "What is acknowledged is on the disk",
        "Kafka leans on its replicas and leaves syncing to the operating system. One broker has no replicas, so with "
        "`durability=fsync`, the default, acks=all is answered after a sync, and readers see a record once it is on "
        "the disk. `durability=os` does as Kafka does. `flush.messages` and `flush.ms` are kept and have no effect.",
        (),
    ),
    Difference(
        "The leader epoch counts the starts",
        "In Kafka it counts the leaders that a partition has had, for each partition by itself. Here all partitions "
        "have the same one, and it grows by one at each start of the broker, so that a client which read what a "
        "crash cut off notices (KIP-320).",
        (),
    ),
    Difference(
        "Errors are explained in other words",
        "The codes of errors are Kafka's, and programs go by them. The sentence that comes with a code is written for"
        " the person who reads it: what is wrong, and how to mend it.",
        (_at("sentences", "wire", "*"),),
    ),
    Difference(
        "A request that makes no sense is told so",
        "Where Kafka runs into an exception of its own and answers UNKNOWN_SERVER_ERROR, the client is told what is "
        "wrong with its request: INVALID_REQUEST for an unknown operation on a setting, UNSUPPORTED_COMPRESSION_TYPE "
        "for a codec that does not exist, INVALID_RECORD for a produce without any records, which Kafka does not "
        "answer at all, STREAMS_INVALID_TOPOLOGY for a Kafka Streams' topology that contradicts itself.",
        (
            _at("incremental_changes", "wire", "unknown operation[[]0]"),
            _at("refusals", "wire", "unknown codec.*"),
            _at("odd_producers", "wire", "no records"),
            _at("odd_heartbeats", "wire", "a source that it does not have"),
            _at("odd_heartbeats", "wire", "epoch below zero"),
            _at("odd_heartbeats", "wire", "named twice"),
        ),
    ),
    Difference(
        "A waiting request that is overtaken is answered",
        "A JoinGroup or SyncGroup that its member repeats, or whose member is removed while it waits, is answered with "
        "REBALANCE_IN_PROGRESS or UNKNOWN_MEMBER_ID, where Kafka leaves it without an answer. An id that leaves before "
        "it has joined starts no rebalance, and a static member that comes back has its new session time-out at once.",
        (),
    ),
    Difference(
        "Members of new-style groups may join again as themselves",
        "A member that joins with epoch 0 under its own id is taken back, where Kafka fences it first; a static member "
        "may replace itself in a full group. The fingerprint of a group's topics is not Kafka's, so a group that moves "
        "to a real Kafka is rebalanced once.",
        (),
    ),
    Difference(
        "A repeated request of a transactional producer gets its answer",
        "EndTxn counts as repeated only if the last end moved the epoch, so that a fenced producer never takes over "
        "its successor's epoch; a repeated InitProducerId at the last epoch is answered; the previous epoch is known "
        "after a restart too. Open transactions have a timer each instead of a sweep over all.",
        (),
    ),
    Difference(
        "Internal topics keep their partitions",
        "CreatePartitions on `__consumer_offsets` or `__transaction_state` is refused with INVALID_REQUEST. Kafka does "
        "it, and then looks for what groups have committed in other partitions than they are in.",
        (),
    ),
    Difference(
        "Every limit has a default",
        "Kafka's defaults for `max.connections` and `queued.max.request.bytes` are no limit; here they are 10,000 and "
        "256 MiB, and there are limits on partitions, groups, members, transactional ids and requests in flight that "
        "Kafka does not know. At `max.connections` a connection that was silent for ten seconds makes room. Requests "
        "other than Produce have 16 MiB at most, whatever `socket.request.max.bytes` is.",
        (),
    ),
    Difference(
        "No client id opens the internal topics",
        "Kafka lets whoever calls itself `__admin_client` produce to `__consumer_offsets` and `__transaction_state`. "
        "Here nobody but the broker writes there; everybody is answered INVALID_TOPIC_EXCEPTION.",
        (),
    ),
    Difference(
        "A producer's silence is counted by the broker's clock",
        "Kafka takes the time of a producer's last record for when it was last heard of, so that one that writes "
        "records of last week is forgotten while it is at work (`producer.id.expiration.ms`), and what it sends again "
        "is stored twice. Here it counts when something came.",
        (),
    ),
    Difference(
        "Requests and what is looked into have limits",
        "A request of more than 16 KB may have 50,000 entries in its arrays, all together; with more the "
        "connection is closed. A batch for a compacted topic may decompress to 32 MiB and is else answered "
        "with MESSAGE_TOO_LARGE; one that is larger elsewhere stands for its first record in a look-up by "
        "time. DescribeConfigs refuses a resource that is named twice with INVALID_REQUEST, and "
        "DescribeProducers describes a partition once. Of a refused batch the first 1,000 records are looked "
        "at for who is to blame. Kafka has threads for this, and no limit but `socket.request.max.bytes`.",
        (),
    ),
    Difference(
        "There is one controller, and it cannot be given another",
        "One node is the whole cluster. `kafka-metadata-quorum add-controller` and `remove-controller` are refused, as "
        "a Kafka refuses them whose controllers are fixed. The first reads the properties and the directory of the "
        "controller that is to be added, so the tests do not run it: they compare on the wire what it asks.",
        (),
    ),
)
