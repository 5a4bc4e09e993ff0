package example.flatwater.precursor;

/** How recovery finds the end of the data, and whether a Reader can read them. */
public enum Framing {
    /** The file contains exactly the appended bytes. */
    NONE,
    /**
     * Each record carries its length, a checksum, its number and optionally a time: 24 bytes, and padding to a multiple
     * of 8.
     */
    RECORDS
}
