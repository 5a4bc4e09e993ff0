package example.flatwater.precursor;

/**
 * What a seek has read. With an index it does not grow with the length of the file.
 *
 * @param frames frames, whole or only their heads
 * @param points points of the file's index; 0 without an index
 * @param refused points that were torn, or whose frame is not in the file; the seek then begins further ahead
 */
public record SeekCost(long frames, long points, long refused) {
}
