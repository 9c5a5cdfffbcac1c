import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.DefaultConsumer;
import com.rabbitmq.client.Envelope;
import com.rabbitmq.client.MessageProperties;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.atomic.LongAdder;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Stream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.InterruptException;
import org.apache.kafka.common.errors.NotLeaderOrFollowerException;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Load on a queue: one sender and any number of receivers, the same for share groups and for RabbitMQ.
 *
 * It reads orders from its input, a line each (a verb, then name=value), and answers each with a line of JSON. A message
 * begins with the time at which it was due, so that both ends go by one clock. What was sent counts once it is confirmed;
 * each message is acknowledged by itself. Where many are to wait, they do all the time: receivers that are faster than the
 * sender wait for it, and what is missing at the end is sent.
 *
 * Kafka's client cannot acknowledge what it holds of a partition that was moved to another member: it says so as
 * NotLeaderOrFollowerException, without having asked the broker, and those messages come again when their locks have
 * lapsed. They are not counted as acknowledged, but as returned.
 */
public class QueueLoad {
    static final int BODY_BYTES = 100;
    static final int UNCONFIRMED = 4096; // at most, a power of two
    // Members of a share group learn what they are assigned by heartbeats, every second here, and until the last one has
    // there may be partitions that nobody reads.
    static final long LEAST_WARM_UP_NS = 3_000_000_000L;
    static final long MOST_WARM_UP_NS = 20_000_000_000L;

    static volatile Throwable failure;

    interface Sender extends AutoCloseable {
        void send(byte[] body) throws Exception;

        /** How many are. */
        long confirmed();

        /** Wait until all is confirmed. */
        void flush() throws Exception;
    }

    interface Receiver extends AutoCloseable {}

    interface Broker {
        void create(String queue) throws Exception;

        void delete(String queue) throws Exception;

        Sender sender(String queue, boolean lingers) throws Exception;

        Receiver receiver(String queue, int prefetch, Seen seen, Pace pace) throws Exception;
    }

    /** Has receivers wait while much more was acknowledged than sent; so many are to be in the queue, or none. */
    static final class Pace {
        private final long held;
        private final Sender sender;
        private final List<Seen> all;
        volatile boolean isOver;

        Pace(long held, Sender sender, List<Seen> all) {
            this.held = held;
            this.sender = sender;
            this.all = all;
        }

        /** False, when it is time to end. */
        boolean keep() {
            while (held > 0 && !isOver && acknowledged(all) - sender.confirmed() > held / 20) {
                LockSupport.parkNanos(2_000_000); // of many threads: what they take of the machine, others miss
            }
            return !isOver;
        }
    }

    /** What one receiver has had. */
    static final class Seen {
        final boolean takesGaps; // between two messages, instead of each one's age
        final LongAdder acknowledged = new LongAdder();
        final LongAdder returned = new LongAdder();
        volatile long measuredFrom = Long.MAX_VALUE; // what was due before, or received, is not
        volatile long count;
        private long[] times = new long[1 << 12];
        private int size;
        private long before;

        Seen(boolean takesGaps) {
            this.takesGaps = takesGaps;
        }

        void receive(byte[] body) {
            long now = System.nanoTime();
            count++; // of one thread
            long since = takesGaps ? before : ByteBuffer.wrap(body).getLong();
            if (since >= measuredFrom) {
                if (size == times.length) {
                    times = Arrays.copyOf(times, 2 * size);
                }
                times[size++] = now - since;
            }
            before = now;
        }

        long[] times() {
            return Arrays.copyOf(times, size);
        }
    }

    // --- share groups; the group has the name of the topic

    record Kafka(String servers, int partitions) implements Broker {
        private Properties settings(Map<String, String> more) {
            Properties settings = new Properties();
            settings.put("bootstrap.servers", servers);
            settings.putAll(more);
            return settings;
        }

        @Override
        public void create(String queue) throws Exception {
            try (Admin admin = Admin.create(settings(Map.of()))) {
                admin.createTopics(List.of(new NewTopic(queue, partitions, (short) 1))).all().get();
                var earliest = new AlterConfigOp(
                    new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET);
                var group = new ConfigResource(ConfigResource.Type.GROUP, queue);
                admin.incrementalAlterConfigs(Map.of(group, List.of(earliest))).all().get();
            }
            // A message to each partition, so that all have their leaders. A Kafka that refuses the first batch of a
            // producer since it has yet to learn that it leads, and takes the second, never takes the first again.
            try (var producer = producer(Map.of())) {
                for (int partition = 0; partition < partitions; partition++) {
                    producer.send(new ProducerRecord<>(queue, partition, null, body(System.nanoTime()))).get();
                }
            }
        }

