package example.flatwater.precursor;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.locks.LockSupport;

/** Opening: probes the machine, chooses a mode, recovers, prepares, and starts the threads. */
final class Opening {
    /** Where appending starts. */
    static final class Place {
        long seq;
        /** Length of the data in that file, bytes. */
        long len;
        /** Position of that file's first byte. */
        long base;
        /** Number of the next record. */
        long number;
    }

    /**
     * Names of this run.
     *
     * @param token random for each open
     * @param shmId number in the names of the shared memory
     * @param stem their stem
     */
    record Ids(long token, long shmId, String stem) {
    }

    /**
     * What is fixed once an appender is open.
     *
     * @param reasons sentences for people
     * @param survival what an append survives
     * @param recordMax longest record, bytes
     * @param ringBytes capacity of the ring; 0 without one
     * @param measure whether appends are measured
     */
    record Start(List<String> reasons, Survival survival, int recordMax, int ringBytes, boolean measure) {
    }

    /** Another file was named by something else; from here on, numbers would run out. */
    private static final long SEQ_MAX = Long.MAX_VALUE / 2;

    private final Options options;
    private final Path path;
    private final List<String> reasons = new ArrayList<>();
    /** Everything that a failed open closes. */
    private final List<OwnFile> files = new ArrayList<>();
    private Names names;
    private Sidecar side;
    private Live live;
    private Mode mode;
    private Path shm;
    private Removal removal;
    /** Names of this run, once its shared memory may exist. */
    private Ids ids;

    Opening(Options options) {
        this.options = options;
        this.path = options.path;
    }

    static long nanos(Duration duration) {
        try {
            return duration.toNanos();
        } catch (ArithmeticException e) {
            return Long.MAX_VALUE;
        }
    }

    Appender open() throws PrecursorException {
        names = Names.of(path);
        options.check(names);
        boolean done = false;
        try {
            side = Sidecar.take(names);
            if (side == null) {
                throw new PrecursorException.Busy(path);
            }
            Recovery.lockFrom(names, side.entry() == null ? -1 : side.seq(), files);
            choose();
            Place place = place();
            Recovery.closeAll(files);
            files.clear();
            Appender appender = start(place);
            done = true;
            return appender;
        } catch (IOException e) {
            throw Recovery.typed(path, "open", e);
        } finally {
            if (!done) {
                abandon();
            }
        }
    }

    private void abandon() {
        Recovery.closeAll(files);
        try {
            if (live != null) {
                live.close();
            }
            if (side != null) {
                Sidecar.Entry entry = side.entry();
                if (entry == null) {
                    Files.deleteIfExists(names.sidecar());
                }
                if (ids != null && shm != null && (entry == null || entry.shmId() != ids.shmId)) {
                    Live.removeShm(shm, ids.stem);
                }
                side.close();
            }
        } catch (IOException e) {
            // The first error is thrown. What remains is for recovery.
        }
    }

    /** Chooses the mode: the one requested, or the ring if it keeps what a write() keeps. */
    private void choose() throws PrecursorException {
        Path dir = null;
        String problem = null;
        try {
            dir = options.shmDir.toRealPath();
            problem = Machine.shmProblem(dir);
        } catch (IOException e) {
            problem = "the directory " + options.shmDir + " cannot be opened (" + e.getMessage() + ")";
        }
        shm = problem == null ? dir : null;
        removal = shm == null ? null : Machine.removal(shm);
        if (problem == null && Machine.maySwap(shm)) {
            problem = "swap is on, and Java cannot lock memory: use a tmpfs mounted with noswap as shmDir, set "
                + "memory.swap.max to 0, or use the library in Rust or C";
        }
        if (options.mode == Mode.RING && problem != null) {
            throw new PrecursorException.Refused(path, Mode.RING, problem);
        }
        String against = problem;
        if (against == null && options.readableAtOnce) {
            against = "readers must see each byte in the file at once, and a ring reaches the file later";
        }
        if (against == null && removal != null && !options.processDeathMayLose) {
            against = sentence(removal) + "; or allow it with processDeathMayLose";
        }
        mode = options.mode != null ? options.mode : against == null ? Mode.RING : Mode.PLAIN;
        if (options.mode == null) {
            reasons.add(against == null ? "ring: the writer touches only its own memory" : "not ring: " + against);
        }
        if (mode == Mode.RING && removal != null) {
            reasons.add(sentence(removal));
        }
    }

    private static String sentence(Removal removal) {
        return removal == Removal.CONTAINER
            ? "a container's /dev/shm ends with it, so bytes not yet in the file may be lost with the process: share "
                + "the host's (--ipc=host), or give shmDir a tmpfs that outlives the container"
            : "systemd-logind removes this user's files in /dev/shm at the last logout (RemoveIPC), so a writer that "
                + "dies then cannot be recovered: set RemoveIPC=no, or run as a system user";
    }

