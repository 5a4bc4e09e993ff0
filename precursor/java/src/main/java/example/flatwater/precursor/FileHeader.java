package example.flatwater.precursor;

import java.nio.charset.StandardCharsets;
import java.util.zip.CRC32;

/**
 * Header of a data file.
 *
 * @param seq number in the file's name; 0 for a single file
 * @param base position of the file's first byte
 * @param first number of the file's first record
 * @param begun when the file was begun, ns since 1970
 */
record FileHeader(long seq, long base, long first, long begun) {
    static final int LEN = 64;
    private static final byte[] MAGIC = "prcrsrF2".getBytes(StandardCharsets.US_ASCII);
    private static final int VERSION = 2;

    /** Why bytes are not a header of this version. */
    enum Kind {
        HEADER, ABSENT, DAMAGED, OTHER_VERSION
    }

    byte[] encode() {
        byte[] out = new byte[LEN];
        System.arraycopy(MAGIC, 0, out, 0, MAGIC.length);
        Words.setInt(out, 8, VERSION);
        Words.setInt(out, 12, LEN);
        Words.set(out, 16, seq);
        Words.set(out, 24, base);
        Words.set(out, 32, first);
        Words.set(out, 40, begun);
        Words.setInt(out, 60, sum(out));
        return out;
    }

    static Kind kind(byte[] bytes, int len) {
        for (int i = 0; i < MAGIC.length; i++) {
            if (i >= len || bytes[i] != MAGIC[i]) {
                return Kind.ABSENT;
            }
        }
        if (len < LEN || Words.getInt(bytes, 60) != sum(bytes)) {
            return Kind.DAMAGED;
        }
        return Words.getInt(bytes, 8) == VERSION && Words.getInt(bytes, 12) == LEN ? Kind.HEADER : Kind.OTHER_VERSION;
    }

    /** The header in bytes of which {@link #kind} is a header. */
    static FileHeader decode(byte[] bytes) {
        return new FileHeader(Words.get(bytes, 16), Words.get(bytes, 24), Words.get(bytes, 32), Words.get(bytes, 40));
    }

    static long version(byte[] bytes) {
        return Integer.toUnsignedLong(Words.getInt(bytes, 8));
    }

    private static int sum(byte[] bytes) {
        CRC32 crc = new CRC32();
        crc.update(bytes, 0, 60);
        return (int) crc.getValue();
    }
}
