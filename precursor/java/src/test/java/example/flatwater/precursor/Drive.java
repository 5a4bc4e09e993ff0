package example.flatwater.precursor;

import java.io.RandomAccessFile;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;

/** A program that the tests in Rust start: it writes, reads and recovers as its arguments say. */
public final class Drive {
    private final Path path;

    private Drive(Path path) {
        this.path = path;
    }

    /** Record {@code i}, as {@code payload} of precursor/tests/reading.rs. */
    static byte[] payload(long i) {
        byte[] bytes = new byte[8 + (int) (i * 37 % 700)];
        Arrays.fill(bytes, (byte) i);
        ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN).putLong(0, i);
        return bytes;
    }

    /** Record {@code i} of 220 bytes, as {@code record} of precursor/tests/writer. */
    static byte[] record(long i) {
        byte[] bytes = new byte[220];
        ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN).putLong(8, i);
        for (int k = 16; k < bytes.length; k++) {
            bytes[k] = (byte) (i * 31 + k * 7L);
        }
        return bytes;
    }

    /**
     * Runs a command.
     *
     * @param args the command, the path and more
     * @throws Exception if it fails
     */
    public static void main(String[] args) throws Exception {
        Drive drive = new Drive(Path.of(args[1]));
        switch (args[0]) {
            case "write" -> drive.write(args);
            case "read" -> drive.read(Long.parseLong(args[2]), Duration.ZERO);
            case "follow" -> drive.read(Long.parseLong(args[2]), Duration.ofSeconds(60));
            case "count" -> drive.count();
            case "seek" -> drive.seek(Long.parseLong(args[2]));
            case "recover" -> drive.recover();
            case "die" -> drive.untilKilled(args);
            case "fill" -> drive.fill(args);
            case "sync" -> drive.syncUntilItFails(args);
            case "hold" -> drive.hold(args);
            default -> throw new IllegalArgumentException(args[0]);
        }
    }

    /** Arguments: mode, "records" or "none", roll size, directory of shared memory. */
    private Options options(String[] args) {
        return Options.of(path).mode(args[2].equals("auto") ? null : Mode.valueOf(args[2]))
            .framing(args[3].equals("records") ? Framing.RECORDS : Framing.NONE).rollBytes(Long.parseLong(args[4]))
            .ringBytes(128 << 10).shmDir(Path.of(args[5]));
    }

    /** Appends records {@code from} to {@code to}, closes, and prints the position. */
    private void write(String[] args) throws Exception {
        long from = Long.parseLong(args[6]);
        long to = Long.parseLong(args[7]);
        try (Appender log = Precursor.open(options(args))) {
            for (long i = from; i < to; i++) {
                log.append(payload(i));
                if (i % 500 == 0) {
                    Thread.sleep(2);
                }
            }
            log.syncTo(log.position());
            System.out.println(log.position());
        } catch (PrecursorException e) {
            System.out.println(e.getClass().getSimpleName() + ": " + e.getMessage());
        }
    }

    /** Reads records up to number {@code to}, checks each, and prints the number of records and the last position. */
    private void read(long to, Duration wait) throws Exception {
        try (Reader reader = Reader.open(path)) {
            long count = 0;
            long end = 0;
            ReadRecord record;
            while (count < to && (record = reader.next(wait)) != null) {
                if (record.number() != count || !Arrays.equals(record.bytes(), payload(count))) {
                    throw new AssertionError("record " + count + " has number " + record.number());
                }
                count++;
                end = record.position();
            }
            System.out.println(count + " " + end + " " + reader.writer() + " " + reader.unreadBytes());
        } catch (PrecursorException e) {
            System.out.println(e.getClass().getSimpleName() + ": " + e.getMessage());
        }
    }

    /** Checks that the records are those of {@link #record} from 0 on, and prints their number, or an error. */
    private void count() {
        try (Reader reader = Reader.open(path)) {
            long count = 0;
            ReadRecord found;
            while ((found = reader.next()) != null) {
                if (found.number() != count || !Arrays.equals(found.bytes(), record(count))) {
                    throw new AssertionError("record " + count + " has number " + found.number());
                }
                count++;
            }
            System.out.println(count);
        } catch (PrecursorException e) {
            System.out.println(e.getClass().getSimpleName());
        }
    }

    /** Seeks every record of {@link #payload} in every way, and prints the largest cost and the sum of the refusals. */
    private void seek(long to) throws Exception {
        long frames = 0;
        long points = 0;
        long refused = 0;
        try (Reader reader = Reader.open(path)) {
            for (long number = 0; number < to; number += 7) {
                reader.seekNumber(number);
                ReadRecord found = sought(reader, number);
                reader.seekAfter(found.position() - 1);
                sought(reader, number);
                reader.seekTime(found.timeNs());
                ReadRecord first = reader.next();
                if (first.number() > number || first.timeNs() != found.timeNs()) {
                    throw new AssertionError(number + " " + first.number());
                }
                frames = Math.max(frames, reader.seekCost().frames());
                points += reader.seekCost().points();
                refused += reader.seekCost().refused();
            }
            reader.seekEnd();
            if (reader.next() != null) {
                throw new AssertionError("a record behind the end");
            }
        }
        System.out.println(frames + " " + points + " " + refused);
    }

    private static ReadRecord sought(Reader reader, long number) throws Exception {
        ReadRecord found = reader.next();
        if (found.number() != number || !Arrays.equals(found.bytes(), payload(number))) {
            throw new AssertionError(number + " " + found.number());
        }
        return found;
    }

    private void recover() {
        try {
            Recovered found = Precursor.recover(path);
            System.out.println(found.evidence() + " " + found.len());
        } catch (PrecursorException e) {
            System.out.println(e.getClass().getSimpleName() + ": " + e.getMessage());
        }
    }

    /**
     * Appends until it is killed. The words of the ledger, as in precursor/tests/writer: the appended position, the
     * synced position, and the number of records.
     */
    private void untilKilled(String[] args) throws Exception {
        MappedByteBuffer ledger;
        try (RandomAccessFile file = new RandomAccessFile(args[6], "rw")) {
            ledger = file.getChannel().map(FileChannel.MapMode.READ_WRITE, 0, 4096);
        }
        Appender log = Precursor.open(options(args).syncEvery(Duration.ofMillis(3)));
        // Opening has made everything durable, also the header of a new file.
        Words.release(ledger, 8, log.position());
        System.out.println("open");
        for (long i = Words.acquire(ledger, 16);; i++) {
            long end = log.append(record(i));
            Words.release(ledger, 16, i + 1);
            Words.release(ledger, 0, end);
            if (i % 700 == 0) {
                Words.release(ledger, 8, log.syncTo(end));
            }
            if (i % 64 == 0) {
                Thread.sleep(0, 50_000);
            }
        }
    }

    /** Appends until the disk is full, frees space, and appends ten more. Prints the error and the number. */
    private void fill(String[] args) throws Exception {
        Path beside = path.resolveSibling("beside");
        java.nio.file.Files.write(beside, new byte[256 << 10]);
        Appender log = Precursor.open(options(args));
        long i = 0;
        PrecursorException full = null;
        while (full == null) {
            try {
                log.append(payload(i));
                i++;
            } catch (PrecursorException e) {
                full = e;
            }
        }
        java.nio.file.Files.delete(beside);
        for (int more = 0; more < 10;) {
            try {
                log.append(payload(i));
                i++;
                more++;
            } catch (PrecursorException.OutOfSpace e) {
                // The flusher has not tried again yet.
                Thread.sleep(1);
            }
        }
        log.close();
        System.out.println(full.getClass().getSimpleName() + " " + i);
    }

    /** Appends and syncs until that fails. Every later call must fail too. Prints the durable position. */
    private void syncUntilItFails(String[] args) throws Exception {
        Appender log = Precursor.open(options(args));
        long durable = 0;
        try {
            for (long i = 0; i < 200_000; i++) {
                long end = log.append(payload(i));
                if (i % 5_000 == 4_999) {
                    durable = log.syncTo(end);
                }
            }
            throw new AssertionError("a device of 16 MB took 70 MB");
        } catch (PrecursorException.Failed e) {
            // Expected: the write or the sync.
        }
        int failures = 0;
        for (int i = 0; i < 3; i++) {
            try {
                log.syncTo(log.position());
            } catch (PrecursorException.Failed e) {
                failures++;
            }
            try {
                log.append(payload(0));
            } catch (PrecursorException.Failed e) {
                failures++;
            }
        }
        try {
            log.close();
        } catch (PrecursorException.Failed e) {
            failures++;
        }
        if (failures != 7 || log.durable() != durable || log.failure() == null) {
            throw new AssertionError(failures + " failures, durable " + log.durable() + " of " + durable);
        }
        System.out.println("Failed durable " + durable);
    }

    /** Appends ten records, prints a line, and holds the file until standard input ends. */
    private void hold(String[] args) throws Exception {
        try (Appender log = Precursor.open(options(args))) {
            for (long i = 0; i < 10; i++) {
                log.append(payload(i));
            }
            System.out.println("open");
            while (System.in.read() >= 0) {
                // Wait for the end.
            }
        } catch (PrecursorException e) {
            System.out.println(e.getClass().getSimpleName() + ": " + e.getMessage());
        }
    }
}
