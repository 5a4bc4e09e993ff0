import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.concurrent.locks.LockSupport;

/** The open loop of a cell in Java, with the line of figures of `Figures::line` of the bench. */
final class Loop {
    private static final int RECORD = 220;
    private static final long INTERVAL_NS = 200_000;
    /** Number of appends to another file first, so that compiled code is measured and not the interpreter. */
    private static final int WARM_UP = 60_000;

    private Loop() {
    }

    /** A way of appending. */
    interface Way {
        void append(byte[] record) throws Exception;
    }

    /** Opens a way of appending to this path. */
    interface Opening {
        Way open(Path path) throws Exception;
    }

    /** Runs a cell: warms up beside the measured file, prints the figures, and waits for its end. */
    static void run(Opening opening, Path dir, String name, long seconds) throws Exception {
        while (System.in.read() != '\n') {
            // Wait until the parent has moved this process into its cgroup.
        }
        int count = (int) (seconds * 1_000_000_000L / INTERVAL_NS);
        long[] service = new long[Math.max(count, WARM_UP)];
        long[] fromDue = new long[Math.max(count, WARM_UP)];
        append(opening.open(dir.resolve("warm")), WARM_UP, 0, service, fromDue);
        Arrays.fill(service, 1);
        Arrays.fill(fromDue, 1);
        long began = System.nanoTime();
        Way way = opening.open(dir.resolve(name));
        long open = System.nanoTime() - began;
        long begun = System.nanoTime();
        long cpuBegun = cpuNs();
        int done = append(way, count, INTERVAL_NS, service, fromDue);
        long cpu = (cpuNs() - cpuBegun) * 10_000 / (System.nanoTime() - begun);
        String line = line(Arrays.copyOf(service, done), Arrays.copyOf(fromDue, done), open);
        System.out.println(line + " " + cpu);
        System.out.flush();
        Thread.sleep(60_000);
    }

    /** CPU time of this process. */
    private static long cpuNs() {
        return ManagementFactory.getPlatformMXBean(OperatingSystemMXBean.class).getProcessCpuTime();
    }

    private static int append(Way way, int count, long intervalNs, long[] service, long[] fromDue) throws Exception {
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
            way.append(record);
            long end = System.nanoTime();
            service[i] = end - start;
            fromDue[i] = Math.max(0, end - due);
            if (intervalNs > 0 && end - begun > 3L * count * intervalNs) {
                return i + 1;
            }
        }
        return count;
    }

    /** A JVM cannot count preempted calls. */
    private static String line(long[] service, long[] fromDue, long open) {
        Arrays.sort(service);
        Arrays.sort(fromDue);
        long slow = Arrays.stream(service).filter(ns -> ns > 1_000_000).count();
        return service.length + " " + at(service, 0.5) + " " + at(service, 0.999) + " " + at(service, 0.9999) + " "
            + at(service, 1) + " " + slow + " 0 " + at(fromDue, 0.999) + " " + at(fromDue, 1) + " 0 " + open;
    }

    private static long at(long[] sorted, double quantile) {
        int rank = (int) Math.ceil(quantile * sorted.length);
        return sorted[Math.max(1, Math.min(rank, sorted.length)) - 1];
    }
}
