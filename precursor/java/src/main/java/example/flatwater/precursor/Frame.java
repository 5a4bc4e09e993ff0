package example.flatwater.precursor;

import java.nio.ByteBuffer;
import java.util.zip.CRC32;

/** Frames of format 2; docs/precursor-format.md is their specification. */
final class Frame {
    /** Length of a word, and alignment of frames, bytes. */
    static final int WORD = 8;
    /** Length of word, number and time before the payload, bytes. */
    static final int HEADER = 24;
    static final int NUMBER_AT = 8;
    static final int TIME_AT = 16;
    /** Longest payload, bytes. */
    static final int LEN_MAX = (1 << 30) - 1;
    static final int END_MARK_LEN = WORD;
    static final int RESERVED = 1;
    static final int DATA = 2;
    static final int FILLER = 3;
    /** The word of an end mark: an empty filler. */
    static final long END_MARK;

    /** Four bytes whose CRC-32 is the initial value of the format, which {@link CRC32} cannot be given. */
    private static final int PREFIX = 0x25f7fd55;

    private final CRC32 crc = new CRC32();
    /** The prefix, the low half of the word, and the time. */
    private final byte[] head = new byte[16];

    static {
        END_MARK = new Frame().filler(0);
    }

    Frame() {
        Words.setInt(head, 0, PREFIX);
    }

    /** Length of a record with its frame, bytes. */
    static long framedLen(long len) {
        return (HEADER + len + WORD - 1) & -WORD;
    }

    static long fillerLen(long len) {
        return (WORD + len + WORD - 1) & -WORD;
    }

    static int len(long word) {
        return (int) (word & LEN_MAX);
    }

    static int state(long word) {
        return (int) (word >>> 30) & 3;
    }

    /** Length that a word claims for its frame, bytes; 0 for no frame, and for one that a producer is filling. */
    static long claimedLen(long word) {
        return switch (state(word)) {
            case DATA -> framedLen(len(word));
            case FILLER -> fillerLen(len(word));
            default -> 0;
        };
    }

    /** The word of a record whose payload is in an array. */
    long data(byte[] bytes, int from, int len, long time) {
        long low = begin(DATA, len, time, 16);
        crc.update(bytes, from, len);
        return crc.getValue() << 32 | low;
    }

    /** The word of a record whose payload lies in a ring from {@code at} on, and continues at its beginning. */
    long data(ByteBuffer ring, int at, int len, long time) {
        long low = begin(DATA, len, time, 16);
        int first = Math.min(len, ring.capacity() - at);
        crc.update(ring.limit(at + first).position(at));
        if (first < len) {
            crc.update(ring.limit(len - first).position(0));
        }
        return crc.getValue() << 32 | low;
    }

    /** The word of a filler with this many bytes after the word. */
    long filler(int len) {
        long low = begin(FILLER, len, 0, 8);
        return crc.getValue() << 32 | low;
    }

    private long begin(int state, int len, long time, int headLen) {
        long low = (long) state << 30 | len;
        Words.setInt(head, 4, (int) low);
        Words.set(head, 8, time);
        crc.reset();
        crc.update(head, 0, headLen);
        return low;
    }

    /** Length of the valid frame at {@code at} of which all bytes up to {@code end} are present; 0 if there is none. */
    long validLen(byte[] bytes, int at, int end) {
        if (end - at < WORD) {
            return 0;
        }
        long word = Words.get(bytes, at);
        long whole = claimedLen(word);
        if (whole == 0 || whole > end - at) {
            return 0;
        }
        int len = len(word);
        boolean sound = state(word) == DATA
            ? data(bytes, at + HEADER, len, Words.get(bytes, at + TIME_AT)) == word
            : filler(len) == word;
        return sound ? whole : 0;
    }
}
