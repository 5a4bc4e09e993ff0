/* A window that moves many times, in a program with a sanitizer, which replaces some functions of libc. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <precursor.h>

int main(int argc, char **argv)
{
    static uint8_t record[1000];
    char message[256] = "";
    precursor_options options;
    precursor *journal = NULL;
    uint64_t position = 0;
    int code;

    if (argc < 2)
        return 2;
    memset(record, 7, sizeof record);
    precursor_options_default(&options, sizeof options);
    options.mode = PRECURSOR_WINDOW;
    options.readable_at_once = 1;
    options.window_bytes = 64 << 10;
    options.memory_bytes_max = 1 << 20;
    code = precursor_open(argv[1], &options, &journal, message, sizeof message);
    for (int i = 0; code == PRECURSOR_OK && i < 8000; i++)
        code = precursor_append(journal, record, sizeof record, &position);
    if (code != PRECURSOR_OK) {
        if (journal)
            precursor_failure(journal, message, sizeof message);
        fprintf(stderr, "code %d at %llu: %s\n", code, (unsigned long long)position, message);
        return 1;
    }
    code = precursor_close(journal, message, sizeof message);
    printf("%llu bytes, close %d %s\n", (unsigned long long)position, code, message);
    return code != PRECURSOR_OK;
}
