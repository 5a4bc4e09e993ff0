package example.flatwater.precursor;

import java.io.IOException;
import java.nio.ByteBuffer;

/** Keeps the index of the file that an appender writes. Its errors end the index, and no append. */
final class Indexer {
    private static final long STEP_BYTES = 64 << 10;
    private static final long STEP_RECORDS = 256;

    private final Names names;
    private long seq;
    private OwnFile data;
    /** Null until the first point is due. */
    private Index index;
    /** The index cannot be written. */
    private boolean failed;
    private long lastOffset;
    /** Number of the last point, or of the first record that was offered; -1 before one. */
    private long lastNumber;
    /** Position of the next frame in the ring, and base of the file. */
    private long next;
    private long base;

    Indexer(Names names) {
        this.names = names;
    }

    /** Begins with a file at a position, which {@link #pass} continues. */
    void begin(long seq, OwnFile data, long base, long position) {
        leave();
        this.seq = seq;
        this.data = data;
        this.next = position;
        this.base = base;
        failed = false;
        lastOffset = position - base;
        lastNumber = -1;
    }

    /** Passes the frames of the ring that begin before a position; they are in the file. */
    void pass(ByteBuffer ring, long end) {
        int mask = ring.capacity() - 1;
        while (next < end) {
            long word = Words.get(ring, (int) next & mask);
            if (Frame.state(word) == Frame.DATA) {
                long number = Words.get(ring, (int) (next + Frame.NUMBER_AT) & mask);
                offer(next - base, number, Words.get(ring, (int) (next + Frame.TIME_AT) & mask));
            }
            // An end mark ends the file; the next one begins elsewhere.
            next += Math.max(Frame.claimedLen(word), Frame.WORD);
        }
    }

    /** A record that is in the file. */
    void offer(long offset, long number, long time) {
        if (lastNumber < 0) {
            lastNumber = number;
        }
        if (failed || offset - lastOffset < STEP_BYTES && number - lastNumber < STEP_RECORDS) {
            return;
        }
        try {
            if (index == null) {
                index = Index.continued(names, seq, data, offset);
            }
            index.put(new Index.Point(offset, number, time));
            lastOffset = offset;
            lastNumber = number;
        } catch (IOException e) {
            failed = true;
            leave();
        }
    }

    /** Closes the index. */
    void leave() {
        try {
            if (index != null) {
                index.close();
            }
        } catch (IOException e) {
            // A hint that was not written.
        }
        index = null;
    }
}