    private Place place() throws IOException {
        List<Long> present = names.present();
        if (options.existing == Existing.REFUSE && !present.isEmpty()) {
            throw new PrecursorException.Exists(names.path(present.get(present.size() - 1)));
        }
        if (options.existing == Existing.REPLACE) {
            return replace(present);
        }
        Recovery.Ended ended = Recovery.locked(names, side);
        if (ended.evidence != Evidence.LENGTH) {
            reasons.add("recovered after its last writer's death (" + ended.evidence + ", " + ended.replayedBytes
                + " bytes written from the ring, " + ended.cutBytes + " cut off)");
        }
        checkFraming();
        boolean framed = options.framing == Framing.RECORDS;
        Place place = new Place();
        place.seq = ended.seq;
        place.len = ended.len;
        if (options.rollBytes != 0 && place.seq > SEQ_MAX) {
            throw new PrecursorException.InvalidOptions(names.given(), names.path(place.seq)
                + " has a number that no appender reaches; move it away");
        }
        // Unframed files that were archived since may have ended at any position.
        place.base = framed ? ended.base + 7 & -8 : ended.base;
        place.number = Math.max(ended.number, 0);
        if (options.rollBytes != 0 && place.len + Frame.END_MARK_LEN >= options.rollBytes) {
            long len = framed ? endFile(place.seq, place.len) : place.len;
            place.base += len;
            place.seq++;
            place.len = 0;
        }
        return place;
    }

    private Place replace(List<Long> present) throws IOException {
        for (long seq : present) {
            // Checked like any data file: root removes only root's files.
            names.existing(seq).close();
            names.remove(seq);
        }
        Sidecar.Entry entry = side.entry();
        if (entry != null && entry.shmDir() != null) {
            Live.removeShm(entry.shmDir(), names.shmStem(entry.shmId()));
        }
        return new Place();
    }

    /** Checks that the existing files are framed as requested, judged by their lengths and headers. */
    private void checkFraming() throws IOException {
        for (long seq : names.present()) {
            byte[] head = new byte[FileHeader.LEN];
            OwnFile file = names.existing(seq);
            long len;
            int got;
            try {
                len = file.len();
                got = file.readAt(0, head, 0, head.length);
            } finally {
                file.close();
            }
            FileHeader.Kind kind = FileHeader.kind(head, got);
            if (kind == FileHeader.Kind.OTHER_VERSION) {
                throw new PrecursorException.Version(names.path(seq), FileHeader.version(head));
            }
            boolean header = kind == FileHeader.Kind.HEADER;
            if (options.framing == Framing.RECORDS && len > 0 && (!header || len % Frame.WORD != 0)) {
                throw new PrecursorException.InvalidOptions(path, "the " + len + " bytes of " + names.path(seq)
                    + " are not whole frames of format 2; open without framing, or begin another file");
            }
            if (options.framing == Framing.NONE && header) {
                throw new PrecursorException.InvalidOptions(path, names.path(seq)
                    + " has framed records; open with Framing.RECORDS, or begin another file");
            }
        }
    }

    /** Marks the end of a file that the appender does not continue, durably, unless it is marked. */
    private long endFile(long seq, long len) throws IOException {
        OwnFile file = names.existing(seq);
        try {
            if (Scan.endsWithMark(file, len)) {
                return len;
            }
            byte[] mark = new byte[Frame.END_MARK_LEN];
            Words.set(mark, 0, Frame.END_MARK);
            file.writeAt(len, mark, 0, mark.length);
            file.sync();
            return len + mark.length;
        } finally {
            file.close();
        }
    }

    private Appender start(Place place) throws IOException {
        OwnFile file = names.open(place.seq);
        files.add(file);
        if (!file.tryLock()) {
            throw new PrecursorException.Busy(path);
        }
        boolean framed = options.framing == Framing.RECORDS;
        if (framed && place.len == 0) {
            byte[] header = new FileHeader(place.seq, place.base, place.number, Machine.nowNs()).encode();
            file.writeAt(0, header, 0, header.length);
            file.sync();
            place.len = header.length;
        }
        if (shm != null) {
            forgetOrphans();
        }
        long shmId = Machine.random();
        ids = new Ids(Machine.random(), shmId, names.shmStem(shmId));
        ByteBuffer ring = share(place);
        Core core = new Core(options, mode, names, shm, ids, live, place, new Core.DataFile(place.seq, file));
        side.write(core.entry(place.seq, place.len, place.base, place.number, false));
        OwnFile.syncDirectory(names.dir());
        core.keep(side);
        Survival survival = new Survival(mode == Mode.RING && removal != null ? After.SYNC_TO : After.APPEND,
            After.SYNC_TO, mode == Mode.RING ? removal : null);
        long bytesMax = options.rollBytes == 0 ? Long.MAX_VALUE : core.rollRoom() - core.headLen();
        bytesMax = ring == null ? bytesMax : Math.min(bytesMax, ring.capacity() / 2);
        int ringBytes = ring == null ? 0 : ring.capacity();
        Start start = new Start(reasons, survival, recordMax(bytesMax), ringBytes, options.measure);
        Lane lane = ring == null ? new PlainLane(core, place) : new RingLane(core, place, ring, options.backPressure);
        return new Appender(core, lane, start, threads(core, ring));
    }

