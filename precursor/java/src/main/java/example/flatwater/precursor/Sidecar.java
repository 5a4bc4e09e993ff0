package example.flatwater.precursor;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.zip.CRC32;

/** The small file beside the data with the lock against a second appender, and the journalled position. */
final class Sidecar {
    private static final byte[] MAGIC = "prcrsrS2".getBytes(StandardCharsets.US_ASCII);
    private static final byte[] MAGIC_1 = "prcrsrS1".getBytes(StandardCharsets.US_ASCII);
    private static final int SLOT_BYTES = 1024;
    private static final int SLOT_DISTANCE = 4096;
    private static final int DIR_LEN_AT = 80;
    private static final int NUMBER_AT = SLOT_BYTES - 12;
    private static final int SUM_AT = SLOT_BYTES - 4;
    private static final long PREALLOCATED = 1;
    private static final long FRAMED = 2;
    private static final long CLOSED = 4;
    private static final long BASED = 8;
    private static final long NUMBERED = 16;

    /**
     * Contents of a slot.
     *
     * @param token random for each open
     * @param seq number of the file in which the durable data end
     * @param len length of the durable data in that file, bytes
     * @param base position of that file's first byte; -1 if unknown
     * @param closed the writer has closed, and nothing is to be recovered
     * @param preallocated the file is longer than its data
     * @param framed the file has frames
     * @param number number of the next record, or one that no durable record has; -1 if unknown
     * @param shmId number in the names of the shared memory
     * @param boot the boot in which the entry was written
     * @param shmDir directory of the shared memory; null if there is none
     */
    record Entry(long token, long seq, long len, long base, boolean closed, boolean preallocated, boolean framed,
        long number, long shmId, Boot boot, Path shmDir) {

        /** The entry when nothing is left to recover. */
        Entry ended(Recovery.Ended end) {
            return new Entry(token, end.seq, end.len, end.base, true, preallocated, framed, end.number, shmId,
                Boot.THIS, shmDir);
        }

        /** The entry with another end of the durable data. */
        Entry at(Recovery.Ended end) {
            return new Entry(token, end.seq, end.len, end.base, closed, preallocated, framed, end.number, shmId, boot,
                shmDir);
        }

        private byte[] encode(long generation) throws IOException {
            byte[] out = new byte[SLOT_BYTES];
            byte[] dir = shmDir == null ? new byte[0] : Names.bytes(shmDir);
            if (DIR_LEN_AT + 2 + dir.length > NUMBER_AT) {
                throw new IOException("the path of the shared memory is too long: " + shmDir);
            }
            System.arraycopy(MAGIC, 0, out, 0, MAGIC.length);
            long flags = (preallocated ? PREALLOCATED : 0) | (framed ? FRAMED : 0) | (closed ? CLOSED : 0)
                | (base >= 0 ? BASED : 0) | (number >= 0 ? NUMBERED : 0);
            long[] words = {generation, token, seq, len, flags, Math.max(base, 0), shmId, boot.low(), boot.high()};
            for (int i = 0; i < words.length; i++) {
                Words.set(out, 8 + 8 * i, words[i]);
            }
            out[DIR_LEN_AT] = (byte) dir.length;
            out[DIR_LEN_AT + 1] = (byte) (dir.length >> 8);
            System.arraycopy(dir, 0, out, DIR_LEN_AT + 2, dir.length);
            if (number >= 0) {
                Words.set(out, NUMBER_AT, number);
            }
            Words.setInt(out, SUM_AT, sum(out));
            return out;
        }

        private static Entry decode(byte[] slot) {
            if (!Arrays.equals(slot, 0, 8, MAGIC, 0, 8) || Words.getInt(slot, SUM_AT) != sum(slot)) {
                return null;
            }
            long flags = Words.get(slot, 40);
            int dirLen = slot[DIR_LEN_AT] & 0xff | (slot[DIR_LEN_AT + 1] & 0xff) << 8;
            boolean numbered = (flags & NUMBERED) != 0;
            long base = (flags & BASED) != 0 ? Words.get(slot, 48) : -1;
            if (DIR_LEN_AT + 2 + dirLen > (numbered ? NUMBER_AT : SUM_AT)) {
                return null;
            }
            byte[] dir = Arrays.copyOfRange(slot, DIR_LEN_AT + 2, DIR_LEN_AT + 2 + dirLen);
            Path shmDir = dirLen > 0 && dir[0] == '/' ? Names.path(dir) : null;
            return new Entry(Words.get(slot, 16), Words.get(slot, 24), Words.get(slot, 32), base, (flags & CLOSED) != 0,
                (flags & PREALLOCATED) != 0, (flags & FRAMED) != 0, numbered ? Words.get(slot, NUMBER_AT) : -1,
                Words.get(slot, 56), new Boot(Words.get(slot, 64), Words.get(slot, 72)), shmDir);
        }
    }

