/* What C99 has no word for. */
#ifndef DIAGMEM_COMPILER_H
#define DIAGMEM_COMPILER_H

#if defined(__GNUC__)
#define DIAGMEM_NOINLINE __attribute__((noinline))
#else
#define DIAGMEM_NOINLINE
#endif

#endif
