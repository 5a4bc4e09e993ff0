package example.flatwater.precursor;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.file.DirectoryIteratorException;
import java.nio.file.DirectoryStream;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/** The name of a single file, or a pattern with {@code {}} for the file number, and of the files beside it. */
final class Names {
    static final String STEM = "precursor-";
    private static final String NUMBER = "{}";

    private final Path given;
    private final Path dir;
    private final String head;
    /** Text after the number; null for a single file. */
    private final String tail;

    private Names(Path given, Path dir, String head, String tail) {
        this.given = given;
        this.dir = dir;
        this.head = head;
        this.tail = tail;
    }

    /** Splits a path from the user. Links in the directory are resolved first. */
    static Names of(Path given) throws PrecursorException {
        Path name = given.getFileName();
        if (name == null || name.toString().isEmpty() || name.toString().equals("..") || name.toString().equals(".")) {
            throw new PrecursorException.InvalidOptions(given, "a path must end in a file name");
        }
        Path parent = given.getParent() == null ? Path.of(".") : given.getParent();
        Path dir;
        try {
            dir = parent.toRealPath();
        } catch (IOException e) {
            throw new PrecursorException.InvalidOptions(given, "directory " + parent + ": " + reason(e));
        }
        String text = name.toString();
        int at = text.indexOf(NUMBER);
        if (at < 0) {
            return new Names(given, dir, text, null);
        }
        String tail = text.substring(at + NUMBER.length());
        if (tail.contains(NUMBER)) {
            throw new PrecursorException.InvalidOptions(given, "only one {} is allowed in the name");
        }
        return new Names(given, dir, text.substring(0, at), tail);
    }

    private static String reason(IOException e) {
        return e instanceof NoSuchFileException ? "it does not exist" : String.valueOf(e.getMessage());
    }

    Path given() {
        return given;
    }

    Path dir() {
        return dir;
    }

    boolean rolls() {
        return tail != null;
    }

    /** The absolute path or pattern. */
    Path full() {
        return dir.resolve(tail == null ? head : head + NUMBER + tail);
    }

    String name(long seq) {
        return tail == null ? head : head + String.format("%08d", seq) + tail;
    }

    Path path(long seq) {
        return dir.resolve(name(seq));
    }

    /** The index of a data file. */
    Path index(long seq) {
        return dir.resolve("." + name(seq) + ".index");
    }

    Path sidecar() {
        return dir.resolve(tail == null ? "." + head + ".precursor" : "." + head + "_roll_" + tail + ".precursor");
    }

    /** Numbers of the existing files, ascending. */
    List<Long> present() throws IOException {
        List<Long> found = new ArrayList<>();
        if (tail == null) {
            if (exists(0)) {
                found.add(0L);
            }
            return found;
        }
        for (Path entry : list(dir, "*")) {
            long seq = number(entry.getFileName().toString());
            if (seq >= 0) {
                found.add(seq);
            }
        }
        Collections.sort(found);
        return found;
    }

    /** The entries of a directory whose names match a glob. */
    static List<Path> list(Path dir, String glob) throws IOException {
        List<Path> found = new ArrayList<>();
        try (DirectoryStream<Path> entries = Files.newDirectoryStream(dir, glob)) {
            entries.forEach(found::add);
        } catch (DirectoryIteratorException e) {
            throw e.getCause();
        }
        return found;
    }

    /** The number in a name of this pattern; -1 for another name. */
    private long number(String name) {
        if (name.length() < head.length() + tail.length() + 8 || !name.startsWith(head) || !name.endsWith(tail)) {
            return -1;
        }
        String digits = name.substring(head.length(), name.length() - tail.length());
        if (!digits.chars().allMatch(c -> c >= '0' && c <= '9')) {
            return -1;
        }
        try {
            long seq = Long.parseLong(digits);
            return String.format("%08d", seq).equals(digits) ? seq : -1;
        } catch (NumberFormatException e) {
            return -1;
        }
    }

    boolean exists(long seq) throws IOException {
        return Facts.of(path(seq)) != null;
    }

    long len(long seq) throws IOException {
        Facts facts = Facts.of(path(seq));
        return facts == null ? 0 : facts.len();
    }

    /** Opens a data file for writing; fails if it does not exist. */
    OwnFile existing(long seq) throws IOException {
        OwnFile file = OwnFile.open(path(seq), Facts.Use.DATA, true);
        if (file == null) {
            throw new NoSuchFileException(path(seq).toString(), null, "it does not exist");
        }
        return file;
    }

    /** Opens a data file for writing, or creates it and makes its name durable. */
    OwnFile open(long seq) throws IOException {
        while (true) {
            OwnFile file = OwnFile.open(path(seq), Facts.Use.DATA, true);
            if (file != null) {
                return file;
            }
            try {
                OwnFile.create(path(seq), false);
                OwnFile.syncDirectory(dir);
            } catch (FileAlreadyExistsException e) {
                // Another process was faster.
            }
        }
    }

    /** Removes a file and its index. */
    void remove(long seq) throws IOException {
        Files.deleteIfExists(path(seq));
        Facts index = Facts.of(index(seq));
        if (index != null && index.unfit(Facts.Use.PRIVATE) == null) {
            Files.deleteIfExists(index(seq));
        }
    }

    /** Renames a file with data after a gap. */
    Path setAside(long seq) throws IOException {
        Path aside = dir.resolve(name(seq) + ".torn");
        if (Facts.of(aside) != null) {
            throw new FileAlreadyExistsException(aside.toString(), null, "it exists; look at it, and remove it");
        }
        return Files.move(path(seq), aside, StandardCopyOption.ATOMIC_MOVE);
    }

    /** The stem of the shared memory of one run. */
    String shmStem(long id) {
        return shmPrefix() + "-" + String.format("%016x", id);
    }

    /** Prefix of the shared memory of this path: the FNV-1a hash of the sidecar's path. */
    String shmPrefix() {
        long hash = 0xcbf29ce484222325L;
        for (byte b : bytes(sidecar())) {
            hash = (hash ^ (b & 0xff)) * 0x100000001b3L;
        }
        return STEM + String.format("%016x", hash);
    }

    /** The bytes of a path, whatever the encoding of the locale. */
    static byte[] bytes(Path path) {
        String raw = path.toUri().getRawPath();
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        for (int i = 0; i < raw.length(); i++) {
            if (raw.charAt(i) == '%') {
                out.write(Integer.parseInt(raw.substring(i + 1, i + 3), 16));
                i += 2;
            } else {
                out.write(raw.charAt(i));
            }
        }
        byte[] found = out.toByteArray();
        // A URI of an existing directory ends with a slash.
        boolean slash = found.length > 1 && found[found.length - 1] == '/';
        return slash ? java.util.Arrays.copyOf(found, found.length - 1) : found;
    }

    /** The path with these bytes. */
    static Path path(byte[] bytes) {
        StringBuilder uri = new StringBuilder("file://");
        for (byte b : bytes) {
            boolean plain = b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b == '/';
            if (plain) {
                uri.append((char) b);
            } else {
                uri.append('%').append(String.format("%02X", b & 0xff));
            }
        }
        return Path.of(java.net.URI.create(uri.toString()));
    }
}
