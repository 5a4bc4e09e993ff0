package example.flatwater.precursor;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * The kernel's ID of a boot; zero if it cannot be read.
 *
 * @param low low half
 * @param high high half
 */
record Boot(long low, long high) {
    static final Boot THIS = read();

    private static Boot read() {
        try {
            String text = Files.readString(Path.of("/proc/sys/kernel/random/boot_id")).trim().replace("-", "");
            return new Boot(Long.parseUnsignedLong(text.substring(16), 16),
                Long.parseUnsignedLong(text.substring(0, 16), 16));
        } catch (IOException | RuntimeException e) {
            return new Boot(0, 0);
        }
    }
}
