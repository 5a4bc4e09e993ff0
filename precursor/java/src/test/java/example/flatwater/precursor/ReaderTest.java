package example.flatwater.precursor;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.List;
import java.util.zip.CRC32;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

class ReaderTest {
    private static final Duration LONG = Duration.ofSeconds(60);
    @TempDir
    Path dir;

    private Options options(String name, Mode mode) {
        return Options.of(dir.resolve(name)).mode(mode).framing(Framing.RECORDS).ringBytes(64 << 10)
            .rollBytes(name.contains("{}") ? 64 << 10 : 0);
    }

    @ParameterizedTest
    @EnumSource(names = {"RING", "PLAIN"})
    void followsAWriterAcrossFilesAndSeesEachRecordOnce(Mode mode) throws Exception {
        for (Waiting waiting : Waiting.values()) {
            String name = "log-" + waiting + "-{}";
            try (Appender log = Precursor.open(options(name, mode)); Reader reader = Reader.open(dir.resolve(name))) {
                reader.waiting(waiting);
                Thread writer = new Thread(() -> {
                    try {
                        for (int i = 0; i < 3_000; i++) {
                            log.append(Drive.payload(i));
                            if (i % 500 == 0) {
                                Thread.sleep(2);
                            }
                        }
                    } catch (Exception e) {
                        throw new AssertionError(e);
                    }
                });
                writer.start();
                for (int i = 0; i < 3_000; i++) {
                    ReadRecord found = reader.next(LONG);
                    assertEquals(i, found.number());
                    assertArrayEquals(Drive.payload(i), found.bytes());
                }
                writer.join();
                assertNull(reader.next());
                assertEquals(WriterState.ALIVE, reader.writer());
                long end = log.append(new byte[] {1});
                assertEquals(end, reader.next(LONG).position());
                log.close();
                assertNull(reader.next(Duration.ofMillis(50)));
                assertEquals(WriterState.UNKNOWN, reader.writer());
            }
        }
    }

    @Test
    void seeksByPositionNumberTimeAndToTheEnd() throws IOException {
        try (Appender log = Precursor.open(options("log-{}", Mode.RING).times(true));
            Reader reader = Reader.open(dir.resolve("log-{}"))) {
            long[] ends = new long[1_000];
            for (int i = 0; i < ends.length; i++) {
                ends[i] = log.append(Drive.payload(i));
            }
            reader.seekAfter(ends[600]);
            ReadRecord found = reader.next();
            assertEquals(601, found.number());
            reader.seekTime(found.timeNs());
            assertTrue(reader.next().number() <= 601);
            reader.seekNumber(345);
            assertArrayEquals(Drive.payload(345), reader.next().bytes());
            reader.seekEnd();
            assertNull(reader.next());
            long end = log.append(new byte[] {5});
            assertEquals(end, reader.next().position());
            reader.seekFirst();
            assertEquals(0, reader.next().number());
        }
        try (Reader reader = Reader.open(dir.resolve("log-{}"))) {
            reader.seekEnd();
            assertNull(reader.next());
        }
    }

