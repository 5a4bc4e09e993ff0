package example.flatwater.precursor;

import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Predicate;

/**
 * Reads the records of a framed file or pattern in order, in the writer's process or another, also while they are
 * written and after the writer's death.
 *
 * <p>A reader returns published records and no others. Recovery keeps every record that a reader has returned, unless
 * the machine dies. A reader of the writer's user sees a record once {@code append} has returned; another user's, once
 * it is in the file. One thread uses it at a time.
 */
public final class Reader implements AutoCloseable {
    /** Interval at which an idle reader looks for a new writer and for a removed file, ns. */
    private static final long LOOK_NS = 20_000_000;
    /** Longest park, ns. A park takes about 60 us longer. */
    private static final long NAP_NS_MAX = 1_000_000;

    private final Names names;
    private final ReaderPlace place;
    private boolean closed;
    private Waiting waiting = Waiting.PARKED;
    private long looked = System.nanoTime();
    private SeekCost cost = new SeekCost(0, 0, 0);
    /** Runs when the files have been listed, for tests that remove one in this moment. */
    Runnable listed = () -> { };

    private Reader(Names names) {
        this.names = names;
        this.place = new ReaderPlace(names);
    }

    /**
     * Opens a file, or a pattern with {@code {}} in its name, at its first record. The file need not exist yet; its
     * directory must.
     *
     * @param path the file or pattern
     * @return the reader
     * @throws PrecursorException if the path is not usable, or a system call failed
     */
    public static Reader open(Path path) throws PrecursorException {
        Reader reader = new Reader(Names.of(path));
        return reader.typed(() -> {
            reader.place.live = LiveView.find(reader.names);
            reader.beginAtFirst();
            return reader;
        });
    }

    /**
     * How {@link #next(Duration)} waits. Default: {@link Waiting#PARKED}.
     *
     * @param waiting the way
     */
    public void waiting(Waiting waiting) {
        this.waiting = Objects.requireNonNull(waiting, "waiting");
    }

    /**
     * Longest record that the reader takes into memory. Default: 1 GiB - 1 byte.
     *
     * @param bytes the length
     */
    public void recordBytesMax(int bytes) {
        place.recordBytesMax = bytes;
    }

    /**
     * The next record that is published.
     *
     * @return the record; null if there is none yet
     * @throws PrecursorException if the next bytes are not a record; the nested class says why
     */
    public ReadRecord next() throws PrecursorException {
        return typed(() -> deliver(peek()));
    }

    /**
     * The next record; waits for it. An interrupt ends the wait, and the thread stays interrupted.
     *
     * @param most longest wait
     * @return the record; null if none was published in this time
     * @throws PrecursorException as {@link #next()}
     */
    public ReadRecord next(Duration most) throws PrecursorException {
        long begin = System.nanoTime();
        long mostNs = Opening.nanos(most);
        return typed(() -> {
            while (true) {
                ReaderPlace.Found found = peek();
                if (found != null) {
                    return deliver(found);
                }
                long now = System.nanoTime();
                if (now - begin >= mostNs || Thread.currentThread().isInterrupted()) {
                    return null;
                }
                if (now - looked >= LOOK_NS) {
                    looked = now;
                    lookAround();
                    continue;
                }
                pause(now - begin, mostNs - (now - begin));
            }
        });
    }

    /** Waits a moment: the longer it has waited, the longer, so that a wait costs little beside what it took. */
    private void pause(long idleNs, long most) {
        if (waiting == Waiting.PARKED) {
            LockSupport.parkNanos(Math.max(1, Math.min(most, Math.min(idleNs / 256, NAP_NS_MAX))));
            return;
        }
        for (int i = 0; i < 1000 && (place.live == null || place.live.published() <= place.position()); i++) {
            Thread.onSpinWait();
        }
    }

    private ReadRecord deliver(ReaderPlace.Found found) {
        if (found == null) {
            return null;
        }
        byte[] bytes = Arrays.copyOfRange(place.buffer, found.from(), found.from() + found.payload());
        place.pass(found);
        return new ReadRecord(found.number(), found.time(), place.position(), bytes);
    }

