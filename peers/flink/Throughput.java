// How fast Flink CEP is: patterns over a topic of events, read to its end, matches counted. Orders come as lines of JSON
// on standard input, and each is answered by one on standard output.
//
//     {"pattern", "bootstrap", "topic", "lateness_ms"}  ->  {"matches", "checksum", "seconds"}
//
// An event is {"id", "k", "x", "ts"}. Two tasks wide, state on the heap, objects used again, no checkpoints. The seconds
// are the job's own, without the start of the cluster in this process.
//
// With each timer of a key the operator scans the table of the rows that wait there, which keeps the size it once had. A
// topic that is read in large pieces, or by two readers of which one is ahead, fills it: with ten keys Flink is ten to
// twenty times slower as it comes. So there is one reader, its pieces are small, and watermarks are frequent.

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.flink.api.common.accumulators.LongCounter;
import org.apache.flink.api.common.eventtime.Watermark;
import org.apache.flink.api.common.eventtime.WatermarkGenerator;
import org.apache.flink.api.common.eventtime.WatermarkOutput;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.serialization.AbstractDeserializationSchema;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.cep.CEP;
import org.apache.flink.cep.functions.PatternProcessFunction;
import org.apache.flink.cep.nfa.aftermatch.AfterMatchSkipStrategy;
import org.apache.flink.cep.pattern.Pattern;
import org.apache.flink.cep.pattern.conditions.IterativeCondition;
import org.apache.flink.cep.pattern.conditions.SimpleCondition;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.core.JsonFactory;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.core.JsonParser;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.core.JsonToken;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.legacy.RichSinkFunction;
import org.apache.flink.util.Collector;

public class Throughput {
    static final int PARALLELISM = 2;
    static final long PRIME = 1_000_003;

    public static class Event {
        public long id;
        public long k;
        public long x;
        public long ts;

