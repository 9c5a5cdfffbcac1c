// What Flink finds: its CEP library for patterns, its SQL for MATCH_RECOGNIZE, each case a branch of one streaming job.
//
//     java -cp CLASSES:'JARS/*' Matches < cases.json > matches.json
//
// A case is {"name", "streams": [[event, …], …]} with "steps", a pattern as the calls that make it, or with "sql", the
// text of MATCH_RECOGNIZE (…); besides "lateness_ms". An event is {"k", "t", "kind", "x", "id"}; the streams of a case
// are run one after the other, each at times and under keys of its own. The answer to a case is {"matches": [[match, …],
// …]}, a list for each stream, a match being a list of [variable, id]; {"timed_out"} alike; or {"refused": why}.

import java.io.PrintStream;
import java.io.Serializable;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.regex.Matcher;
import org.apache.flink.api.common.eventtime.Watermark;
import org.apache.flink.api.common.eventtime.WatermarkGenerator;
import org.apache.flink.api.common.eventtime.WatermarkOutput;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.cep.CEP;
import org.apache.flink.cep.functions.PatternProcessFunction;
import org.apache.flink.cep.functions.TimedOutPartialMatchHandler;
import org.apache.flink.cep.nfa.aftermatch.AfterMatchSkipStrategy;
import org.apache.flink.cep.pattern.GroupPattern;
import org.apache.flink.cep.pattern.Pattern;
import org.apache.flink.cep.pattern.WithinType;
import org.apache.flink.cep.pattern.conditions.IterativeCondition;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.ProcessFunction;
import org.apache.flink.streaming.api.functions.sink.legacy.SinkFunction;
import org.apache.flink.table.api.Schema;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.types.Row;
import org.apache.flink.util.Collector;
import org.apache.flink.util.OutputTag;

public class Matches {
    static final ObjectMapper JSON = new ObjectMapper();
    // The job runs in this process, so its last operators can leave here what they were given.
    static final Map<String, Queue<Found>> FOUND = new ConcurrentHashMap<>();
    // Between the times of two streams; far more than any pattern waits.
    static final long APART_MS = 1_000_000_000L;

    public static class Event {
        public int stream;
        public String k;
        public long ms;
        public String kind;
        public Double x; // may be NULL in SQL
        public int id;
        public long mark;

        public Event() {}
    }

    record Taken(String variable, int id) implements Serializable {}

    record Found(int stream, boolean timedOut, List<Taken> taken) implements Serializable {}

