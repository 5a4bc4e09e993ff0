/* Appends records, syncs, prints the reasons and counters of the appender, closes, and recovers.
 *
 *     cc append.c $(pkg-config --cflags --libs precursor) -o append && ./append /tmp/journal
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <precursor.h>

static int failed(const char *what, int code, const char *message)
{
    fprintf(stderr, "%s: code %d: %s\n", what, code, message);
    return 1;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: %s FILE [MODE 0-4]\n", argv[0]);
        return 2;
    }
    char message[256] = "";
    precursor_options options;
    precursor_options_default(&options, sizeof options);
    options.framed = 1;
    options.ring_bytes = 256 * 1024;
    if (argc > 2)
        options.mode = (uint32_t)(argv[2][0] - '0');

    precursor *journal = NULL;
    int code = precursor_open(argv[1], &options, &journal, message, sizeof message);
    if (code != PRECURSOR_OK)
        return failed("open", code, message);
    printf("%s\n", precursor_reasons(journal));

    uint64_t position = 0;
    for (int i = 0; i < 1000; i++) {
        char record[220];
        memset(record, 'a' + i % 26, sizeof record);
        code = precursor_append(journal, (const uint8_t *)record, sizeof record, &position);
        if (code != PRECURSOR_OK)
            return failed("append", code, "");
    }

    /* Without a copy: fill the memory of the file or ring directly. */
    uint8_t *place = NULL;
    code = precursor_reserve(journal, 64, &place);
    if (code != PRECURSOR_OK)
        return failed("reserve", code, "");
    memset(place, '!', 64);
    code = precursor_commit(journal, 64, &position);
    if (code != PRECURSOR_OK)
        return failed("commit", code, "");

    uint64_t durable = 0;
    code = precursor_sync_to(journal, position, &durable, message, sizeof message);
    if (code != PRECURSOR_OK)
        return failed("sync", code, message);

    precursor_stats stats = {.size = sizeof stats};
    precursor_get_stats(journal, &stats);
    printf("appends %" PRIu64 ", durable %" PRIu64 " of %" PRIu64 "\n", stats.appends, durable, precursor_position(journal));

    /* Invalid calls return a code and change nothing. */
    if (precursor_commit(journal, 1, NULL) != PRECURSOR_INVALID || precursor_append(NULL, NULL, 0, NULL) != PRECURSOR_INVALID)
        return failed("check", -1, "a wrong call was accepted");

    code = precursor_close(journal, message, sizeof message);
    if (code != PRECURSOR_OK)
        return failed("close", code, message);

    precursor_recovered found = {.size = sizeof found};
    code = precursor_recover(argv[1], &found, message, sizeof message);
    if (code != PRECURSOR_OK)
        return failed("recover", code, message);
    printf("length %" PRIu64 ", nothing to recover: %s\n", found.len, found.cut_bytes == 0 ? "yes" : "no");
    return found.len == durable ? 0 : 1;
}
