/* Loads the library at run time, uses it, and unloads it. No handler may run afterwards from unmapped memory. */
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <precursor.h>

int main(int argc, char **argv)
{
    void *library = argc == 3 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!library)
        return fprintf(stderr, "%s\n", dlerror()), 1;
    int (*open_)(const char *, const precursor_options *, precursor **, char *, size_t);
    int (*append)(precursor *, const uint8_t *, size_t, uint64_t *);
    int (*close_)(precursor *, char *, size_t);
    int (*defaults)(precursor_options *, size_t);
    *(void **)&open_ = dlsym(library, "precursor_open");
    *(void **)&append = dlsym(library, "precursor_append");
    *(void **)&close_ = dlsym(library, "precursor_close");
    *(void **)&defaults = dlsym(library, "precursor_options_default");
    static const uint8_t record[1000];
    for (uint32_t mode = PRECURSOR_RING; mode <= PRECURSOR_PLAIN; mode++) {
        precursor_options options;
        precursor *journal = NULL;
        char message[256] = "";
        defaults(&options, sizeof options);
        options.mode = mode;
        options.existing = PRECURSOR_REPLACE;
        if (open_(argv[2], &options, &journal, message, sizeof message))
            return fprintf(stderr, "mode %u: %s\n", mode, message), 1;
        for (int i = 0; i < 5000; i++)
            if (append(journal, record, sizeof record, NULL))
                return 2;
        if (close_(journal, message, sizeof message))
            return fprintf(stderr, "%s\n", message), 3;
    }
    dlclose(library);
    /* Runs the library's handlers of fork and of SIGBUS, which outlive dlclose. */
    pid_t child = fork();
    if (child == 0) {
        volatile char *gone = (char *)mmap(NULL, 4096, PROT_READ, MAP_SHARED, open("/proc/self/exe", O_RDONLY), 1 << 30);
        return gone[0];
    }
    int status = 0;
    if (waitpid(child, &status, 0) != child || !WIFSIGNALED(status) || WTERMSIG(status) != SIGBUS)
        return 4;
    usleep(50 * 1000);
    puts("unloaded");
    return 0;
}
