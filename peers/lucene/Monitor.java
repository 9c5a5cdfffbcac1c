// Lucene Monitor behind lines of JSON: run as a source file, java -cp 'lib/*' Monitor.java KIND
// where KIND is its presearcher: term or multipass, or with -plain one that files no prefixes and wildcards
//
// A line on standard input asks, a line on standard output answers:
//   {"frequencies": {TERM: COUNT …}}             how often words are in documents, before any query, for the presearcher
//   {"add": [[ID, QUERY] …]}                     {"added": …, "seconds": …}
//   {"add_file": PATH}                           the same, a pair a line
//   {"remove": [ID …]}                           {"removed": …}
//   {"match": [DOCUMENT …], "batch": SIZE}       {"matches": [[ID …] …]}
//   {"documents": PATH}                          documents of a file, a line each, for:
//   {"rate": COUNT, "batch": SIZE, "seconds": S} the first COUNT of them, again and again: {"documents": …, "seconds": of the
//                                                process on its processors, "pairs": of the first round, "sum": over them}
//   {"first": [ID, QUERY], "document": DOCUMENT} {"seconds": from the query's adding until it has matched}
//   {"memory": true}                             {"bytes": what the heap holds after a collection}
// A document is {FIELD: VALUE}: a string is text, a whole number a long, a number a double, {"lat":…, "lon":…} a point, a
// string in {"keyword": …} one token; an array has several. A query is an object with one name, as below in `query`.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import org.apache.lucene.analysis.Analyzer;
import org.apache.lucene.analysis.LowerCaseFilter;
import org.apache.lucene.analysis.TokenStream;
import org.apache.lucene.analysis.miscellaneous.ASCIIFoldingFilter;
import org.apache.lucene.analysis.standard.StandardTokenizer;
import org.apache.lucene.document.Document;
import org.apache.lucene.document.DoublePoint;
import org.apache.lucene.document.Field;
import org.apache.lucene.document.LatLonPoint;
import org.apache.lucene.document.LongPoint;
import org.apache.lucene.document.StringField;
import org.apache.lucene.document.TextField;
import org.apache.lucene.index.Term;
import org.apache.lucene.monitor.CustomQueryHandler;
import org.apache.lucene.monitor.MatchingQueries;
import org.apache.lucene.monitor.Monitor;
import org.apache.lucene.monitor.MonitorConfiguration;
import org.apache.lucene.monitor.MonitorQuery;
import org.apache.lucene.monitor.MultiMatchingQueries;
import org.apache.lucene.monitor.MultipassTermFilteredPresearcher;
import org.apache.lucene.monitor.Presearcher;
import org.apache.lucene.monitor.QueryMatch;
import org.apache.lucene.monitor.RegexpQueryHandler;
import org.apache.lucene.monitor.TermFilteredPresearcher;
import org.apache.lucene.monitor.TermWeightor;
import org.apache.lucene.queryparser.classic.ParseException;
import org.apache.lucene.queryparser.classic.QueryParser;
import org.apache.lucene.search.BooleanClause;
import org.apache.lucene.search.BooleanQuery;
import org.apache.lucene.search.BoostQuery;
import org.apache.lucene.search.ConstantScoreQuery;
import org.apache.lucene.search.DisjunctionMaxQuery;
import org.apache.lucene.search.FieldExistsQuery;
import org.apache.lucene.search.FuzzyQuery;
import org.apache.lucene.search.MatchAllDocsQuery;
import org.apache.lucene.search.MatchNoDocsQuery;
import org.apache.lucene.search.PhraseQuery;
import org.apache.lucene.search.PrefixQuery;
import org.apache.lucene.search.Query;
import org.apache.lucene.search.RegexpQuery;
import org.apache.lucene.search.TermQuery;
import org.apache.lucene.search.TermRangeQuery;
import org.apache.lucene.search.WildcardQuery;
import org.apache.lucene.util.BytesRef;

