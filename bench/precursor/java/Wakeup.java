import example.flatwater.precursor.Appender;
import example.flatwater.precursor.Framing;
import example.flatwater.precursor.Mode;
import example.flatwater.precursor.Options;
import example.flatwater.precursor.Precursor;
import example.flatwater.precursor.ReadRecord;
import example.flatwater.precursor.Reader;
import example.flatwater.precursor.Waiting;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.concurrent.locks.LockSupport;

/**
 * Time from an append to the return of a waiting reader.
 *
 * <pre>java -cp CLASSES Wakeup DIRECTORY</pre>
 */
public final class Wakeup {
    private static final int RECORD = 220;

    public static void main(String[] args) throws Exception {
        Path dir = Path.of(args[0]);
        measure(dir.resolve("warm"), Waiting.SPINNING, 20_000, 100_000);
        System.out.println("waiting   every us   p50 us   p99 us   p99.9 us   reader's CPU");
        for (Waiting waiting : Waiting.values()) {
            for (long intervalUs : new long[] {200, 2_000, 20_000}) {
                int count = (int) (5_000_000 / intervalUs);
                System.out.println(measure(dir.resolve(waiting + "-" + intervalUs), waiting, count, intervalUs * 1000));
            }
        }
    }

    private static String measure(Path file, Waiting waiting, int count, long intervalNs) throws Exception {
        long[] took = new long[count];
        try (Appender log = Precursor.open(Options.of(file).mode(Mode.RING).framing(Framing.RECORDS));
            Reader reader = Reader.open(file)) {
            reader.waiting(waiting);
            Thread writer = new Thread(() -> {
                ByteBuffer record = ByteBuffer.allocate(RECORD);
                long begun = System.nanoTime();
                for (int i = 0; i < count; i++) {
                    LockSupport.parkNanos(begun + i * intervalNs - System.nanoTime());
                    try {
                        log.append(record.clear().putLong(0, System.nanoTime()));
                    } catch (Exception e) {
                        throw new AssertionError(e);
                    }
                }
            });
            ThreadMXBean threads = ManagementFactory.getThreadMXBean();
            long before = threads.getCurrentThreadCpuTime();
            long begun = System.nanoTime();
            writer.start();
            for (int i = 0; i < count; i++) {
                ReadRecord record = reader.next(Duration.ofSeconds(60));
                took[i] = System.nanoTime() - ByteBuffer.wrap(record.bytes()).getLong();
            }
            long cpu = 100 * (threads.getCurrentThreadCpuTime() - before) / (System.nanoTime() - begun);
            writer.join();
            Arrays.sort(took);
            return String.format("%-9s %8d %8.1f %8.1f %10.1f %12d %%", waiting, intervalNs / 1000, at(took, 0.5),
                at(took, 0.99), at(took, 0.999), cpu);
        }
    }

    private static double at(long[] sorted, double quantile) {
        return sorted[(int) Math.ceil(quantile * sorted.length) - 1] / 1000.0;
    }
}
