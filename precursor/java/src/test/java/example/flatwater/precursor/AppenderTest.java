package example.flatwater.precursor;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

class AppenderTest {
    /** Longer than any stall of a busy machine: a test that waits this long has failed. */
    private static final long LONG_NS = 60_000_000_000L;
    @TempDir
    Path dir;
    private Path file;

    @BeforeEach
    void name() {
        file = dir.resolve("log");
    }

    private Options options(Mode mode) {
        return Options.of(file).mode(mode).framing(Framing.RECORDS).ringBytes(64 << 10);
    }

    /** All records of the file. */
    private List<byte[]> records() throws IOException {
        List<byte[]> found = new ArrayList<>();
        try (Reader reader = Reader.open(file)) {
            ReadRecord record;
            while ((record = reader.next()) != null) {
                assertEquals(found.size(), record.number());
                found.add(record.bytes());
            }
            assertEquals(0, reader.unreadBytes());
        }
        return found;
    }

    @ParameterizedTest
    @EnumSource(names = {"RING", "PLAIN"})
    void recordsSurviveCloseAndReopen(Mode mode) throws IOException {
        long end = 0;
        for (int run = 0; run < 3; run++) {
            try (Appender log = Precursor.open(options(mode))) {
                assertEquals(mode, log.mode());
                assertEquals(After.SYNC_TO, log.survival().machineDeath());
                assertEquals(run == 0 ? FileHeader.LEN : end, log.position());
                for (int i = 0; i < 1000; i++) {
                    end = log.append(Drive.payload(run * 1000 + i));
                }
                assertEquals(end, log.syncTo(end - 8) > end - 8 ? log.durable() : end);
                assertEquals(1000, log.stats().appends());
                assertNull(log.failure());
            }
            assertEquals(end, Files.size(file));
        }
        List<byte[]> found = records();
        assertEquals(3000, found.size());
        for (int i = 0; i < found.size(); i++) {
            assertArrayEquals(Drive.payload(i), found.get(i));
        }
        assertFalse(Files.exists(dir.resolve(".log.precursor")), "a closed single file has no sidecar");
    }

    @ParameterizedTest
    @EnumSource(names = {"RING", "PLAIN"})
    void buffersReservationsAndEmptyRecordsAreAppended(Mode mode) throws IOException {
        try (Appender log = Precursor.open(options(mode))) {
            ByteBuffer heap = ByteBuffer.wrap(new byte[] {9, 1, 2, 3, 9}, 1, 3);
            log.append(heap);
            assertFalse(heap.hasRemaining());
            log.append(ByteBuffer.allocateDirect(4).put(new byte[] {4, 5, 6, 7}).flip());
            log.append(ByteBuffer.wrap(new byte[] {8, 8}).asReadOnlyBuffer());
            log.append(new byte[0]);
            log.append(new byte[] {0, 10, 11, 0}, 1, 2);
            ByteBuffer lent = log.reserve(100);
            lent.put(new byte[] {12, 13, 14});
            log.commit(3);
            // The lent buffer is not the record's memory.
            lent.put(0, (byte) 99);
        }
        byte[][] expected = {{1, 2, 3}, {4, 5, 6, 7}, {8, 8}, {}, {10, 11}, {12, 13, 14}};
        List<byte[]> found = records();
        assertEquals(expected.length, found.size());
        for (int i = 0; i < expected.length; i++) {
            assertArrayEquals(expected[i], found.get(i));
        }
    }

