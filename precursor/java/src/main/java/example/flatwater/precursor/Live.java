package example.flatwater.precursor;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;

/** The live block: a page of shared memory with the writer's position, which survives the process. */
final class Live {
    static final int RINGS = 12;
    static final int POSITION = 128;
    static final int FLUSHED = 384;
    static final int RING_COUNT = 688;
    private static final long MAGIC = Words.get("prcrsr\2\0".getBytes(StandardCharsets.US_ASCII), 0);
    private static final int TOKEN = 8;
    private static final int FLAGS = 16;
    private static final int BOOT = 24;
    private static final int APPENDS = 136;
    private static final int RESERVED = 256;
    private static final int FREED = 512;
    private static final int EPOCH = 640;
    private static final int ENTRIES = 648;
    private static final int PREPARING = 680;
    private static final int RING_AT = 696;
    private static final int PUSHED = 888;
    private static final int POPPED = 896;
    private static final int BOUNDARIES = 904;
    private static final int BOUNDARIES_MAX = 64;
    private static final int UNSOUND = 1416;
    private static final int PATH_LEN = 1424;
    private static final int PATH = 1432;
    private static final int PATH_MAX = 1024;
    private static final int NUMBER_ENTRY = 2688;
    private static final long FRAMED = 1;
    private static final long MANY = 2;
    private static final long FORMAT_2 = 4;
    private static final long NEVER_WAKES = 8;

    final ByteBuffer page;
    /** Null for a block without a name. */
    private final OwnFile file;

    private Live(ByteBuffer page, OwnFile file) {
        this.page = page;
        this.file = file;
    }

    /**
     * Number and base of a file.
     *
     * @param seq number of the file
     * @param base position of the first byte
     */
    record At(long seq, long base) {
    }

    /** Creates the block, and locks it while the appender lives. Without a directory it is lost with the process. */
    static Live create(Path shm, String stem, long token, boolean framed, Path data, long position, At at, long number)
        throws IOException {
        OwnFile file = shm == null ? null : createShm(shm.resolve(stem + ".live"), Machine.PAGE_BYTES);
        try {
            ByteBuffer page = ByteBuffer.allocateDirect(Machine.PAGE_BYTES);
            if (file != null) {
                // Cannot fail for a new file; a process that cannot lock takes the writer for dead.
                file.tryLock();
                page = file.map(true, Machine.PAGE_BYTES);
            }
            Live live = new Live(page, file);
            Words.set(page, TOKEN, token);
            Words.set(page, FLAGS, (framed ? FRAMED : 0) | FORMAT_2 | NEVER_WAKES);
            Words.set(page, BOOT, Boot.THIS.low());
            Words.set(page, BOOT + 8, Boot.THIS.high());
            live.begin(position);
            Words.set(page, NUMBER_ENTRY, position);
            Words.set(page, NUMBER_ENTRY + 8, number);
            live.setFile(at);
            byte[] path = Names.bytes(data);
            if (path.length <= PATH_MAX) {
                page.put(PATH, path);
                Words.release(page, PATH_LEN, path.length);
            }
            Words.release(page, 0, MAGIC);
            return live;
        } catch (IOException e) {
            if (file != null) {
                file.close();
            }
            throw e;
        }
    }

    /** Sets all positions, before the first append. */
    void begin(long position) {
        for (int at : new int[] {POSITION, RESERVED, FLUSHED, FREED}) {
            Words.release(page, at, position);
        }
    }

    /** The valid block of that stem, of this user; null if there is none. */
    static Live find(Path shm, String stem, boolean write) throws IOException {
        OwnFile file = OwnFile.open(shm.resolve(stem + ".live"), Facts.Use.PRIVATE, write);
        if (file == null) {
            return null;
        }
        Live live = null;
        try {
            if (file.len() >= Machine.PAGE_BYTES) {
                ByteBuffer page = file.map(write, Machine.PAGE_BYTES);
                live = Words.acquire(page, 0) == MAGIC ? new Live(page, file) : null;
            }
            return live;
        } finally {
            if (live == null) {
                file.close();
            }
        }
    }

    /** Creates a shared-memory file with all its pages. A store into a page that tmpfs cannot provide would fail. */
    static OwnFile createShm(Path path, long bytes) throws IOException {
        Files.deleteIfExists(path);
        OwnFile.create(path, true);
        OwnFile file = OwnFile.open(path, Facts.Use.PRIVATE, true);
        if (file == null) {
            throw new IOException(path + " was removed while it was created; try again");
        }
        try {
            byte[] zeros = new byte[(int) Math.min(bytes, 64 << 10)];
            for (long at = 0; at < bytes; at += zeros.length) {
                file.writeAt(at, zeros, 0, (int) Math.min(zeros.length, bytes - at));
            }
            return file;
        } catch (IOException e) {
            // A partial file would hold memory that others need.
            Files.deleteIfExists(path);
            file.close();
            throw e;
        }
    }

