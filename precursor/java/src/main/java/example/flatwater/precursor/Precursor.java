package example.flatwater.precursor;

import java.nio.file.Path;

/**
 * Appends to files without waiting for block allocation, reclaim, the journal or dirty throttling.
 *
 * <p>{@link #open} chooses a mode and returns an {@link Appender}; a {@link Reader} reads framed records in this or
 * another process; {@link #recover} finds the end of the data that a dead writer left. Files and shared memory have the
 * formats of the libraries in Rust and C, so each reads and recovers what the others write.
 *
 * <p>This library is plain Java without native calls, so it has {@link Mode#RING} and {@link Mode#PLAIN}, one producer,
 * and no locked memory.
 */
public final class Precursor {
    private Precursor() {
    }

    /**
     * Opens a file for appending. First recovers what a dead writer left.
     *
     * @param options the options
     * @return the appender
     * @throws PrecursorException if the options, the machine, the file or its other writer do not allow it
     */
    public static Appender open(Options options) throws PrecursorException {
        return new Opening(options).open();
    }

    /**
     * Recovers a file or pattern. Afterwards its files have their exact lengths, durably, and only the sidecar of a
     * pattern remains beside them. Running it again changes nothing.
     *
     * @param path the file or pattern
     * @return what was found
     * @throws PrecursorException if a living appender has the file open, a file must not be trusted, only the Rust
     *     library can recover it, or a system call failed
     */
    public static Recovered recover(Path path) throws PrecursorException {
        return Recovery.recover(path);
    }
}
