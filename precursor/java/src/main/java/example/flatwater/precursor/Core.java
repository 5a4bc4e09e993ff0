package example.flatwater.precursor;

import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.locks.LockSupport;

/** State that the writer, the helper threads and callers of {@code syncTo} share. */
final class Core {
    /** Most previous files kept open without a sync. */
    private static final int LEFT_MAX = 128;

    /**
     * A data file of the appender, which is locked.
     *
     * @param seq its number
     * @param file the file
     */
    record DataFile(long seq, OwnFile file) {
    }

    /**
     * Why the appender has failed for good.
     *
     * @param what the operation
     * @param cause the error
     */
    record Failure(String what, Throwable cause) {
    }

    final Mode mode;
    final Names names;
    /** Directory of the shared memory; null if there is none. */
    final Path shm;
    final String stem;
    final boolean framed;
    final boolean times;
    final long rollBytes;
    final long rollEveryNs;
    final Live live;
    final long firstNumber;
    private final long token;
    private final long shmId;
    /** Locked during a sync. */
    private final Object syncing = new Object();
    private final List<DataFile> older = new ArrayList<>();
    private Sidecar sidecar;
    private DataFile current;

    volatile Failure failure;
    volatile boolean closing;
    /** The current file is old: the next append begins another. */
    volatile boolean rollDue;
    /** Bytes left when the last write failed for lack of space; -1 after a write that succeeded. */
    volatile long outOfSpace = -1;
    /** How often a write has failed for lack of space. */
    volatile long spaceFailures;
    volatile long durable;
    volatile long rolls;
    /** Begin of the current file, for its age; {@link System#nanoTime}. */
    volatile long begun = System.nanoTime();
    /** Difference of the time of day and {@link System#nanoTime}. */
    volatile long clockOffset = Machine.nowNs() - System.nanoTime();
    /** Position that a caller of {@code syncTo} waits for. */
    volatile long wanted;
    volatile Thread flusher;

    Core(Options options, Mode mode, Names names, Path shm, Opening.Ids ids, Live live, Opening.Place place,
        DataFile file) {
        this.mode = mode;
        this.names = names;
        this.shm = shm;
        this.stem = ids.stem();
        this.token = ids.token();
        this.shmId = ids.shmId();
        this.framed = options.framing == Framing.RECORDS;
        this.times = options.times;
        this.rollBytes = options.rollBytes;
        this.rollEveryNs = options.rollEvery == null ? Long.MAX_VALUE : Opening.nanos(options.rollEvery);
        this.live = live;
        this.firstNumber = place.number;
        this.current = file;
        this.durable = place.base;
    }

    void keep(Sidecar taken) {
        sidecar = taken;
    }

    /** Length of a file's header, bytes. */
    long headLen() {
        return framed ? FileHeader.LEN : 0;
    }

    long markLen() {
        return framed ? Frame.END_MARK_LEN : 0;
    }

    /** Bytes of a rolled file that records may fill. */
    long rollRoom() {
        return rollBytes - markLen();
    }

    void fail(String what, Throwable error) {
        // The file system may have lost pages that were written and not synced; recovery must not expect them.
        live.distrust(durable);
        failFairly(what, error);
    }

    /** As {@link #fail}, for an error that has lost nothing. */
    synchronized void failFairly(String what, Throwable error) {
        if (failure == null) {
            failure = new Failure(what, error);
        }
    }

    PrecursorException failed() {
        Failure found = failure;
        return found == null ? null
            : new PrecursorException.Failed(names.given(), found.what, durable, found.cause);
    }

    /** Why waiting for room would be pointless; null if it is not. */
    PrecursorException refusal() {
        PrecursorException failed = failed();
        if (failed == null && outOfSpace >= 0) {
            return new PrecursorException.OutOfSpace(names.given(), outOfSpace);
        }
        return failed;
    }

    void isOutOfSpace(Path file) {
        outOfSpace = Math.max(0, Machine.bytesLeft(file));
        spaceFailures++;
    }

    void wakeFlusher() {
        Thread helper = flusher;
        if (helper != null) {
            LockSupport.unpark(helper);
        }
    }

    /** End of the bytes that are in the file. */
    long filedEnd() {
        return mode == Mode.RING ? live.flushed() : live.position();
    }

    long nextNumber() {
        return firstNumber + live.appends();
    }

    FileHeader header(long seq, long base, long first) {
        return new FileHeader(seq, base, first, Machine.nowNs());
    }

    DataFile createNext(long seq) throws IOException {
        OwnFile file = names.open(seq);
        if (!file.tryLock()) {
            file.close();
            throw new PrecursorException.Busy(names.path(seq));
        }
        return new DataFile(seq, file);
    }

    synchronized DataFile current() {
        return current;
    }

    /** Makes {@code next} the current file, and keeps the old one until it is synced. */
    void leave(DataFile next) {
        DataFile oldest;
        synchronized (this) {
            older.add(current);
            current = next;
            oldest = older.size() > LEFT_MAX ? older.get(0) : null;
        }
        begun = System.nanoTime();
        rollDue = false;
        rolls++;
        if (oldest == null) {
            return;
        }
        try {
            oldest.file.sync();
            forget(List.of(oldest));
        } catch (IOException e) {
            // The kernel reports the error only once, so it is final.
            fail("sync a previous file of", e);
        }
    }

