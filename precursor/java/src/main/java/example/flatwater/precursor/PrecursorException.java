package example.flatwater.precursor;

import java.io.IOException;
import java.nio.file.Path;

/** What failed, on which file, and what to do next. Each cause is a nested class. */
public abstract class PrecursorException extends IOException {
    private static final long serialVersionUID = 1;

    /** The file, pattern or directory. */
    private final String path;

    private PrecursorException(String path, String message, Throwable cause) {
        super(message, cause);
        this.path = path;
    }

    /**
     * The file, pattern or directory concerned.
     *
     * @return the path
     */
    public Path path() {
        return Path.of(path);
    }

    /** The options contradict one another, or the name is not usable. The message names what to change. */
    public static final class InvalidOptions extends PrecursorException {
        private static final long serialVersionUID = 1;

        InvalidOptions(Path path, String problem) {
            super(path.toString(), "options for " + path + ": " + problem, null);
        }
    }

    /** This machine, or Java, cannot run the requested mode. */
    public static final class Refused extends PrecursorException {
        private static final long serialVersionUID = 1;

        /** The requested mode. */
        private final Mode mode;

        Refused(Path path, Mode mode, String reason) {
            super(path.toString(), "mode " + mode + " cannot be used for " + path + ": " + reason, null);
            this.mode = mode;
        }

        /**
         * The requested mode.
         *
         * @return the mode
         */
        public Mode mode() {
            return mode;
        }
    }

    /** Another appender, of this or another process, has the file open, perhaps under another name. */
    public static final class Busy extends PrecursorException {
        private static final long serialVersionUID = 1;

        Busy(Path path) {
            super(path.toString(), "another appender has " + path + " open, perhaps under another name; a file has one "
                + "writing process: close that appender, or give each process another file", null);
        }
    }

    /** The file exists, and {@link Existing#REFUSE} is set. */
    public static final class Exists extends PrecursorException {
        private static final long serialVersionUID = 1;

        Exists(Path path) {
            super(path.toString(), path + " exists; use Existing.CONTINUE or Existing.REPLACE", null);
        }
    }

    /** The record is longer than the appender can take, fixed at open, or than {@link Reader#recordBytesMax} allows. */
    public static final class TooLong extends PrecursorException {
        private static final long serialVersionUID = 1;

        /** The longest record, bytes. */
        private final int max;

        TooLong(Path path, long len, int max) {
            super(path.toString(), "record of " + len + " bytes for " + path + ", at most " + max
                + " fit; split it, or use a larger ring or roll size", null);
            this.max = max;
        }

        TooLong(Path path, long offset, long len, int max) {
            super(path.toString(), path + " has a record of " + len + " bytes at byte " + offset + ", at most " + max
                + " are allowed; call recordBytesMax with as many", null);
            this.max = max;
        }

        /**
         * The longest record that fits.
         *
         * @return bytes
         */
        public int max() {
            return max;
        }
    }

    /** No room is left, and the policy is {@link BackPressure#FAIL}. */
    public static final class Full extends PrecursorException {
        private static final long serialVersionUID = 1;

        /** Bytes not yet in the file. */
        private final long waitingBytes;

        Full(Path path, long waitingBytes) {
            super(path.toString(), "no room: " + waitingBytes + " bytes for " + path
                + " wait for the device; try again, shed load, or open with a larger ring", null);
            this.waitingBytes = waitingBytes;
        }

        /**
         * Bytes that are accepted and not yet in the file.
         *
         * @return bytes
         */
        public long waitingBytes() {
            return waitingBytes;
        }
    }

    /** The file system or the quota is full. Appends continue once there is space. */
    public static final class OutOfSpace extends PrecursorException {
        private static final long serialVersionUID = 1;

        /** Bytes left on the file system. */
        private final long bytesLeft;

        OutOfSpace(Path path, long bytesLeft) {
            super(path.toString(), "out of space for " + path + ": " + bytesLeft
                + " bytes left on the file system; free some, and appends continue", null);
            this.bytesLeft = bytesLeft;
        }

        /**
         * Bytes left on the file system.
         *
         * @return bytes
         */
        public long bytesLeft() {
            return bytesLeft;
        }
    }

    /** The helper thread, the device or the file system failed. Every later append fails too. */
    public static final class Failed extends PrecursorException {
        private static final long serialVersionUID = 1;

        /** The last durable position. */
        private final long durable;

        Failed(Path path, String what, long durable, Throwable cause) {
            super(path.toString(), what + " " + path + ": " + cause.getMessage() + "; durable up to position " + durable
                + ". Close, find the cause, and open again to recover", cause);
            this.durable = durable;
        }

        /**
         * The last position that is known to be on the device.
         *
         * @return the position
         */
        public long durable() {
            return durable;
        }
    }

