/* Uses the whole interface, as C11 and as C++17: structures of other versions, threads, many producers, recovery. */
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <precursor.h>

#ifdef __cplusplus
#define CHECK_LAYOUT static_assert
#else
#define CHECK_LAYOUT _Static_assert
#endif
/* Offsets of version 1.0 must not change. */
CHECK_LAYOUT(offsetof(precursor_options, size) == 0, "options");
CHECK_LAYOUT(offsetof(precursor_options, mode) == 8 && offsetof(precursor_options, helper_cpu) == 36, "options");
CHECK_LAYOUT(offsetof(precursor_options, roll_bytes) == 40 && offsetof(precursor_options, sync_every_ms) == 80, "options");
CHECK_LAYOUT(offsetof(precursor_options, shm_dir) == 88 && sizeof(precursor_options) >= 104, "options");
CHECK_LAYOUT(offsetof(precursor_stats, size) == 0 && offsetof(precursor_stats, appends) == 16, "stats");
CHECK_LAYOUT(offsetof(precursor_stats, out_of_space) == 120 && sizeof(precursor_stats) >= 128, "stats");
CHECK_LAYOUT(offsetof(precursor_recovered, size) == 0 && offsetof(precursor_recovered, evidence) == 32, "recovered");

static char message[256];
#define EXPECT(what) \
    do { if (!(what)) { fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #what, message); _exit(1); } } while (0)

static void *sync_elsewhere(void *given)
{
    precursor_syncer *syncer = (precursor_syncer *)given;
    uint64_t durable = 0;
    int code = precursor_syncer_sync_to(syncer, precursor_syncer_position(syncer), &durable, NULL, 0);
    return code == PRECURSOR_OK && durable == 1000 ? given : NULL;
}

static void *produce(void *given)
{
    const precursor_many *many = (const precursor_many *)given;
    uint64_t position = 0;
    for (int i = 0; i < 1000; i++)
        if (precursor_many_append(many, (const uint8_t *)"one of many", 11, &position) != PRECURSOR_OK)
            return NULL;
    return precursor_many_sync_to(many, position, NULL, NULL, 0) == PRECURSOR_OK ? given : NULL;
}

/* Structures of another version's header, shorter or longer than the library's. */
static void other_versions(const char *path)
{
    union { precursor_options options; unsigned char bytes[512]; } u;
    precursor *journal = NULL;

    memset(&u, 0xff, sizeof u);
    EXPECT(precursor_options_default(&u.options, 48) == PRECURSOR_OK);
    EXPECT(u.options.size == 48 && u.options.mode == PRECURSOR_AUTO && u.bytes[48] == 0xff);
    u.options.mode = PRECURSOR_PLAIN;
    EXPECT(precursor_open(path, &u.options, &journal, message, sizeof message) == PRECURSOR_OK);

    union { precursor_stats stats; unsigned char bytes[512]; } s;
    memset(&s, 0xff, sizeof s);
    s.stats.size = 32;
    EXPECT(precursor_get_stats(journal, &s.stats) == PRECURSOR_OK);
    EXPECT(s.stats.size == 32 && s.stats.mode == PRECURSOR_PLAIN && s.stats.position == 0 && s.bytes[32] == 0xff);
    s.stats.size = sizeof s;
    EXPECT(precursor_get_stats(journal, &s.stats) == PRECURSOR_OK);
    EXPECT(s.stats.size == sizeof(precursor_stats) && s.bytes[sizeof s - 1] == 0);
    s.stats.size = 4;
    EXPECT(precursor_get_stats(journal, &s.stats) == PRECURSOR_INVALID);
    EXPECT(precursor_close(journal, message, sizeof message) == PRECURSOR_OK);

    memset(&u, 0xff, sizeof u);
    EXPECT(precursor_options_default(&u.options, sizeof u) == PRECURSOR_OK);
    EXPECT(u.options.size == sizeof u && u.bytes[sizeof u - 1] == 0);
    u.options.mode = PRECURSOR_PLAIN;
    EXPECT(precursor_open(path, &u.options, &journal, message, sizeof message) == PRECURSOR_OK);
    EXPECT(precursor_close(journal, message, sizeof message) == PRECURSOR_OK);
    u.bytes[sizeof u - 1] = 1;
    EXPECT(precursor_open(path, &u.options, &journal, message, sizeof message) == PRECURSOR_INVALID);
    EXPECT(journal == NULL && strstr(message, "does not know") != NULL);
    u.options.size = 0;
    EXPECT(precursor_open(path, &u.options, &journal, message, sizeof message) == PRECURSOR_INVALID);

    precursor_recovered found;
    memset(&found, 0xff, sizeof found);
    found.size = 16;
    EXPECT(precursor_recover(path, &found, message, sizeof message) == PRECURSOR_OK);
    EXPECT(found.size == 16 && found.len == 0 && found.cut_bytes == UINT64_MAX);
}

static void one_producer(const char *path)
{
    precursor_options options;
    precursor *journal = NULL;
    precursor_syncer *syncer = NULL;
    pthread_t thread;
    void *fine = NULL;
    uint64_t position = 0;
    static const uint8_t record[1000] = {0};
    EXPECT(precursor_options_default(&options, sizeof options) == PRECURSOR_OK);
    options.mode = PRECURSOR_RING;
    EXPECT(precursor_open(path, &options, &journal, message, sizeof message) == PRECURSOR_OK);
    EXPECT(precursor_append(journal, record, sizeof record, &position) == PRECURSOR_OK && position == 1000);
    EXPECT(precursor_get_syncer(journal, &syncer) == PRECURSOR_OK);
    EXPECT(pthread_create(&thread, NULL, sync_elsewhere, syncer) == 0);
    EXPECT(pthread_join(thread, &fine) == 0 && fine != NULL);
    int survives = precursor_survives_process(journal);
    EXPECT(survives == 0 || survives == 1);
    EXPECT(precursor_failure(journal, message, sizeof message) == PRECURSOR_OK && message[0] == 0);

    pid_t child = fork();
    if (child == 0)
        _exit(precursor_append(journal, record, sizeof record, NULL));
    int status = 0;
    EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == PRECURSOR_FORKED);

    EXPECT(precursor_close(journal, message, sizeof message) == PRECURSOR_OK);
    precursor_stats stats;
    stats.size = sizeof stats;
    EXPECT(precursor_syncer_get_stats(syncer, &stats) == PRECURSOR_OK && stats.durable == 1000);
    EXPECT(precursor_syncer_sync_to(syncer, 2000, NULL, message, sizeof message) == PRECURSOR_INVALID);
    precursor_syncer_free(syncer);
    precursor_syncer_free(NULL);
}

static void many_producers(const char *path)
{
    precursor_many *many = NULL;
    precursor_syncer *syncer = NULL;
    pthread_t threads[4];
    void *fine = NULL;
    EXPECT(precursor_open_many(path, NULL, &many, message, sizeof message) == PRECURSOR_OK);
    EXPECT(precursor_many_reasons(many) != NULL);
    EXPECT(precursor_many_get_syncer(many, &syncer) == PRECURSOR_OK);
    for (int i = 0; i < 4; i++)
        EXPECT(pthread_create(&threads[i], NULL, produce, many) == 0);
    for (int i = 0; i < 4; i++)
        EXPECT(pthread_join(threads[i], &fine) == 0 && fine != NULL);
    precursor_stats stats;
    stats.size = sizeof stats;
    EXPECT(precursor_many_get_stats(many, &stats) == PRECURSOR_OK && stats.appends == 4000);
    EXPECT(precursor_syncer_position(syncer) == 64 + 4000 * 40);
    EXPECT(precursor_many_append(NULL, NULL, 0, NULL) == PRECURSOR_INVALID);
    precursor_syncer_free(syncer);
    EXPECT(precursor_many_close(many, message, sizeof message) == PRECURSOR_OK);
    EXPECT(precursor_open_many(path, NULL, &many, NULL, 0) == PRECURSOR_OK);
    EXPECT(precursor_many_close(many, NULL, 0) == PRECURSOR_OK);
}

/* Handles that are closed, closed twice, of another appender, or never opened. */
static void wrong_handles(const char *path)
{
    precursor_options options;
    precursor *journal = NULL, *other = NULL;
    precursor_many *many = NULL;
    precursor_syncer *syncer = NULL, *of_many = NULL;
    precursor_stats stats;
    uint64_t number = 0;
    uint8_t *at = NULL;
    int local = 0;
    stats.size = sizeof stats;
    EXPECT(precursor_options_default(&options, sizeof options) == PRECURSOR_OK);
    options.mode = PRECURSOR_RING;
    EXPECT(precursor_open(path, &options, &journal, message, sizeof message) == PRECURSOR_OK);
    EXPECT(precursor_get_syncer(journal, &syncer) == PRECURSOR_OK);
    EXPECT(precursor_close(journal, message, sizeof message) == PRECURSOR_OK);
    precursor *const wrong[] = {NULL, journal, (precursor *)&local, (precursor *)syncer, (precursor *)(uintptr_t)-1};
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
            precursor *handle = wrong[i];
            EXPECT(precursor_append(handle, (const uint8_t *)"x", 1, NULL) == PRECURSOR_INVALID);
            EXPECT(precursor_reserve(handle, 1, &at) == PRECURSOR_INVALID && at == NULL);
            EXPECT(precursor_commit(handle, 1, NULL) == PRECURSOR_INVALID);
            EXPECT(precursor_position(handle) == 0 && precursor_reasons(handle) == NULL);
            EXPECT(precursor_sync_to(handle, 0, &number, message, sizeof message) == PRECURSOR_INVALID);
            EXPECT(precursor_survives_process(handle) == 0);
            EXPECT(precursor_failure(handle, message, sizeof message) == PRECURSOR_INVALID);
            EXPECT(precursor_get_stats(handle, &stats) == PRECURSOR_INVALID);
            EXPECT(precursor_get_syncer(handle, &of_many) == PRECURSOR_INVALID && of_many == NULL);
            EXPECT(precursor_close(handle, message, sizeof message) == PRECURSOR_INVALID && message[0] != 0);
        }
        /* In the second round another appender has the place of the closed one. */
        if (round == 0)
            EXPECT(precursor_open(path, &options, &other, message, sizeof message) == PRECURSOR_OK && other != journal);
    }
    EXPECT(precursor_append(other, (const uint8_t *)"x", 1, &number) == PRECURSOR_OK && number == 1);
    EXPECT(precursor_close(other, message, sizeof message) == PRECURSOR_OK);
    precursor_syncer_free(syncer);
    precursor_syncer_free(syncer);
    EXPECT(precursor_syncer_get_stats(syncer, &stats) == PRECURSOR_INVALID && precursor_syncer_position(syncer) == 0);
    EXPECT(precursor_syncer_sync_to(syncer, 0, NULL, NULL, 0) == PRECURSOR_INVALID);

    EXPECT(precursor_open_many(path, &options, &many, message, sizeof message) == PRECURSOR_INVALID && many == NULL);
    char framed[4200];
    snprintf(framed, sizeof framed, "%s-framed", path);
    EXPECT(precursor_open_many(framed, &options, &many, message, sizeof message) == PRECURSOR_OK);
    EXPECT(precursor_many_failure(many, message, sizeof message) == PRECURSOR_OK && message[0] == 0);
    EXPECT(precursor_many_get_syncer(many, &of_many) == PRECURSOR_OK);
    EXPECT(precursor_many_close(many, message, sizeof message) == PRECURSOR_OK);
    EXPECT(precursor_many_close(many, message, sizeof message) == PRECURSOR_INVALID);
    EXPECT(precursor_many_append(many, (const uint8_t *)"x", 1, NULL) == PRECURSOR_INVALID);
    EXPECT(precursor_many_sync_to(many, 0, NULL, NULL, 0) == PRECURSOR_INVALID);
    EXPECT(precursor_many_get_stats(many, &stats) == PRECURSOR_INVALID && precursor_many_reasons(many) == NULL);
    EXPECT(precursor_many_failure(many, message, sizeof message) == PRECURSOR_INVALID);
    precursor_syncer_free(of_many);

    /* A CPU or node below -1, or that the machine lacks. */
    const int32_t absent[] = {-2, INT32_MIN, INT32_MAX};
    for (size_t i = 0; i < sizeof absent / sizeof *absent; i++) {
        options.node = absent[i];
        EXPECT(precursor_open(path, &options, &other, message, sizeof message) == PRECURSOR_INVALID && other == NULL);
        options.node = -1;
        options.helper_cpu = absent[i];
        EXPECT(precursor_open(path, &options, &other, message, sizeof message) == PRECURSOR_INVALID && other == NULL);
        options.helper_cpu = -1;
    }
}

