/* The loads of storms.py: storm KIND SECONDS DIRECTORY; prints the number of calls made.
 *   forks    10 000 children, 200 at once; each appends once to its own file and exits
 *   threads  5 000 threads, each repeatedly appends to one common file
 *   calls    reads of 4 KiB from the page cache on every CPU, as fast as possible
 * SPDX-License-Identifier: GPL-2.0 OR MIT */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double ends;
static int file;
static long made;

static double now(void)
{
	struct timespec at;
	clock_gettime(CLOCK_MONOTONIC, &at);
	return at.tv_sec + at.tv_nsec / 1e9;
}

static void *appends(void *arg)
{
	(void)arg;
	char record[220] = {0};
	struct timespec pause = {0, 200000000};
	while (now() < ends) {
		if (write(file, record, sizeof(record)) == sizeof(record))
			__sync_fetch_and_add(&made, 1);
		nanosleep(&pause, NULL);
	}
	return NULL;
}

static void *reads(void *arg)
{
	(void)arg;
	char page[4096];
	long done = 0;
	while (now() < ends)
		for (int i = 0; i < 1000; i++, done++)
			if (pread(file, page, sizeof(page), (done % 1024) * 4096) != sizeof(page))
				return NULL;
	__sync_fetch_and_add(&made, done);
	return NULL;
}

static void start(void *(*what)(void *), int threads)
{
	pthread_attr_t small;
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 65536);
	pthread_t *ids = calloc(threads, sizeof(*ids));
	for (int i = 0; i < threads; i++)
		if (pthread_create(&ids[i], &small, what, NULL)) {
			perror("pthread_create");
			exit(1);
		}
	for (int i = 0; i < threads; i++)
		pthread_join(ids[i], NULL);
}

static void forks(void)
{
	for (int child = 0; child < 10000; child++) {
		pid_t pid = fork();
		if (pid < 0) {
			perror("fork");
			exit(1);
		}
		if (!pid) {
			char name[32];
			sprintf(name, "f%d", child % 200);
			int own = open(name, O_WRONLY | O_CREAT | O_APPEND, 0600);
			_exit(own < 0 || write(own, name, sizeof(name)) != sizeof(name));
		}
		made++;
		if (child >= 200)
			wait(NULL);
	}
	while (wait(NULL) > 0)
		;
}

int main(int argc, char **argv)
{
	if (argc != 4 || chdir(argv[3]))
		return 2;
	char page[4096] = {0}, line[16];
	file = open("storm", O_RDWR | O_CREAT | (strcmp(argv[1], "calls") ? O_APPEND : 0), 0600);
	if (file < 0)
		return 2;
	for (int i = 0; i < 1024; i++)
		if (write(file, page, sizeof(page)) != sizeof(page))
			return 2;
	if (!fgets(line, sizeof(line), stdin))
		return 1;
	ends = now() + atof(argv[2]);
	if (!strcmp(argv[1], "forks"))
		forks();
	else if (!strcmp(argv[1], "threads"))
		start(appends, 5000);
	else
		start(reads, sysconf(_SC_NPROCESSORS_ONLN));
	printf("%ld\n", made);
	return 0;
}
