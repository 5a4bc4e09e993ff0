package example.flatwater.precursor;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.function.Predicate;
import java.util.zip.CRC32;

/**
 * The index beside a data file; docs/precursor-format.md is its specification.
 *
 * <p>It is a hint. A point counts only if its checksum, which covers the file's header, is right and its frame is in
 * the file.
 */
final class Index implements AutoCloseable {
    private static final int POINT_LEN = 32;
    private static final byte[] MAGIC = "prcrsrI1".getBytes(StandardCharsets.US_ASCII);

    private final OwnFile index;
    private final OwnFile data;
    private final byte[] header = new byte[FileHeader.LEN];
    long frames;
    long points;
    long refused;
    /** Number of the points up to the last one that {@link #lastBefore} found. */
    private long count;

    /**
     * A frame.
     *
     * @param offset where it begins
     * @param number number of the record
     * @param time time of the record
     */
    record Point(long offset, long number, long time) {
    }

    private Index(OwnFile index, OwnFile data) {
        this.index = index;
        this.data = data;
    }

    /** Opens the index of file {@code seq}, if its writers may also write to the file; else null. */
    static Index find(Names names, long seq, OwnFile data) throws IOException {
        Path path = names.index(seq);
        OwnFile file;
        try {
            file = OwnFile.open(path, Facts.Use.READ, false);
        } catch (IOException e) {
            // A link, a pipe, or another user's private file: the seek scans.
            return null;
        }
        if (file == null) {
            return null;
        }
        Index index = new Index(file, data);
        Facts ours = Facts.of(path);
        Facts theirs = Facts.of(names.path(seq));
        byte[] magic = new byte[MAGIC.length];
        boolean fits = ours != null && theirs != null && ours.key().equals(file.key())
            && theirs.key().equals(data.key()) && ours.owner() == theirs.owner() && ours.links() == 1
            && (ours.mode() & 022 & ~theirs.mode()) == 0;
        if (fits && file.readAt(0, magic, 0, magic.length) == magic.length && Arrays.equals(magic, MAGIC)
            && data.readAt(0, index.header, 0, FileHeader.LEN) == FileHeader.LEN) {
            return index;
        }
        index.close();
        return null;
    }

    /** The index of a file that is written, to continue behind its last point before an offset. */
    static Index continued(Names names, long seq, OwnFile data, long offset) throws IOException {
        Path path = names.index(seq);
        if (Facts.of(path) == null) {
            OwnFile.create(path, false);
        }
        OwnFile file = OwnFile.open(path, Facts.Use.PRIVATE, true);
        if (file == null) {
            throw new IOException(path + " was removed");
        }
        Index index = new Index(file, data);
        try {
            byte[] begin = new byte[POINT_LEN];
            boolean ours = file.readAt(0, begin, 0, begin.length) == 0
                || Arrays.equals(MAGIC, Arrays.copyOf(begin, MAGIC.length));
            if (!ours || data.readAt(0, index.header, 0, FileHeader.LEN) < FileHeader.LEN) {
                throw new IOException(path + " is not an index");
            }
            System.arraycopy(MAGIC, 0, begin, 0, MAGIC.length);
            file.writeAt(0, begin, 0, begin.length);
            index.lastBefore(point -> point.offset < offset);
            file.cut((index.count + 1) * POINT_LEN);
            return index;
        } catch (IOException e) {
            file.close();
            throw e;
        }
    }

    /** Writes the next point. */
    void put(Point point) throws IOException {
        byte[] bytes = new byte[POINT_LEN];
        Words.set(bytes, 0, point.offset);
        Words.set(bytes, 8, point.number);
        Words.set(bytes, 16, point.time);
        Words.set(bytes, 24, sum(bytes));
        index.writeAt((count + 1) * POINT_LEN, bytes, 0, bytes.length);
        count++;
    }

    private long sum(byte[] bytes) {
        CRC32 crc = new CRC32();
        crc.update(header);
        crc.update(bytes, 0, 24);
        return crc.getValue();
    }

    /**
     * The last point before what is sought; null if there is none. A refused point, as behind a torn end, counts as one
     * after it: the search continues among the earlier ones.
     */
    Point lastBefore(Predicate<Point> before) throws IOException {
        long low = 0;
        long high = Math.max(index.len() / POINT_LEN - 1, 0);
        Point best = null;
        while (low < high) {
            long middle = low + (high - low) / 2;
            Point point = point(middle);
            if (point != null && before.test(point)) {
                best = point;
                low = middle + 1;
                count = low;
            } else {
                high = middle;
            }
        }
        return best;
    }

    private Point point(long i) throws IOException {
        points++;
        byte[] bytes = new byte[POINT_LEN];
        if (index.readAt((i + 1) * POINT_LEN, bytes, 0, POINT_LEN) == POINT_LEN) {
            Point point = new Point(Words.get(bytes, 0), Words.get(bytes, 8), Words.get(bytes, 16));
            if (Words.get(bytes, 24) == sum(bytes) && isInData(point)) {
                return point;
            }
        }
        refused++;
        return null;
    }

    private boolean isInData(Point point) throws IOException {
        frames++;
        byte[] head = new byte[Frame.HEADER];
        return point.offset >= 0 && point.offset % Frame.WORD == 0 && point.number >= 0
            && data.readAt(point.offset, head, 0, head.length) == head.length
            && Frame.state(Words.get(head, 0)) == Frame.DATA && Words.get(head, Frame.NUMBER_AT) == point.number
            && Words.get(head, Frame.TIME_AT) == point.time;
    }

    @Override
    public void close() throws IOException {
        index.close();
    }
}