    @Test
    void closingAReaderKeepsTheLocksOfAWriterInTheSameProcess() throws Exception {
        try (Appender log = Precursor.open(options("log", Mode.RING))) {
            log.append(new byte[] {1});
            for (int i = 0; i < 3; i++) {
                try (Reader reader = Reader.open(dir.resolve("log"))) {
                    assertNotNull(reader.next());
                    reader.next(Duration.ofMillis(25));
                }
            }
            // Another process, since the JVM itself knows its own locks.
            Process other = new ProcessBuilder(ProcessHandle.current().info().command().orElseThrow(), "-cp",
                System.getProperty("surefire.test.class.path", System.getProperty("java.class.path")),
                Drive.class.getName(), "recover", dir.resolve("log").toString()).redirectErrorStream(true).start();
            String printed = new String(other.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
            assertTrue(printed.startsWith("Busy"), printed);
        }
    }

    @Test
    void tornAndForeignFilesAreNamed() throws IOException {
        Path file = dir.resolve("log");
        try (Appender log = Precursor.open(options("log", Mode.PLAIN))) {
            for (int i = 0; i < 10; i++) {
                log.append(Drive.payload(i));
            }
        }
        byte[] whole = Files.readAllBytes(file);
        Files.write(file, java.util.Arrays.copyOf(whole, whole.length - 16));
        try (Reader reader = Reader.open(file)) {
            for (int i = 0; i < 9; i++) {
                assertArrayEquals(Drive.payload(i), reader.next().bytes());
            }
            assertNull(reader.next());
            assertTrue(reader.unreadBytes() > 0);
        }
        byte[] later = whole.clone();
        later[8] = 9;
        CRC32 crc = new CRC32();
        crc.update(later, 0, 60);
        Words.setInt(later, 60, (int) crc.getValue());
        Files.write(file, later);
        PrecursorException.Version version =
            assertThrows(PrecursorException.Version.class, () -> Reader.open(file).next());
        assertEquals(9, version.version());
        assertThrows(PrecursorException.Version.class, () -> Precursor.open(options("log", Mode.RING)));
        byte[] damaged = whole.clone();
        damaged[30] ^= 1;
        Files.write(file, damaged);
        assertThrows(PrecursorException.Damaged.class, () -> Reader.open(file).next());
        Files.writeString(file, "not a file of the library, but text of more than sixty-four bytes in length");
        assertThrows(PrecursorException.NotFramed.class, () -> Reader.open(file).next());
        assertThrows(PrecursorException.InvalidOptions.class, () -> Precursor.open(options("log", Mode.RING)));
    }

    @Test
    void aRecordLongerThanAllowedNamesTheSetting() throws IOException {
        try (Appender log = Precursor.open(options("log", Mode.PLAIN)); Reader reader = Reader.open(dir.resolve("log"))) {
            long end = log.append(new byte[1]);
            log.append(new byte[100_000]);
            reader.recordBytesMax(99_999);
            assertNotNull(reader.next());
            PrecursorException.TooLong tooLong = assertThrows(PrecursorException.TooLong.class, reader::next);
            assertEquals(dir.resolve("log") + " has a record of 100000 bytes at byte " + end
                + ", at most 99999 are allowed; call recordBytesMax with as many", tooLong.getMessage());
            reader.recordBytesMax(100_000);
            assertEquals(100_000, reader.next().bytes().length);
        }
    }

    @Test
    void removedReplacedAndCutFilesAreErrorsBehindTheirRecords() throws IOException {
        Path file = dir.resolve("log");
        try (Appender log = Precursor.open(options("log", Mode.PLAIN))) {
            log.append(Drive.payload(1));
        }
        try (Reader reader = Reader.open(file)) {
            assertNotNull(reader.next());
            Files.delete(file);
            assertThrows(PrecursorException.Removed.class, () -> reader.next(LONG));
        }
        try (Appender log = Precursor.open(options("log", Mode.PLAIN))) {
            log.append(Drive.payload(1));
        }
        try (Reader reader = Reader.open(file)) {
            assertNotNull(reader.next());
            Files.write(file, new byte[10], StandardOpenOption.TRUNCATE_EXISTING);
            assertThrows(PrecursorException.Truncated.class, reader::next);
        }
        // A file of a pattern that was archived is a gap, and reading continues behind it.
        try (Appender log = Precursor.open(options("roll-{}", Mode.PLAIN))) {
            for (int i = 0; i < 1_000; i++) {
                log.append(Drive.payload(i));
            }
        }
        try (Reader reader = Reader.open(dir.resolve("roll-{}"))) {
            Files.delete(dir.resolve("roll-00000001"));
            Files.delete(dir.resolve("roll-00000002"));
            long next = 0;
            while (Files.exists(dir.resolve("roll-00000000")) && next >= 0) {
                try {
                    next = reader.next().number() + 1;
                } catch (PrecursorException.Missing e) {
                    assertEquals(next, e.from());
                    next = -1;
                }
            }
            ReadRecord behind = reader.next();
            assertArrayEquals(Drive.payload(behind.number()), behind.bytes());
            assertThrows(PrecursorException.Missing.class, () -> reader.seekNumber(behind.number() - 1));
        }
    }

    /** A directory of another user: the reader began again with the first file. */
    @Test
    void aFileWithTheLargestNumberIsTheLastOne() throws IOException {
        try (Appender log = Precursor.open(options("log-{}", Mode.PLAIN))) {
            for (int i = 0; i < 1_000; i++) {
                log.append(Drive.payload(i));
            }
        }
        Path last = dir.resolve("log-" + Long.MAX_VALUE);
        Files.move(dir.resolve("log-00000001"), last);
        List<Path> others = Names.list(dir, "{log-0*,.log-*}");
        for (Path other : others) {
            if (!other.endsWith("log-00000000")) {
                Files.delete(other);
            }
        }
        try (Reader reader = Reader.open(dir.resolve("log-{}"))) {
            long end = 0;
            PrecursorException.Missing gap = null;
            while (gap == null) {
                try {
                    end = reader.next().number() + 1;
                } catch (PrecursorException.Missing e) {
                    gap = e;
                }
            }
            assertEquals(end, gap.from());
            ReadRecord found;
            while ((found = reader.next()) != null) {
                assertEquals(end, found.number());
                end++;
            }
        }
        long len = Files.size(last);
        PrecursorException.InvalidOptions refused =
            assertThrows(PrecursorException.InvalidOptions.class, () -> Precursor.open(options("log-{}", Mode.PLAIN)));
        assertTrue(refused.getMessage().contains("has a number that no appender reaches"), refused.getMessage());
        assertEquals(len, Files.size(last));
    }

    @Test
    void aFileThatIsRemovedSinceItWasListedIsReadOrMissing() throws IOException {
        try (Appender log = Precursor.open(options("log-{}", Mode.PLAIN))) {
            for (int i = 0; i < 1_000; i++) {
                log.append(Drive.payload(i));
            }
        }
        Names names = Names.of(dir.resolve("log-{}"));
        List<Long> files = names.present();
        assertTrue(files.size() > 4);
        long[] first = new long[files.size()];
        for (int i = 0; i < first.length; i++) {
            OwnFile file = OwnFile.open(names.path(files.get(i)), Facts.Use.READ, false);
            first[i] = Scan.header(file).first();
            file.close();
        }
        try (Reader reader = Reader.open(dir.resolve("log-{}"))) {
            // The reader has opened the first file, and so reads it to its end.
            names.remove(0);
            for (long i = 0; i <= first[1]; i++) {
                assertEquals(i, reader.next().number());
            }
            reader.listed = () -> assertDoesNotThrow(() -> names.remove(1));
            reader.seekFirst();
            assertEquals(first[2], reader.next().number());
            reader.listed = () -> assertDoesNotThrow(() -> names.remove(2));
            long from = first[2];
            assertEquals(from,
                assertThrows(PrecursorException.Missing.class, () -> reader.seekNumber(from)).from());
            assertEquals(first[3], reader.next().number());
            reader.listed = () -> assertDoesNotThrow(() -> names.remove(3));
            reader.seekAfter(1);
            assertEquals(first[4], reader.next().number());
            // All are removed: a reader then begins at the next file that appears.
            reader.listed = () -> assertDoesNotThrow(() -> {
                for (long seq : files) {
                    names.remove(seq);
                }
            });
            reader.seekFirst();
            assertNull(reader.next());
            try (Appender log = Precursor.open(options("log-{}", Mode.PLAIN))) {
                reader.listed = () -> { };
                log.append(Drive.payload(0));
                assertNotNull(reader.next(LONG));
            }
        }
    }

    @Test
    void aTornTailIsCutAndAFileWithoutItsEndMarkEndsTheData() throws IOException {
        Path file = dir.resolve("log");
        try (Appender log = Precursor.open(options("log", Mode.PLAIN))) {
            log.append(Drive.payload(0));
            // The machine dies: neither sidecar nor shared memory says where the data end.
            Files.write(file, new byte[] {1, 2, 3, 4, 5, 6, 7, 8, 9}, StandardOpenOption.APPEND);
            try (Reader reader = Reader.open(file)) {
                assertNotNull(reader.next());
                assertNull(reader.next());
            }
        }
        assertNull(Precursor.recover(file).setAside().stream().findAny().orElse(null));
        assertEquals(64 + 32, Files.size(file));
        // A journalled single file whose end is torn.
        Names names = Names.of(file);
        Sidecar side = Sidecar.take(names);
        side.write(new Sidecar.Entry(1, 0, 64, 0, false, false, true, 0, 1, Boot.THIS, null));
        side.close();
        Files.write(file, new byte[] {1, 2, 3, 4, 5, 6, 7, 8, 9}, StandardOpenOption.APPEND);
        Recovered found = Precursor.recover(file);
        assertEquals(new Recovered(file.toRealPath(), 96, Evidence.FRAMES, 0, List.of(), 9), found);
    }
}