        private KafkaProducer<byte[], byte[]> producer(Map<String, String> more) {
            var serializer = ByteArraySerializer.class.getName();
            var settings = settings(Map.of("key.serializer", serializer, "value.serializer", serializer));
            settings.putAll(more);
            return new KafkaProducer<>(settings);
        }

        @Override
        public void delete(String queue) throws Exception {
            try (Admin admin = Admin.create(settings(Map.of()))) {
                admin.deleteTopics(List.of(queue)).all().get();
            }
        }

        @Override
        public Sender sender(String queue, boolean lingers) {
            var producer = producer(lingers ? Map.of() : Map.of("linger.ms", "0"));
            var confirmed = new LongAdder();
            return new Sender() {
                @Override
                public void send(byte[] body) {
                    producer.send(new ProducerRecord<>(queue, body), (sent, error) -> {
                        confirmed.increment();
                        fail(error);
                    });
                }

                @Override
                public long confirmed() {
                    return confirmed.sum();
                }

                @Override
                public void flush() {
                    producer.flush();
                }

                @Override
                public void close() {
                    producer.close();
                }
            };
        }

        @Override
        public Receiver receiver(String queue, int prefetch, Seen seen, Pace pace) {
            var deserializer = ByteArrayDeserializer.class.getName();
            var settings = settings(Map.of(
                "key.deserializer", deserializer, "value.deserializer", deserializer, "group.id", queue,
                "share.acknowledgement.mode", "explicit", "max.poll.records", String.valueOf(prefetch)));
            if (prefetch == 1) { // otherwise it has the whole of a batch
                settings.put("share.acquire.mode", "record_limit");
            }
            var consumer = new KafkaShareConsumer<byte[], byte[]>(settings);
            consumer.setAcknowledgementCommitCallback((offsets, error) -> {
                boolean isReturned = error instanceof NotLeaderOrFollowerException;
                var counted = isReturned ? seen.returned : seen.acknowledged;
                offsets.values().forEach(each -> counted.add(each.size()));
                fail(isReturned ? null : error);
            });
            var thread = new Thread(() -> {
                try (consumer) {
                    consumer.subscribe(List.of(queue));
                    while (pace.keep()) {
                        // What was acknowledged is told by the next poll: a long one tells it late, when all wait for more.
                        for (var record : consumer.poll(Duration.ofMillis(50))) {
                            seen.receive(record.value());
                            consumer.acknowledge(record, AcknowledgeType.ACCEPT);
                        }
                    }
                } catch (WakeupException ended) {
                    // as it was told to
                } catch (Throwable error) {
                    fail(error);
                }
            });
            thread.start();
            return () -> {
                consumer.wakeup();
                thread.join();
            };
        }
    }

    // --- RabbitMQ: durable queues, persistent messages, confirms; a connection for each receiver

    record Rabbit(String host, int port, String type) implements Broker {
        private Connection connect() throws Exception {
            var factory = new ConnectionFactory();
            factory.setHost(host);
            factory.setPort(port);
            return factory.newConnection();
        }

        @Override
        public void create(String queue) throws Exception {
            try (var connection = connect(); var channel = connection.createChannel()) {
                channel.queueDeclare(queue, true, false, false, Map.of("x-queue-type", type));
            }
        }

        @Override
        public void delete(String queue) throws Exception {
            try (var connection = connect(); var channel = connection.createChannel()) {
                channel.queueDelete(queue);
            }
        }

        @Override
        public Sender sender(String queue, boolean lingers) throws Exception {
            return new RabbitSender(connect(), queue);
        }

        @Override
        public Receiver receiver(String queue, int prefetch, Seen seen, Pace pace) throws Exception {
            var connection = connect();
            var channel = connection.createChannel();
            channel.basicQos(prefetch);
            channel.basicConsume(queue, false, new DefaultConsumer(channel) {
                @Override
                public void handleDelivery(String tag, Envelope envelope, AMQP.BasicProperties properties, byte[] body)
                        throws java.io.IOException {
                    seen.receive(body);
                    channel.basicAck(envelope.getDeliveryTag(), false);
                    seen.acknowledged.increment();
                    if (seen.count % prefetch == 0) {
                        pace.keep();
                    }
                }
            });
            return connection::close;
        }
    }

