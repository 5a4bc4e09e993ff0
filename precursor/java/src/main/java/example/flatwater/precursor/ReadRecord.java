package example.flatwater.precursor;

/**
 * A record that a {@link Reader} has returned.
 *
 * @param number number of the record, consecutive over all files
 * @param timeNs time of the append, ns since 1970; 0 if the writer recorded none
 * @param position end of the record, as {@code append} returned it
 * @param bytes the payload, a copy
 */
public record ReadRecord(long number, long timeNs, long position, byte[] bytes) {
}
