package example.flatwater.precursor;

/** How appended bytes reach the file. */
public enum Mode {
    /** The writer stores into shared memory; a daemon thread writes the file. */
    RING,
    /** As in the Rust library. Refused in Java, which can neither allocate blocks nor populate and lock pages. */
    WINDOW,
    /** As in the Rust library. Refused in Java. */
    PREFETCH,
    /** The writer calls {@code write()}; nothing is prepared. */
    PLAIN
}