    private final OwnFile file;
    private long generation;
    /** File number in the newest entry; -1 if there is none. */
    private long seq = -1;

    private Sidecar(OwnFile file) {
        this.file = file;
    }

    private static int sum(byte[] slot) {
        CRC32 crc = new CRC32();
        crc.update(slot, 0, SUM_AT);
        return (int) crc.getValue();
    }

    /** Takes the lock, and creates the file if necessary. Null if another appender has the lock. */
    static Sidecar take(Names names) throws IOException {
        String unsafe = Facts.unsafeDirectory(names.dir());
        if (unsafe != null) {
            throw new Unfit(unsafe);
        }
        while (true) {
            OwnFile file = OwnFile.openOrCreate(names.sidecar());
            if (!file.tryLock()) {
                file.close();
                return null;
            }
            // The previous holder may have removed the file while closing.
            Facts found = Facts.of(names.sidecar());
            if (found == null || !found.key().equals(file.key())) {
                file.close();
                continue;
            }
            Sidecar side = new Sidecar(file);
            try {
                side.allocate();
                side.entry();
            } catch (IOException e) {
                file.close();
                throw e;
            }
            return side;
        }
    }

    /** Writes both slots of a new file, so that the last entry can be written on a full disk. */
    private void allocate() throws IOException {
        if (file.len() == 0) {
            byte[] zeros = new byte[SLOT_DISTANCE + SLOT_BYTES];
            file.writeAt(0, zeros, 0, zeros.length);
        }
    }

    /** The newest entry, without the lock; null if there is none. */
    static Entry peek(Names names) throws IOException {
        OwnFile file = OwnFile.open(names.sidecar(), Facts.Use.PRIVATE, false);
        if (file == null) {
            return null;
        }
        try {
            return new Sidecar(file).entry();
        } finally {
            file.close();
        }
    }

    /** The newest valid entry; null if there is none. */
    Entry entry() throws IOException {
        Entry newest = null;
        generation = 0;
        for (int i = 0; i < 2; i++) {
            byte[] slot = new byte[SLOT_BYTES];
            if (file.readAt((long) i * SLOT_DISTANCE, slot, 0, SLOT_BYTES) < SLOT_BYTES) {
                continue;
            }
            if (Arrays.equals(slot, 0, 8, MAGIC_1, 0, 8)) {
                throw new PrecursorException.Unsupported(file.path(), "it is a sidecar of format 1");
            }
            Entry found = Entry.decode(slot);
            long its = Words.get(slot, 8);
            if (found != null && (newest == null || Long.compareUnsigned(its, generation) > 0)) {
                newest = found;
                generation = its;
                seq = found.seq;
            }
        }
        return newest;
    }

    long seq() {
        return seq;
    }

    /** Writes the next entry, durably. */
    void write(Entry entry) throws IOException {
        long next = generation + 1;
        file.writeAt((next & 1) * SLOT_DISTANCE, entry.encode(next), 0, SLOT_BYTES);
        file.sync();
        generation = next;
        seq = entry.seq;
    }

    /** Removes the file, durably. Only for data of exact length. */
    void remove(Names names) throws IOException {
        Files.deleteIfExists(names.sidecar());
        OwnFile.syncDirectory(names.dir());
    }

    void close() throws IOException {
        file.close();
    }
}
