// What Esper finds, pattern after pattern, in one runtime whose clock is the events' own.
//
//     java -cp 'JARS/*' Matches.java < cases.json > matches.json
//
// A case is {"name", "streams": [[event, …], …], "variables": [name, …], "epl": statement}; an event is {"k", "t",
// "kind", "x", "id"}, t in milliseconds. The streams of a case are run one after the other, each by the statement deployed anew. The answer
// to a case is {"matches": [[match, …], …]}, a list for each stream, a match being a list of [variable, id]; or
// {"refused": why}.

import com.espertech.esper.common.client.EPCompiled;
import com.espertech.esper.common.client.EventBean;
import com.espertech.esper.common.client.configuration.Configuration;
import com.espertech.esper.common.client.json.minimaljson.Json;
import com.espertech.esper.common.client.json.minimaljson.JsonArray;
import com.espertech.esper.common.client.json.minimaljson.JsonObject;
import com.espertech.esper.common.client.json.minimaljson.JsonValue;
import com.espertech.esper.compiler.client.CompilerArguments;
import com.espertech.esper.compiler.client.EPCompiler;
import com.espertech.esper.compiler.client.EPCompilerProvider;
import com.espertech.esper.runtime.client.DeploymentOptions;
import com.espertech.esper.runtime.client.EPDeployment;
import com.espertech.esper.runtime.client.EPRuntime;
import com.espertech.esper.runtime.client.EPRuntimeProvider;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Comparator;
import java.util.List;
import java.util.Map;

public class Matches {
    // A runtime's clock never goes back: each stream has a time of its own, after all that any pattern may wait for.
    static final long APART_MS = 1_000_000_000L;

    record Taken(String variable, int id) {}

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        JsonArray cases = Json.parse(new InputStreamReader(System.in, StandardCharsets.UTF_8)).asArray();
        Configuration settings = new Configuration();
        settings.getCommon().addEventType("E",
            Map.of("k", String.class, "kind", String.class, "x", Double.class, "id", Integer.class));
        settings.getRuntime().getThreading().setInternalTimerEnabled(false);
        EPCompiler compiler = EPCompilerProvider.getCompiler();
        EPRuntime runtime = EPRuntimeProvider.getRuntime("matches", settings);
        JsonObject answers = Json.object();
        long beginMs = APART_MS;
        for (JsonValue each : cases) {
            JsonObject one = each.asObject();
            JsonObject answer = Json.object();
            try {
                EPCompiled compiled = compiler.compile(one.getString("epl", ""), new CompilerArguments(settings));
                JsonArray matches = new JsonArray();
                for (JsonValue stream : one.get("streams").asArray()) {
                    matches.add(run(runtime, compiled, variables(one), stream.asArray(), beginMs));
                    beginMs += APART_MS;
                }
                answer.add("matches", matches);
            } catch (Exception refused) {
                answer.add("refused", String.valueOf(refused.getMessage()).lines().findFirst().orElse(""));
            }
            answers.add(one.getString("name", ""), answer);
        }
        out.println(answers);
        runtime.destroy();
    }

    static List<String> variables(JsonObject one) {
        List<String> names = new ArrayList<>();
        one.get("variables").asArray().forEach(name -> names.add(name.asString()));
        return names;
    }

    static JsonArray run(EPRuntime runtime, EPCompiled compiled, List<String> variables, JsonArray stream, long beginMs)
            throws Exception {
        runtime.getEventService().advanceTime(beginMs);
        JsonArray matches = new JsonArray();
        List<RuntimeException> failed = new ArrayList<>();
        EPDeployment deployed = runtime.getDeploymentService().deploy(compiled, new DeploymentOptions());
        var last = deployed.getStatements()[deployed.getStatements().length - 1];
        last.addListener((found, gone, statement, from) -> {
            try {
                for (EventBean match : found == null ? new EventBean[0] : found) {
                    matches.add(describe(match, variables));
                }
            } catch (RuntimeException error) { // which Esper would keep to itself
                failed.add(error);
            }
        });
        for (JsonValue row : stream) {
            JsonObject event = row.asObject();
            runtime.getEventService().advanceTimeSpan(beginMs + event.get("t").asLong());
            runtime.getEventService().sendEventMap(Map.of(
                "k", event.getString("k", ""), "kind", event.getString("kind", ""),
                "x", event.getDouble("x", 0), "id", event.getInt("id", 0)), "E");
        }
        runtime.getEventService().advanceTimeSpan(beginMs + APART_MS / 2);
        runtime.getDeploymentService().undeploy(deployed.getDeploymentId());
        if (!failed.isEmpty()) {
            throw failed.get(0);
        }
        return matches;
    }

    static JsonArray describe(EventBean match, List<String> variables) {
        List<Taken> taken = new ArrayList<>();
        for (String variable : variables) {
            if (match.getEventType().isProperty(variable)) {
                gather(variable, match.get(variable), taken);
            }
        }
        taken.sort(Comparator.comparingInt(Taken::id));
        JsonArray rows = new JsonArray();
        taken.forEach(row -> rows.add(new JsonArray().add(row.variable()).add(row.id())));
        return rows;
    }

    // A variable is one event, or some, or none; an event is what was sent, or that in a wrapping.
    static void gather(String variable, Object value, List<Taken> taken) {
        if (value instanceof EventBean bean) {
            gather(variable, bean.getUnderlying(), taken);
        } else if (value instanceof Map<?, ?> event) {
            taken.add(new Taken(variable, (Integer) event.get("id")));
        } else if (value instanceof Object[] several) {
            Arrays.stream(several).forEach(each -> gather(variable, each, taken));
        } else if (value instanceof Collection<?> several) {
            several.forEach(each -> gather(variable, each, taken));
        } else if (value != null) {
            throw new IllegalArgumentException(variable + " is a " + value.getClass());
        }
    }
}
