/* How a traced program speaks to valgrind_tool.c: which buffers to watch, and when an operation begins and ends. */
#ifndef DIAGMEM_VALGRIND_MARKS_H
#define DIAGMEM_VALGRIND_MARKS_H

#include <valgrind/valgrind.h>

enum {
    DIAGMEM_WATCH = VG_USERREQ_TOOL_BASE('D', 'M'), /* address, bytes: the next buffer of the traced space */
    DIAGMEM_START,                                  /* an operation begins */
    DIAGMEM_END                                     /* its number */
};

#define DIAGMEM_MARK(request, a, b) VALGRIND_DO_CLIENT_REQUEST_STMT(request, a, b, 0, 0, 0)

#endif