    private int recordMax(long bytesMax) {
        long head = options.framing == Framing.RECORDS ? Frame.HEADER : 0;
        return (int) Math.min(Math.max(0, (bytesMax & -8) - head), Frame.LEN_MAX);
    }

    /** Creates the live block, and the ring if there is one. Without room for them, a chosen ring becomes plain. */
    private ByteBuffer share(Place place) throws IOException {
        boolean framed = options.framing == Framing.RECORDS;
        Live.At at = new Live.At(place.seq, place.base);
        long position = place.base + place.len;
        try {
            live = Live.create(shm, ids.stem(), ids.token(), framed, names.full(), position, at, place.number);
            return mode == Mode.RING ? ring(place) : null;
        } catch (IOException e) {
            if (live != null) {
                live.close();
                live = null;
            }
            if (shm != null) {
                Live.removeShm(shm, ids.stem());
            }
            if (options.mode == Mode.RING || shm == null) {
                throw new PrecursorException.Io("create the ring of", path, e);
            }
            reasons.add("not ring: no room in " + shm + " (" + e.getMessage() + "); enlarge it, or use a smaller ring");
            mode = Mode.PLAIN;
            shm = null;
            live = Live.create(null, ids.stem(), ids.token(), framed, names.full(), position, at, place.number);
            return null;
        }
    }

    private ByteBuffer ring(Place place) throws IOException {
        int asked = Integer.highestOneBit(Math.max(options.ringBytes, Machine.PAGE_BYTES) * 2 - 1);
        long most = Math.max(Machine.memoryLimit() / 4, 16L * Machine.PAGE_BYTES);
        int capacity = (int) Math.min(asked, Long.highestOneBit(most));
        if (capacity < asked) {
            reasons.add("ring of " + (capacity >> 10) + " KiB instead of " + (asked >> 10)
                + ": a quarter of the memory limit of the cgroup");
        }
        OwnFile file = Live.createShm(shm.resolve(ids.stem() + ".ring0"), capacity);
        try {
            ByteBuffer ring = file.map(true, capacity);
            for (int at = 0; at < capacity; at += 4096) {
                // Takes the page fault of a store now.
                ring.put(at, (byte) 0);
            }
            live.setRing(capacity, place.base + place.len);
            return ring;
        } finally {
            file.close();
        }
    }

    /** Removes the shared memory of earlier runs on this path, which can no longer be recovered. */
    private void forgetOrphans() throws IOException {
        for (Path entry : Names.list(shm, names.shmPrefix() + "-*")) {
            Facts facts = Facts.of(entry);
            // Files of another user are left alone.
            if (facts != null && facts.unfit(Facts.Use.PRIVATE) == null) {
                Files.deleteIfExists(entry);
            }
        }
    }

    private List<Thread> threads(Core core, ByteBuffer ring) {
        List<Thread> threads = new ArrayList<>();
        if (ring != null) {
            Thread flusher = new Uninterrupted.Helper("precursor-flush", new Flusher(core, ring));
            core.flusher = flusher;
            threads.add(flusher);
        }
        if (options.syncEvery != null || ring == null && options.rollEvery != null) {
            threads.add(new Uninterrupted.Helper("precursor-sync", () -> tick(core)));
        }
        threads.forEach(Thread::start);
        return threads;
    }

    /** Syncs at the interval; without a ring also follows the time of day and the age of the file. */
    private void tick(Core core) {
        long period = options.syncEvery == null ? Long.MAX_VALUE : nanos(options.syncEvery);
        long synced = System.nanoTime();
        while (!core.closing) {
            long left = period - (System.nanoTime() - synced);
            if (left > 0) {
                LockSupport.parkNanos(Math.min(left, 100_000_000));
                core.rollDue |= System.nanoTime() - core.begun > core.rollEveryNs;
                continue;
            }
            try {
                core.syncTo(core.live.position());
            } catch (PrecursorException e) {
                // The core keeps a failure; the writer and `close` report it. After a full disk the next sync tries.
                if (core.failure != null) {
                    return;
                }
            }
            synced = System.nanoTime();
        }
    }
}
