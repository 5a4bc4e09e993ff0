package example.flatwater.precursor;

import java.io.IOException;

/** Runs an operation of a channel on a thread that is not interrupted: an interrupt would close the channel. */
final class Uninterrupted {
    /** An operation. */
    interface Work<T> {
        T run() throws IOException;
    }

    private Uninterrupted() {
    }

    static <T> T run(Work<T> work) throws IOException {
        if (Thread.currentThread() instanceof Helper) {
            return work.run();
        }
        Task<T> task = new Task<>(work);
        Helper thread = new Helper("precursor-io", task);
        thread.start();
        boolean interrupted = false;
        while (true) {
            try {
                thread.join();
                break;
            } catch (InterruptedException e) {
                interrupted = true;
            }
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
        return task.result();
    }

    /** A daemon thread of the library, which no program has a reason to interrupt. */
    static final class Helper extends Thread {
        Helper(String name, Runnable work) {
            super(null, work, name, 0, false);
            setDaemon(true);
        }
    }

    private static final class Task<T> implements Runnable {
        private final Work<T> work;
        private T value;
        private Throwable failure;

        Task(Work<T> work) {
            this.work = work;
        }

        @Override
        public void run() {
            try {
                value = work.run();
            } catch (IOException | RuntimeException | Error e) {
                failure = e;
            }
        }

        T result() throws IOException {
            if (failure instanceof IOException io) {
                throw io;
            }
            if (failure instanceof Error error) {
                throw error;
            }
            if (failure instanceof RuntimeException runtime) {
                throw runtime;
            }
            return value;
        }
    }
}