    @ParameterizedTest
    @EnumSource(names = {"RING", "PLAIN"})
    void misuseThrowsAndAppendsNothing(Mode mode) throws IOException {
        Appender log = Precursor.open(options(mode));
        log.append(new byte[] {1});
        assertThrows(PrecursorException.NotReserved.class, () -> log.commit(1));
        log.reserve(1000);
        assertThrows(PrecursorException.NotReserved.class, () -> log.commit(1001));
        assertThrows(PrecursorException.NotReserved.class, () -> log.commit(10), "a refused commit drops it");
        log.reserve(1000);
        log.append(new byte[] {2});
        assertThrows(PrecursorException.NotReserved.class, () -> log.commit(1), "an append drops it");
        log.reserve(8);
        assertThrows(PrecursorException.NotReserved.class, () -> log.commit(-1));
        assertThrows(IllegalArgumentException.class, () -> log.reserve(-1));
        assertThrows(IndexOutOfBoundsException.class, () -> log.append(new byte[4], 2, 3));
        if (mode == Mode.RING) {
            PrecursorException.TooLong tooLong = assertThrows(PrecursorException.TooLong.class,
                () -> log.append(new byte[40_000]));
            assertEquals(32_768 - 24, tooLong.max());
            log.append(new byte[tooLong.max()]);
            assertThrows(PrecursorException.TooLong.class, () -> log.reserve(tooLong.max() + 1));
        }
        assertThrows(PrecursorException.Beyond.class, () -> log.syncTo(log.position() + 1));
        assertThrows(PrecursorException.Beyond.class, () -> log.syncTo(-1));
        assertThrows(PrecursorException.Busy.class, () -> Precursor.open(options(mode)));
        assertThrows(PrecursorException.Busy.class, () -> Precursor.recover(file));
        int count = mode == Mode.RING ? 3 : 2;
        long end = log.position();
        log.close();
        log.close();
        assertEquals(end, log.durable());
        assertEquals(end, log.syncTo(end));
        for (var use : List.<org.junit.jupiter.api.function.Executable>of(() -> log.append(new byte[1]),
            () -> log.reserve(1), () -> log.commit(0))) {
            assertThrows(PrecursorException.Closed.class, use);
        }
        assertEquals(count, records().size());
    }

    @Test
    void optionsThatContradictAreRefusedByName() {
        Path rolled = dir.resolve("log-{}");
        for (Options each : List.of(Options.of(file).rollBytes(4096), Options.of(rolled),
            Options.of(rolled).rollBytes(1000), Options.of(file).rollEvery(Duration.ofSeconds(1)),
            Options.of(file).times(true), Options.of(file).ringBytes(0),
            Options.of(file).mode(Mode.RING).readableAtOnce(true), Options.of(file).syncEvery(Duration.ZERO),
            Options.of(dir.resolve("{}-{}")).rollBytes(4096), Options.of(dir.resolve("none/log")))) {
            assertThrows(PrecursorException.InvalidOptions.class, () -> Precursor.open(each));
        }
        for (Mode mode : new Mode[] {Mode.WINDOW, Mode.PREFETCH}) {
            PrecursorException refused = assertThrows(PrecursorException.Refused.class,
                () -> Precursor.open(Options.of(file).mode(mode)));
            assertTrue(refused.getMessage().contains("Mode.RING"), refused.getMessage());
        }
        PrecursorException noShm = assertThrows(PrecursorException.Refused.class,
            () -> Precursor.open(Options.of(file).mode(Mode.RING).shmDir(Path.of("/proc"))));
        assertTrue(noShm.getMessage().contains("tmpfs"), noShm.getMessage());
        assertFalse(Files.exists(dir.resolve(".log.precursor")), "a refused open leaves nothing");
    }

    @Test
    void withoutSharedMemoryAutoChoosesPlainAndSaysWhy() throws IOException {
        try (Appender log = Precursor.open(Options.of(file).shmDir(Path.of("/proc")))) {
            assertEquals(Mode.PLAIN, log.mode());
            assertTrue(log.reasons().get(0).startsWith("not ring: /proc is not a tmpfs"), log.reasons().toString());
        }
        try (Appender log = Precursor.open(Options.of(file).readableAtOnce(true))) {
            log.append(new byte[] {7});
            assertArrayEquals(new byte[] {7}, Files.readAllBytes(file));
        }
    }

    @Test
    void aSecondThreadGetsAnExceptionAndNoRecordIsTorn() throws Exception {
        Appender log = Precursor.open(options(Mode.RING));
        AtomicInteger refused = new AtomicInteger();
        AtomicInteger appended = new AtomicInteger();
        AtomicInteger attempts = new AtomicInteger();
        CountDownLatch begin = new CountDownLatch(1);
        List<Thread> threads = new ArrayList<>();
        for (int t = 0; t < 2; t++) {
            threads.add(new Thread(() -> {
                try {
                    begin.await();
                    for (int i = 0; i < 50_000 || refused.get() == 0; i++) {
                        attempts.incrementAndGet();
                        try {
                            log.append(new byte[100]);
                            appended.incrementAndGet();
                        } catch (PrecursorException.ConcurrentUse e) {
                            refused.incrementAndGet();
                        }
                    }
                } catch (Exception e) {
                    throw new AssertionError(e);
                }
            }));
        }
        threads.forEach(Thread::start);
        begin.countDown();
        for (Thread thread : threads) {
            thread.join();
        }
        log.close();
        assertTrue(refused.get() > 0);
        assertEquals(attempts.get(), appended.get() + refused.get());
        assertEquals(appended.get(), records().size());
    }

