package example.flatwater.precursor;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.SecureRandom;
import java.util.Comparator;
import java.util.List;
import java.util.TreeMap;
import java.util.stream.Stream;

/** What this machine offers. A fact that cannot be read has the more careful value. */
final class Machine {
    private static final SecureRandom RANDOM = new SecureRandom();
    private static final String FIRST_PID_NAMESPACE = "pid:[4026531836]";
    private static final int SYSTEM_USER_MAX = 999;

    /** Size of a page, bytes. */
    static final int PAGE_BYTES = pageBytes();

    private Machine() {
    }

    /** From the auxiliary vector (AT_PAGESZ); the largest size of any architecture if that cannot be read. */
    private static int pageBytes() {
        try {
            byte[] bytes = Files.readAllBytes(Path.of("/proc/self/auxv"));
            ByteBuffer vector = ByteBuffer.wrap(bytes).order(ByteOrder.nativeOrder());
            while (vector.remaining() >= 16) {
                long kind = vector.getLong();
                long value = vector.getLong();
                if (kind == 6 && Long.bitCount(value) == 1 && value >= 4096 && value <= 1 << 20) {
                    return (int) value;
                }
            }
        } catch (IOException e) {
            // The value below is safe everywhere.
        }
        return 64 << 10;
    }

    /** A number for tokens and names; never 0. */
    static long random() {
        return RANDOM.nextLong() | 1;
    }

    /** The time of day, ns since 1970. */
    static long nowNs() {
        java.time.Instant now = java.time.Instant.now();
        return now.getEpochSecond() * 1_000_000_000L + now.getNano();
    }

    /** Why no shared memory can be made in a directory; null if it can. */
    static String shmProblem(Path dir) {
        try {
            if (!Files.getFileStore(dir).type().equals("tmpfs")) {
                return dir + " is not a tmpfs; give shmDir one";
            }
            String unsafe = Facts.unsafeDirectory(dir);
            if (unsafe != null) {
                return unsafe;
            }
            Path probe = dir.resolve("precursor-probe-" + String.format("%016x", random()));
            try {
                Live.createShm(probe, PAGE_BYTES).close();
            } finally {
                Files.deleteIfExists(probe);
            }
            return null;
        } catch (IOException e) {
            return "no file can be created in " + dir + " (" + e.getMessage() + ")";
        }
    }

    /** Whether pages of shared memory may be swapped out: swap is on, and neither mount nor cgroup forbids it. */
    static boolean maySwap(Path shm) {
        List<String> swaps = lines("/proc/swaps");
        if (swaps.size() == 1) {
            return false;
        }
        return !mountOptions(shm).contains("noswap") && !cgroupForbidsSwap();
    }

    private static List<String> mountOptions(Path dir) {
        String best = "";
        List<String> options = List.of();
        for (String line : lines("/proc/self/mounts")) {
            String[] fields = line.split(" ");
            if (fields.length > 3 && dir.startsWith(Path.of(fields[1])) && fields[1].length() >= best.length()) {
                best = fields[1];
                options = List.of(fields[3].split(","));
            }
        }
        return options;
    }

    private static boolean cgroupForbidsSwap() {
        return groups("cgroup2", "memory.swap.max").anyMatch(text -> text.trim().equals("0"));
    }

    /** The smallest memory limit from the cgroup of this process up to the root; {@code Long.MAX_VALUE} without one. */
    static long memoryLimit() {
        return Stream.concat(groups("cgroup2", "memory.max"), groups("cgroup", "memory.limit_in_bytes"))
            .map(String::trim).filter(text -> text.matches("\\d{1,18}")).mapToLong(Long::parseLong)
            .min().orElse(Long.MAX_VALUE);
    }

    /** The contents of a file in each group from the one of this process up to the root. */
    private static Stream<String> groups(String kind, String file) {
        List<String> found = new java.util.ArrayList<>();
        for (String line : lines("/proc/self/cgroup")) {
            String[] fields = line.split(":", 3);
            boolean fits = fields.length == 3 && (kind.equals("cgroup2")
                ? fields[1].isEmpty() : List.of(fields[1].split(",")).contains("memory"));
            Path root = fits ? mountOf(kind) : null;
            if (root == null) {
                continue;
            }
            Path group = root.resolve(fields[2].substring(1));
            while (group != null && group.startsWith(root)) {
                String text = String.join("\n", lines(group.resolve(file).toString()));
                if (!text.isEmpty()) {
                    found.add(text);
                }
                group = group.getParent();
            }
        }
        return found.stream();
    }

