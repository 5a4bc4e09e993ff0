package example.flatwater.precursor;

/** What an append does if the ring is full. A full disk is always an error. */
public enum BackPressure {
    /** The append waits; {@link Stats#waits} counts it. */
    WAIT,
    /** The append throws {@link PrecursorException.Full}. */
    FAIL
}