    private void forget(List<DataFile> synced) throws IOException {
        synchronized (this) {
            older.removeAll(synced);
        }
        for (DataFile file : synced) {
            file.file.close();
        }
    }

    private synchronized List<DataFile> left() {
        return List.copyOf(older);
    }

    long syncTo(long position) throws PrecursorException {
        long end = live.position();
        if (position > end || position < 0) {
            throw new PrecursorException.Beyond(names.given(), position, end);
        }
        synchronized (syncing) {
            if (durable >= position) {
                return durable;
            }
            if (sidecar == null) {
                throw new PrecursorException.Closed(names.given());
            }
            waitFlushed(position);
            try {
                long target = Uninterrupted.run(this::syncFiles);
                durable = target;
                return target;
            } catch (IOException e) {
                fail("sync", e);
                throw failed();
            }
        }
    }

    private void waitFlushed(long position) throws PrecursorException {
        long failures = spaceFailures;
        boolean interrupted = false;
        try {
            while (true) {
                if (failure != null) {
                    throw failed();
                }
                if (filedEnd() >= position) {
                    return;
                }
                if (outOfSpace >= 0 && spaceFailures > failures) {
                    throw new PrecursorException.OutOfSpace(names.given(), outOfSpace);
                }
                wanted = Math.max(wanted, position);
                wakeFlusher();
                LockSupport.parkNanos(50_000);
                // Otherwise the next park would return at once.
                interrupted |= Thread.interrupted();
            }
        } finally {
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    private long syncFiles() throws IOException {
        DataFile file;
        List<DataFile> before;
        Live.At at;
        long target;
        while (true) {
            long epoch = live.epoch();
            at = live.file();
            synchronized (this) {
                file = current;
                before = List.copyOf(older);
            }
            target = filedEnd();
            if (file.seq == at.seq() && epoch == live.epoch()) {
                break;
            }
            // A roll is under way. The thread that ends it may have failed.
            if (failure != null) {
                throw new IOException(failure.what, failure.cause);
            }
            LockSupport.parkNanos(50_000);
        }
        for (DataFile left : before) {
            left.file.sync();
        }
        file.file.channel().force(false);
        file.file.checkWritable();
        if (failure != null) {
            throw new IOException(failure.what + ": " + failure.cause.getMessage(), failure.cause);
        }
        if (rollBytes != 0 && sidecar.seq() != file.seq) {
            // The counter may lag behind the position by one record.
            sidecar.write(entry(file.seq, target - at.base(), at.base(), nextNumber() + 1, false));
        }
        forget(before);
        return target;
    }

    Sidecar.Entry entry(long seq, long len, long base, long number, boolean closed) {
        long known = framed ? number : -1;
        return new Sidecar.Entry(token, seq, len, base, closed, false, framed, known, shmId, Boot.THIS, shm);
    }

    /** Closes an appender whose threads have ended. */
    void finish() throws PrecursorException {
        synchronized (syncing) {
            try {
                if (failure != null) {
                    throw failed();
                }
                try {
                    endFiles();
                } catch (IOException e) {
                    fail("close", e);
                    throw failed();
                }
                removeTraces();
            } finally {
                release();
            }
        }
    }

    private void endFiles() throws IOException {
        long end = live.position();
        long base = live.file().base();
        Uninterrupted.run(() -> {
            for (DataFile left : left()) {
                left.file.sync();
            }
            current.file.cut(end - base);
            current.file.sync();
            if (names.rolls()) {
                OwnFile.syncDirectory(names.dir());
            }
            return null;
        });
        durable = end;
    }

    /** First the sidecar says that the writer has closed, durably. Only then shared memory and sidecar are removed. */
    private void removeTraces() throws PrecursorException {
        Live.At at = live.file();
        try {
            try {
                sidecar.write(entry(at.seq(), durable - at.base(), at.base(), nextNumber(), true));
            } catch (IOException e) {
                // On a full disk the old entry is harmless, unless recovery takes the positions from it.
                if (names.rolls() || !Machine.isFull(e, names.sidecar())) {
                    throw e;
                }
            }
            if (shm != null) {
                Live.removeShm(shm, stem);
            }
            if (!names.rolls()) {
                sidecar.remove(names);
            }
        } catch (IOException e) {
            throw new PrecursorException.Failed(names.given(), "close", durable, e);
        }
    }

    /** Releases all locks. After a failure everything else stays for recovery. */
    private void release() {
        List<DataFile> files = new ArrayList<>(left());
        files.add(current);
        for (DataFile each : files) {
            closeQuietly(each.file::close);
        }
        closeQuietly(live::close);
        closeQuietly(sidecar::close);
        sidecar = null;
    }

    /** The close of a file. */
    private interface Close {
        void run() throws IOException;
    }

    private void closeQuietly(Close close) {
        try {
            close.run();
        } catch (IOException e) {
            // Everything was synced, or recovery will see to it.
        }
    }
}
