"""Replays a trace of page accesses with libCacheSim's CLOCK and LRU: beside.py TRACE CACHE_BYTES

`cargo bench --bench sim -- beside` calls this program and writes the trace (oracleGeneral: u32 time, u64 object, u32 size,
i64 next access, packed) from the stream of operations that the simulator performs. Needs the wheel `libcachesim` from PyPI.
Each cache runs three times on one thread, with libCacheSim's reader; the shortest time counts.
"""

import sys
import time

import libcachesim


def best_of_three(make, trace):
    best, missed = float("inf"), 0.0
    for _ in range(3):
        reader = libcachesim.TraceReader(trace, libcachesim.TraceType.ORACLE_GENERAL_TRACE)
        cache = make()
        began = time.perf_counter()
        missed, _ = cache.process_trace(reader)
        best = min(best, time.perf_counter() - began)
    return best, missed


def main():
    trace, cache_bytes = sys.argv[1], int(sys.argv[2])
    for name, kind in (("CLOCK", libcachesim.Clock), ("LRU", libcachesim.LRU)):
        seconds, missed = best_of_three(lambda: kind(cache_size=cache_bytes), trace)
        print(f"{name} {seconds:.6f} {missed:.6f}")


main()
