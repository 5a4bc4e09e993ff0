package example.flatwater.precursor;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.concurrent.locks.LockSupport;

/** The daemon thread of {@link Mode#RING}, which writes the ring to the file. */
final class Flusher implements Runnable {
    /** Longest time that bytes wait in the ring, ns. */
    private static final long AGE_NS = 2_000_000;
    private static final long NAP_NS = 1_000_000;
    private static final long IDLE_NAP_NS = 5_000_000;
    private static final long FLUSH_BYTES_MAX = 1 << 20;
    private static final long CLOCK_NS = 100_000_000;

    private final Core core;
    private final ByteBuffer ring;
    private final int mask;
    /** Bytes that are written without waiting for more. */
    private final long enough;
    private final Indexer indexer;
    /** All of the ring, whatever is written now. */
    private final ByteBuffer whole;
    /** The indexer has begun with the current file. */
    private boolean indexed;
    private OwnFile file;
    private long seq;
    private long base;
    private long last = System.nanoTime();
    private long clocked = last;
    private long idle;

    Flusher(Core core, ByteBuffer ring) {
        this.core = core;
        this.ring = ring.duplicate();
        this.mask = ring.capacity() - 1;
        this.enough = Math.min(FLUSH_BYTES_MAX / 4, ring.capacity() / 8);
        this.file = core.current().file();
        this.seq = core.live.file().seq();
        this.base = core.live.file().base();
        this.whole = ring.duplicate().clear();
        this.indexer = core.framed ? new Indexer(core.names) : null;
    }

    @Override
    public void run() {
        try {
            while (!turn()) {
                clock();
            }
            if (indexer != null) {
                indexer.leave();
            }
        } catch (IOException | RuntimeException | Error e) {
            core.fail("write", e);
        }
    }

    /** Writes what waits, or naps. True once the appender closes and everything is in the file. */
    private boolean turn() throws IOException {
        boolean closing = core.closing;
        long pending = core.live.position();
        long flushed = core.live.flushed();
        long boundary = core.live.nextBoundary();
        try {
            if (boundary == flushed) {
                roll(flushed);
                return false;
            }
            if (closing && pending == flushed) {
                return true;
            }
            long end = boundary >= 0 ? Math.min(pending, boundary) : pending;
            long now = System.nanoTime();
            boolean due = closing || core.wanted > flushed || end - flushed >= enough || now - last >= AGE_NS;
            if (end == flushed) {
                idle = Math.min(idle + NAP_NS / 64, IDLE_NAP_NS - NAP_NS);
                LockSupport.parkNanos(NAP_NS + idle);
            } else if (due) {
                flush(flushed, (int) Math.min(end - flushed, FLUSH_BYTES_MAX));
                last = now;
                idle = 0;
            } else {
                LockSupport.parkNanos(NAP_NS);
            }
        } catch (IOException e) {
            if (!Machine.isFull(e, core.names.path(seq))) {
                throw e;
            }
            core.isOutOfSpace(core.names.path(seq));
            if (closing) {
                // `close` reports the error, and the ring keeps the bytes for recovery.
                core.failFairly("write", e);
                return true;
            }
            LockSupport.parkNanos(IDLE_NAP_NS);
        }
        return false;
    }

    private void flush(long flushed, int len) throws IOException {
        int at = (int) flushed & mask;
        int first = Math.min(len, ring.capacity() - at);
        file.writeAt(flushed - base, ring.limit(at + first).position(at));
        if (first < len) {
            file.writeAt(flushed - base + first, ring.limit(len - first).position(0));
        }
        if (indexer != null) {
            if (!indexed) {
                indexer.begin(seq, file, base, Math.max(flushed, base + FileHeader.LEN));
                indexed = true;
            }
            // Before the ring's bytes may be overwritten.
            indexer.pass(whole, flushed + len);
        }
        Words.release(core.live.page, Live.FLUSHED, flushed + len);
        core.outOfSpace = -1;
    }

    private void roll(long at) throws IOException {
        Core.DataFile next = core.createNext(seq + 1);
        file.cut(at - base);
        core.live.setFile(new Live.At(next.seq(), at));
        core.leave(next);
        core.live.popBoundary();
        file = next.file();
        seq = next.seq();
        base = at;
        indexed = false;
    }

    /** Follows the time of day, and the age of the file. */
    private void clock() {
        long now = System.nanoTime();
        if (now - clocked > CLOCK_NS) {
            clocked = now;
            core.clockOffset = Machine.nowNs() - System.nanoTime();
        }
        if (now - core.begun > core.rollEveryNs) {
            core.rollDue = true;
        }
    }
}
