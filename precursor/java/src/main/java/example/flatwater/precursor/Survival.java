package example.flatwater.precursor;

/**
 * When records of an appender survive, as it was opened on this machine.
 *
 * @param processDeath the call after which a record survives {@code kill -9}
 * @param machineDeath the call after which a record survives a power cut
 * @param removal event that may remove the shared memory while the machine runs; null if there is none
 */
public record Survival(After processDeath, After machineDeath, Removal removal) {
}
