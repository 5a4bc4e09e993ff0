package example.flatwater.precursor;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.locks.LockSupport;

/**
 * Appends records to a file. Opened by {@link Precursor#open}.
 *
 * <p>One thread at a time calls {@link #append}, {@link #reserve} and {@link #commit}; a second one gets
 * {@link PrecursorException.ConcurrentUse}. All other methods may be called by any thread. An interrupt of a thread
 * changes nothing.
 *
 * <p>Records are in the order of the calls, and each is whole in one file. {@link #survival} says what an append
 * survives. A process that ends without {@link #close} leaves what {@link Precursor#recover} or the next open needs.
 */
public final class Appender implements AutoCloseable {
    private static final int FREE = 0;
    private static final int IN_USE = 1;
    private static final int CLOSED = 2;
    private static final VarHandle USE;

    private final Core core;
    private final Lane lane;
    private final List<String> reasons;
    private final Survival survival;
    private final int recordMax;
    private final int ringBytes;
    private final boolean measure;
    private final List<Thread> threads;
    private final ByteBuffer position;
    private int use;
    private long appends;
    private long worstNs = -1;
    /** Length of the reservation that was lent last; -1 without one. */
    private int reserved = -1;
    private ByteBuffer lent = ByteBuffer.allocate(4096);

    static {
        try {
            USE = MethodHandles.lookup().findVarHandle(Appender.class, "use", int.class);
        } catch (ReflectiveOperationException e) {
            throw new ExceptionInInitializerError(e);
        }
    }

    Appender(Core core, Lane lane, Opening.Start start, List<Thread> threads) {
        this.core = core;
        this.lane = lane;
        this.reasons = List.copyOf(start.reasons());
        this.survival = start.survival();
        this.recordMax = start.recordMax();
        this.ringBytes = start.ringBytes();
        this.measure = start.measure();
        this.threads = threads;
        this.position = core.live.page;
    }

    /**
     * Appends a record, and drops a reservation that was not committed. While the ring has room, this makes no system
     * call, takes no lock and creates no object.
     *
     * @param bytes the record
     * @return its position: the end of the record
     * @throws PrecursorException if nothing was appended; the nested class says why
     */
    public long append(byte[] bytes) throws PrecursorException {
        return append(bytes, 0, bytes.length);
    }

    /**
     * Appends a part of an array as a record, as {@link #append(byte[])}.
     *
     * @param bytes the array
     * @param from index of the first byte
     * @param len number of bytes
     * @return the end of the record
     * @throws PrecursorException if nothing was appended; the nested class says why
     */
    public long append(byte[] bytes, int from, int len) throws PrecursorException {
        Objects.checkFromIndexSize(from, len, bytes.length);
        enter();
        try {
            reserved = -1;
            return put(bytes, from, len);
        } finally {
            USE.setRelease(this, FREE);
        }
    }

    /**
     * Appends the remaining bytes of a buffer as a record, as {@link #append(byte[])}, and moves the buffer's position
     * to its limit. A buffer without an accessible array costs a second copy.
     *
     * @param bytes the buffer
     * @return the end of the record
     * @throws PrecursorException if nothing was appended; the nested class says why
     */
    public long append(ByteBuffer bytes) throws PrecursorException {
        int len = bytes.remaining();
        enter();
        try {
            reserved = -1;
            long end;
            if (bytes.hasArray()) {
                end = put(bytes.array(), bytes.arrayOffset() + bytes.position(), len);
            } else {
                admit(len);
                bytes.get(bytes.position(), lend(len).array(), 0, len);
                end = put(lent.array(), 0, len);
            }
            bytes.position(bytes.limit());
            return end;
        } finally {
            USE.setRelease(this, FREE);
        }
    }

    /**
     * Lends a buffer of {@code len} bytes, to be filled and then appended by {@link #commit}. Its contents are
     * unspecified. It is the appender's own memory and not the file's, so a store after {@code commit} changes no
     * record. The next {@code append} or {@code reserve} drops the reservation, even if that call is refused.
     *
     * @param len bytes
     * @return the buffer, from 0 to {@code len}
     * @throws PrecursorException if the record would be refused
     */
    public ByteBuffer reserve(int len) throws PrecursorException {
        if (len < 0) {
            throw new IllegalArgumentException("reserve of " + len + " bytes");
        }
        enter();
        try {
            reserved = -1;
            admit(len);
            ByteBuffer buffer = lend(len);
            reserved = len;
            return buffer;
        } finally {
            USE.setRelease(this, FREE);
        }
    }

