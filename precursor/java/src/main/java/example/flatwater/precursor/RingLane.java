package example.flatwater.precursor;

import java.lang.invoke.VarHandle;
import java.nio.ByteBuffer;
import java.util.concurrent.locks.LockSupport;

/** The writer's side of the ring. */
final class RingLane extends Lane {
    private static final int SPINS = 64;

    private final ByteBuffer ring;
    /** The same memory; its position and limit are for checksums. */
    private final ByteBuffer checked;
    private final int mask;
    private final BackPressure policy;
    private final long start;
    /** End of the space that the writer may fill. */
    private long limit;
    private long fileBase;
    private long fileSeq;

    RingLane(Core core, Opening.Place place, ByteBuffer ring, BackPressure policy) {
        super(core, place);
        this.ring = ring;
        this.checked = ring.duplicate();
        this.mask = ring.capacity() - 1;
        this.policy = policy;
        this.start = cursor;
        this.limit = cursor;
        this.fileBase = place.base;
        this.fileSeq = place.seq;
    }

    @Override
    void put(byte[] bytes, int from, int len) throws PrecursorException {
        long need = need(len);
        if (need > limit - cursor) {
            makeRoom(need);
        }
        if (core.framed) {
            int payload = at(cursor + Frame.HEADER);
            // The padding; the payload is stored over the other bytes of the word.
            Words.set(ring, at(cursor + need - Frame.WORD), 0);
            copy(bytes, from, len, payload);
            long time = time();
            Words.set(ring, at(cursor + Frame.NUMBER_AT), number);
            Words.set(ring, at(cursor + Frame.TIME_AT), time);
            // Over the ring's own bytes: a thread that changes the caller's array cannot make the frame invalid.
            Words.release(ring, at(cursor), frame.data(checked.clear(), payload, len, time));
            number++;
        } else {
            copy(bytes, from, len, at(cursor));
        }
        cursor += need;
    }

    private int at(long position) {
        return (int) position & mask;
    }

    private void copy(byte[] bytes, int from, int len, int to) {
        int first = Math.min(len, ring.capacity() - to);
        ring.put(to, bytes, from, first);
        if (first < len) {
            ring.put(0, bytes, from + first, len - first);
        }
    }

    private void makeRoom(long need) throws PrecursorException {
        int rounds = 0;
        boolean interrupted = false;
        try {
            while (true) {
                // Before `raise` looks, or a flush in between could make the waiting bytes 0.
                long flushed = core.live.flushed();
                if (raise(need)) {
                    return;
                }
                PrecursorException refusal = core.refusal();
                if (refusal != null) {
                    throw refusal;
                }
                if (policy == BackPressure.FAIL) {
                    throw new PrecursorException.Full(core.names.given(), cursor - flushed);
                }
                if (rounds++ == 0) {
                    waits++;
                    core.wakeFlusher();
                }
                if (rounds < SPINS) {
                    Thread.onSpinWait();
                } else {
                    LockSupport.parkNanos(50_000);
                    interrupted |= Thread.interrupted();
                }
            }
        } finally {
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    /** End of the space that the flusher has given back. */
    private long ringLimit() {
        long end = Math.max(core.live.flushed() + ring.capacity(), start + ring.capacity());
        // A reader that sees bytes stored after this must also see `flushed`.
        VarHandle.releaseFence();
        return end;
    }

    private boolean raise(long need) {
        long end = ringLimit();
        if (core.rollBytes != 0) {
            if (cursor + need > fileBase + core.rollRoom() && !endFile(end)) {
                return false;
            }
            end = Math.min(end, fileBase + core.rollRoom());
        }
        limit = end;
        return need <= limit - cursor;
    }

    @Override
    void rollByAge() {
        if (cursor > fileBase + core.headLen()) {
            endFile(ringLimit());
            limit = cursor;
        }
    }

    /** Announces that the file ends at the cursor; if framed, behind an end mark and before the next header. */
    private boolean endFile(long end) {
        long fileEnd = cursor + core.markLen();
        if (fileEnd + core.headLen() > end) {
            return false;
        }
        if (core.framed) {
            Words.set(ring, at(cursor), Frame.END_MARK);
        }
        // Announced before the position is published, so that the flusher cannot pass the end.
        if (!core.live.pushBoundary(fileEnd)) {
            return false;
        }
        core.rollDue = false;
        cursor = fileEnd;
        fileBase = fileEnd;
        fileSeq++;
        if (core.framed) {
            byte[] header = core.header(fileSeq, fileBase, number).encode();
            copy(header, 0, header.length, at(cursor));
            cursor += header.length;
        }
        Words.release(core.live.page, Live.POSITION, cursor);
        return true;
    }

    @Override
    void close() {
        // The flusher closes its files.
    }

    @Override
    long room() {
        return Math.max(0, core.live.flushed() + ring.capacity() - core.live.position());
    }
}