    /**
     * What is known of the writer now.
     *
     * @return its state
     * @throws PrecursorException if a system call failed
     */
    public WriterState writer() throws PrecursorException {
        return typed(() -> {
            if (place.live == null) {
                return WriterState.UNKNOWN;
            }
            return place.live.isHeld() ? WriterState.ALIVE : WriterState.DEAD;
        });
    }

    /**
     * Bytes of the current file behind the last record that are not zero and not whole frames, if the end of the
     * records is reached: a torn tail, or damage.
     *
     * @return bytes
     * @throws PrecursorException if a system call failed
     */
    public long unreadBytes() throws PrecursorException {
        return typed(() -> {
            if (peek() != null || place.file == null) {
                return 0L;
            }
            byte[] word = new byte[Frame.WORD];
            int got = place.file.readAt(place.offset, word, 0, word.length);
            boolean mark = got == word.length && Scan.isEndMark(word, 0);
            // At an end mark the next file is missing; nothing is damaged.
            return mark ? 0L : Scan.dataEnd(place.file, place.offset) - place.offset;
        });
    }

    /**
     * Continues at the first record that exists.
     *
     * @throws PrecursorException if a system call failed
     */
    public void seekFirst() throws PrecursorException {
        typed(() -> {
            place.nextNumber = -1;
            beginAtFirst();
            return null;
        });
    }

    /**
     * Continues behind the last published record.
     *
     * @throws PrecursorException if the files cannot be read
     */
    public void seekEnd() throws PrecursorException {
        typed(() -> {
            cost = new SeekCost(0, 0, 0);
            lookAround();
            place.nextNumber = -1;
            Live.At last = place.live == null ? null : place.live.lastFile();
            if (last != null && place.live.published() - last.base() >= FileHeader.LEN && !place.live.many()) {
                long end = place.live.published();
                place.begin(last.seq(), last.base());
                place.headed = true;
                place.next = -1;
                place.offset = end - last.base();
                return null;
            }
            List<Long> present = present();
            if (!present.isEmpty()) {
                place.begin(present.get(present.size() - 1), 0);
            }
            jump(point -> true);
            skipWhile((found, end) -> true);
            return null;
        });
    }

    /**
     * Continues at the first record that ends after a position: with {@link ReadRecord#position}, behind that record.
     *
     * @param position the position
     * @throws PrecursorException if the files cannot be read
     */
    public void seekAfter(long position) throws PrecursorException {
        typed(() -> {
            beginNear(header -> header.base() <= position);
            jump(point -> place.base + point.offset() <= position);
            skipWhile((found, end) -> end <= position);
            return null;
        });
    }

    /**
     * Continues at the record with a number.
     *
     * @param number the number
     * @throws PrecursorException if it does not exist any more, or the files cannot be read
     */
    public void seekNumber(long number) throws PrecursorException {
        typed(() -> {
            beginNear(header -> header.first() <= number);
            jump(point -> point.number() <= number);
            skipWhile((found, end) -> found.number() < number);
            ReaderPlace.Found found = peek();
            if (found != null && found.number() > number) {
                throw new PrecursorException.Missing(names.path(place.seq), number);
            }
            return null;
        });
    }

    /**
     * Continues at the first record of this time or later. If times run backwards (the clock was set back, or several
     * producers append), at one such record behind an earlier one.
     *
     * @param timeNs ns since 1970
     * @throws PrecursorException if the files cannot be read
     */
    public void seekTime(long timeNs) throws PrecursorException {
        typed(() -> {
            // Strictly before: the file before may end with records of the same time.
            beginNear(header -> header.begun() < timeNs);
            jump(point -> point.time() < timeNs);
            skipWhile((found, end) -> found.time() < timeNs);
            return null;
        });
    }

    /**
     * What the last seek has read.
     *
     * @return frames and points of the index
     */
    public SeekCost seekCost() {
        return cost;
    }