    static final class RabbitSender implements Sender {
        private final Connection connection;
        private final Channel channel;
        private final String queue;
        private final boolean[] isConfirmed = new boolean[UNCONFIRMED]; // by the number of a message, modulo
        private volatile long lowest = 1; // before which all are
        private long next = 1;

        RabbitSender(Connection connection, String queue) throws Exception {
            this.connection = connection;
            this.queue = queue;
            channel = connection.createChannel();
            channel.confirmSelect();
            channel.addConfirmListener(
                this::confirm, (number, several) -> fail(new IllegalStateException("a message was refused")));
        }

        private synchronized void confirm(long number, boolean several) {
            long at = lowest;
            if (several) {
                at = Math.max(at, number + 1);
            } else {
                isConfirmed[(int) (number % UNCONFIRMED)] = true;
            }
            for (long passed = lowest; passed < at; passed++) {
                isConfirmed[(int) (passed % UNCONFIRMED)] = false;
            }
            while (isConfirmed[(int) (at % UNCONFIRMED)]) {
                isConfirmed[(int) (at++ % UNCONFIRMED)] = false;
            }
            lowest = at;
        }

        @Override
        public void send(byte[] body) throws Exception {
            while (next - lowest >= UNCONFIRMED - 1) {
                pause();
            }
            next++;
            channel.basicPublish("", queue, MessageProperties.PERSISTENT_BASIC, body);
        }

        @Override
        public long confirmed() {
            return lowest - 1;
        }

        @Override
        public void flush() {
            while (lowest < next) {
                pause();
            }
        }

        @Override
        public void close() throws Exception {
            connection.close();
        }
    }

    // --- orders

