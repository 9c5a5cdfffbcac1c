// One node of OpenSearch, which is a cluster of its own: run as a source file,
// java -cp 'lib/*' SingleNode.java HOME PORT
//
// The settings are OpenSearch's own but for what a single node on loopback must have. The modules come from the class
// path, where a distribution would have them in folders. SIGTERM ends it in good order.

import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import org.opensearch.common.settings.Settings;
import org.opensearch.env.Environment;
import org.opensearch.index.reindex.ReindexPlugin;
import org.opensearch.node.InternalSettingsPreparer;
import org.opensearch.node.Node;
import org.opensearch.percolator.PercolatorPlugin;
import org.opensearch.transport.Netty4Plugin;

public class SingleNode extends Node {
    private SingleNode(Environment environment) {
        super(environment, List.of(Netty4Plugin.class, ReindexPlugin.class, PercolatorPlugin.class), true);
    }

    public static void main(String[] arguments) throws Exception {
        Settings settings = Settings.builder()
            .put("path.home", Path.of(arguments[0]).toAbsolutePath().toString())
            .put("cluster.name", "headrace-peer")
            .put("discovery.type", "single-node")
            .put("network.host", "127.0.0.1")
            .put("http.port", arguments[1])
            .put("transport.port", "0")
            // A disk that is nearly full for other reasons would make every index read-only.
            .put("cluster.routing.allocation.disk.threshold_enabled", "false")
            .build();
        SingleNode node = new SingleNode(
            InternalSettingsPreparer.prepareEnvironment(settings, Map.of(), null, () -> "peer"));
        CountDownLatch ended = new CountDownLatch(1);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            try {
                node.close();
            } catch (Exception error) {
                error.printStackTrace();
            }
            ended.countDown();
        }));
        node.start();
        ended.await();
    }
}
