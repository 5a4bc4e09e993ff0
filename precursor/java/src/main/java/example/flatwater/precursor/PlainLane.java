package example.flatwater.precursor;

import java.io.IOException;
import java.util.Arrays;

/** The writer's side of {@link Mode#PLAIN}: {@code write()} on the writer's thread. */
final class PlainLane extends Lane {
    private Core.DataFile file;
    private long fileBase;
    /** The file is ended, and the next one has not begun. */
    private boolean marked;
    /** A write has failed, so the file may be longer than its data. */
    private boolean torn;
    private byte[] record = new byte[4096];
    private final Indexer indexer;
    /** The file with which the indexer has begun. */
    private Core.DataFile indexed;

    PlainLane(Core core, Opening.Place place) {
        super(core, place);
        this.file = core.current();
        this.fileBase = place.base;
        this.indexer = new Indexer(core.names);
    }

    @Override
    void put(byte[] bytes, int from, int len) throws PrecursorException {
        long need = need(len);
        if (core.rollBytes != 0 && (marked || cursor + need > fileBase + core.rollRoom())) {
            roll();
        }
        long at = cursor - fileBase;
        try {
            if (!core.framed) {
                file.file().writeAt(at, bytes, from, len);
                cursor += need;
                return;
            }
            // A file that a roll has begun has no header yet.
            int head = at == 0 ? FileHeader.LEN : 0;
            int whole = (int) (head + need);
            if (record.length < whole) {
                record = new byte[Math.max(whole, 2 * record.length)];
            }
            Arrays.fill(record, whole - Frame.WORD, whole, (byte) 0);
            System.arraycopy(bytes, from, record, head + Frame.HEADER, len);
            if (head > 0) {
                System.arraycopy(core.header(file.seq(), fileBase, number).encode(), 0, record, 0, head);
            }
            long time = time();
            Words.set(record, head, frame.data(record, head + Frame.HEADER, len, time));
            Words.set(record, head + Frame.NUMBER_AT, number);
            Words.set(record, head + Frame.TIME_AT, time);
            file.file().writeAt(at, record, 0, whole);
            if (indexed != file) {
                indexer.begin(file.seq(), file.file(), fileBase, fileBase + at + head);
                indexed = file;
            }
            indexer.offer(at + head, number, time);
            number++;
            cursor += whole;
        } catch (IOException e) {
            throw writeError("write", e);
        }
    }

    @Override
    void rollByAge() throws PrecursorException {
        if (cursor > fileBase + core.headLen()) {
            roll();
        }
    }

    private void roll() throws PrecursorException {
        try {
            if (core.framed && !marked) {
                byte[] mark = new byte[Frame.END_MARK_LEN];
                Words.set(mark, 0, Frame.END_MARK);
                file.file().writeAt(cursor - fileBase, mark, 0, mark.length);
                cursor += mark.length;
                Words.release(core.live.page, Live.POSITION, cursor);
                // Creating the next file may fail for now; the mark must not be written twice.
                marked = true;
            }
            if (torn) {
                file.file().cut(cursor - fileBase);
                torn = false;
            }
            Core.DataFile next = core.createNext(file.seq() + 1);
            core.leave(next);
            file = next;
            fileBase = cursor;
            marked = false;
            core.live.setFile(new Live.At(next.seq(), fileBase));
        } catch (IOException e) {
            throw writeError("begin the next file of", e);
        }
        PrecursorException failed = core.failed();
        if (failed != null) {
            throw failed;
        }
    }

    /** Converts a failed write, which has not moved the position. A full disk is an error of this append only. */
    private PrecursorException writeError(String what, IOException error) {
        torn = true;
        if (Machine.isFull(error, core.names.path(file.seq()))) {
            return new PrecursorException.OutOfSpace(core.names.given(),
                Math.max(0, Machine.bytesLeft(core.names.path(file.seq()))));
        }
        core.fail(what, error);
        return core.failed();
    }

    @Override
    void close() {
        indexer.leave();
    }

    @Override
    long room() {
        return 0;
    }
}