    public static void main(String[] args) throws Exception {
        var input = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = input.readLine()) != null; ) {
            String answer;
            try {
                failure = null;
                answer = carryOut(line.split(" "));
                if (failure != null) {
                    throw failure;
                }
            } catch (Throwable error) {
                answer = "{\"error\": \"%s\"}".formatted(error.toString().replaceAll("[^ -~]|[\"\\\\]", " "));
            }
            System.out.println(answer);
            System.out.flush();
        }
        System.exit(0);
    }

    private static String carryOut(String[] words) throws Exception {
        var order = new HashMap<String, String>();
        for (String word : Arrays.copyOfRange(words, 1, words.length)) {
            int equals = word.indexOf('=');
            order.put(word.substring(0, equals), word.substring(equals + 1));
        }
        String queue = order.get("queue");
        Broker broker = broker(order);
        switch (words[0]) {
            case "create" -> broker.create(queue);
            case "delete" -> broker.delete(queue);
            case "fill" -> {
                long began = System.nanoTime();
                try (var sender = broker.sender(queue, true)) {
                    for (long left = number(order, "count"); left > 0 && failure == null; left--) {
                        sender.send(body(System.nanoTime()));
                    }
                    sender.flush();
                }
                return "{\"seconds\": %s}".formatted((System.nanoTime() - began) / 1e9);
            }
            case "run" -> {
                return run(broker, queue, order);
            }
            default -> throw new IllegalArgumentException("unknown order " + words[0]);
        }
        return "{}";
    }

    private static Broker broker(Map<String, String> order) {
        String address = order.get("address");
        if (order.get("system").equals("kafka")) {
            return new Kafka(address, (int) number(order, "partitions"));
        }
        int colon = address.lastIndexOf(':');
        int port = Integer.parseInt(address.substring(colon + 1));
        return new Rabbit(address.substring(0, colon), port, order.get("type"));
    }

    /** So many a second or, at a rate of 0, as many as are acknowledged, with `window` messages in the queue at a time. */
    private static String run(Broker broker, String queue, Map<String, String> order) throws Exception {
        double seconds = Double.parseDouble(order.get("seconds"));
        long rate = number(order, "rate");
        long window = number(order, "window");
        boolean takesGaps = number(order, "gaps") != 0;
        List<Seen> all = Stream.generate(() -> new Seen(takesGaps)).limit(number(order, "consumers")).toList();
        List<Receiver> receivers = new ArrayList<>();
        long held = number(order, "held"); // of messages that are there already
        long began = System.nanoTime();
        long took;
        long done;
        double cpu;
        var sender = broker.sender(queue, rate == 0);
        var sent = new LongAdder();
        var pace = new Pace(held, sender, all);
        var feed = new Thread(() -> feed(sender, rate, window - held, all, sent));
        try {
            for (Seen seen : all) {
                receivers.add(broker.receiver(queue, (int) number(order, "prefetch"), seen, pace));
            }
            feed.start();
            // At a rate, what was sent before everybody received has to be gone, or it is what is measured.
            while (System.nanoTime() - began < LEAST_WARM_UP_NS
                    || System.nanoTime() - began < MOST_WARM_UP_NS
                    && (all.stream().anyMatch(seen -> seen.count == 0)
                        || rate > 0 && sent.sum() - acknowledged(all) > rate / 10)) {
                pause();
            }
            sleep(1);
            all.forEach(seen -> seen.measuredFrom = System.nanoTime());
            long doneBefore = acknowledged(all);
            double cpuBefore = cpuSeconds(order.get("pid"));
            long start = System.nanoTime();
            sleep(seconds);
            took = System.nanoTime() - start;
            done = acknowledged(all) - doneBefore;
            cpu = cpuSeconds(order.get("pid")) - cpuBefore;
            all.forEach(seen -> seen.measuredFrom = Long.MAX_VALUE);
        } finally {
            pace.isOver = true;
            feed.interrupt();
            feed.join();
            for (Receiver receiver : receivers) {
                receiver.close();
            }
            for (long missing = held > 0 ? acknowledged(all) - sent.sum() : 0; missing > 0; missing--) {
                sender.send(body(System.nanoTime()));
            }
            sender.flush();
            sender.close();
        }
        long returned = all.stream().mapToLong(seen -> seen.returned.sum()).sum();
        long[] times = all.stream().flatMapToLong(seen -> Arrays.stream(seen.times())).sorted().toArray();
        return String.format(Locale.ROOT,
            "{\"messages\": %d, \"seconds\": %.6f, \"cpu_s\": %.3f, \"returned\": %d, \"served\": %d, \"p50_ms\": %.4f, "
                + "\"p99_ms\": %.4f}",
            done, took / 1e9, cpu, returned, all.stream().filter(seen -> seen.times().length > 0).count(),
            percentile(times, 0.50), percentile(times, 0.99));
    }

    private static void feed(Sender sender, long rate, long ahead, List<Seen> all, LongAdder total) {
        try {
            long begin = System.nanoTime();
            long acknowledged = 0;
            for (long sent = 0; !Thread.currentThread().isInterrupted(); sent++, total.increment()) {
                long due = rate > 0 ? begin + sent * 1_000_000_000L / rate : System.nanoTime();
                if (rate > 0) {
                    for (long left; (left = due - System.nanoTime()) > 0 && !Thread.currentThread().isInterrupted(); ) {
                        LockSupport.parkNanos(left);
                    }
                } else {
                    while (sent - acknowledged >= ahead && (acknowledged = acknowledged(all)) + ahead <= sent) {
                        if (Thread.currentThread().isInterrupted()) {
                            return;
                        }
                        pause();
                    }
                }
                sender.send(body(due));
            }
        } catch (InterruptException ended) {
            // as it was told to
        } catch (Throwable error) {
            fail(error);
        }
    }

    // --- what is needed

    private static byte[] body(long due) {
        return ByteBuffer.allocate(BODY_BYTES).putLong(due).array();
    }

    private static long acknowledged(List<Seen> all) {
        return all.stream().mapToLong(seen -> seen.acknowledged.sum()).sum();
    }

    private static double percentile(long[] sorted, double share) {
        return sorted.length == 0 ? 0 : sorted[(int) (share * (sorted.length - 1))] / 1e6;
    }

    private static double cpuSeconds(String pid) throws Exception {
        String stat = Files.readString(Path.of("/proc", pid, "stat"));
        String[] fields = stat.substring(stat.lastIndexOf(')') + 2).split(" ");
        return (Long.parseLong(fields[11]) + Long.parseLong(fields[12])) / 100.0;
    }

    private static long number(Map<String, String> order, String name) {
        return Long.parseLong(order.getOrDefault(name, "0"));
    }

    private static void fail(Throwable error) {
        if (error != null && failure == null) {
            failure = error;
        }
    }

    private static void pause() {
        if (failure != null) {
            throw new IllegalStateException(failure);
        }
        LockSupport.parkNanos(100_000);
    }

    private static void sleep(double seconds) throws InterruptedException {
        Thread.sleep((long) (seconds * 1000));
    }
}
