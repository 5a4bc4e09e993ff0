package example.flatwater.precursor;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.management.ThreadMXBean;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class MachineTest {
    @TempDir
    Path dir;

    private void write(String path, String text) throws IOException {
        Files.createDirectories(dir.resolve(path).getParent());
        Files.writeString(dir.resolve(path), text);
    }

    @Test
    void removeIpcIsReadAsSystemdReadsIt() throws IOException {
        assertTrue(Machine.removesIpc(dir));
        write("etc/systemd/logind.conf", "[Login]\nRemoveIPC = no\n");
        assertFalse(Machine.removesIpc(dir));
        write("usr/lib/systemd/logind.conf.d/50-ipc.conf", "[Login]\nRemoveIPC=yes\n");
        assertTrue(Machine.removesIpc(dir));
        write("etc/systemd/logind.conf.d/50-ipc.conf", "");
        assertFalse(Machine.removesIpc(dir), "the administrator's file replaces the distribution's");
        write("etc/systemd/logind.conf", "RemoveIPC=no\n[Other]\nRemoveIPC=no\n[Login]\nRemoveIPC=perhaps\n");
        assertTrue(Machine.removesIpc(dir));
    }

    @Test
    void filesThatOthersMayReplaceOrWriteAreRefused() throws IOException {
        Path file = dir.resolve("log");
        Path other = dir.resolve("other");
        Files.writeString(other, "");
        Files.createSymbolicLink(file, other);
        Options options = Options.of(file).mode(Mode.PLAIN);
        PrecursorException link = assertThrows(PrecursorException.Foreign.class, () -> Precursor.open(options));
        assertTrue(link.getMessage().contains("symbolic link"), link.getMessage());
        Files.delete(file);
        Path side = dir.resolve(".log.precursor");
        Files.writeString(side, "");
        Files.setPosixFilePermissions(side, PosixFilePermissions.fromString("rw-rw-rw-"));
        assertThrows(PrecursorException.Foreign.class, () -> Precursor.open(options));
        Files.delete(side);
        Path open = Files.createDirectory(dir.resolve("open"));
        Files.setPosixFilePermissions(open, PosixFilePermissions.fromString("rwxrwxrwx"));
        assertThrows(PrecursorException.Foreign.class, () -> Precursor.open(Options.of(open.resolve("log"))));
    }

    @Test
    void aDamagedSlotOfTheSidecarLeavesTheOther() throws IOException {
        Names names = Names.of(dir.resolve("log"));
        Sidecar side = Sidecar.take(names);
        Path shm = Path.of("/dev/shm");
        for (long len = 1; len <= 4; len++) {
            side.write(new Sidecar.Entry(7, 3, len, 1L << 40, false, true, true, 11, 9, new Boot(1, 2), shm));
        }
        byte[] whole = Files.readAllBytes(names.sidecar());
        for (int at : new int[] {0, 20, 1012, 1023}) {
            byte[] damaged = whole.clone();
            damaged[at] ^= 1;
            Files.write(names.sidecar(), damaged);
            assertEquals(3, side.entry().len(), "byte " + at + " damaged");
        }
        side.close();
    }

    @Test
    void anAppendCreatesNoObject() throws IOException {
        ThreadMXBean threads = (ThreadMXBean) ManagementFactory.getThreadMXBean();
        long me = Thread.currentThread().getId();
        byte[] record = new byte[220];
        for (Framing framing : List.of(Framing.NONE, Framing.RECORDS)) {
            Options options = Options.of(dir.resolve("log-" + framing)).mode(Mode.RING).framing(framing);
            try (Appender log = Precursor.open(options.times(framing == Framing.RECORDS))) {
                for (int i = 0; i < 20_000; i++) {
                    log.append(record);
                }
                long before = threads.getThreadAllocatedBytes(me);
                for (int i = 0; i < 10_000; i++) {
                    log.append(record);
                }
                long bytes = threads.getThreadAllocatedBytes(me) - before;
                assertTrue(bytes < 10_000, bytes + " bytes in 10,000 appends");
            }
        }
    }
}
