/* Runs the model on several threads at once, as if each were a core. Threads that have come to a barrier go on late now
 * and then, each time others: what may happen on cores of any speed happens here sooner. */
#define _POSIX_C_SOURCE 200112L

#include "threads.h"

#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include "harness.h"
#include "harness_team.h"

enum { LONGEST_NANOSECONDS = 200000 };

static model_team team;
static void *arena;
static const void *row;
static int is_complete[HARNESS_CORES];
static uint32_t runs;
static __thread uint32_t dice;
static __thread int own_core;

void harness_relax(void) { sched_yield(); }

void harness_delay(void) {
    dice = dice * 1664525u + 1013904223u;
    const int is_late = (int)(runs % (HARNESS_CORES + 1)) == own_core; /* in each run another core, or none */
    if (is_late || dice >> 29 == 0) {
        const struct timespec pause = {0, (long)(dice >> 8) % LONGEST_NANOSECONDS};
        nanosleep(&pause, NULL);
    }
}

static void *run(void *number) {
    own_core = (int)(intptr_t)number;
    dice = runs * 7919u + (uint32_t)own_core;
    is_complete[own_core] = harness_run_on(arena, &team, own_core, HARNESS_CORES, own_core == 0 ? row : NULL);
    return NULL;
}

int harness_together(void *given, const void *given_row) {
    pthread_t threads[HARNESS_CORES];
    arena = given;
    row = given_row;
    ++runs;
    for (int core = 1; core < HARNESS_CORES; ++core) {
        if (pthread_create(&threads[core], NULL, run, (void *)(intptr_t)core) != 0) {
            exit(1);
        }
    }
    run((void *)0);
    for (int core = 1; core < HARNESS_CORES; ++core) {
        pthread_join(threads[core], NULL);
        if (is_complete[core] != is_complete[0]) {
            exit(1);
        }
    }
    return is_complete[0];
}
