package example.flatwater.precursor;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Path;

/** Writes the rest of a dead process's ring to the file. An interrupted replay can be run again. */
final class Replay {
    private final Names names;
    private final Live live;
    /** Durable bytes of the current file: a live block that says that fewer were written is damaged. */
    private final long least;
    private final ByteBuffer[] rings = new ByteBuffer[Live.RINGS];
    private long seq;
    private long base;
    private long bytes;
    private OwnFile file;

    Replay(Names names, Live live, long least) {
        this.names = names;
        this.live = live;
        this.least = least;
    }

    Live.At file() {
        return new Live.At(seq, base);
    }

    long bytes() {
        return bytes;
    }

    private PrecursorException bad(String problem) {
        return new PrecursorException.Foreign(names.given(), problem + "; nothing was changed");
    }

    void run(Path shm, String stem) throws IOException {
        long from = live.flushed();
        long end = live.position();
        mapRings(shm, stem, from, end);
        seq = live.file().seq();
        base = live.file().base();
        if (base > from || from > end || !live.boundariesFit()) {
            throw bad("the live block contradicts itself");
        }
        if (from - base < least) {
            throw bad("the live block says that " + (from - base) + " bytes were written, but " + least
                + " are durable");
        }
        // Never beyond the end of the file: zeros would hide that bytes before are missing.
        long there = names.len(seq);
        if (there < from - base) {
            throw bad("it has " + there + " bytes, but " + (from - base)
                + " had been written: it was cut, removed or replaced");
        }
        file = names.open(seq);
        try {
            for (long at = from; at < end;) {
                at = step(at, end);
            }
            bytes = end - from;
        } finally {
            file.close();
        }
    }

    private long step(long at, long end) throws IOException {
        while (live.nextBoundary() >= 0 && live.nextBoundary() <= base && base > 0) {
            // The flusher had already begun the next file.
            live.popBoundary();
        }
        long boundary = live.nextBoundary();
        if (boundary == at) {
            roll(at);
            return at;
        }
        int ring = ringOf(at);
        long stop = Math.min(end, ringEnd(ring));
        stop = boundary >= 0 ? Math.min(stop, boundary) : stop;
        if (stop <= at) {
            throw bad("the ends of files in the live block are not ascending");
        }
        write(ring, at, stop);
        return stop;
    }

    private void roll(long at) throws IOException {
        file.cut(at - base);
        file.close();
        seq++;
        base = at;
        file = names.open(seq);
        // At once, so that after a second crash recovery continues in this file.
        live.setFile(new Live.At(seq, base));
        live.popBoundary();
    }

    private void write(int ring, long from, long to) throws IOException {
        ByteBuffer memory = rings[ring].duplicate();
        int capacity = memory.capacity();
        byte[] piece = new byte[1 << 16];
        for (long at = from; at < to;) {
            int in = (int) (at & capacity - 1);
            int len = (int) Math.min(Math.min(piece.length, to - at), capacity - in);
            memory.get(in, piece, 0, len);
            file.writeAt(at - base, piece, 0, len);
            at += len;
        }
    }

    private int ringOf(long at) throws IOException {
        for (int i = 0; i < rings.length; i++) {
            if (rings[i] != null && at < ringEnd(i)) {
                return i;
            }
        }
        throw bad("a ring is missing");
    }

    private long ringEnd(int ring) {
        return ring + 1 < live.ringCount() ? live.ringStart(ring + 1) : Long.MAX_VALUE;
    }

    /** Maps the rings with bytes between {@code from} and {@code end}. */
    private void mapRings(Path shm, String stem, long from, long end) throws IOException {
        if (live.ringCount() > Live.RINGS || live.ringCount() < 0) {
            throw bad("the live block names too many rings");
        }
        for (int i = 0; i < live.ringCount(); i++) {
            long start = live.ringStart(i);
            long stop = ringEnd(i);
            if (start >= end || stop <= from) {
                continue;
            }
            long capacity = live.ringCapacity(i);
            if (Math.min(end, stop) - Math.max(from, start) > capacity) {
                throw bad("a ring would hold more than its capacity");
            }
            rings[i] = map(shm.resolve(stem + ".ring" + i), capacity);
        }
    }

    /** Maps the ring of a writer for reading. */
    static ByteBuffer map(Path path, long capacity) throws IOException {
        OwnFile ring = OwnFile.open(path, Facts.Use.PRIVATE, false);
        if (ring == null) {
            throw new java.nio.file.NoSuchFileException(path.toString(), null, "a ring is missing");
        }
        try {
            if (Long.bitCount(capacity) != 1 || capacity < 4096 || capacity > 1 << 30 || ring.len() != capacity) {
                throw new IOException(path + ": the size of the ring differs from the live block's, or exceeds 1 GiB");
            }
            return ring.map(false, capacity);
        } finally {
            ring.close();
        }
    }
}
