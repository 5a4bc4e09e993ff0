package example.flatwater.precursor;

import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/** Finds the end of the data that a dead writer left, and cuts the file to its exact length. */
final class Recovery {
    /** Where the data end. */
    static final class Ended {
        /** Number of the file in which the data end, or of the next file to create. */
        long seq;
        /** Position of that file's first byte. */
        long base;
        long len;
        /** Number of the next record; -1 if unknown. */
        long number = -1;
        Path path;
        Evidence evidence = Evidence.LENGTH;
        long replayedBytes;
        long cutBytes;
        final List<Path> setAside = new ArrayList<>();

        Recovered result() {
            return new Recovered(path, len, evidence, replayedBytes, List.copyOf(setAside), cutBytes);
        }
    }

    private final Names names;
    private final Sidecar.Entry entry;

    private Recovery(Names names, Sidecar.Entry entry) {
        this.names = names;
        this.entry = entry;
    }

    static Recovered recover(Path path) throws PrecursorException {
        Names names = Names.of(path);
        List<OwnFile> locked = new ArrayList<>();
        Sidecar side = null;
        try {
            if (Facts.of(names.sidecar()) == null) {
                return new Recovery(names, null).byLength().result();
            }
            side = Sidecar.take(names);
            if (side == null) {
                throw new PrecursorException.Busy(path);
            }
            lockFrom(names, side.seq(), locked);
            Ended ended = locked(names, side);
            Sidecar.Entry entry = side.entry();
            if (!names.rolls()) {
                side.remove(names);
            } else if (entry != null && !entry.closed()) {
                side.write(entry.ended(ended));
            }
            return ended.result();
        } catch (IOException e) {
            throw typed(path, "recover", e);
        } finally {
            closeAll(locked);
            close(side);
        }
    }

    static PrecursorException typed(Path path, String what, IOException e) {
        if (e instanceof PrecursorException typed) {
            return typed;
        }
        return e instanceof Unfit ? new PrecursorException.Foreign(path, e.getMessage())
            : new PrecursorException.Io(what, path, e);
    }

    /** Locks the existing files from number {@code from} on, or the last one if it is -1. */
    static void lockFrom(Names names, long from, List<OwnFile> locked) throws IOException {
        List<Long> present = names.present();
        if (present.isEmpty()) {
            return;
        }
        long last = present.get(present.size() - 1);
        long first = from < 0 ? last : Math.min(from, last);
        for (long seq : present) {
            if (seq < first) {
                continue;
            }
            OwnFile file = names.existing(seq);
            locked.add(file);
            if (!file.tryLock()) {
                throw new PrecursorException.Busy(names.given());
            }
        }
    }

    static void closeAll(List<OwnFile> files) {
        for (OwnFile file : files) {
            try {
                file.close();
            } catch (IOException e) {
                // Nothing was written through it that is not synced.
            }
        }
    }

    private static void close(Sidecar side) {
        try {
            if (side != null) {
                side.close();
            }
        } catch (IOException e) {
            // Every entry was synced when it was written.
        }
    }

    /** Recovers while the caller holds the locks; keeps the sidecar. */
    static Ended locked(Names names, Sidecar side) throws IOException {
        Sidecar.Entry entry = side.entry();
        Recovery recovery = new Recovery(names, entry);
        if (entry == null) {
            return recovery.byLength();
        }
        Path shm = entry.shmDir();
        String stem = names.shmStem(entry.shmId());
        if (entry.closed()) {
            // The writer died after it had finished and before everything was removed.
            if (shm != null) {
                Live.removeShm(shm, stem);
            }
            return recovery.byLength();
        }
        if (shm != null && Facts.of(shm) != null) {
            String unsafe = Facts.unsafeDirectory(shm);
            if (unsafe != null) {
                throw new PrecursorException.Foreign(shm, unsafe);
            }
        }
        Live live = shm == null ? null : recovery.find(shm, stem);
        Ended ended;
        try {
            ended = live == null ? recovery.fromDisk() : recovery.fromLive(live, shm, stem);
            recovery.syncFrom(live);
        } finally {
            if (live != null) {
                live.close();
            }
        }
        // Before the live block is removed: then the journalled position is the end, and must not be the old one.
        side.write(entry.at(ended));
        if (shm != null) {
            Live.removeShm(shm, stem);
        }
        return ended;
    }

