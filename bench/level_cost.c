/* The loops of level_cost.py. level_cost KIND COUNT FILE waits for a line, then prints ns per operation.
 * SPDX-License-Identifier: GPL-2.0 OR MIT */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/io_uring.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static double now(clockid_t clock)
{
	struct timespec at;
	clock_gettime(clock, &at);
	return at.tv_sec * 1e9 + at.tv_nsec;
}

/* Pins this process to one CPU. Most loops count CPU time, so other programs on that CPU hardly matter. */
static void pin(void)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET(sysconf(_SC_NPROCESSORS_ONLN) - 1, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		die("sched_setaffinity");
}

static double calls(long count)
{
	double start = now(CLOCK_THREAD_CPUTIME_ID);
	for (long i = 0; i < count; i++)
		syscall(SYS_getppid);
	return (now(CLOCK_THREAD_CPUTIME_ID) - start) / count;
}

static double writes(long count, const char *path)
{
	char record[220];
	int file = open(path, O_RDWR | O_CREAT, 0600);
	if (file < 0)
		die(path);
	memset(record, 'x', sizeof(record));
	double ns = 0;
	/* The first batch only brings the pages into the cache and is not counted. */
	for (long done = -20000; done < count; done += 20000) {
		double start = now(CLOCK_THREAD_CPUTIME_ID);
		for (long i = 0; i < 20000; i++)
			if (pwrite(file, record, sizeof(record), i * 220) != sizeof(record))
				die("pwrite");
		if (done >= 0)
			ns += now(CLOCK_THREAD_CPUTIME_ID) - start;
	}
	return ns / count;
}

static double cpu_of(int who)
{
	struct rusage used;
	getrusage(who, &used);
	return (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e9 + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e3;
}

/* Two processes exchange a byte. Counts the CPU time of both per context switch, with its wake-up. */
static double switches(long count)
{
	int to[2], fro[2];
	char byte = 0;
	if (pipe(to) || pipe(fro))
		die("pipe");
	double start = cpu_of(RUSAGE_SELF);
	pid_t child = fork();
	if (!child) {
		while (read(to[0], &byte, 1) == 1 && write(fro[1], &byte, 1) == 1 && byte != 'e')
			;
		_exit(0);
	}
	for (long i = 0; i < count; i++) {
		byte = i + 1 == count ? 'e' : 'x';
		if (write(to[1], &byte, 1) != 1 || read(fro[0], &byte, 1) != 1)
			die("pipe");
	}
	int status;
	waitpid(child, &status, 0);
	return (cpu_of(RUSAGE_SELF) - start + cpu_of(RUSAGE_CHILDREN)) / (2.0 * count);
}

/* Direct writes of 4 KiB, one at a time. Counts elapsed time, which includes interrupts and kernel workers. */
static double direct(long count, const char *path)
{
	void *page;
	int file = open(path, O_RDWR | O_CREAT | O_DIRECT, 0600);
	if (file < 0 || posix_memalign(&page, 4096, 4096))
		die(path);
	memset(page, 'x', 4096);
	if (posix_fallocate(file, 0, 64 << 20))
		die("posix_fallocate");
	double start = now(CLOCK_MONOTONIC);
	for (long i = 0; i < count; i++)
		if (pwrite(file, page, 4096, (i * 4096) & ((64 << 20) - 1)) != 4096)
			die("pwrite");
	return (now(CLOCK_MONOTONIC) - start) / count;
}

/* Buffered writes of 220 bytes through io_uring, one at a time. */
static double uring(long count, const char *path)
{
	struct io_uring_params params = {};
	int ring = syscall(SYS_io_uring_setup, 8, &params);
	if (ring < 0)
		die("io_uring_setup");
	size_t sq_bytes = params.sq_off.array + params.sq_entries * sizeof(unsigned);
	size_t cq_bytes = params.cq_off.cqes + params.cq_entries * sizeof(struct io_uring_cqe);
	char *sq = mmap(NULL, sq_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQ_RING);
	char *cq = mmap(NULL, cq_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_CQ_RING);
	struct io_uring_sqe *sqes = mmap(NULL, params.sq_entries * sizeof(*sqes), PROT_READ | PROT_WRITE,
					 MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQES);
	if (sq == MAP_FAILED || cq == MAP_FAILED || sqes == MAP_FAILED)
		die("mmap");
	unsigned *tail = (void *)(sq + params.sq_off.tail), mask = *(unsigned *)(sq + params.sq_off.ring_mask);
	unsigned *array = (void *)(sq + params.sq_off.array), *head = (void *)(cq + params.cq_off.head);
	char record[220];
	memset(record, 'x', sizeof(record));
	int file = open(path, O_RDWR | O_CREAT, 0600);
	if (file < 0)
		die(path);
	double ns = 0;
	for (long done = -20000; done < count; done += 20000) {
		double start = now(CLOCK_THREAD_CPUTIME_ID);
		for (long i = 0; i < 20000; i++) {
			unsigned at = *tail & mask;
			memset(&sqes[at], 0, sizeof(sqes[at]));
			sqes[at].opcode = IORING_OP_WRITE;
			sqes[at].fd = file;
			sqes[at].addr = (unsigned long)record;
			sqes[at].len = sizeof(record);
			sqes[at].off = i * 220;
			array[at] = at;
			__atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
			if (syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) != 1)
				die("io_uring_enter");
			__atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
		}
		if (done >= 0)
			ns += now(CLOCK_THREAD_CPUTIME_ID) - start;
	}
	return ns / count;
}

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	long count = atol(argv[2]);
	char line[16];
	pin();
	if (!fgets(line, sizeof(line), stdin))
		return 1;
	double ns = !strcmp(argv[1], "call") ? calls(count)
		    : !strcmp(argv[1], "write") ? writes(count, argv[3])
		    : !strcmp(argv[1], "switch") ? switches(count)
		    : !strcmp(argv[1], "io") ? direct(count, argv[3])
					     : uring(count, argv[3]);
	printf("%.1f\n", ns);
	return 0;
}