/* Reads what one producer appends, and what is wrong with other files. */
static void reading(const char *path)
{
    precursor_options options;
    precursor *journal = NULL;
    precursor_reader *reader = NULL;
    precursor_record record;
    uint64_t position = 0;
    EXPECT(precursor_options_default(&options, sizeof options) == PRECURSOR_OK);
    options.mode = PRECURSOR_RING;
    options.framed = 1;
    options.times = 1;
    EXPECT(precursor_open(path, &options, &journal, message, sizeof message) == PRECURSOR_OK);
    EXPECT(precursor_reader_open(path, &reader, message, sizeof message) == PRECURSOR_OK);
    record.size = sizeof record;
    EXPECT(precursor_reader_next(reader, &record, 0, message, sizeof message) == PRECURSOR_NONE);
    EXPECT(precursor_reader_writer(reader) == PRECURSOR_WRITER_ALIVE);
    for (uint64_t i = 0; i < 100; i++) {
        EXPECT(precursor_append(journal, (const uint8_t *)&i, sizeof i, &position) == PRECURSOR_OK);
        EXPECT(precursor_reader_next(reader, &record, 60000000, message, sizeof message) == PRECURSOR_OK);
        EXPECT(record.size == sizeof record && record.number == i && record.position == position);
        EXPECT(record.time_ns > 0 && record.len == sizeof i && memcmp(record.bytes, &i, sizeof i) == 0);
    }
    EXPECT(precursor_close(journal, message, sizeof message) == PRECURSOR_OK);
    EXPECT(precursor_reader_seek(reader, PRECURSOR_SEEK_NUMBER, 50, message, sizeof message) == PRECURSOR_OK);
    EXPECT(precursor_reader_next(reader, &record, 0, NULL, 0) == PRECURSOR_OK && record.number == 50);
    EXPECT(precursor_reader_seek(reader, PRECURSOR_SEEK_END, 0, NULL, 0) == PRECURSOR_OK);
    EXPECT(precursor_reader_next(reader, &record, 0, NULL, 0) == PRECURSOR_NONE);
    EXPECT(precursor_reader_seek(reader, 99, 0, message, sizeof message) == PRECURSOR_INVALID && message[0] != 0);
    EXPECT(precursor_reader_next(reader, NULL, 0, NULL, 0) == PRECURSOR_INVALID);
    EXPECT(precursor_reader_spin(reader, 1) == PRECURSOR_OK && precursor_reader_close(reader) == PRECURSOR_OK);
    EXPECT(precursor_reader_close(reader) == PRECURSOR_INVALID);
    EXPECT(precursor_reader_next(reader, &record, 0, NULL, 0) == PRECURSOR_INVALID);

    char raw[4200];
    snprintf(raw, sizeof raw, "%s-raw", path);
    FILE *file = fopen(raw, "w");
    EXPECT(file != NULL && fputs("neither a header nor a frame of the library, only text", file) >= 0 && fclose(file) == 0);
    EXPECT(precursor_reader_open(raw, &reader, message, sizeof message) == PRECURSOR_OK);
    EXPECT(precursor_reader_next(reader, &record, 0, message, sizeof message) == PRECURSOR_INVALID);
    EXPECT(strstr(message, "neither the header") != NULL && precursor_reader_close(reader) == PRECURSOR_OK);
    EXPECT(precursor_reader_open(NULL, &reader, message, sizeof message) == PRECURSOR_INVALID && reader == NULL);
    for (int code = -1; code < 20; code++)
        EXPECT(precursor_strerror(code) != NULL && precursor_strerror(code)[0] != 0);
}

int main(int argc, char **argv)
{
    char path[4096];
    EXPECT(argc == 2);
    EXPECT(precursor_version() >> 16 == PRECURSOR_VERSION >> 16 && precursor_version() >= PRECURSOR_VERSION);
    snprintf(path, sizeof path, "%s/versions", argv[1]);
    other_versions(path);
    snprintf(path, sizeof path, "%s/one", argv[1]);
    one_producer(path);
    snprintf(path, sizeof path, "%s/many", argv[1]);
    many_producers(path);
    snprintf(path, sizeof path, "%s/wrong", argv[1]);
    wrong_handles(path);
    snprintf(path, sizeof path, "%s/read", argv[1]);
    reading(path);
    puts("all as promised");
    return 0;
}
