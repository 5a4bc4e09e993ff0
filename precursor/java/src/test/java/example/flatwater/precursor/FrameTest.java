package example.flatwater.precursor;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import org.junit.jupiter.api.Test;

class FrameTest {
    private static final byte[] TEXT = "a record".getBytes(StandardCharsets.US_ASCII);

    /** CRC-32 from an initial value, bit by bit. */
    private static int crc(int initial, byte[] bytes) {
        int crc = ~initial;
        for (byte b : bytes) {
            crc ^= b & 0xff;
            for (int i = 0; i < 8; i++) {
                crc = crc >>> 1 ^ (crc & 1) * 0xedb88320;
            }
        }
        return ~crc;
    }

    private static byte[] covered(int low, long time, byte[] payload) {
        byte[] bytes = new byte[12 + payload.length];
        Words.setInt(bytes, 0, low);
        Words.set(bytes, 4, time);
        System.arraycopy(payload, 0, bytes, 12, payload.length);
        return bytes;
    }

    @Test
    void theChecksumBeginsWithTheValueOfTheFormat() {
        long word = new Frame().data(TEXT, 0, TEXT.length, 7);
        int low = TEXT.length | 2 << 30;
        assertEquals(low, (int) word);
        assertEquals(crc(0x70726332, covered(low, 7, TEXT)), (int) (word >>> 32));
        byte[] mark = new byte[4];
        Words.setInt(mark, 0, 3 << 30);
        assertEquals(Integer.toUnsignedLong(crc(0x70726332, mark)) << 32 | 3L << 30, Frame.END_MARK);
    }

    @Test
    void aFrameThatCrossesTheEndOfTheRingHasTheSameWord() {
        Frame frame = new Frame();
        for (int at = 0; at < 16; at++) {
            ByteBuffer ring = ByteBuffer.allocateDirect(16);
            for (int i = 0; i < TEXT.length; i++) {
                ring.put((at + i) % 16, TEXT[i]);
            }
            assertEquals(frame.data(TEXT, 0, TEXT.length, 9), frame.data(ring.clear(), at, TEXT.length, 9));
        }
    }

    @Test
    void aChangedBitMakesAFrameInvalid() {
        Frame frame = new Frame();
        byte[] bytes = new byte[40];
        System.arraycopy(TEXT, 0, bytes, 24, TEXT.length);
        Words.set(bytes, 8, 5);
        Words.set(bytes, 0, frame.data(bytes, 24, TEXT.length, 0));
        assertEquals(32, frame.validLen(bytes, 0, 40));
        assertEquals(0, frame.validLen(bytes, 0, 31));
        for (int i = 0; i < 32; i++) {
            if (i < 8 || i >= 16) {
                bytes[i] ^= 4;
                assertNotEquals(32, frame.validLen(bytes, 0, 40), "byte " + i);
                bytes[i] ^= 4;
            }
        }
    }

    @Test
    void headersAreReadBackAndDamageIsSeen() {
        FileHeader header = new FileHeader(3, 1L << 40, 11, 12);
        byte[] bytes = header.encode();
        assertEquals(FileHeader.Kind.HEADER, FileHeader.kind(bytes, bytes.length));
        assertEquals(header, FileHeader.decode(bytes));
        assertEquals(FileHeader.Kind.DAMAGED, FileHeader.kind(bytes, 63));
        bytes[20] ^= 1;
        assertEquals(FileHeader.Kind.DAMAGED, FileHeader.kind(bytes, bytes.length));
        assertEquals(FileHeader.Kind.ABSENT, FileHeader.kind(new byte[64], 64));
    }

    @Test
    void pathsKeepTheirBytes() {
        for (String path : new String[] {"/dev/shm", "/srv/a b/c%d", "/x/{}-~é.log"}) {
            byte[] bytes = path.getBytes(StandardCharsets.UTF_8);
            assertArrayEquals(bytes, Names.bytes(Names.path(bytes)));
        }
    }
}