    /** {@code commit} without a reservation just before it, or of more bytes than reserved. */
    public static final class NotReserved extends PrecursorException {
        private static final long serialVersionUID = 1;

        NotReserved(Path path, int len, int reserved) {
            super(path.toString(), "commit of " + len + " bytes for " + path + ", but " + Math.max(reserved, 0)
                + " are reserved; call reserve, then commit, with no other call between them", null);
        }
    }

    /** Two threads append at the same time. Nothing was appended by the second call. */
    public static final class ConcurrentUse extends PrecursorException {
        private static final long serialVersionUID = 1;

        ConcurrentUse(Path path) {
            super(path.toString(), "two threads append to " + path
                + " at the same time; let one thread append, or synchronize the threads", null);
        }
    }

    /** The appender or reader is closed. */
    public static final class Closed extends PrecursorException {
        private static final long serialVersionUID = 1;

        Closed(Path path) {
            super(path.toString(), path + " is closed; open it again", null);
        }
    }

    /** The position is beyond the appended data. */
    public static final class Beyond extends PrecursorException {
        private static final long serialVersionUID = 1;

        Beyond(Path path, long position, long end) {
            super(path.toString(), "position " + position + " of " + path
                + " is beyond the appended data, which end at " + end + "; pass a position that append returned", null);
        }
    }

    /** A file is another user's, a link, has several names, or contradicts what is known. Nothing was changed. */
    public static final class Foreign extends PrecursorException {
        private static final long serialVersionUID = 1;

        Foreign(Path path, String problem) {
            super(path.toString(), path + ": " + problem, null);
        }
    }

    /** Only the Rust library can recover these data. The message names the command. */
    public static final class Unsupported extends PrecursorException {
        private static final long serialVersionUID = 1;

        Unsupported(Path path, String reason) {
            super(path.toString(), path + ": " + reason
                + ", which the Java library cannot recover; run: flatwater precursor --leftovers --clear", null);
        }
    }

    /** A system call failed. */
    public static final class Io extends PrecursorException {
        private static final long serialVersionUID = 1;

        Io(String what, Path path, Throwable cause) {
            super(path.toString(), what + " " + path + ": "
                + (cause.getMessage() == null ? cause.toString() : cause.getMessage()), cause);
        }
    }

    /** The file has neither the header nor the frames of this library. */
    public static final class NotFramed extends PrecursorException {
        private static final long serialVersionUID = 1;

        NotFramed(Path path) {
            super(path.toString(), path + " does not begin with a header of this library: an unframed file, one of "
                + "format 1, or a foreign one; try flatwater precursor cat, or read it as bytes", null);
        }
    }

    /** A later version of the library wrote the file. */
    public static final class Version extends PrecursorException {
        private static final long serialVersionUID = 1;

        /** The version in the header. */
        private final long version;

        Version(Path path, long version) {
            super(path.toString(), path + " has format " + version
                + ", which this version cannot read; use a later version", null);
            this.version = version;
        }

        /**
         * The version in the file's header.
         *
         * @return the version
         */
        public long version() {
            return version;
        }
    }

    /** Records are missing, because files were archived or removed. The next call continues behind the gap. */
    public static final class Missing extends PrecursorException {
        private static final long serialVersionUID = 1;

        /** Number of the first missing record. */
        private final long from;

        Missing(Path path, long from) {
            super(path.toString(), "records from number " + from
                + " on are missing, because files were archived or removed; the next record is in " + path, null);
            this.from = from;
        }

        /**
         * Number of the first missing record.
         *
         * @return the number
         */
        public long from() {
            return from;
        }
    }

    /** A header, or a record that was published, is not whole. */
    public static final class Damaged extends PrecursorException {
        private static final long serialVersionUID = 1;

        /** Offset of the damage, bytes. */
        private final long offset;

        Damaged(Path path, long offset) {
            super(path.toString(), path + " is damaged at byte " + offset
                + "; restore it, or seek behind the damage", null);
            this.offset = offset;
        }

        /**
         * Offset of the damage in the file.
         *
         * @return bytes
         */
        public long offset() {
            return offset;
        }
    }

    /** The file is shorter than what was read from it. */
    public static final class Truncated extends PrecursorException {
        private static final long serialVersionUID = 1;

        Truncated(Path path, long offset, long len) {
            super(path.toString(), path + " was cut to " + len + " bytes, and " + offset
                + " had been read; restore it, or open it again", null);
        }
    }

    /** The file was removed or replaced, and everything in it has been read. */
    public static final class Removed extends PrecursorException {
        private static final long serialVersionUID = 1;

        Removed(Path path) {
            super(path.toString(), path + " was removed or replaced; open it again to read the new file", null);
        }
    }
}
