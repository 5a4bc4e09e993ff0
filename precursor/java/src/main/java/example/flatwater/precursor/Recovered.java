package example.flatwater.precursor;

import java.nio.file.Path;
import java.util.List;

/**
 * Result of a recovery.
 *
 * @param path the file in which the data end; null without a file
 * @param len exact length of that file now, bytes
 * @param evidence how the end was found
 * @param replayedBytes bytes that were only in the ring and have been written to the file
 * @param setAside files with data after a gap, renamed to {@code NAME.torn}; nothing in them was durable
 * @param cutBytes bytes cut off after the end: a torn record, or bytes that were never accepted
 */
public record Recovered(Path path, long len, Evidence evidence, long replayedBytes, List<Path> setAside,
    long cutBytes) {
}
