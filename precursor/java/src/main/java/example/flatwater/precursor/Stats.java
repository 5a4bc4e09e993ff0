package example.flatwater.precursor;

/**
 * Counters since open. Times in ns, sizes in bytes.
 *
 * @param mode mode of writing
 * @param appends records accepted
 * @param position end of the appended data
 * @param runAheadBytes free space in the ring
 * @param waits how many appends waited for room
 * @param worstAppendNs longest append; -1 without {@link Options#measure}
 * @param flusherLagBytes accepted bytes that are not yet in the file
 * @param atRiskBytes bytes that would be lost if the machine died now
 * @param durable last durable position
 * @param memoryBytes capacity of the ring
 * @param rolls files begun after the first
 * @param outOfSpace bytes left while the disk cannot take the next bytes; -1 otherwise
 */
public record Stats(Mode mode, long appends, long position, long runAheadBytes, long waits, long worstAppendNs,
    long flusherLagBytes, long atRiskBytes, long durable, long memoryBytes, long rolls, long outOfSpace) {
}