    /** Removes this user's live block and rings of that stem; the live block last. */
    static void removeShm(Path shm, String stem) throws IOException {
        for (int i = 0; i <= RINGS; i++) {
            Path path = shm.resolve(i < RINGS ? stem + ".ring" + i : stem + ".live");
            Facts facts = Facts.of(path);
            if (facts != null && facts.unfit(Facts.Use.PRIVATE) == null) {
                Files.deleteIfExists(path);
            }
        }
    }

    boolean belongsTo(Sidecar.Entry entry) {
        Boot boot = new Boot(Words.get(page, BOOT), Words.get(page, BOOT + 8));
        return token() == entry.token() && boot.equals(entry.boot()) && boot.equals(Boot.THIS);
    }

    long token() {
        return Words.get(page, TOKEN);
    }

    boolean many() {
        return (Words.get(page, FLAGS) & MANY) != 0;
    }

    boolean isFormat2() {
        return (Words.get(page, FLAGS) & FORMAT_2) != 0;
    }

    boolean isHeld() throws IOException {
        return file.isLocked();
    }

    long position() {
        return Words.acquire(page, POSITION);
    }

    long flushed() {
        return Words.acquire(page, FLUSHED);
    }

    long appends() {
        return Words.acquire(page, APPENDS);
    }

    void countAppends(long appends) {
        Words.set(page, APPENDS, appends);
    }

    long epoch() {
        return Words.acquire(page, EPOCH);
    }

    At file() {
        return entry(epoch() & 1);
    }

    private At entry(long which) {
        int at = ENTRIES + 16 * (int) which;
        return new At(Words.acquire(page, at), Words.acquire(page, at + 8));
    }

    /** The previous file, if this run has left one; else null. */
    At fileBefore() {
        long epoch = epoch();
        return Long.compareUnsigned(epoch, 1) > 0 ? entry(epoch & 1 ^ 1) : null;
    }

    void setFile(At file) {
        long next = Words.get(page, EPOCH) + 1;
        int at = ENTRIES + 16 * (int) (next & 1);
        Words.set(page, at, file.seq);
        Words.set(page, at + 8, file.base);
        Words.release(page, EPOCH, next);
    }

    /** Number of the file that was prepared for a roll; -1 without one. */
    long preparing() {
        return Words.acquire(page, PREPARING) - 1;
    }

    long ringCount() {
        return Words.acquire(page, RING_COUNT);
    }

    long ringCapacity(int ring) {
        return Words.acquire(page, RING_AT + 16 * ring);
    }

    long ringStart(int ring) {
        return Words.acquire(page, RING_AT + 16 * ring + 8);
    }

    void setRing(long capacity, long start) {
        Words.set(page, RING_AT, capacity);
        Words.set(page, RING_AT + 8, start);
        Words.release(page, RING_COUNT, 1);
    }

    /** Announces the end of a file. False if too many ends wait. */
    boolean pushBoundary(long position) {
        long pushed = Words.get(page, PUSHED);
        if (pushed - Words.acquire(page, POPPED) >= BOUNDARIES_MAX) {
            return false;
        }
        Words.set(page, BOUNDARIES + 8 * (int) (pushed % BOUNDARIES_MAX), position);
        Words.release(page, PUSHED, pushed + 1);
        return true;
    }

    /** The next announced end of a file; -1 without one. */
    long nextBoundary() {
        long popped = Words.acquire(page, POPPED);
        return popped < Words.acquire(page, PUSHED) ? boundary(popped) : -1;
    }

    private long boundary(long index) {
        return Words.acquire(page, BOUNDARIES + 8 * (int) Long.remainderUnsigned(index, BOUNDARIES_MAX));
    }

    void popBoundary() {
        Words.release(page, POPPED, Words.acquire(page, POPPED) + 1);
    }

    boolean boundariesFit() {
        long waiting = Words.acquire(page, PUSHED) - Words.acquire(page, POPPED);
        return waiting >= 0 && waiting <= BOUNDARIES_MAX;
    }

    /** The file at whose end the writer appends, if the current file begins at {@code base}; null if it is current. */
    At announcedAfter(At current) {
        long pushed = Words.acquire(page, PUSHED);
        long count = 0;
        long last = 0;
        for (long i = Math.max(Words.acquire(page, POPPED), pushed - BOUNDARIES_MAX); i < pushed; i++) {
            long end = boundary(i);
            if (end > current.base) {
                count++;
                last = end;
            }
        }
        return count == 0 ? null : new At(current.seq + count, last);
    }

    /** Records that a sync has failed: nothing after {@code durable} counts as durable. */
    void distrust(long durable) {
        Words.setOnce(page, UNSOUND, durable + 1);
    }

    boolean isDistrusted() {
        return Words.acquire(page, UNSOUND) != 0;
    }

    void close() throws IOException {
        if (file != null) {
            file.close();
        }
    }
}