        public Event() {}
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err);
        ObjectMapper json = new ObjectMapper();
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            JsonNode order = json.readTree(line);
            Map<String, Object> answer;
            try {
                answer = run(order);
            } catch (Exception error) {
                error.printStackTrace();
                answer = Map.of("failed", String.valueOf(error));
            }
            out.println(json.writeValueAsString(answer));
            out.flush();
        }
    }

    static Map<String, Object> run(JsonNode order) throws Exception {
        Configuration settings = new Configuration();
        settings.setString("state.backend.type", "hashmap");
        settings.setString("pipeline.object-reuse", "true");
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.createLocalEnvironment(PARALLELISM, settings);
        KafkaSource<Event> source = KafkaSource.<Event>builder()
            .setBootstrapServers(order.get("bootstrap").asText())
            .setTopics(order.get("topic").asText())
            .setStartingOffsets(OffsetsInitializer.earliest())
            .setBounded(OffsetsInitializer.latest())
            .setValueOnlyDeserializer(new Reading())
            .setProperty("max.partition.fetch.bytes", "65536")
            .build();
        long latenessMs = order.get("lateness_ms").asLong();
        WatermarkStrategy<Event> watermarks = WatermarkStrategy.<Event>forGenerator(context -> new Frequent(latenessMs))
            .withTimestampAssigner((event, before) -> event.ts);
        var events = environment.fromSource(source, watermarks, "events").setParallelism(1).keyBy(event -> event.k);
        CEP.pattern(events, pattern(order.get("pattern").asText())).inEventTime()
            .process(new Numbering()).addSink(new Counting());
        var result = environment.execute();
        return Map.of(
            "matches", result.<Long>getAccumulatorResult("matches"),
            "checksum", result.<Long>getAccumulatorResult("checksum"),
            "seconds", result.getNetRuntime(TimeUnit.MILLISECONDS) / 1000.0);
    }

    static class Frequent implements WatermarkGenerator<Event> {
        private static final int EVERY = 10;
        private final long latenessMs;
        private long latestMs = Long.MIN_VALUE / 2;
        private int events;

        Frequent(long latenessMs) {
            this.latenessMs = latenessMs;
        }

        @Override
        public void onEvent(Event event, long timestamp, WatermarkOutput output) {
            latestMs = Math.max(latestMs, event.ts);
            if (++events % EVERY == 0) {
                onPeriodicEmit(output);
            }
        }

        @Override
        public void onPeriodicEmit(WatermarkOutput output) {
            output.emitWatermark(new Watermark(latestMs - latenessMs - 1));
        }
    }

    static Pattern<Event, ?> pattern(String name) {
        Duration within = Duration.ofSeconds(5);
        return switch (name) {
            case "relaxed" -> Pattern.<Event>begin("a").where(SimpleCondition.of(event -> event.x < 100))
                .followedBy("b").where(SimpleCondition.of(event -> event.x >= 900)).within(within);
            case "rising" -> Pattern.<Event>begin("up", AfterMatchSkipStrategy.skipPastLastEvent()).where(new Rising())
                .timesOrMore(3).consecutive().greedy()
                .next("down").where(new Falling()).within(Duration.ofSeconds(60));
            case "absence" -> Pattern.<Event>begin("a").where(SimpleCondition.of(event -> event.x < 100))
                .notFollowedBy("b").where(SimpleCondition.of(event -> event.x >= 900)).within(within);
            default -> throw new IllegalArgumentException(name);
        };
    }

    static Event lastUp(IterativeCondition.Context<Event> context) throws Exception {
        Event last = null;
        for (Event event : context.getEventsForPattern("up")) {
            last = event;
        }
        return last;
    }

    static class Rising extends IterativeCondition<Event> {
        @Override
        public boolean filter(Event event, Context<Event> context) throws Exception {
            Event last = lastUp(context);
            return last == null || event.x > last.x;
        }
    }

    static class Falling extends IterativeCondition<Event> {
        @Override
        public boolean filter(Event event, Context<Event> context) throws Exception {
            return event.x <= lastUp(context).x;
        }
    }

    // {"id":1,"k":2,"x":3,"ts":4}, one token after the other.
    static class Reading extends AbstractDeserializationSchema<Event> {
        private transient JsonFactory factory;

        Reading() {
            super(Types.POJO(Event.class));
        }

        @Override
        public Event deserialize(byte[] message) throws IOException {
            if (factory == null) {
                factory = new JsonFactory();
            }
            Event event = new Event();
            try (JsonParser parser = factory.createParser(message)) {
                parser.nextToken();
                while (parser.nextToken() == JsonToken.FIELD_NAME) {
                    String name = parser.currentName();
                    parser.nextToken();
                    long value = parser.getLongValue();
                    switch (name) {
                        case "id" -> event.id = value;
                        case "k" -> event.k = value;
                        case "x" -> event.x = value;
                        case "ts" -> event.ts = value;
                        default -> { }
                    }
                }
            }
            return event;
        }
    }

    // A match as a number of its key, its first and last event, and how many it has.
    static class Numbering extends PatternProcessFunction<Event, Long> {
        @Override
        public void processMatch(Map<String, List<Event>> match, Context context, Collector<Long> out) {
            long first = Long.MAX_VALUE;
            long last = Long.MIN_VALUE;
            long count = 0;
            long key = 0;
            for (List<Event> events : match.values()) {
                for (Event event : events) {
                    first = Math.min(first, event.id);
                    last = Math.max(last, event.id);
                    key = event.k;
                    count++;
                }
            }
            long number = (3 * key + 5 * first + 7 * last + 11 * count) % PRIME;
            out.collect(number * number);
        }
    }

    static class Counting extends RichSinkFunction<Long> {
        private final LongCounter matches = new LongCounter();
        private final LongCounter checksum = new LongCounter();

        @Override
        public void open(OpenContext context) {
            getRuntimeContext().addAccumulator("matches", matches);
            getRuntimeContext().addAccumulator("checksum", checksum);
        }

        @Override
        public void invoke(Long number, Context context) {
            matches.add(1L);
            checksum.add(number);
        }
    }
}