    /**
     * Moves to the frame of the last point of the file's index that is early enough. Stays at the first frame without
     * such a point, or if its frame is not whole.
     */
    private void jump(Predicate<Index.Point> before) throws IOException {
        if (peek() == null || place.file == null) {
            return;
        }
        Index.Point point;
        try (Index index = Index.find(names, place.seq, place.file)) {
            if (index == null) {
                return;
            }
            point = index.lastBefore(before);
            cost = new SeekCost(index.frames, index.points, index.refused);
        }
        if (point == null || point.offset() <= place.offset) {
            return;
        }
        long offset = place.offset;
        long next = place.next;
        place.enter(point.offset(), point.number());
        ReaderPlace.Found found;
        try {
            found = place.frame();
        } catch (PrecursorException.TooLong e) {
            // The scan reports it, if it is a record.
            found = null;
        }
        boolean whole = found != null && found.isRecord();
        cost = new SeekCost(cost.frames() + 1, cost.points(), cost.refused() + (whole ? 0 : 1));
        if (!whole) {
            place.enter(offset, next);
        }
    }

    /** An operation that may fail. */
    private interface Work<T> {
        T run() throws IOException;
    }

    private <T> T typed(Work<T> work) throws PrecursorException {
        if (closed) {
            throw new PrecursorException.Closed(names.given());
        }
        try {
            return work.run();
        } catch (IOException e) {
            throw Recovery.typed(names.given(), "read", e);
        }
    }

    /** Whether a record is skipped; with its end. */
    private interface Skip {
        boolean test(ReaderPlace.Found found, long end);
    }

    private void skipWhile(Skip skip) throws IOException {
        ReaderPlace.Found found;
        while ((found = peek()) != null && skip.test(found, place.position() + found.len())) {
            place.pass(found);
            cost = new SeekCost(cost.frames() + 1, cost.points(), cost.refused());
        }
    }

    private List<Long> present() throws IOException {
        List<Long> found = names.present();
        listed.run();
        return found;
    }

    private void beginAtFirst() throws IOException {
        place.leave();
        List<Long> present;
        do {
            present = present();
        } while (!present.isEmpty() && !place.beginOpen(present.get(0)));
    }

    /** Whether a file begins early enough. */
    private interface Before {
        boolean test(FileHeader header);
    }

    /** Begins at the last file that may hold what is sought: whose header is early enough. */
    private void beginNear(Before before) throws IOException {
        cost = new SeekCost(0, 0, 0);
        place.nextNumber = -1;
        place.leave();
        List<Long> files;
        do {
            files = present();
        } while (!files.isEmpty() && !place.beginOpen(lastBefore(files, before)));
    }

