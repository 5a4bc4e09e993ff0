package example.flatwater.precursor;

import java.io.IOException;

/** A file that must not be used: of another user, a link, or writable by others. */
final class Unfit extends IOException {
    private static final long serialVersionUID = 1;

    Unfit(String problem) {
        super(problem);
    }
}
