package example.flatwater.precursor;

/** How a reader waits for records. */
public enum Waiting {
    /** It parks for a few tens of microseconds at a time: plain Java cannot sleep on a word of shared memory. */
    PARKED,
    /** It spins, which takes a CPU. */
    SPINNING
}