class MonitorPeer {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int AT_ONCE = 5_000;
    private static final int PASSES = 4;
    private static final Set<String> WHOLE_NUMBERS = Set.of("price", "stock");
    private final String kind;
    private final Map<String, Integer> frequencies = new HashMap<>();
    private final List<Document> measured = new ArrayList<>();
    private Monitor monitor;

    private MonitorPeer(String kind) {
        this.kind = kind;
    }

    public static void main(String[] arguments) throws Exception {
        MonitorPeer peer = new MonitorPeer(arguments[0]);
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            Object answer;
            try {
                answer = peer.answer(JSON.readTree(line));
            } catch (Exception error) {
                answer = Map.of("error", error.toString());
            }
            out.println(JSON.writeValueAsString(answer));
            out.flush();
        }
    }

    private Object answer(JsonNode asked) throws Exception {
        if (asked.has("frequencies")) {
            asked.get("frequencies").fields().forEachRemaining(each -> frequencies.put(each.getKey(), each.getValue().asInt()));
            return Map.of("terms", frequencies.size());
        }
        if (asked.has("add")) return add(asked.get("add"));
        if (asked.has("add_file")) return addFile(Path.of(asked.get("add_file").asText()));
        if (asked.has("remove")) {
            List<String> ids = new ArrayList<>();
            asked.get("remove").forEach(id -> ids.add(id.asText()));
            monitor().deleteById(ids);
            return Map.of("removed", ids.size());
        }
        if (asked.has("match")) return Map.of("matches", matches(documents(asked.get("match")), asked.get("batch").asInt(1)));
        if (asked.has("documents")) {
            measured.clear();
            for (String line : Files.readAllLines(Path.of(asked.get("documents").asText()))) measured.add(document(JSON.readTree(line)));
            return Map.of("documents", measured.size());
        }
        if (asked.has("rate")) return rate(measured.subList(0, asked.get("rate").asInt()), asked.get("batch").asInt(), asked.get("seconds").asDouble());
        if (asked.has("first")) return first(asked.get("first"), document(asked.get("document")));
        if (asked.has("memory")) return Map.of("bytes", heldBytes());
        throw new IllegalArgumentException("unknown request: " + asked);
    }

    // --- the monitor

    private Monitor monitor() throws Exception {
        if (monitor == null) {
            MonitorConfiguration settings = new MonitorConfiguration().setQueryUpdateBufferSize(AT_ONCE).setPurgeFrequency(1, TimeUnit.DAYS);
            monitor = new Monitor(analyzer(), presearcher(), settings);
        }
        return monitor;
    }

    private Presearcher presearcher() {
        TermWeightor weightor = frequencies.isEmpty()
            ? TermFilteredPresearcher.DEFAULT_WEIGHTOR
            : TermWeightor.combine(TermWeightor.termFreqWeightor(frequencies, 100, 0.8), TermFilteredPresearcher.DEFAULT_WEIGHTOR);
        // Prefixes and wildcards are expressions here: those are the ones that it can file under their letters.
        List<CustomQueryHandler> handlers = isPlain() ? List.of() : List.of(new RegexpQueryHandler());
        if (kind.startsWith("multipass")) {
            return new MultipassTermFilteredPresearcher(PASSES, 0, weightor, handlers, Collections.emptySet());
        }
        return new TermFilteredPresearcher(weightor, handlers, Collections.emptySet());
    }

    /** Whether prefixes and wildcards are looked at for every document: that can be quicker than to file them. */
    private boolean isPlain() {
        return kind.endsWith("-plain");
    }

    private static Analyzer analyzer() {
        return new Analyzer() {
            @Override
            protected TokenStreamComponents createComponents(String field) {
                StandardTokenizer tokenizer = new StandardTokenizer();
                TokenStream stream = new ASCIIFoldingFilter(new LowerCaseFilter(tokenizer));
                return new TokenStreamComponents(tokenizer, stream);
            }
        };
    }

    private Object add(JsonNode pairs) throws Exception {
        List<MonitorQuery> queries = new ArrayList<>();
        for (JsonNode pair : pairs) queries.add(new MonitorQuery(pair.get(0).asText(), query(pair.get(1))));
        long begin = System.nanoTime();
        monitor().register(queries);
        return Map.of("added", queries.size(), "seconds", (System.nanoTime() - begin) / 1e9);
    }

    private Object addFile(Path file) throws Exception {
        long count = 0;
        double seconds = 0;
        try (BufferedReader lines = Files.newBufferedReader(file)) {
            List<MonitorQuery> queries = new ArrayList<>();
            for (String line = lines.readLine(); line != null || !queries.isEmpty(); line = lines.readLine()) {
                if (line != null) {
                    JsonNode pair = JSON.readTree(line);
                    queries.add(new MonitorQuery(pair.get(0).asText(), query(pair.get(1))));
                }
                if (queries.size() == AT_ONCE || line == null) {
                    long begin = System.nanoTime();
                    monitor().register(queries);
                    seconds += (System.nanoTime() - begin) / 1e9;
                    count += queries.size();
                    queries.clear();
                }
                if (line == null) break;
            }
        }
        return Map.of("added", count, "seconds", seconds);
    }

    private List<List<String>> matches(List<Document> documents, int batch) throws Exception {
        List<List<String>> found = new ArrayList<>();
        for (int begin = 0; begin < documents.size(); begin += batch) {
            List<Document> part = documents.subList(begin, Math.min(begin + batch, documents.size()));
            if (batch == 1) {
                MatchingQueries<QueryMatch> matching = monitor().match(part.get(0), QueryMatch.SIMPLE_MATCHER);
                if (!matching.getErrors().isEmpty()) throw new IllegalStateException(matching.getErrors().toString());
                found.add(ids(matching.getMatches()));
                continue;
            }
            MultiMatchingQueries<QueryMatch> matching = monitor().match(part.toArray(Document[]::new), QueryMatch.SIMPLE_MATCHER);
            if (!matching.getErrors().isEmpty()) throw new IllegalStateException(matching.getErrors().toString());
            for (int each = 0; each < part.size(); each++) found.add(ids(matching.getMatches(each)));
        }
        return found;
    }

    private static List<String> ids(Iterable<QueryMatch> matches) {
        TreeSet<String> ids = new TreeSet<>();
        for (QueryMatch match : matches) ids.add(match.getQueryId());
        return new ArrayList<>(ids);
    }

    private static long cpuNanos() {
        return ((com.sun.management.OperatingSystemMXBean) java.lang.management.ManagementFactory.getOperatingSystemMXBean())
            .getProcessCpuTime();
    }

    private Object rate(List<Document> documents, int batch, double seconds) throws Exception {
        long done = 0;
        long pairs = 0;
        long sum = 0;
        long begin = cpuNanos();
        double taken = 0;
        for (int round = 0; taken < seconds; round++) {
            for (int at = 0; at < documents.size() && (taken < seconds || round == 0); at += batch) {
                List<Document> part = documents.subList(at, Math.min(at + batch, documents.size()));
                if (batch == 1) {
                    MatchingQueries<QueryMatch> matching = monitor().match(part.get(0), QueryMatch.SIMPLE_MATCHER);
                    if (round == 0) {
                        pairs += matching.getMatchCount();
                        for (QueryMatch match : matching.getMatches()) sum += Long.parseLong(match.getQueryId()) * (at % 1000 + 1);
                    }
                } else {
                    MultiMatchingQueries<QueryMatch> matching = monitor().match(part.toArray(Document[]::new), QueryMatch.SIMPLE_MATCHER);
                    for (int each = 0; round == 0 && each < part.size(); each++) {
                        pairs += matching.getMatchCount(each);
                        for (QueryMatch match : matching.getMatches(each)) sum += Long.parseLong(match.getQueryId()) * ((at + each) % 1000 + 1);
                    }
                }
                done += part.size();
                taken = (cpuNanos() - begin) / 1e9;
            }
        }
        return Map.of("documents", done, "seconds", taken, "pairs", pairs, "sum", sum, "of", documents.size());
    }

    private Object first(JsonNode pair, Document document) throws Exception {
        Query query = query(pair.get(1));
        String id = pair.get(0).asText();
        long begin = System.nanoTime();
        monitor().register(new MonitorQuery(id, query));
        while (monitor().match(document, QueryMatch.SIMPLE_MATCHER).matches(id) == null) { }
        double seconds = (System.nanoTime() - begin) / 1e9;
        monitor().deleteById(id);
        return Map.of("seconds", seconds);
    }

    private static long heldBytes() throws InterruptedException {
        Runtime runtime = Runtime.getRuntime();
        for (int each = 0; each < 3; each++) {
            System.gc();
            Thread.sleep(100);
        }
        return runtime.totalMemory() - runtime.freeMemory();
    }

    // --- documents

    private static List<Document> documents(JsonNode asked) {
        List<Document> documents = new ArrayList<>();
        asked.forEach(each -> documents.add(document(each)));
        return documents;
    }

    private static Document document(JsonNode asked) {
        Document document = new Document();
        asked.fields().forEachRemaining(each -> {
            JsonNode value = each.getValue();
            if (value.isArray()) value.forEach(one -> addTo(document, each.getKey(), one));
            else addTo(document, each.getKey(), value);
        });
        return document;
    }

    private static void addTo(Document document, String name, JsonNode value) {
        if (value.isTextual()) document.add(new TextField(name, value.asText(), Field.Store.NO));
        else if (value.isIntegralNumber()) document.add(new LongPoint(name, value.asLong()));
        else if (value.isNumber()) document.add(new DoublePoint(name, value.asDouble()));
        else if (value.has("lat")) document.add(new LatLonPoint(name, value.get("lat").asDouble(), value.get("lon").asDouble()));
        else if (value.has("keyword")) document.add(new StringField(name, value.get("keyword").asText(), Field.Store.NO));
        else if (!value.isNull()) throw new IllegalArgumentException("unknown value: " + value);
    }

    // --- queries

    private Query query(JsonNode asked) {
        String name = asked.fieldNames().next();
        JsonNode of = asked.get(name);
        return switch (name) {
            case "term" -> new TermQuery(term(of));
            case "phrase" -> phrase(of);
            case "prefix" -> isPlain() ? new PrefixQuery(term(of)) : new RegexpQuery(new Term(of.get(0).asText(), escaped(of.get(1).asText()) + ".*"));
            case "wildcard" -> isPlain() ? new WildcardQuery(term(of)) : new RegexpQuery(new Term(of.get(0).asText(), expression(of.get(1).asText())));
            case "regexp" -> new RegexpQuery(term(of));
            case "fuzzy" -> new FuzzyQuery(term(of), of.get(2).asInt(), of.get(3).asInt(), 1024, of.get(4).asBoolean());
            case "long" -> LongPoint.newRangeQuery(of.get(0).asText(), of.get(1).asLong(Long.MIN_VALUE), of.get(2).asLong(Long.MAX_VALUE));
            case "double" -> DoublePoint.newRangeQuery(
                of.get(0).asText(), of.get(1).asDouble(Double.NEGATIVE_INFINITY), of.get(2).asDouble(Double.POSITIVE_INFINITY));
            case "text" -> new TermRangeQuery(
                of.get(0).asText(), bound(of.get(1)), bound(of.get(2)), of.get(3).asBoolean(), of.get(4).asBoolean());
            case "box" -> LatLonPoint.newBoxQuery(
                of.get(0).asText(), of.get(3).asDouble(), of.get(1).asDouble(), of.get(2).asDouble(), of.get(4).asDouble());
            case "distance" -> LatLonPoint.newDistanceQuery(
                of.get(0).asText(), of.get(1).asDouble(), of.get(2).asDouble(), of.get(3).asDouble());
            case "exists" -> new FieldExistsQuery(of.asText());
            case "all" -> new MatchAllDocsQuery();
            case "none" -> new MatchNoDocsQuery();
            case "boost" -> new BoostQuery(query(of.get(0)), (float) of.get(1).asDouble());
            case "constant" -> new ConstantScoreQuery(query(of));
            case "either" -> {
                List<Query> queries = new ArrayList<>();
                of.forEach(each -> queries.add(query(each)));
                yield new DisjunctionMaxQuery(queries, 0);
            }
            case "boolean" -> bool(of);
            case "parse" -> parse(of);
            default -> throw new IllegalArgumentException("unknown query: " + asked);
        };
    }

    private Query bool(JsonNode of) {
        BooleanQuery.Builder builder = new BooleanQuery.Builder();
        of.get("must").forEach(each -> builder.add(query(each), BooleanClause.Occur.MUST));
        of.get("should").forEach(each -> builder.add(query(each), BooleanClause.Occur.SHOULD));
        of.get("must_not").forEach(each -> builder.add(query(each), BooleanClause.Occur.MUST_NOT));
        // Lucene matches nothing where there is only what must not be; our queries mean everything else.
        if (of.get("must").isEmpty() && of.get("should").isEmpty()) builder.add(new MatchAllDocsQuery(), BooleanClause.Occur.MUST);
        return builder.setMinimumNumberShouldMatch(of.get("minimum").asInt()).build();
    }

    /** Lucene's own reading of a text; several words that a word is cut into stand together, as ours do. */
    private static Query parse(JsonNode of) {
        QueryParser parser = new QueryParser(of.get(0).asText(), analyzer()) {
            @Override
            protected Query getRangeQuery(String field, String low, String high, boolean hasLow, boolean hasHigh) throws ParseException {
                if (!WHOLE_NUMBERS.contains(field)) return super.getRangeQuery(field, low, high, hasLow, hasHigh);
                long first = low == null ? Long.MIN_VALUE : Long.parseLong(low) + (hasLow ? 0 : 1);
                long last = high == null ? Long.MAX_VALUE : Long.parseLong(high) - (hasHigh ? 0 : 1);
                return LongPoint.newRangeQuery(field, first, last);
            }

            @Override
            protected Query newFieldQuery(Analyzer analyzer, String field, String text, boolean isQuoted) throws ParseException {
                if (!WHOLE_NUMBERS.contains(field)) return super.newFieldQuery(analyzer, field, text, isQuoted);
                return LongPoint.newExactQuery(field, Long.parseLong(text));
            }
        };
        parser.setAllowLeadingWildcard(true);
        parser.setSplitOnWhitespace(true);
        parser.setAutoGeneratePhraseQueries(true);
        try {
            return parser.parse(of.get(1).asText());
        } catch (ParseException error) {
            throw new IllegalArgumentException(error.getMessage());
        }
    }

    private static Query phrase(JsonNode of) {
        PhraseQuery.Builder builder = new PhraseQuery.Builder();
        String field = of.get(0).asText();
        for (JsonNode word : of.get(1)) builder.add(new Term(field, word.get(0).asText()), word.get(1).asInt());
        return builder.setSlop(of.get(2).asInt()).build();
    }

    private static Term term(JsonNode of) {
        return new Term(of.get(0).asText(), of.get(1).asText());
    }

    private static BytesRef bound(JsonNode of) {
        return of.isNull() ? null : new BytesRef(of.asText());
    }

    private static String escaped(String text) {
        StringBuilder out = new StringBuilder();
        for (char letter : text.toCharArray()) out.append(Character.isLetterOrDigit(letter) ? "" : "\\").append(letter);
        return out.toString();
    }

    private static String expression(String wildcard) {
        StringBuilder out = new StringBuilder();
        for (char letter : wildcard.toCharArray()) out.append(letter == '*' ? ".*" : letter == '?' ? "." : escaped("" + letter));
        return out.toString();
    }
}
