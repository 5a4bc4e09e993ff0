package example.flatwater.precursor;

import java.io.IOException;
import java.lang.invoke.VarHandle;
import java.nio.ByteBuffer;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;

/** The shared memory of a running or dead writer, as a reader sees it (docs/precursor-shared-memory.md). */
final class LiveView {
    private final Live live;
    private final Path shm;
    private final String stem;
    private final ByteBuffer[] rings = new ByteBuffer[Live.RINGS];

    private LiveView(Live live, Path shm, String stem) {
        this.live = live;
        this.shm = shm;
        this.stem = stem;
    }

    /** The shared memory of the writer of these files; null without a writer, or if it belongs to another user. */
    static LiveView find(Names names) throws IOException {
        try {
            Sidecar.Entry entry = Sidecar.peek(names);
            if (entry == null || entry.closed() || entry.shmDir() == null) {
                return null;
            }
            String stem = names.shmStem(entry.shmId());
            Live live = Live.find(entry.shmDir(), stem, false);
            if (live != null && !live.belongsTo(entry)) {
                live.close();
                return null;
            }
            return live == null ? null : new LiveView(live, entry.shmDir(), stem);
        } catch (Unfit | java.io.FileNotFoundException | java.nio.file.AccessDeniedException e) {
            // Of another user.
            return null;
        }
    }

    long token() {
        return live.token();
    }

    boolean isHeld() throws IOException {
        return live.isHeld();
    }

    boolean many() {
        return live.many();
    }

    /** End of what a reader may believe. */
    long published() {
        return live.many() ? live.flushed() : live.position();
    }

    /** Number and base of the current file, both of one moment. */
    Live.At file() {
        while (true) {
            long epoch = live.epoch();
            Live.At found = live.file();
            VarHandle.acquireFence();
            if (live.epoch() == epoch) {
                return found;
            }
        }
    }

    /** The file at whose end the writer appends, which the flusher may not have reached. */
    Live.At lastFile() {
        while (true) {
            Live.At current = file();
            Live.At announced = live.many() ? null : live.announcedAfter(current);
            if (file().equals(current)) {
                return announced == null ? current : announced;
            }
        }
    }

    /** The ring with the bytes of a position; -1 if they are in the file. */
    private int ringOf(long at) {
        long count = Math.min(live.ringCount(), Live.RINGS);
        if (live.many() || at < live.flushed()) {
            return -1;
        }
        for (int i = (int) count - 1; i >= 0; i--) {
            if (live.ringStart(i) <= at) {
                return i;
            }
        }
        return -1;
    }

    /** Copies at most {@code len} published bytes from position {@code at} on. -1 if they are in the file. */
    int copy(long at, int len, byte[] out) throws IOException {
        int index = ringOf(at);
        ByteBuffer ring = index < 0 ? null : ring(index);
        if (ring == null) {
            return -1;
        }
        long most = index + 1 < live.ringCount() ? live.ringStart(index + 1) - at : Long.MAX_VALUE;
        int count = (int) Math.min(Math.min(len, most), ring.capacity()) & -Frame.WORD;
        int from = (int) (at & ring.capacity() - 1);
        int first = Math.min(count, ring.capacity() - from);
        ring.get(from, out, 0, first);
        ring.get(0, out, first, count - first);
        // The bytes were read before `flushed` is: if it is still before them, the writer has not reused their place.
        VarHandle.acquireFence();
        return live.flushed() <= at ? count : -1;
    }

    /** The mapped ring; null if it is drained and its name removed. */
    private ByteBuffer ring(int index) throws IOException {
        if (rings[index] == null) {
            try {
                rings[index] = Replay.map(shm.resolve(stem + ".ring" + index), live.ringCapacity(index));
            } catch (NoSuchFileException e) {
                return null;
            }
        }
        return rings[index];
    }

    void close() throws IOException {
        live.close();
    }
}