    /**
     * Appends the first {@code len} bytes of the reservation, and drops the reservation.
     *
     * @param len bytes
     * @return the end of the record
     * @throws PrecursorException if nothing was appended; the nested class says why
     */
    public long commit(int len) throws PrecursorException {
        enter();
        try {
            int most = reserved;
            reserved = -1;
            if (len < 0 || len > most) {
                throw new PrecursorException.NotReserved(core.names.given(), len, most);
            }
            return put(lent.array(), 0, len);
        } finally {
            USE.setRelease(this, FREE);
        }
    }

    private ByteBuffer lend(int len) {
        if (lent.capacity() < len) {
            lent = ByteBuffer.allocate(Math.max(len, Math.min(2 * lent.capacity(), Frame.LEN_MAX)));
        }
        return lent.clear().limit(len);
    }

    private void enter() throws PrecursorException {
        if (!USE.compareAndSet(this, FREE, IN_USE)) {
            throw (int) USE.getAcquire(this) == CLOSED ? new PrecursorException.Closed(core.names.given())
                : new PrecursorException.ConcurrentUse(core.names.given());
        }
    }

    private void admit(long len) throws PrecursorException {
        if (core.failure != null) {
            throw core.failed();
        }
        if (len > recordMax) {
            throw new PrecursorException.TooLong(core.names.given(), len, recordMax);
        }
    }

    private long put(byte[] bytes, int from, int len) throws PrecursorException {
        long begun = measure ? System.nanoTime() : 0;
        admit(len);
        try {
            if (core.rollDue) {
                lane.rollByAge();
            }
            lane.put(bytes, from, len);
        } catch (InternalError e) {
            // Another program has cut the file in shared memory; its pages are gone.
            core.fail("append to the shared memory of", e);
            throw core.failed();
        }
        Words.release(position, Live.POSITION, lane.cursor);
        core.live.countAppends(++appends);
        if (measure) {
            worstNs = Math.max(worstNs, System.nanoTime() - begun);
        }
        return lane.cursor;
    }

    /**
     * End of the appended data.
     *
     * @return the position
     */
    public long position() {
        return core.live.position();
    }

    /**
     * The last position that is known to be on the device.
     *
     * @return the position
     */
    public long durable() {
        return core.durable;
    }

    /**
     * Makes everything up to a position durable. Besides {@link #close} the only call that waits for the device.
     * Concurrent callers share one sync.
     *
     * @param position a position that {@code append} or {@code commit} returned
     * @return the position up to which everything is durable
     * @throws PrecursorException if the position is beyond the data, or the sync failed. After a failed sync no later
     *     position is ever durable through this appender
     */
    public long syncTo(long position) throws PrecursorException {
        return core.syncTo(position);
    }

    /**
     * The reason why appends fail, which the next {@code append} throws too.
     *
     * @return the reason; null before a failure
     */
    public PrecursorException failure() {
        return core.failed();
    }

    /**
     * Mode of writing.
     *
     * @return the mode
     */
    public Mode mode() {
        return core.mode;
    }

    /**
     * Why this mode was chosen, what it lacks, and what recovery found, as sentences for people.
     *
     * @return the sentences
     */
    public List<String> reasons() {
        return reasons;
    }

    /**
     * Which call makes a record survive.
     *
     * @return the calls
     */
    public Survival survival() {
        return survival;
    }

    /**
     * Counters since open.
     *
     * @return the counters
     */
    public Stats stats() {
        long end = core.live.position();
        long durable = core.durable;
        return new Stats(core.mode, core.live.appends(), end, core.mode == Mode.RING ? lane.room() : 0, lane.waits,
            worstNs, Math.max(0, end - core.filedEnd()), Math.max(0, end - durable), durable, ringBytes, core.rolls,
            core.outOfSpace);
    }

    /**
     * Writes everything to the file, cuts the file to its exact length, makes it durable, and removes its shared memory
     * and (without a pattern) its sidecar. Waits for an append of another thread. A second call does nothing.
     *
     * <p>An error loses no accepted record while the machine runs: the next open, or {@link Precursor#recover},
     * completes the file.
     *
     * @throws PrecursorException if the file could not be completed
     */
    @Override
    public void close() throws PrecursorException {
        while (!USE.compareAndSet(this, FREE, CLOSED)) {
            if ((int) USE.getAcquire(this) == CLOSED) {
                return;
            }
            LockSupport.parkNanos(50_000);
        }
        core.closing = true;
        boolean interrupted = false;
        for (Thread thread : threads) {
            LockSupport.unpark(thread);
            while (thread.isAlive()) {
                try {
                    thread.join();
                } catch (InterruptedException e) {
                    interrupted = true;
                }
            }
        }
        lane.close();
        try {
            core.finish();
        } finally {
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }
}