    public static void main(String[] arguments) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err);
        JsonNode cases = JSON.readTree(System.in);
        Configuration settings = new Configuration();
        settings.setString("taskmanager.memory.network.min", "512mb");
        settings.setString("taskmanager.memory.network.max", "512mb");
        settings.setString("table.local-time-zone", "UTC");
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.createLocalEnvironment(1, settings);
        StreamTableEnvironment tables = StreamTableEnvironment.create(environment);
        ObjectNode answers = JSON.createObjectNode();
        for (JsonNode one : cases) {
            String name = one.get("name").asText();
            FOUND.put(name, new ConcurrentLinkedQueue<>());
            try {
                if (one.has("sql")) {
                    recognize(environment, tables, one);
                } else {
                    detect(environment, one);
                }
            } catch (Exception refused) {
                Throwable cause = refused;
                while (cause.getCause() != null) {
                    cause = cause.getCause();
                }
                answers.putObject(name).put("refused", String.valueOf(cause.getMessage()).lines().findFirst().orElse(""));
            }
        }
        environment.execute();
        for (JsonNode one : cases) {
            String name = one.get("name").asText();
            if (!answers.has(name)) {
                answers.set(name, answer(one.get("streams").size(), FOUND.get(name)));
            }
        }
        out.println(JSON.writeValueAsString(answers));
    }

    static ObjectNode answer(int streams, Queue<Found> found) {
        ObjectNode answer = JSON.createObjectNode();
        for (boolean timedOut : new boolean[] {false, true}) {
            List<List<List<Object>>> lists = new ArrayList<>();
            for (int stream = 0; stream < streams; stream++) {
                lists.add(new ArrayList<>());
            }
            for (Found match : found) {
                if (match.timedOut() == timedOut) {
                    List<Object> rows = new ArrayList<>();
                    match.taken().stream().sorted(Comparator.comparingInt(Taken::id))
                        .forEach(taken -> rows.add(List.of(taken.variable(), taken.id())));
                    lists.get(match.stream()).add(rows);
                }
            }
            answer.set(timedOut ? "timed_out" : "matches", JSON.valueToTree(lists));
        }
        return answer;
    }

    // --- events

    static DataStream<Event> events(StreamExecutionEnvironment environment, JsonNode one) {
        List<Event> events = new ArrayList<>();
        int stream = 0;
        for (JsonNode given : one.get("streams")) {
            for (JsonNode row : given) {
                Event event = new Event();
                event.stream = stream;
                event.k = stream + "/" + row.get("k").asText();
                event.ms = (stream + 1) * APART_MS + row.get("t").asLong();
                event.kind = row.get("kind").asText();
                event.x = row.get("x").asDouble();
                event.id = row.get("id").asInt();
                event.mark = 1L << event.id;
                events.add(event);
            }
            stream++;
        }
        long latenessMs = one.path("lateness_ms").asLong(0);
        return environment.fromData(events, Types.POJO(Event.class))
            .assignTimestampsAndWatermarks(WatermarkStrategy.<Event>forGenerator(context -> new EachEvent(latenessMs))
                .withTimestampAssigner((event, before) -> event.ms));
    }

    // Flink's own generators look at the clock now and then; here every event moves the watermark.
    static class EachEvent implements WatermarkGenerator<Event> {
        private final long latenessMs;
        private long latestMs = Long.MIN_VALUE / 2;

        EachEvent(long latenessMs) {
            this.latenessMs = latenessMs;
        }

        @Override
        public void onEvent(Event event, long timestamp, WatermarkOutput output) {
            latestMs = Math.max(latestMs, timestamp);
            output.emitWatermark(new Watermark(latestMs - latenessMs - 1));
        }

        @Override
        public void onPeriodicEmit(WatermarkOutput output) {}
    }

    static class Keeping implements SinkFunction<Found> {
        private final String name;

        Keeping(String name) {
            this.name = name;
        }

        @Override
        public void invoke(Found found, Context context) {
            FOUND.get(name).add(found);
        }
    }

    // --- MATCH_RECOGNIZE

    // The rows of each variable come out as a sum of marks, a bit for each row: Flink has ONE ROW PER MATCH only.
    static void recognize(StreamExecutionEnvironment environment, StreamTableEnvironment tables, JsonNode one) {
        String name = one.get("name").asText();
        String view = "events_" + FOUND.size();
        Schema schema = Schema.newBuilder().columnByMetadata("t", "TIMESTAMP_LTZ(3)", "rowtime", true)
            .watermark("t", "SOURCE_WATERMARK()").build();
        tables.createTemporaryView(view, events(environment, one), schema);
        Set<String> variables = new LinkedHashSet<>();
        one.get("variables").forEach(each -> variables.add(each.asText()));
        StringBuilder measures = new StringBuilder();
        for (String variable : variables) {
            measures.append(measures.length() == 0 ? " MEASURES " : ", ");
            measures.append("SUM(").append(variable).append(".mark) AS `rows_").append(variable).append('`');
        }
        String text = one.get("sql").asText()
            .replaceFirst("ORDER BY t\\b", Matcher.quoteReplacement("ORDER BY t" + measures));
        DataStream<Row> rows = tables.toDataStream(tables.sqlQuery("SELECT * FROM " + view + " " + text));
        List<String> names = List.copyOf(variables);
        rows.process(new ProcessFunction<Row, Found>() {
            @Override
            public void processElement(Row row, Context context, Collector<Found> out) {
                List<Taken> taken = new ArrayList<>();
                for (String variable : names) {
                    Object bits = row.getField("rows_" + variable);
                    for (int id = 0; bits != null && id < 63; id++) {
                        if ((((Long) bits) >> id & 1) == 1) {
                            taken.add(new Taken(variable, id));
                        }
                    }
                }
                String key = (String) row.getField("k");
                out.collect(new Found(Integer.parseInt(key.substring(0, key.indexOf('/'))), false, taken));
            }
        }).addSink(new Keeping(name));
    }

    // --- the CEP library

    static void detect(StreamExecutionEnvironment environment, JsonNode one) {
        String name = one.get("name").asText();
        Pattern<Event, ?> pattern = pattern(one.get("steps"));
        var found = CEP.pattern(events(environment, one).keyBy(event -> event.k), pattern).inEventTime()
            .process(new Finding());
        found.addSink(new Keeping(name));
        found.getSideOutput(TIMED_OUT).addSink(new Keeping(name));
    }

    static class Finding extends PatternProcessFunction<Event, Found> implements TimedOutPartialMatchHandler<Event> {
        @Override
        public void processMatch(Map<String, List<Event>> match, Context context, Collector<Found> out) {
            out.collect(found(match, false));
        }

        @Override
        public void processTimedOutMatch(Map<String, List<Event>> match, Context context) {
            context.output(TIMED_OUT, found(match, true));
        }

        static Found found(Map<String, List<Event>> match, boolean timedOut) {
            List<Taken> taken = new ArrayList<>();
            int[] stream = {0};
            match.forEach((variable, events) -> events.forEach(event -> {
                stream[0] = event.stream;
                taken.add(new Taken(variable, event.id));
            }));
            return new Found(stream[0], timedOut, taken);
        }
    }

    static final OutputTag<Found> TIMED_OUT = new OutputTag<>("timed out", TypeInformation.of(Found.class));

    static Pattern<Event, ?> pattern(JsonNode steps) {
        AfterMatchSkipStrategy after = AfterMatchSkipStrategy.noSkip();
        for (JsonNode step : steps) {
            switch (step.get(0).asText()) {
                case "skip_to_next" -> after = AfterMatchSkipStrategy.skipToNext();
                case "skip_past_last" -> after = AfterMatchSkipStrategy.skipPastLastEvent();
                case "skip_to_first" -> after = AfterMatchSkipStrategy.skipToFirst(step.get(1).asText());
                case "skip_to_last" -> after = AfterMatchSkipStrategy.skipToLast(step.get(1).asText());
                default -> { }
            }
        }
        Pattern<Event, Event> pattern = null;
        for (JsonNode step : steps) {
            pattern = step(pattern, step, after);
        }
        return pattern;
    }

    @SuppressWarnings("unchecked")
    static Pattern<Event, Event> step(Pattern<Event, Event> before, JsonNode step, AfterMatchSkipStrategy after) {
        String name = step.get(0).asText();
        JsonNode first = step.path(1);
        if (first.isArray()) {
            Pattern<Event, Event> group = (Pattern<Event, Event>) pattern(first);
            GroupPattern<Event, Event> made = switch (name) {
                case "begin" -> Pattern.begin(group, after);
                case "next" -> before.next(group);
                case "followed_by" -> before.followedBy(group);
                case "followed_by_any" -> before.followedByAny(group);
                default -> throw new IllegalArgumentException(name + " takes no group");
            };
            return made;
        }
        String variable = first.asText();
        return switch (name) {
            case "begin" -> where(Pattern.<Event>begin(variable, after), step);
            case "next" -> where(before.next(variable), step);
            case "followed_by" -> where(before.followedBy(variable), step);
            case "followed_by_any" -> where(before.followedByAny(variable), step);
            case "not_next" -> where(before.notNext(variable), step);
            case "not_followed_by" -> where(before.notFollowedBy(variable), step);
            case "times" -> step.size() == 2 ? before.times(first.asInt()) : before.times(first.asInt(), step.get(2).asInt());
            case "times_or_more" -> before.timesOrMore(first.asInt());
            case "one_or_more" -> before.oneOrMore();
            case "optional" -> before.optional();
            case "greedy" -> before.greedy();
            case "consecutive" -> before.consecutive();
            case "allow_combinations" -> before.allowCombinations();
            case "until" -> before.until(new Condition(variable, null));
            case "within" -> before.within(duration(variable));
            case "within_neighbours" -> before.within(duration(variable), WithinType.PREVIOUS_AND_CURRENT);
            case "skip_to_next", "skip_past_last", "skip_to_first", "skip_to_last" -> before;
            default -> throw new IllegalArgumentException("Flink CEP has no " + name);
        };
    }

    static Pattern<Event, Event> where(Pattern<Event, Event> pattern, JsonNode step) {
        return step.size() < 3 ? pattern : pattern.where(new Condition(step.get(2).asText(), pattern.getName()));
    }

    static Duration duration(String text) {
        return Duration.ofSeconds(Long.parseLong(text.split(" ")[0]));
    }

    // A condition as the cases write it: a few operators of SQL over a row and over rows that a variable has taken.
    static class Condition extends IterativeCondition<Event> {
        private final String text;
        private final String own;

        Condition(String text, String own) {
            this.text = text;
            this.own = own;
        }

        @Override
        public boolean filter(Event event, Context<Event> context) throws Exception {
            return Boolean.TRUE.equals(new Reader(event, context).whole());
        }

        // Reads and evaluates at once: speed is no matter here.
        class Reader {
            private final Event event;
            private final Context<Event> context;
            private final List<String> tokens = new ArrayList<>();
            private int at = 0;

            Reader(Event event, Context<Event> context) {
                this.event = event;
                this.context = context;
                Matcher matcher = java.util.regex.Pattern.compile("'[^']*'|\\w+(?:\\.\\w+)?|<>|<=|>=|[-+*/%<>=(),.]").matcher(text);
                while (matcher.find()) {
                    tokens.add(matcher.group());
                }
            }

            Object whole() throws Exception {
                Object value = either();
                if (at < tokens.size()) {
                    throw new IllegalArgumentException("not read: " + tokens.subList(at, tokens.size()));
                }
                return value;
            }

            private String next() {
                return at < tokens.size() ? tokens.get(at) : "";
            }

            private boolean accept(String token) {
                boolean is = next().equals(token);
                at += is ? 1 : 0;
                return is;
            }

            private Object either() throws Exception {
                Object left = both();
                while (accept("OR")) {
                    Object right = both();
                    left = Boolean.TRUE.equals(left) || Boolean.TRUE.equals(right) ? Boolean.TRUE
                        : left == null || right == null ? null : Boolean.FALSE;
                }
                return left;
            }

            private Object both() throws Exception {
                Object left = compared();
                while (accept("AND")) {
                    Object right = compared();
                    left = Boolean.FALSE.equals(left) || Boolean.FALSE.equals(right) ? Boolean.FALSE
                        : left == null || right == null ? null : Boolean.TRUE;
                }
                return left;
            }

            @SuppressWarnings({"unchecked", "rawtypes"})
            private Object compared() throws Exception {
                Object left = sum();
                String sign = next();
                if (!Set.of("=", "<>", "<", "<=", ">", ">=").contains(sign)) {
                    return left;
                }
                at++;
                Object right = sum();
                if (left == null || right == null) {
                    return null;
                }
                int order = ((Comparable) left).compareTo(right);
                return switch (sign) {
                    case "=" -> order == 0;
                    case "<>" -> order != 0;
                    case "<" -> order < 0;
                    case "<=" -> order <= 0;
                    case ">" -> order > 0;
                    default -> order >= 0;
                };
            }

            private Object sum() throws Exception {
                Object left = product();
                while (next().equals("+") || next().equals("-")) {
                    boolean plus = tokens.get(at++).equals("+");
                    Object right = product();
                    left = left == null || right == null ? null
                        : (Double) left + (plus ? 1 : -1) * (Double) right;
                }
                return left;
            }

            private Object product() throws Exception {
                Object left = one();
                while (accept("*")) {
                    Object right = one();
                    left = left == null || right == null ? null : (Double) left * (Double) right;
                }
                return left;
            }

            private Object one() throws Exception {
                String token = tokens.get(at++);
                if (token.equals("(")) {
                    Object inside = either();
                    accept(")");
                    return inside;
                }
                if (token.startsWith("'")) {
                    return token.substring(1, token.length() - 1);
                }
                if (Character.isDigit(token.charAt(0))) {
                    return Double.valueOf(token);
                }
                if (accept("(")) {
                    return call(token);
                }
                int dot = token.indexOf('.');
                return dot < 0 ? column(event, token) : at(rows(token.substring(0, dot)), token.substring(dot + 1), -1);
            }

            private Object call(String function) throws Exception {
                String of = tokens.get(at++);
                if (of.endsWith(".") || next().equals(".")) {
                    at += 2; // variable . *
                    accept(")");
                    return (double) rows(of).size();
                }
                int offset = accept(",") ? Integer.parseInt(tokens.get(at++)) : 0;
                accept(")");
                int dot = of.indexOf('.');
                List<Event> rows = rows(of.substring(0, dot));
                String name = of.substring(dot + 1);
                if (function.equals("FIRST")) {
                    return at(rows, name, offset);
                }
                if (function.equals("LAST")) {
                    return at(rows, name, -1 - offset);
                }
                if (rows.isEmpty()) {
                    return function.equals("COUNT") ? 0.0 : null;
                }
                var values = rows.stream().mapToDouble(each -> (Double) column(each, name)).summaryStatistics();
                return switch (function) {
                    case "COUNT" -> (double) values.getCount();
                    case "SUM" -> values.getSum();
                    case "AVG" -> values.getAverage();
                    case "MIN" -> values.getMin();
                    case "MAX" -> values.getMax();
                    default -> throw new IllegalArgumentException("no function " + function);
                };
            }

            // The row at hand is one of its own variable.
            private List<Event> rows(String variable) throws Exception {
                List<Event> rows = new ArrayList<>();
                context.getEventsForPattern(variable).forEach(rows::add);
                if (variable.equals(own)) {
                    rows.add(event);
                }
                return rows;
            }

            private Object at(List<Event> rows, String name, int number) {
                int index = number < 0 ? rows.size() + number : number;
                return index < 0 || index >= rows.size() ? null : column(rows.get(index), name);
            }

            private Object column(Event row, String name) {
                return switch (name) {
                    case "kind" -> row.kind;
                    case "x" -> row.x;
                    case "id" -> (double) row.id;
                    case "true" -> Boolean.TRUE;
                    default -> throw new IllegalArgumentException("no column " + name);
                };
            }
        }
    }
}
