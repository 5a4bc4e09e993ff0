import java.io.RandomAccessFile;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;

/** MappedWriter FILE SECONDS OUT: a store of 4 KiB into a mapped file each 2 ms, a force() each 100 ms; writes how long they took. */
public final class MappedWriter {
    private static final int RECORD = 4096;
    private static final int SIZE = 256 << 20;

    public static void main(String[] arguments) throws Exception {
        double seconds = Double.parseDouble(arguments[1]);
        byte[] record = new byte[RECORD];
        Arrays.fill(record, (byte) 7);
        double[] took = new double[1 << 20];
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
                took[count++] = (System.nanoTime() - start) / 1e6;
                Thread.sleep(2);
            }
        }
        double[] sorted = Arrays.copyOf(took, count);
        Arrays.sort(sorted);
        Files.writeString(Path.of(arguments[2]), String.format("{\"worst_ms\": %.3f, \"p99_ms\": %.3f, \"operations\": %d}",
            sorted[count - 1], sorted[(int) (count * 0.99) - 1], count));
    }
}
