import java.nio.file.Path;
import java.util.concurrent.locks.LockSupport;
import net.openhft.chronicle.queue.ChronicleQueue;
import net.openhft.chronicle.queue.ExcerptAppender;
import net.openhft.chronicle.queue.impl.single.SingleChronicleQueueBuilder;
import net.openhft.chronicle.wire.DocumentContext;

/** Chronicle Queue with its pretoucher. */
public final class Rival {
    public static void main(String[] args) throws Exception {
        Loop.run(Rival::open, Path.of(args[0]), "queue", Long.parseLong(args[1]));
    }

    private static Loop.Way open(Path path) {
        ChronicleQueue queue = SingleChronicleQueueBuilder.binary(path).build();
        Thread pretoucher = new Thread(() -> {
            // The queue's pretoucher, on a separate thread with a separate appender, as its documentation requires.
            ExcerptAppender appender = queue.acquireAppender();
            while (true) {
                appender.pretouch();
                LockSupport.parkNanos(10_000_000);
            }
        });
        pretoucher.setDaemon(true);
        pretoucher.start();
        ExcerptAppender appender = queue.acquireAppender();
        return record -> {
            try (DocumentContext document = appender.writingDocument()) {
                document.wire().bytes().write(record);
            }
        };
    }
}