    /** The live block of the run that wrote the entry; null without one. */
    private Live find(Path shm, String stem) throws IOException {
        Live live;
        try {
            live = Live.find(shm, stem, true);
        } catch (Unfit e) {
            return null;
        }
        if (live != null && !live.belongsTo(entry)) {
            live.close();
            return null;
        }
        return live;
    }

    private void syncFrom(Live live) throws IOException {
        try {
            for (long seq : names.present()) {
                if (seq >= entry.seq()) {
                    with(seq, file -> {
                        file.sync();
                        return null;
                    });
                }
            }
            OwnFile.syncDirectory(names.dir());
        } catch (IOException e) {
            if (live != null) {
                live.distrust(0);
            }
            throw e;
        }
    }

    /** An operation on an open file. */
    private interface Use<T> {
        T on(OwnFile file) throws IOException;
    }

    private <T> T with(long seq, Use<T> use) throws IOException {
        OwnFile file = names.existing(seq);
        try {
            return use.on(file);
        } finally {
            file.close();
        }
    }

    /** The files' own lengths, if nothing is to be recovered. */
    private Ended byLength() throws IOException {
        List<Long> present = names.present();
        Ended ended = new Ended();
        long last = present.isEmpty() ? -1 : present.get(present.size() - 1);
        if (last < 0 || entry != null && entry.seq() > last) {
            // They were archived; positions continue after them.
            boolean known = entry != null && names.rolls() && entry.base() >= 0;
            ended.seq = known ? entry.seq() + 1 : 0;
            ended.base = known ? entry.base() + entry.len() : 0;
            ended.number = entry == null ? -1 : entry.number();
            return ended;
        }
        ended.seq = last;
        ended.path = names.path(last);
        ended.len = names.len(last);
        ended.base = baseOf(present, last);
        ended.number = nextNumber(last);
        return ended;
    }

    /** Number of the record after those in file {@code seq}; -1 if unknown. An empty file continues the one before. */
    private long nextNumber(long seq) throws IOException {
        List<Long> present = names.present();
        for (int i = present.size() - 1; i >= 0; i--) {
            long at = present.get(i);
            if (at > seq) {
                continue;
            }
            Scan scan = with(at, file -> Scan.header(file) == null ? null : Scan.of(file, 0));
            if (scan != null) {
                return scan.next;
            }
            if (names.len(at) > 0) {
                break;
            }
        }
        return entry == null ? -1 : entry.number();
    }

    /** Position of the first byte of file {@code seq}: from its header, or counted from the journalled file on. */
    private long baseOf(List<Long> present, long seq) throws IOException {
        FileHeader header = with(seq, Scan::header);
        if (header != null && header.seq() == seq) {
            return header.base();
        }
        long base = 0;
        long from = 0;
        if (entry != null && entry.seq() <= seq && entry.base() >= 0) {
            from = entry.seq();
            base = present.contains(from) ? entry.base() : entry.base() + entry.len();
        }
        for (long before : present) {
            if (before >= from && before < seq) {
                base += names.len(before);
            }
        }
        return base;
    }

