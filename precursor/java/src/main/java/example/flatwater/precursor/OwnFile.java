package example.flatwater.precursor;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.ByteBuffer;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.channels.FileLock;
import java.nio.channels.OverlappingFileLockException;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.OpenOption;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.FileAttribute;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * An open file.
 *
 * <p>A POSIX lock belongs to the process, and closing any descriptor of the file drops it. So a file whose lock this
 * process holds is closed only after the lock is released.
 *
 * <p>An interrupt closes a {@link FileChannel} under the thread that uses it. So threads of the program use only the
 * methods of {@link RandomAccessFile}, which ignore interrupts; the channel is for threads of the library.
 */
final class OwnFile {
    /** Offset of the locked byte: beyond all data. */
    private static final long LOCKED_AT = Long.MAX_VALUE - 1;
    /** The files that this process has locked, with those that wait to be closed. */
    private static final Map<Facts.Key, List<RandomAccessFile>> LOCKED = new HashMap<>();

    private final Path path;
    private final Facts.Key key;
    private final RandomAccessFile file;
    private FileLock lock;

    private OwnFile(Path path, Facts.Key key, RandomAccessFile file) {
        this.path = path;
        this.key = key;
        this.file = file;
    }

    /** Opens a file; null if it does not exist. */
    static OwnFile open(Path path, Facts.Use use, boolean write) throws IOException {
        Facts before = Facts.of(path);
        if (before == null) {
            return null;
        }
        String problem = before.unfit(use);
        if (problem != null) {
            throw new Unfit(problem);
        }
        // The mode "rw" would create a file that was removed in between, and a reader has no right to write.
        RandomAccessFile file;
        try {
            file = new RandomAccessFile(path.toFile(), write ? "rw" : "r");
        } catch (FileNotFoundException e) {
            // Java throws this for a missing permission too.
            if (Facts.of(path) == null) {
                return null;
            }
            throw e;
        }
        Facts after = Facts.of(path);
        OwnFile own = new OwnFile(path, before.key(), file);
        if (after == null) {
            own.close();
            return null;
        }
        if (!after.key().equals(before.key())) {
            own.close();
            throw new IOException("it was replaced while it was opened; try again");
        }
        return own;
    }

    /** Creates a file; fails if the name exists. */
    static void create(Path path, boolean isPrivate) throws IOException {
        FileAttribute<?> rights = PosixFilePermissions.asFileAttribute(
            PosixFilePermissions.fromString(isPrivate ? "rw-------" : "rw-rw-rw-"));
        Uninterrupted.run(() -> {
            Set<OpenOption> how =
                Set.of(StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE, LinkOption.NOFOLLOW_LINKS);
            FileChannel.open(path, how, rights).close();
            return null;
        });
    }

    /** Opens a private file for writing, or creates it. */
    static OwnFile openOrCreate(Path path) throws IOException {
        while (true) {
            OwnFile found = open(path, Facts.Use.PRIVATE, true);
            if (found != null) {
                return found;
            }
            try {
                create(path, true);
            } catch (FileAlreadyExistsException e) {
                // Another process was faster.
            }
        }
    }

    Path path() {
        return path;
    }

    Facts.Key key() {
        return key;
    }

    /** For threads of the library only. */
    FileChannel channel() {
        return file.getChannel();
    }

    /** Takes the write lock of an appender. False if another appender holds it. */
    boolean tryLock() throws IOException {
        synchronized (LOCKED) {
            if (LOCKED.containsKey(key)) {
                return false;
            }
            try {
                lock = file.getChannel().tryLock(LOCKED_AT, 1, false);
            } catch (OverlappingFileLockException e) {
                return false;
            }
            if (lock != null) {
                LOCKED.put(key, new ArrayList<>());
            }
            return lock != null;
        }
    }

    /** Whether an appender of this or another process holds the lock. */
    boolean isLocked() throws IOException {
        synchronized (LOCKED) {
            if (LOCKED.containsKey(key)) {
                return true;
            }
            try (FileLock shared = file.getChannel().tryLock(LOCKED_AT, 1, true)) {
                return shared == null;
            } catch (OverlappingFileLockException e) {
                return true;
            }
        }
    }

    int readAt(long at, byte[] bytes, int from, int len) throws IOException {
        int got = 0;
        synchronized (file) {
            file.seek(at);
            while (got < len) {
                int more = file.read(bytes, from + got, len - got);
                if (more < 0) {
                    break;
                }
                got += more;
            }
        }
        return got;
    }

    void writeAt(long at, byte[] bytes, int from, int len) throws IOException {
        synchronized (file) {
            file.seek(at);
            file.write(bytes, from, len);
        }
    }

    /** Writes a buffer; for threads of the library only. */
    void writeAt(long at, ByteBuffer bytes) throws IOException {
        long to = at;
        while (bytes.hasRemaining()) {
            to += file.getChannel().write(bytes, to);
        }
    }

    long len() throws IOException {
        return file.length();
    }

    /** Cuts the file; never extends it. */
    void cut(long len) throws IOException {
        if (len() > len) {
            file.setLength(len);
        }
    }

    /** Makes the contents durable. Fails also on a file system that has become read-only. */
    void sync() throws IOException {
        Uninterrupted.run(() -> {
            file.getChannel().force(true);
            return null;
        });
        checkWritable();
    }

    void checkWritable() throws IOException {
        if (Files.getFileStore(path).isReadOnly()) {
            throw new IOException("Read-only file system");
        }
    }

    MappedByteBuffer map(boolean write, long bytes) throws IOException {
        FileChannel.MapMode mode = write ? FileChannel.MapMode.READ_WRITE : FileChannel.MapMode.READ_ONLY;
        return Uninterrupted.run(() -> file.getChannel().map(mode, 0, bytes));
    }

    void unlock() throws IOException {
        synchronized (LOCKED) {
            if (lock == null) {
                return;
            }
            lock.release();
            lock = null;
            for (RandomAccessFile waiting : LOCKED.remove(key)) {
                waiting.close();
            }
        }
    }

    /** Releases the lock, and closes the file as soon as this process has no lock on it. */
    void close() throws IOException {
        synchronized (LOCKED) {
            unlock();
            List<RandomAccessFile> waiting = LOCKED.get(key);
            if (waiting != null) {
                waiting.add(file);
            } else {
                file.close();
            }
        }
    }

    /** Makes created and removed names durable. */
    static void syncDirectory(Path dir) throws IOException {
        Uninterrupted.run(() -> {
            try (FileChannel channel = FileChannel.open(dir, StandardOpenOption.READ)) {
                channel.force(true);
            }
            return null;
        });
    }
}
