package example.flatwater.precursor;

/** Where the writer's next byte goes. Used by one thread at a time. */
abstract class Lane {
    final Core core;
    final Frame frame = new Frame();
    /** End of the appended data. */
    long cursor;
    /** Number of the next record. */
    long number;
    /** Time of the last frame. */
    private long lastTime;
    long waits;

    Lane(Core core, Opening.Place place) {
        this.core = core;
        this.cursor = place.base + place.len;
        this.number = place.number;
    }

    /** Bytes that a record takes. */
    final long need(int len) {
        return core.framed ? Frame.framedLen(len) : len;
    }

    /** The time for the next frame: never before that of the frame before; 0 if records carry no time. */
    final long time() {
        if (!core.times) {
            return 0;
        }
        long now = core.mode == Mode.RING ? System.nanoTime() + core.clockOffset : Machine.nowNs();
        lastTime = Math.max(lastTime, now);
        return lastTime;
    }

    /** Stores a record at the cursor and moves the cursor past it. The caller publishes the position. */
    abstract void put(byte[] bytes, int from, int len) throws PrecursorException;

    /** Ends a file that is old, unless it is empty or that is not possible yet. */
    abstract void rollByAge() throws PrecursorException;

    /** Closes what only the lane has open. */
    abstract void close();

    /** Free space in the ring, bytes. */
    abstract long room();
}
