package example.flatwater.precursor;

/** What to do if the file exists. */
public enum Existing {
    /** Find the end of the data and append there. */
    CONTINUE,
    /** Discard its contents; with a pattern, remove all its files. */
    REPLACE,
    /** Throw {@link PrecursorException.Exists}. */
    REFUSE
}
