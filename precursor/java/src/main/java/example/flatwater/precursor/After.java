package example.flatwater.precursor;

/** The call after which a record survives. */
public enum After {
    /** After {@code append} or {@code commit} has returned. */
    APPEND,
    /** After {@code syncTo} has returned for the position of the record. */
    SYNC_TO
}
