package example.flatwater.precursor;

import java.io.IOException;
import java.util.Arrays;

/** Finds the end of the valid frames of a file of format 2. */
final class Scan {
    private static final int CHUNK = 1 << 20;

    private final Frame frame = new Frame();
    /** Number of the next record; -1 if any is accepted. */
    long next = -1;
    /** Offset of the end of the valid frames. */
    long end;

    /** The header of a file; null if it has none of this format. */
    static FileHeader header(OwnFile file) throws IOException {
        byte[] bytes = new byte[FileHeader.LEN];
        int got = file.readAt(0, bytes, 0, bytes.length);
        return FileHeader.kind(bytes, got) == FileHeader.Kind.HEADER ? FileHeader.decode(bytes) : null;
    }

    /** Scans from an offset, or from the header on. */
    static Scan of(OwnFile file, long from) throws IOException {
        Scan scan = new Scan();
        FileHeader header = header(file);
        long head = header == null ? 0 : FileHeader.LEN;
        scan.end = Math.max(from, head);
        // In the middle of a file any number may follow.
        scan.next = header != null && from <= head ? header.first() : -1;
        scan.run(file, header != null, false);
        return scan;
    }

    /** End of the run of records that begins at {@code from}, which the first filler ends too. */
    static long recordsFrom(OwnFile file, long from) throws IOException {
        Scan scan = new Scan();
        scan.end = from;
        scan.run(file, true, true);
        return scan.end;
    }

    private void run(OwnFile file, boolean framed, boolean recordsOnly) throws IOException {
        long len = file.len();
        byte[] buffer = new byte[(int) Math.max(4096, Math.min(CHUNK, len - end))];
        while (framed && end < len) {
            int got = file.readAt(end, buffer, 0, buffer.length);
            int at = 0;
            long whole;
            while ((whole = take(buffer, at, got, recordsOnly)) > 0) {
                at += (int) whole;
            }
            end += at;
            if (at > 0) {
                continue;
            }
            // No whole frame in the buffer: there is none, or it is longer than the buffer.
            long needed = got < Frame.WORD ? 0 : Frame.claimedLen(Words.get(buffer, 0));
            if (needed <= buffer.length || end + needed > len) {
                break;
            }
            buffer = new byte[(int) needed];
        }
    }

    private long take(byte[] bytes, int at, int end, boolean recordsOnly) {
        long whole = frame.validLen(bytes, at, end);
        boolean record = whole > 0 && Frame.state(Words.get(bytes, at)) == Frame.DATA;
        if (record) {
            long number = Words.get(bytes, at + Frame.NUMBER_AT);
            if (next >= 0 && next != number) {
                return 0;
            }
            next = number + 1;
        }
        return record || !recordsOnly ? whole : 0;
    }

    /** End of the bytes that are not zero; {@code from} if all from there on are. */
    static long dataEnd(OwnFile file, long from) throws IOException {
        byte[] buffer = new byte[CHUNK];
        long found = from;
        long at = from;
        int got;
        while ((got = file.readAt(at, buffer, 0, buffer.length)) > 0) {
            for (int i = got - 1; i >= 0; i--) {
                if (buffer[i] != 0) {
                    found = at + i + 1;
                    break;
                }
            }
            at += got;
        }
        return found;
    }

    /** Whether the last bytes before {@code len} are an end mark. */
    static boolean endsWithMark(OwnFile file, long len) throws IOException {
        byte[] last = new byte[Frame.END_MARK_LEN];
        return len >= last.length && file.readAt(len - last.length, last, 0, last.length) == last.length
            && isEndMark(last, 0);
    }

    static boolean isEndMark(byte[] bytes, int at) {
        byte[] mark = new byte[Frame.END_MARK_LEN];
        Words.set(mark, 0, Frame.END_MARK);
        return Arrays.equals(bytes, at, at + mark.length, mark, 0, mark.length);
    }
}
