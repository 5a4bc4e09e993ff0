package example.flatwater.precursor;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.Map;

/**
 * Status of a name, without following a link.
 *
 * @param key device and inode
 * @param owner user ID
 * @param links number of hard links
 * @param mode type and permissions
 * @param len length, bytes
 */
record Facts(Key key, int owner, int links, int mode, long len) {
    private static final int TYPE = 0xf000;
    private static final int REGULAR = 0x8000;
    private static final int LINK = 0xa000;
    private static final int STICKY = 0x200;

    /**
     * Identity of a file.
     *
     * @param device the device
     * @param inode the inode
     */
    record Key(long device, long inode) {
    }

    /** What a file is opened for, and so what it must be. */
    enum Use {
        /** Belongs to this user alone; others cannot write to it. */
        PRIVATE,
        /** A data file that is written: any regular file; for root only its own with one name. */
        DATA,
        /** Any regular file. */
        READ
    }

    /** The status of a name; null if it does not exist. */
    static Facts of(Path path) throws IOException {
        Map<String, Object> found;
        try {
            found = Files.readAttributes(path, "unix:dev,ino,uid,nlink,mode,size", LinkOption.NOFOLLOW_LINKS);
        } catch (NoSuchFileException e) {
            return null;
        }
        Key key = new Key((Long) found.get("dev"), (Long) found.get("ino"));
        return new Facts(key, (Integer) found.get("uid"), (Integer) found.get("nlink"), (Integer) found.get("mode"),
            (Long) found.get("size"));
    }

    /** Effective user ID of this process. */
    static int me() throws IOException {
        return (Integer) Files.getAttribute(Path.of("/proc/self"), "unix:uid");
    }

    /** Why the file must not be used so; null if it may. */
    String unfit(Use use) throws IOException {
        if ((mode & TYPE) == LINK) {
            return "it is a symbolic link; give the path of the file itself";
        }
        if ((mode & TYPE) != REGULAR) {
            return "it is not a regular file";
        }
        int me = me();
        if (use == Use.READ || use == Use.DATA && me != 0) {
            return null;
        }
        if (owner != me) {
            return "it belongs to user " + owner + " and this process is user " + me + "; run as its owner";
        }
        if (links > 1) {
            return "it has " + links + " hard links, so it may also be another file; remove the other names";
        }
        if (use == Use.PRIVATE && (mode & 022) != 0) {
            return "others may write to it (mode " + Integer.toOctalString(mode & 0777)
                + "); remove that permission, or the file";
        }
        return null;
    }

    /**
     * Why files in this directory must not be trusted; null if they may. Java checks a file by its name before and
     * after it is opened, which is safe only where no other user can replace the name.
     */
    static String unsafeDirectory(Path dir) throws IOException {
        Facts facts = of(dir);
        if (facts == null) {
            throw new NoSuchFileException(dir.toString());
        }
        boolean anyone = (facts.mode & 2) != 0 && (facts.mode & STICKY) == 0;
        int me = me();
        if (me == 0 && facts.owner != 0) {
            return "the directory " + dir + " belongs to user " + facts.owner
                + ", who can replace root's files in it; run as that user, or use a directory of root";
        }
        return anyone
            ? "every user may replace files in the directory " + dir + "; remove that permission, or set its sticky bit"
            : null;
    }
}