    private static Path mountOf(String kind) {
        for (String line : lines("/proc/self/mounts")) {
            String[] fields = line.split(" ");
            if (fields.length > 3 && fields[2].equals(kind)
                && (kind.equals("cgroup2") || List.of(fields[3].split(",")).contains("memory"))) {
                return Path.of(fields[1]);
            }
        }
        return null;
    }

    /** Event that may remove files from a directory; judged only for the file system of {@code /dev/shm}. */
    static Removal removal(Path shm) {
        try {
            Facts usual = Facts.of(Path.of("/dev/shm"));
            Facts here = Facts.of(shm);
            if (usual == null || here == null || usual.key().device() != here.key().device()) {
                return null;
            }
            Path namespace = Files.readSymbolicLink(Path.of("/proc/self/ns/pid"));
            boolean contained = !namespace.toString().equals(FIRST_PID_NAMESPACE)
                || Stream.of("/.dockerenv", "/run/.containerenv", "/run/systemd/container")
                    .anyMatch(mark -> Files.exists(Path.of(mark)));
            if (contained) {
                return Removal.CONTAINER;
            }
            boolean logind = Files.exists(Path.of("/run/systemd/seats"));
            return logind && Facts.me() > SYSTEM_USER_MAX && removesIpc(Path.of("/")) ? Removal.LOGOUT : null;
        } catch (IOException e) {
            return Removal.CONTAINER;
        }
    }

    /** RemoveIPC as systemd reads it (logind.conf(5)): one main file, then the drop-ins; the last setting wins. */
    static boolean removesIpc(Path root) {
        List<Path> folders = Stream.of("etc/systemd", "run/systemd", "usr/local/lib/systemd", "usr/lib/systemd")
            .map(root::resolve).toList();
        TreeMap<String, Path> drops = new TreeMap<>();
        for (Path folder : folders) {
            try (Stream<Path> entries = Files.list(folder.resolve("logind.conf.d"))) {
                entries.filter(entry -> entry.toString().endsWith(".conf")).sorted(Comparator.naturalOrder())
                    .forEach(entry -> drops.putIfAbsent(entry.getFileName().toString(), entry));
            } catch (IOException e) {
                // There are no drop-ins.
            }
        }
        boolean removes = true;
        Stream<Path> all = folders.stream().map(folder -> folder.resolve("logind.conf"));
        Stream<Path> main = all.filter(Files::exists).limit(1);
        for (Path file : Stream.concat(main, drops.values().stream()).toList()) {
            removes = setting(lines(file.toString()), removes);
        }
        return removes;
    }

    private static boolean setting(List<String> lines, boolean before) {
        String section = "";
        boolean set = before;
        for (String raw : lines) {
            String line = raw.trim();
            if (line.startsWith("[")) {
                section = line;
            } else if (section.equals("[Login]") && line.matches("RemoveIPC\\s*=.*")) {
                String value = line.substring(line.indexOf('=') + 1).trim().toLowerCase(java.util.Locale.ROOT);
                if (List.of("1", "yes", "y", "true", "t", "on").contains(value)) {
                    set = true;
                } else if (List.of("0", "no", "n", "false", "f", "off").contains(value)) {
                    set = false;
                }
            }
        }
        return set;
    }

    /** Whether an error means that the file system or the quota is full. */
    static boolean isFull(IOException error, Path file) {
        String message = String.valueOf(error.getMessage());
        // The second test is for a locale that translates the message.
        return message.contains("No space left on device") || message.contains("Disk quota exceeded")
            || bytesLeft(file) == 0;
    }

    /** Bytes left on the file system; -1 if that cannot be read. */
    static long bytesLeft(Path file) {
        try {
            return Files.getFileStore(file.getParent()).getUsableSpace();
        } catch (IOException e) {
            return -1;
        }
    }

    private static List<String> lines(String path) {
        try {
            return Files.readAllLines(Path.of(path));
        } catch (IOException e) {
            return List.of();
        }
    }
}
