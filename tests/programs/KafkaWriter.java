import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Properties;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/** KafkaWriter BROKER SECONDS OUT: a record of 1 KiB every 4 ms, acknowledged by all. Writes when each reply came (s) and its duration in ms. */
public final class KafkaWriter {
    private static final int WARM_UP = 200;

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("acks", "all");
        settings.put("key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        byte[] value = new byte[1024];
        ConcurrentLinkedQueue<String> took = new ConcurrentLinkedQueue<>();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings)) {
            // Create the topic and compile the code before the measurement.
            for (int count = 0; count < WARM_UP; count++) {
                producer.send(new ProducerRecord<>("t", value)).get();
            }
            long end = System.nanoTime() + (long) (Double.parseDouble(arguments[1]) * 1e9);
            while (System.nanoTime() < end) {
                long start = System.nanoTime();
                producer.send(new ProducerRecord<>("t", value), (sent, failed) -> {
                    if (failed == null) {
                        took.add(String.format("[%.3f,%.3f]", System.currentTimeMillis() / 1e3, (System.nanoTime() - start) / 1e6));
                    }
                });
                TimeUnit.MILLISECONDS.sleep(4);
            }
            producer.flush();
        }
        Files.writeString(Path.of(arguments[2]), "[" + String.join(",", took) + "]");
    }
}
