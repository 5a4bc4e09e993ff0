import example.flatwater.precursor.Appender;
import example.flatwater.precursor.Framing;
import example.flatwater.precursor.Mode;
import example.flatwater.precursor.Options;
import example.flatwater.precursor.Precursor;
import java.io.RandomAccessFile;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.util.concurrent.locks.LockSupport;

/** Ways of appending in Java. */
public final class Cell {
    public static void main(String[] args) throws Exception {
        Loop.run(path -> way(args[0], path), Path.of(args[1]), "journal", Long.parseLong(args[2]));
    }

    private static Loop.Way way(String name, Path file) throws Exception {
        if (name.equals("java-map")) {
            return new Mapped(file);
        }
        Appender log = Precursor.open(Options.of(file).mode(Mode.RING).framing(Framing.NONE));
        return log::append;
    }

    /** A mapping by hand: a thread takes the page faults 4 MiB ahead. Java has no fallocate. */
    private static final class Mapped implements Loop.Way {
        private static final VarHandle LONG =
            MethodHandles.byteBufferViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);
        private static final int BYTES = 256 << 20;
        private static final int AHEAD = 4 << 20;
        private final MappedByteBuffer map;
        private volatile int at;
        private int cursor;

        Mapped(Path file) throws Exception {
            try (RandomAccessFile opened = new RandomAccessFile(file.toFile(), "rw")) {
                opened.setLength(BYTES);
                map = opened.getChannel().map(FileChannel.MapMode.READ_WRITE, 0, BYTES);
            }
            touch(0, AHEAD);
            Thread toucher = new Thread(() -> {
                int done = AHEAD;
                while (done < BYTES) {
                    if (at + AHEAD > done) {
                        touch(done, done + (1 << 20));
                        done += 1 << 20;
                    } else {
                        LockSupport.parkNanos(1_000_000);
                    }
                }
            });
            toucher.setDaemon(true);
            toucher.start();
        }

        private void touch(int from, int to) {
            for (int page = from; page < to; page += 4096) {
                // A store that changes nothing, even if the writer is here already.
                LONG.getAndAdd(map, page, 0L);
            }
        }

        @Override
        public void append(byte[] record) {
            map.put(cursor, record);
            cursor += record.length;
            at = cursor;
        }
    }
}
