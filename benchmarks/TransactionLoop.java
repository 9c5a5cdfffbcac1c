import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** One transaction after another, as an application has them: begin, some sends, commit. Says how many a second. */
public class TransactionLoop {
    public static void main(String[] args) {
        String servers = args[0];
        String topic = args[1];
        String id = args[2];
        double warmUpSeconds = Double.parseDouble(args[3]);
        double seconds = Double.parseDouble(args[4]);
        int sends = Integer.parseInt(args[5]);
        Properties settings = new Properties();
        settings.put("bootstrap.servers", servers);
        settings.put("transactional.id", id);
        settings.put("key.serializer", ByteArraySerializer.class.getName());
        settings.put("value.serializer", ByteArraySerializer.class.getName());
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings)) {
            producer.initTransactions();
            run(producer, topic, sends, warmUpSeconds);
            long began = System.nanoTime();
            int done = run(producer, topic, sends, seconds);
            double took = (System.nanoTime() - began) / 1e9;
            System.out.printf(java.util.Locale.ROOT, "{\"transactions\": %d, \"seconds\": %.6f}%n", done, took);
        }
    }

    private static int run(KafkaProducer<byte[], byte[]> producer, String topic, int sends, double seconds) {
        long deadline = System.nanoTime() + (long) (seconds * 1e9);
        byte[] value = new byte[100];
        int done = 0;
        while (System.nanoTime() < deadline) {
            producer.beginTransaction();
            for (int send = 0; send < sends; send++) {
                producer.send(new ProducerRecord<>(topic, value));
            }
            // A commit flushes by itself, but clients of Kafka 4 may send the end of a transaction before its first
            // batch if the two threads meet badly (the accumulator is asked before the queue of requests), on any broker.
            producer.flush();
            producer.commitTransaction();
            done++;
        }
        return done;
    }
}
