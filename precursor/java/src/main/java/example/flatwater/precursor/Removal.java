package example.flatwater.precursor;

/** Event that removes shared memory while the machine runs. */
public enum Removal {
    /** The end of the container, possibly with the end of this process. */
    CONTAINER,
    /** The end of the last login session of the user (RemoveIPC in logind.conf). */
    LOGOUT
}