    private Ended fromLive(Live live, Path shm, String stem) throws IOException {
        if (live.many()) {
            throw new PrecursorException.Unsupported(names.given(), "several producers wrote it");
        }
        if (live.isDistrusted()) {
            throw new PrecursorException.Unsupported(names.given(), "a sync had failed");
        }
        if (!live.isFormat2()) {
            throw new PrecursorException.Unsupported(names.given(), "its frames have format 1");
        }
        Ended ended = new Ended();
        Live.At at = live.file();
        long end = live.position();
        long least = at.seq() == entry.seq() ? entry.len() : 0;
        if (at.seq() < entry.seq() || end < at.base() || end - at.base() < least) {
            throw new PrecursorException.Foreign(shm,
                "the live block ends before the journalled durable position; nothing was changed");
        }
        if (at.seq() != 0 && !names.rolls()) {
            throw new PrecursorException.Foreign(shm,
                "the live block names several files, but the path is a single file; nothing was changed");
        }
        if (live.ringCount() > 0) {
            Replay replay = new Replay(names, live, least);
            replay.run(shm, stem);
            at = replay.file();
            ended.replayedBytes = replay.bytes();
        }
        long last = at.seq();
        ended.len = end - at.base();
        if (entry.framed()) {
            long from = ended.len;
            // Records that were stored whole and whose position was not: a reader of the file may have seen them.
            ended.len = with(last, file -> Scan.recordsFrom(file, from));
        }
        ended.cutBytes = cut(last, ended.len);
        Live.At before = live.fileBefore();
        boolean left = before != null && entry.preallocated() && names.rolls() && before.seq() < last;
        if (left && names.exists(before.seq())) {
            ended.cutBytes += cut(before.seq(), at.base() - before.base());
        }
        long prepared = live.preparing();
        if (prepared > last && names.rolls()) {
            names.remove(prepared);
        }
        ended.seq = last;
        ended.base = at.base();
        ended.path = names.path(last);
        ended.evidence = Evidence.LIVE;
        ended.number = nextNumber(last);
        return ended;
    }

    /** After the machine died: from the journalled position on, by the contents of the files. */
    private Ended fromDisk() throws IOException {
        List<Long> present = names.present();
        List<Long> later = present.stream().filter(seq -> seq >= entry.seq()).toList();
        if (later.isEmpty()) {
            return byLength();
        }
        Ended ended = new Ended();
        ended.seq = later.get(0);
        ended.len = ended.seq == entry.seq() ? entry.len() : 0;
        ended.evidence = Evidence.JOURNALLED;
        if (entry.framed()) {
            ended.evidence = Evidence.FRAMES;
            followFrames(ended, later);
        } else if (!entry.preallocated()) {
            ended.evidence = Evidence.UNPROVEN;
            ended.seq = later.get(later.size() - 1);
            ended.len = names.len(ended.seq);
        }
        ended.cutBytes += cut(ended.seq, ended.len);
        for (long next : later) {
            if (next > ended.seq) {
                clearAway(next, ended);
            }
        }
        ended.path = names.path(ended.seq);
        ended.base = baseOf(present, ended.seq);
        ended.number = nextNumber(ended.seq);
        return ended;
    }

    private void followFrames(Ended ended, List<Long> later) throws IOException {
        long from = ended.len;
        ended.len = with(ended.seq, file -> Scan.of(file, from)).end;
        for (long next : later.subList(1, later.size())) {
            long len = ended.len;
            // The next file continues this one only if this one is complete.
            if (!with(ended.seq, file -> Scan.endsWithMark(file, len))) {
                break;
            }
            ended.cutBytes += cut(ended.seq, len);
            ended.seq = next;
            ended.len = with(next, file -> Scan.of(file, 0)).end;
        }
    }

    /** Cuts a file to its exact length, but never below the journalled durable length. Returns the bytes cut off. */
    private long cut(long seq, long len) throws IOException {
        return with(seq, file -> {
            long was = file.len();
            // Never extended: zeros would hide that the file has lost bytes.
            if (was < len) {
                throw new PrecursorException.Foreign(names.path(seq),
                    "it has " + was + " bytes instead of " + len + ": it was cut or replaced; nothing was changed");
            }
            if (seq == entry.seq() && len < entry.len() && was > len) {
                throw new PrecursorException.Foreign(names.path(seq),
                    "its end was found at " + len + ", but " + entry.len() + " bytes are durable; nothing was cut");
            }
            file.cut(len);
            return was - len;
        });
    }

    /** Removes a file that was prepared for a roll, which contains only zeros. Renames any other file. */
    private void clearAway(long seq, Ended ended) throws IOException {
        if (with(seq, file -> Scan.dataEnd(file, 0)) == 0) {
            names.remove(seq);
        } else {
            ended.setAside.add(names.setAside(seq));
        }
    }
}
