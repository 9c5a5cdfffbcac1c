// How fast Esper is, on one thread. Orders come as lines of JSON on standard input, and each is answered by one on
// standard output.
//
//     {"epl", "bootstrap", "topic", "partitions"}   events from a topic, to its end
//     {"epl", "file"}                               events from a file, which are in memory before the time is taken
//         ->  {"matches", "checksum", "seconds"}
//
// An event is {"id", "k", "x", "ts"}; a statement gives its matches as `k`, `begin_id`, `end_id` and `size`. The clock is the
// events' own. The partitions of a topic are merged by time, which each of them keeps to.

import com.espertech.esper.common.client.EPCompiled;
import com.espertech.esper.common.client.EventBean;
import com.espertech.esper.common.client.configuration.Configuration;
import com.espertech.esper.common.client.json.minimaljson.Json;
import com.espertech.esper.common.client.json.minimaljson.JsonObject;
import com.espertech.esper.compiler.client.CompilerArguments;
import com.espertech.esper.compiler.client.EPCompilerProvider;
import com.espertech.esper.runtime.client.EPEventService;
import com.espertech.esper.runtime.client.EPRuntime;
import com.espertech.esper.runtime.client.EPRuntimeProvider;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class Throughput {
    static final long PRIME = 1_000_003;
    static final long AFTER_ALL_MS = 3_600_000;

    public static class Event {
        private final long id;
        private final long k;
        private final long x;
        private final long ts;

        Event(long id, long k, long x, long ts) {
            this.id = id;
            this.k = k;
            this.x = x;
            this.ts = ts;
        }

        public long getId() {
            return id;
        }

        public long getK() {
            return k;
        }

        public long getX() {
            return x;
        }
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err);
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            JsonObject answer;
            try {
                answer = run(Json.parse(line).asObject());
            } catch (Exception error) {
                error.printStackTrace();
                answer = Json.object().add("failed", String.valueOf(error));
            }
            out.println(answer);
            out.flush();
        }
    }

    static JsonObject run(JsonObject order) throws Exception {
        Configuration settings = new Configuration();
        settings.getCommon().addEventType("E", Event.class);
        settings.getRuntime().getThreading().setInternalTimerEnabled(false);
        EPCompiled compiled =
            EPCompilerProvider.getCompiler().compile(order.getString("epl", ""), new CompilerArguments(settings));
        EPRuntime runtime = EPRuntimeProvider.getRuntime("throughput", settings);
        try {
            runtime.initialize();
            runtime.getEventService().advanceTime(0);
            var statements = runtime.getDeploymentService().deploy(compiled).getStatements();
            long[] found = new long[2];
            statements[statements.length - 1].addListener((matches, gone, statement, from) -> {
                for (EventBean match : matches) {
                    long number = 3 * (Long) match.get("k") + 5 * (Long) match.get("begin_id")
                        + 7 * (Long) match.get("end_id") + 11 * ((Number) match.get("size")).longValue();
                    number %= PRIME;
                    found[0]++;
                    found[1] += number * number;
                }
            });
            long startedNs;
            if (order.get("file") != null) {
                List<Event> events = load(Path.of(order.getString("file", "")));
                startedNs = System.nanoTime();
                send(runtime.getEventService(), events);
            } else {
                startedNs = System.nanoTime();
                consume(runtime.getEventService(), order);
            }
            double seconds = (System.nanoTime() - startedNs) / 1e9;
            return Json.object().add("matches", found[0]).add("checksum", found[1]).add("seconds", seconds);
        } finally {
            runtime.destroy();
        }
    }

    // Four whole numbers each.
    static List<Event> load(Path file) throws IOException {
        ByteBuffer bytes = ByteBuffer.wrap(Files.readAllBytes(file)).order(ByteOrder.LITTLE_ENDIAN);
        List<Event> events = new ArrayList<>(bytes.capacity() / 32);
        while (bytes.hasRemaining()) {
            events.add(new Event(bytes.getLong(), bytes.getLong(), bytes.getLong(), bytes.getLong()));
        }
        return events;
    }

    static void send(EPEventService service, List<Event> events) {
        long nowMs = 0;
        for (Event event : events) {
            nowMs = send(service, event, nowMs);
        }
        service.advanceTime(nowMs + AFTER_ALL_MS);
    }

    static long send(EPEventService service, Event event, long nowMs) {
        if (event.ts > nowMs) {
            service.advanceTime(event.ts);
        }
        service.sendEventBean(event, "E");
        return Math.max(nowMs, event.ts);
    }

    static void consume(EPEventService service, JsonObject order) {
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", order.getString("bootstrap", ""),
            "key.deserializer", ByteArrayDeserializer.class.getName(),
            "value.deserializer", ByteArrayDeserializer.class.getName(),
            "enable.auto.commit", "false",
            "max.poll.records", "10000");
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
            List<TopicPartition> partitions = new ArrayList<>();
            for (int number = 0; number < order.getInt("partitions", 1); number++) {
                partitions.add(new TopicPartition(order.getString("topic", ""), number));
            }
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            List<ArrayDeque<Event>> waiting = new ArrayList<>();
            partitions.forEach(each -> waiting.add(new ArrayDeque<>()));
            long left = ends.values().stream().mapToLong(Long::longValue).sum();
            long[] unread = partitions.stream().mapToLong(ends::get).toArray();
            long nowMs = 0;
            while (left > 0) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                    waiting.get(record.partition()).add(parse(record.value()));
                    unread[record.partition()]--;
                }
                for (int from = earliest(waiting, unread); from >= 0; from = earliest(waiting, unread)) {
                    nowMs = send(service, waiting.get(from).poll(), nowMs);
                    left--;
                }
            }
            service.advanceTime(nowMs + AFTER_ALL_MS);
        }
    }

    // Which partition has the next event; none as long as one that is not at its end has nothing to compare with.
    static int earliest(List<ArrayDeque<Event>> waiting, long[] unread) {
        int found = -1;
        for (int number = 0; number < unread.length; number++) {
            Event head = waiting.get(number).peek();
            if (head == null) {
                if (unread[number] > 0) {
                    return -1;
                }
            } else if (found < 0 || head.ts < waiting.get(found).peek().ts) {
                found = number;
            }
        }
        return found;
    }

    // {"id":1,"k":2,"x":3,"ts":4}: four numbers, in this order.
    static Event parse(byte[] value) {
        long[] numbers = new long[4];
        int number = -1;
        boolean inside = false;
        boolean negative = false;
        for (byte letter : value) {
            if (letter == ':') {
                number++;
                inside = true;
                negative = false;
            } else if (inside && letter >= '0' && letter <= '9') {
                numbers[number] = numbers[number] * 10 + (negative ? '0' - letter : letter - '0');
            } else if (inside && letter == '-') {
                negative = true;
            } else {
                inside = false;
            }
        }
        return new Event(numbers[0], numbers[1], numbers[2], numbers[3]);
    }
}
