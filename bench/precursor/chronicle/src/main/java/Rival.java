import java.nio.file.Path;
import java.util.Arrays;
import java.util.concurrent.locks.LockSupport;
import net.openhft.chronicle.queue.ChronicleQueue;
import net.openhft.chronicle.queue.ExcerptAppender;
import net.openhft.chronicle.queue.impl.single.SingleChronicleQueueBuilder;
import net.openhft.chronicle.wire.DocumentContext;

/** Chronicle Queue, with the same open loop and the same line of figures as the other cells of the bench. */
public final class Rival {
    private static final int RECORD = 220;
    private static final long INTERVAL_NS = 200_000;
    /** Number of appends to another queue first, so that compiled code is measured and not the interpreter. */
    private static final int WARM_UP = 60_000;

    public static void main(String[] args) throws Exception {
        while (System.in.read() != '\n') {
            // Wait until the parent has moved this process into its cgroup.
        }
        Path dir = Path.of(args[0]);
        int count = (int) (Long.parseLong(args[1]) * 1_000_000_000L / INTERVAL_NS);
        try (ChronicleQueue queue = SingleChronicleQueueBuilder.binary(dir.resolve("warm")).build()) {
            run(queue, WARM_UP, 0, new long[WARM_UP], new long[WARM_UP]);
        }
        long[] service = new long[count];
        long[] fromDue = new long[count];
        Arrays.fill(service, 1);
        Arrays.fill(fromDue, 1);
        ChronicleQueue queue = SingleChronicleQueueBuilder.binary(dir.resolve("queue")).build();
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
        int done = run(queue, count, INTERVAL_NS, service, fromDue);
        System.out.println(line(Arrays.copyOf(service, done), Arrays.copyOf(fromDue, done)));
        System.out.flush();
        Thread.sleep(60_000);
    }

    private static int run(ChronicleQueue queue, int count, long intervalNs, long[] service, long[] fromDue) {
        ExcerptAppender appender = queue.acquireAppender();
        byte[] record = new byte[RECORD];
        Arrays.fill(record, (byte) 'a');
        long begun = System.nanoTime();
        for (int i = 0; i < count; i++) {
            long due = begun + i * intervalNs;
            long early = due - System.nanoTime();
            if (early > 0) {
                LockSupport.parkNanos(early);
            }
            long start = System.nanoTime();
            try (DocumentContext document = appender.writingDocument()) {
                document.wire().bytes().write(record);
            }
            long end = System.nanoTime();
            service[i] = end - start;
            fromDue[i] = Math.max(0, end - due);
            if (intervalNs > 0 && end - begun > 3L * count * intervalNs) {
                return i + 1;
            }
        }
        return count;
    }

    /** As `Figures::line` of the bench; a JVM cannot count preempted calls. */
    private static String line(long[] service, long[] fromDue) {
        Arrays.sort(service);
        Arrays.sort(fromDue);
        long slow = Arrays.stream(service).filter(ns -> ns > 1_000_000).count();
        return service.length + " " + at(service, 0.5) + " " + at(service, 0.999) + " " + at(service, 0.9999) + " "
            + at(service, 1) + " " + slow + " 0 " + at(fromDue, 0.999) + " " + at(fromDue, 1) + " 0 0";
    }

    private static long at(long[] sorted, double quantile) {
        int rank = (int) Math.ceil(quantile * sorted.length);
        return sorted[Math.max(1, Math.min(rank, sorted.length)) - 1];
    }
}
