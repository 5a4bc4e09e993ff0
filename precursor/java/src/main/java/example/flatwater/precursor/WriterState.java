package example.flatwater.precursor;

/** What a reader knows of the writer. */
public enum WriterState {
    /** It runs. */
    ALIVE,
    /** It has died, and its data are not recovered yet. The reader reads what recovery will keep. */
    DEAD,
    /** None is known: the last one has closed, or its shared memory cannot be read by this user. */
    UNKNOWN
}
