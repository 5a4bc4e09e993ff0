package example.flatwater.precursor;

import java.nio.file.Path;
import java.time.Duration;
import java.util.Objects;

/** Options of an appender: start with {@link #of}, end with {@link Precursor#open}. */
public final class Options {
    final Path path;
    Mode mode;
    Framing framing = Framing.NONE;
    boolean times;
    long rollBytes;
    Duration rollEvery;
    int ringBytes = 8 << 20;
    BackPressure backPressure = BackPressure.WAIT;
    Duration syncEvery;
    Existing existing = Existing.CONTINUE;
    boolean readableAtOnce;
    boolean measure = true;
    Path shmDir = Path.of("/dev/shm");
    boolean processDeathMayLose;

    private Options(Path path) {
        this.path = path;
    }

    /**
     * Options for a file, or for a pattern of files in whose name {@code {}} is the file number.
     *
     * @param path the file or pattern
     * @return the options
     */
    public static Options of(Path path) {
        return new Options(Objects.requireNonNull(path, "path"));
    }

    /**
     * The mode. Default: {@link Mode#RING} if its records survive the process as after {@code write()}, else
     * {@link Mode#PLAIN}. A mode requested by name is granted or refused.
     *
     * @param mode the mode; null to choose one
     * @return these options
     */
    public Options mode(Mode mode) {
        this.mode = mode;
        return this;
    }

    /**
     * Whether records are framed. Default: no.
     *
     * @param framing the framing
     * @return these options
     */
    public Options framing(Framing framing) {
        this.framing = Objects.requireNonNull(framing, "framing");
        return this;
    }

    /**
     * Framed records carry the time of their append, in ns since 1970. Default: no.
     *
     * @param times whether they do
     * @return these options
     */
    public Options times(boolean times) {
        this.times = times;
        return this;
    }

    /**
     * Size at which a new file begins; the name must then contain {@code {}}. Default 0: one file.
     *
     * @param bytes the size, a multiple of the page size
     * @return these options
     */
    public Options rollBytes(long bytes) {
        this.rollBytes = bytes;
        return this;
    }

    /**
     * Age at which a new file begins, at the first append after it; needs {@link #rollBytes}. Default: at no age.
     *
     * @param age the age
     * @return these options
     */
    public Options rollEvery(Duration age) {
        this.rollEvery = age;
        return this;
    }

    /**
     * Capacity of the ring, rounded up to a power of two; at most 1 GiB, and a quarter of the memory limit of the
     * cgroup. Default 8 MiB.
     *
     * @param bytes the capacity
     * @return these options
     */
    public Options ringBytes(int bytes) {
        this.ringBytes = bytes;
        return this;
    }

    /**
     * What an append does without room. Default: it waits.
     *
     * @param policy the policy
     * @return these options
     */
    public Options backPressure(BackPressure policy) {
        this.backPressure = Objects.requireNonNull(policy, "policy");
        return this;
    }

    /**
     * A thread of the library syncs everything at this interval. Default: nothing is synced without a call.
     *
     * @param period the interval; null for none
     * @return these options
     */
    public Options syncEvery(Duration period) {
        this.syncEvery = period;
        return this;
    }

    /**
     * What to do if the file exists. Default: continue it.
     *
     * @param existing the policy
     * @return these options
     */
    public Options existing(Existing existing) {
        this.existing = Objects.requireNonNull(existing, "existing");
        return this;
    }

    /**
     * Programs that read the file see each byte once {@code append} has returned; rules out the ring. A
     * {@link Reader} needs no such option. Default: no.
     *
     * @param atOnce whether they must
     * @return these options
     */
    public Options readableAtOnce(boolean atOnce) {
        this.readableAtOnce = atOnce;
        return this;
    }

    /**
     * Measure every append for {@link Stats#worstAppendNs}, about 50 ns each. Default: yes.
     *
     * @param measure whether to
     * @return these options
     */
    public Options measure(boolean measure) {
        this.measure = measure;
        return this;
    }

    /**
     * Directory on a tmpfs for shared memory, through which appends survive the process. Default {@code /dev/shm}.
     *
     * @param dir the directory
     * @return these options
     */
    public Options shmDir(Path dir) {
        this.shmDir = Objects.requireNonNull(dir, "dir");
        return this;
    }

    /**
     * Allow {@link Mode#RING} to be chosen where its records survive the process only after {@code syncTo}, for example
     * in a container's own {@code /dev/shm}. Default: no. A mode requested by name needs no permission.
     *
     * @param may whether it may
     * @return these options
     */
    public Options processDeathMayLose(boolean may) {
        this.processDeathMayLose = may;
        return this;
    }

    void check(Names names) throws PrecursorException {
        String problem = problem(names);
        if (problem != null) {
            throw new PrecursorException.InvalidOptions(path, problem);
        }
        if (mode == Mode.WINDOW || mode == Mode.PREFETCH) {
            throw new PrecursorException.Refused(path, mode, "Java without native calls can neither allocate blocks "
                + "(fallocate) nor populate and lock pages (madvise, mlock); use Mode.RING, or the library in Rust or "
                + "C");
        }
    }

    private String problem(Names names) {
        if (rollBytes != 0 && !names.rolls()) {
            return "a roll size needs {} in the file name";
        }
        if (rollBytes == 0 && names.rolls()) {
            return "{} in the file name needs a roll size";
        }
        if (rollEvery != null && (rollBytes == 0 || rollEvery.isNegative() || rollEvery.isZero())) {
            return "rollEvery must be longer than 0, and needs a roll size";
        }
        if (rollBytes < 0 || rollBytes % Machine.PAGE_BYTES != 0) {
            return "the roll size must be a multiple of " + Machine.PAGE_BYTES + " bytes";
        }
        if (ringBytes <= 0 || ringBytes > 1 << 30) {
            return "ringBytes must be between 1 and 2^30";
        }
        if (times && framing == Framing.NONE) {
            return "times need Framing.RECORDS";
        }
        if (readableAtOnce && mode == Mode.RING) {
            return "readableAtOnce rules out Mode.RING, from which bytes reach the file later";
        }
        if (syncEvery != null && (syncEvery.isNegative() || syncEvery.isZero())) {
            return "syncEvery must be longer than 0";
        }
        return null;
    }
}