    @Test
    void aFullRingRefusesOrWaits() throws IOException {
        try (Appender log = Precursor.open(options(Mode.RING).backPressure(BackPressure.FAIL))) {
            PrecursorException.Full full = null;
            for (int i = 0; full == null; i++) {
                try {
                    log.append(new byte[30_000]);
                } catch (PrecursorException.Full e) {
                    full = e;
                }
                assertTrue(i < 100_000_000);
            }
            assertTrue(full.waitingBytes() > 0 && full.waitingBytes() <= 64 << 10);
        }
        int appended = 0;
        try (Appender log = Precursor.open(options(Mode.RING).existing(Existing.REPLACE))) {
            // The helper may be fast enough for some time.
            while (appended < 2_000 || log.stats().waits() == 0 && appended < 2_000_000) {
                log.append(Drive.payload(appended));
                appended++;
            }
            assertTrue(log.stats().waits() > 0);
        }
        assertEquals(appended, records().size());
    }

    @ParameterizedTest
    @EnumSource(names = {"RING", "PLAIN"})
    void anInterruptedThreadLosesNothing(Mode mode) throws IOException {
        Thread.currentThread().interrupt();
        try (Appender log = Precursor.open(options(mode))) {
            for (int i = 0; i < 2_000; i++) {
                log.append(Drive.payload(i));
            }
            log.syncTo(log.position());
            try (Reader reader = Reader.open(file)) {
                assertNotNull(reader.next());
            }
        }
        assertTrue(Thread.interrupted());
        assertEquals(2_000, records().size());
    }

    @Test
    void filesRollBySizeAndAgeAndExistingOnesAreKeptOrReplaced() throws Exception {
        file = dir.resolve("log-{}");
        for (Mode mode : new Mode[] {Mode.RING, Mode.PLAIN}) {
            Options rolled = options(mode).rollBytes(64 << 10).existing(Existing.REPLACE).times(true);
            try (Appender log = Precursor.open(rolled.syncEvery(Duration.ofMillis(2)))) {
                for (int i = 0; i < 1_000; i++) {
                    log.append(Drive.payload(i));
                }
                long until = System.nanoTime() + LONG_NS;
                while (log.durable() < log.position() && System.nanoTime() < until) {
                    Thread.sleep(1);
                }
                assertEquals(log.position(), log.durable());
            }
            assertTrue(Files.exists(dir.resolve("log-00000004")));
            assertEquals(1_000, records().size());
            assertThrows(PrecursorException.Exists.class, () -> Precursor.open(rolled.existing(Existing.REFUSE)));
        }
        try (Appender log = Precursor.open(options(Mode.RING).rollBytes(1 << 20).rollEvery(Duration.ofMillis(1)))) {
            long before = log.stats().rolls();
            long until = System.nanoTime() + LONG_NS;
            while (log.stats().rolls() == before && System.nanoTime() < until) {
                log.append(new byte[10]);
                Thread.sleep(1);
            }
            assertTrue(log.stats().rolls() > before);
        }
    }

    @Test
    void unframedFilesHoldExactlyTheBytes() throws IOException {
        for (Mode mode : new Mode[] {Mode.RING, Mode.PLAIN}) {
            Options options = Options.of(file).mode(mode).ringBytes(4096).existing(Existing.REPLACE);
            try (Appender log = Precursor.open(options)) {
                for (int i = 0; i < 3_000; i++) {
                    log.append(new byte[] {(byte) i, (byte) (i >> 8), 3});
                }
                assertEquals(9_000, log.position());
            }
            byte[] bytes = Files.readAllBytes(file);
            assertEquals(9_000, bytes.length);
            for (int i = 0; i < 3_000; i++) {
                assertEquals((byte) i, bytes[3 * i]);
                assertEquals((byte) (i >> 8), bytes[3 * i + 1]);
            }
        }
        assertThrows(PrecursorException.InvalidOptions.class, () -> Precursor.open(options(Mode.RING)));
        Files.delete(file);
        Precursor.open(options(Mode.PLAIN)).close();
        assertThrows(PrecursorException.InvalidOptions.class, () -> Precursor.open(Options.of(file)));
    }
}