    /** The last file whose header is early enough, or the first file. */
    private long lastBefore(List<Long> files, Before before) throws IOException {
        int low = 0;
        int high = files.size();
        while (low < high) {
            int middle = (low + high) >>> 1;
            OwnFile found = OwnFile.open(names.path(files.get(middle)), Facts.Use.READ, false);
            if (found == null) {
                // Removed since it was listed: it was one of the oldest.
                low = middle + 1;
                continue;
            }
            FileHeader header;
            try {
                header = Scan.header(found);
            } finally {
                found.close();
            }
            // A file without a header is of format 1, one of the oldest, or the last one and just begun.
            if (header == null ? middle + 1 < files.size() : before.test(header)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        return files.get(Math.max(low - 1, 0));
    }

    /** The next record, which stays the next one; null if there is none yet. */
    private ReaderPlace.Found peek() throws IOException {
        while (true) {
            if (!place.begun) {
                beginAtFirst();
            }
            if (!place.begun || !place.headed && !readHeader()) {
                return null;
            }
            ReaderPlace.Found found = place.frame();
            if (found == null) {
                // Bytes that are published and not a frame are damage.
                if (place.limited && place.buffered >= Frame.WORD) {
                    throw new PrecursorException.Damaged(names.path(place.seq), place.offset);
                }
                if (!continuesElsewhere()) {
                    return null;
                }
            } else if (found.isRecord()) {
                return found;
            } else if (found.len() > Frame.END_MARK_LEN) {
                place.pass(found);
            } else if (!nextFile(found.len())) {
                return null;
            }
        }
    }

    /** Reads the header of the current file. False if it is not written yet. */
    private boolean readHeader() throws IOException {
        place.load(FileHeader.LEN, true);
        if (FileHeader.kind(place.buffer, place.buffered) == FileHeader.Kind.DAMAGED) {
            // Perhaps it is being stored.
            LockSupport.parkNanos(1_000_000);
            place.load(FileHeader.LEN, true);
        }
        boolean empty = true;
        for (int i = 0; i < Math.min(place.buffered, FileHeader.LEN); i++) {
            empty &= place.buffer[i] == 0;
        }
        if (empty) {
            return false;
        }
        Path path = names.path(place.seq);
        switch (FileHeader.kind(place.buffer, place.buffered)) {
            case ABSENT -> throw new PrecursorException.NotFramed(path);
            case DAMAGED -> throw new PrecursorException.Damaged(path, 0);
            case OTHER_VERSION -> throw new PrecursorException.Version(path, FileHeader.version(place.buffer));
            default -> {
                FileHeader header = FileHeader.decode(place.buffer);
                place.base = header.base();
                place.offset = FileHeader.LEN;
                place.headed = true;
                place.next = header.first();
                long expected = place.nextNumber;
                if (expected >= 0 && header.first() > expected) {
                    throw new PrecursorException.Missing(path, expected);
                }
            }
        }
        return true;
    }

    /** Moves from an end mark of {@code mark} bytes to the next file. False if it has not begun. */
    private boolean nextFile(long mark) throws IOException {
        // A file with the largest number is the last one.
        if (!names.rolls() || place.seq == Long.MAX_VALUE) {
            return false;
        }
        long following = place.seq + 1;
        long end = place.base + place.offset + mark;
        if (place.live != null && !place.live.many() && place.live.published() > end || names.exists(following)) {
            place.begin(following, end);
            return true;
        }
        List<Long> later = present().stream().filter(each -> each > following).toList();
        if (later.isEmpty()) {
            return false;
        }
        // The writer may have made both between the two looks: it makes files in order.
        if (names.exists(following)) {
            place.begin(following, end);
            return true;
        }
        throw missing(later.get(0));
    }

    /** Continues behind a gap with the next call. */
    private PrecursorException missing(long later) throws IOException {
        long from = Math.max(place.nextNumber, 0);
        place.nextNumber = -1;
        place.begin(later, 0);
        return new PrecursorException.Missing(names.path(later), from);
    }

    /** A file without an end mark: whether the next one continues it, which its first number shows. */
    private boolean continuesElsewhere() throws IOException {
        boolean running = place.live != null && place.live.file().seq() <= place.seq;
        if (!names.rolls() || running || place.seq == Long.MAX_VALUE) {
            return false;
        }
        OwnFile following = OwnFile.open(names.path(place.seq + 1), Facts.Use.READ, false);
        if (following == null) {
            return false;
        }
        FileHeader header;
        try {
            header = Scan.header(following);
        } finally {
            following.close();
        }
        boolean joins = header != null && place.next >= 0 && header.first() == place.next;
        if (joins) {
            place.begin(place.seq + 1, 0);
        }
        return joins;
    }

    /** Looks for another writer, and whether the current file was removed. */
    private void lookAround() throws IOException {
        LiveView found = LiveView.find(names);
        boolean same = found == null ? place.live == null : place.live != null && found.token() == place.live.token();
        if (!same) {
            if (place.live != null) {
                place.live.close();
            }
            place.live = found;
            return;
        }
        if (found != null) {
            found.close();
        }
        if (!place.begun) {
            return;
        }
        boolean left = place.live == null || place.live.file().seq() > place.seq;
        Facts there = Facts.of(names.path(place.seq));
        if (place.file == null) {
            // Removed before it was opened.
            long now = place.seq;
            List<Long> later = present().stream().filter(each -> each > now).toList();
            if (there == null && left && !later.isEmpty()) {
                throw missing(later.get(0));
            }
            return;
        }
        if (there != null && there.key().equals(place.file.key())) {
            return;
        }
        // Archived: it is whole, and the reader continues with the next file.
        if (there == null && names.rolls() && place.live != null && left) {
            return;
        }
        throw new PrecursorException.Removed(names.path(place.seq));
    }

    /** Closes the reader's files. A second call does nothing. */
    @Override
    public void close() {
        if (closed) {
            return;
        }
        closed = true;
        try {
            place.closeFile();
            if (place.live != null) {
                place.live.close();
            }
        } catch (IOException e) {
            // Nothing was written.
        }
    }
}
