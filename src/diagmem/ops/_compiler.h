/* What C99 has no word for. */
#ifndef DIAGMEM_COMPILER_H
#define DIAGMEM_COMPILER_H

#include <limits.h>

#if INT_MAX < 2147483647
#error the kernels need an int of 32 bits: they do not run on 8-bit and 16-bit processors such as AVR
#endif

#if defined(__GNUC__)
#define DIAGMEM_NOINLINE __attribute__((noinline))
#else
#define DIAGMEM_NOINLINE
#endif

#endif
