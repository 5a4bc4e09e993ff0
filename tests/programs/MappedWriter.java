import java.io.RandomAccessFile;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;

/** MappedWriter FILE SECONDS OUT: a store of 4 KiB to a mapped file every 2 ms, a force() every 100 ms. Writes when each ended (s) and its duration in ms. */
public final class MappedWriter {
    private static final int RECORD = 4096;
    private static final int SIZE = 256 << 20;

    public static void main(String[] arguments) throws Exception {
        double seconds = Double.parseDouble(arguments[1]);
        byte[] record = new byte[RECORD];
        Arrays.fill(record, (byte) 7);
        double[] took = new double[1 << 20];
        double[] ended = new double[1 << 20];
        int count = 0;
        try (RandomAccessFile file = new RandomAccessFile(arguments[0], "rw")) {
            file.setLength(SIZE);
            MappedByteBuffer buffer = file.getChannel().map(FileChannel.MapMode.READ_WRITE, 0, SIZE);
            long end = System.nanoTime() + (long) (seconds * 1e9);
            int at = 0;
            int forced = 0;
            while (System.nanoTime() < end && count < took.length - 2) {
                long start = System.nanoTime();
                buffer.put(at, record);
                at = (at + RECORD) % SIZE;
                if (count % 50 == 49) {
                    buffer.force(Math.min(forced, at), Math.max(RECORD, Math.abs(at - forced)));
                    forced = at;
                }
                ended[count] = System.currentTimeMillis() / 1e3;
                took[count++] = (System.nanoTime() - start) / 1e6;
                Thread.sleep(2);
            }
        }
        StringBuilder out = new StringBuilder("[");
        for (int at = 0; at < count; at++) {
            out.append(at == 0 ? "" : ",").append(String.format("[%.3f,%.3f]", ended[at], took[at]));
        }
        Files.writeString(Path.of(arguments[2]), out.append("]"));
    }
}
