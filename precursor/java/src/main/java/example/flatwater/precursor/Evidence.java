package example.flatwater.precursor;

/** How recovery found the end of the data. */
public enum Evidence {
    /** From the length of the file: nothing was to be recovered. */
    LENGTH,
    /** From shared memory: each accepted byte is there. */
    LIVE,
    /** From the frames: each durable byte is there, and later records that were whole. */
    FRAMES,
    /** From the position of the last sync: exactly the durable bytes. */
    JOURNALLED,
    /** From the length of the file: each durable byte is there; later bytes are not proven. */
    UNPROVEN
}
