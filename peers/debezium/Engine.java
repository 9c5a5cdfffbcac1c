// Debezium's embedded engine between PostgreSQL and Kafka, as a user would write it: each batch of changes is produced
// and flushed before it is marked as done. Run as a source file: java -cp 'lib/*' Engine.java settings.properties
//
// The settings are Debezium's own, and under `producer.` those of the Kafka producer. On standard output it says
// `ready` when the connector has begun. SIGTERM ends it in good order.

import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.FileReader;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

public class Engine {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        Properties producing = new Properties();
        Properties read = new Properties();
        try (FileReader file = new FileReader(arguments[0])) {
            read.load(file);
        }
        for (String name : read.stringPropertyNames()) {
            if (name.startsWith("producer.")) {
                producing.setProperty(name.substring("producer.".length()), read.getProperty(name));
            } else {
                settings.setProperty(name, read.getProperty(name));
            }
        }
        producing.put("key.serializer", StringSerializer.class.getName());
        producing.put("value.serializer", StringSerializer.class.getName());
        KafkaProducer<String, String> producer = new KafkaProducer<>(producing);
        DebeziumEngine<ChangeEvent<String, String>> engine = DebeziumEngine.create(Json.class)
            .using(settings)
            .using(new DebeziumEngine.ConnectorCallback() {
                @Override
                public void taskStarted() {
                    System.out.println("ready");
                }
            })
            .using((success, message, error) -> {
                if (!success) {
                    System.err.println(message);
                    if (error != null) {
                        error.printStackTrace();
                    }
                    System.exit(1);
                }
            })
            .notifying((records, committer) -> {
                for (ChangeEvent<String, String> record : records) {
                    producer.send(new ProducerRecord<>(record.destination(), record.key(), record.value()));
                }
                producer.flush();
                for (ChangeEvent<String, String> record : records) {
                    committer.markProcessed(record);
                }
                committer.markBatchFinished();
            })
            .build();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            try {
                engine.close();
            } catch (Exception error) {
                error.printStackTrace();
            }
            producer.close();
        }));
        engine.run();
    }
}
