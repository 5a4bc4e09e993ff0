package example.flatwater.precursor;

import java.io.IOException;

/** The place of a {@link Reader}: a file, and the frames from an offset on, from the ring or the file. */
final class ReaderPlace {
    /** Bytes read at a time. */
    private static final int CHUNK = 64 << 10;

    private final Names names;
    private final Frame frame = new Frame();
    /** The writer's shared memory; null if there is none. */
    LiveView live;
    int recordBytesMax = Frame.LEN_MAX;
    /** Number of the next record; -1 if none was read. */
    long nextNumber = -1;
    byte[] buffer = new byte[CHUNK];
    int buffered;
    private long bufferedAt;
    /** The bytes in the buffer are published. */
    boolean limited;
    /** A file is chosen. */
    boolean begun;
    long seq;
    /** Position of the first byte; assumed until the header is read. */
    long base;
    OwnFile file;
    /** The header is read. */
    boolean headed;
    /** Number that the next record must have; -1 if any is accepted. */
    long next;
    long offset;

    /**
     * A frame in the buffer.
     *
     * @param number number of the record; -1 for a filler
     * @param time its time
     * @param from index of the payload
     * @param payload length of the payload
     * @param len length of the frame
     */
    record Found(long number, long time, int from, int payload, long len) {
        boolean isRecord() {
            return number >= 0;
        }
    }

    ReaderPlace(Names names) {
        this.names = names;
    }

    /** Position of the next frame. */
    long position() {
        return begun ? base + offset : 0;
    }

    void begin(long seq, long base) throws IOException {
        closeFile();
        this.begun = true;
        this.seq = seq;
        this.base = base;
        this.headed = false;
        this.next = -1;
        this.offset = 0;
        this.buffered = 0;
        this.bufferedAt = 0;
    }

    /**
     * Begins at a file that was listed, and opens it, so that its removal takes no record from the reader. False if it
     * has been removed since.
     */
    boolean beginOpen(long seq) throws IOException {
        OwnFile found = OwnFile.open(names.path(seq), Facts.Use.READ, false);
        if (found == null) {
            return false;
        }
        begin(seq, 0);
        file = found;
        return true;
    }

    /** Continues at an offset of the current file with a record of this number. */
    void enter(long offset, long next) {
        this.offset = offset;
        this.next = next;
        this.nextNumber = -1;
        this.buffered = 0;
        this.bufferedAt = offset;
    }

    /** Leaves the current file. */
    void leave() throws IOException {
        closeFile();
        begun = false;
    }

    void closeFile() throws IOException {
        if (file != null) {
            file.close();
            file = null;
        }
    }

    /** Moves behind a frame. */
    void pass(Found found) {
        offset += found.len;
        if (found.isRecord()) {
            next = found.number + 1;
            nextNumber = next;
        }
    }

    /** The frame at the current offset; null if it is not published, or not whole. */
    Found frame() throws IOException {
        for (boolean again = false; ; again = true) {
            Found found = inBuffer();
            if (found != null || again) {
                return found;
            }
            // The second attempt reads the bytes again: they may have been stored since.
            load(Frame.WORD, false);
            long claimed = buffered < Frame.WORD ? 0 : Frame.claimedLen(Words.get(buffer, 0));
            if (claimed > buffered) {
                checkLen(claimed);
                load(claimed, false);
            }
        }
    }

    private Found inBuffer() {
        long skip = offset - bufferedAt;
        if (skip < 0 || skip > buffered) {
            return null;
        }
        int at = (int) skip;
        long whole = frame.validLen(buffer, at, buffered);
        if (whole == 0) {
            return null;
        }
        long word = Words.get(buffer, at);
        if (Frame.state(word) != Frame.DATA) {
            return new Found(-1, 0, 0, 0, whole);
        }
        long number = Words.get(buffer, at + Frame.NUMBER_AT);
        boolean follows = number >= 0 && (next < 0 || number == next);
        long time = Words.get(buffer, at + Frame.TIME_AT);
        return follows ? new Found(number, time, at + Frame.HEADER, Frame.len(word), whole) : null;
    }

    /** Refuses a record that is too long. A torn frame may claim any length, so it must fit into the file. */
    private void checkLen(long claimed) throws IOException {
        boolean fits = file == null || offset + claimed <= file.len();
        if (claimed - Frame.HEADER > recordBytesMax && fits) {
            throw new PrecursorException.TooLong(names.path(seq), offset, claimed - Frame.HEADER, recordBytesMax);
        }
    }

    /** Fills the buffer from the current offset on, with at least {@code need} bytes if as many are published. */
    void load(long need, boolean header) throws IOException {
        buffered = 0;
        bufferedAt = offset;
        limited = false;
        long want = Math.max(need, CHUNK);
        long at = base + offset;
        if (live != null && live.file().seq() <= seq && !(header && live.many())) {
            want = Math.min(want, live.published() - at);
            limited = true;
            if (want <= 0) {
                return;
            }
            grow(want);
            int copied = at % Frame.WORD == 0 ? live.copy(at, (int) want, buffer) : -1;
            if (copied >= 0) {
                buffered = copied;
                return;
            }
        }
        if (file == null) {
            file = OwnFile.open(names.path(seq), Facts.Use.READ, false);
            if (file == null) {
                return;
            }
        }
        long len = file.len();
        if (len < offset) {
            throw new PrecursorException.Truncated(names.path(seq), offset, len);
        }
        want = Math.min(want, len - offset);
        grow(want);
        buffered = file.readAt(offset, buffer, 0, (int) want);
    }

    private void grow(long want) {
        if (buffer.length < want) {
            buffer = new byte[(int) want];
        }
    }
}
