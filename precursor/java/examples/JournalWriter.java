import example.flatwater.precursor.Appender;
import example.flatwater.precursor.Framing;
import example.flatwater.precursor.Options;
import example.flatwater.precursor.Precursor;
import example.flatwater.precursor.Stats;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.util.concurrent.locks.LockSupport;

/**
 * The writer of the case study: 220 bytes each 200 us, and a sync each second on another thread.
 *
 * <pre>java -cp target/precursor-0.2.0.jar examples/JournalWriter.java FILE SECONDS</pre>
 */
public final class JournalWriter {
    private static final int RECORD = 220;
    private static final long INTERVAL_NS = 200_000;

    public static void main(String[] args) throws Exception {
        Options options = Options.of(Path.of(args[0])).framing(Framing.RECORDS).times(true)
            .syncEvery(java.time.Duration.ofSeconds(1));
        long count = Long.parseLong(args[1]) * 1_000_000_000L / INTERVAL_NS;
        try (Appender journal = Precursor.open(options)) {
            journal.reasons().forEach(System.out::println);
            ByteBuffer record = ByteBuffer.allocate(RECORD);
            long begun = System.nanoTime();
            for (long i = 0; i < count; i++) {
                LockSupport.parkNanos(begun + i * INTERVAL_NS - System.nanoTime());
                journal.append(record.clear().putLong(0, i));
            }
            Stats stats = journal.stats();
            System.out.printf("%d records in %s mode, the slowest append %d us, %d bytes not yet durable%n",
                stats.appends(), stats.mode(), stats.worstAppendNs() / 1000, stats.atRiskBytes());
        }
    }
}
