import example.flatwater.precursor.Appender;
import example.flatwater.precursor.Framing;
import example.flatwater.precursor.Mode;
import example.flatwater.precursor.Options;
import example.flatwater.precursor.Precursor;
import java.io.RandomAccessFile;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.concurrent.locks.LockSupport;

/** Ways of appending in Java, with the same open loop and the same line of figures as the other cells of the bench. */
public final class Cell {
    private static final int RECORD = 220;
    private static final long INTERVAL_NS = 200_000;
    /** Number of appends to another file first, so that compiled code is measured and not the interpreter. */
    private static final int WARM_UP = 60_000;

    /** A way of appending. */
    private interface Way {
        void append(byte[] record) throws Exception;
    }

    public static void main(String[] args) throws Exception {
        while (System.in.read() != '\n') {
            // Wait until the parent has moved this process into its cgroup.
        }
        Path dir = Path.of(args[1]);
        int count = (int) (Long.parseLong(args[2]) * 1_000_000_000L / INTERVAL_NS);
        long[] service = new long[Math.max(count, WARM_UP)];
        long[] fromDue = new long[Math.max(count, WARM_UP)];
        run(way(args[0], dir.resolve("warm")), WARM_UP, 0, service, fromDue);
        Arrays.fill(service, 1);
        Arrays.fill(fromDue, 1);
        long opening = System.nanoTime();
        Way way = way(args[0], dir.resolve("journal"));
        long open = System.nanoTime() - opening;
        int done = run(way, count, INTERVAL_NS, service, fromDue);
        System.out.println(line(Arrays.copyOf(service, done), Arrays.copyOf(fromDue, done), open));
        System.out.flush();
        Thread.sleep(60_000);
    }

    private static Way way(String name, Path file) throws Exception {
        if (name.equals("java-map")) {
            return new Mapped(file);
        }
        Appender log = Precursor.open(Options.of(file).mode(Mode.RING).framing(Framing.NONE));
        return log::append;
    }

    /** A mapping by hand: a thread takes the page faults 4 MiB ahead. Java has no fallocate. */
    private static final class Mapped implements Way {
        private static final VarHandle LONG =
            MethodHandles.byteBufferViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);
        private static final int BYTES = 256 << 20;
        private static final int AHEAD = 4 << 20;
        private final MappedByteBuffer map;
        private volatile int at;
        private int cursor;

        Mapped(Path file) throws Exception {
            try (RandomAccessFile opened = new RandomAccessFile(file.toFile(), "rw")) {
                opened.setLength(BYTES);
                map = opened.getChannel().map(FileChannel.MapMode.READ_WRITE, 0, BYTES);
            }
            touch(0, AHEAD);
            Thread toucher = new Thread(() -> {
                int done = AHEAD;
                while (done < BYTES) {
                    if (at + AHEAD > done) {
                        touch(done, done + (1 << 20));
                        done += 1 << 20;
                    } else {
                        LockSupport.parkNanos(1_000_000);
                    }
                }
            });
            toucher.setDaemon(true);
            toucher.start();
        }

        private void touch(int from, int to) {
            for (int page = from; page < to; page += 4096) {
                // A store that changes nothing, even if the writer is here already.
                LONG.getAndAdd(map, page, 0L);
            }
        }

        @Override
        public void append(byte[] record) {
            map.put(cursor, record);
            cursor += record.length;
            at = cursor;
        }
    }

    private static int run(Way way, int count, long intervalNs, long[] service, long[] fromDue) throws Exception {
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

    /** As `Figures::line` of the bench; a JVM cannot count preempted calls. */
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
