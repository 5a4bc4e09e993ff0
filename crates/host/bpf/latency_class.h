/* Latency classes: one per ns up to 7 ns, then 8 per power of two, so that the width of a class is at most 1/8 of the
 * value. SPDX-License-Identifier: GPL-2.0 OR MIT */
#ifndef FLATWATER_LATENCY_CLASS_H
#define FLATWATER_LATENCY_CLASS_H

#define CLASSES 512

static __always_inline u32 class_of(u64 ns)
{
	if (ns < 8)
		return ns;
	u32 exponent = 0;
	u64 rest = ns;
	if (rest >> 32) { exponent += 32; rest >>= 32; }
	if (rest >> 16) { exponent += 16; rest >>= 16; }
	if (rest >> 8) { exponent += 8; rest >>= 8; }
	if (rest >> 4) { exponent += 4; rest >>= 4; }
	if (rest >> 2) { exponent += 2; rest >>= 2; }
	if (rest >> 1) exponent += 1;
	return (exponent - 2) * 8 + ((ns >> (exponent - 3)) & 7);
}

#endif
