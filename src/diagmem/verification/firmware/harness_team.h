/* What every core calls: it runs the model, or takes the next row of its input, and says whether the run is
 * complete. */
#ifndef HARNESS_TEAM_H
#define HARNESS_TEAM_H

#include "model.h"

static inline int harness_run_on(void *arena, model_team *team, int core, int cores, const void *row) {
#ifdef MODEL_INPUT_0_ROWS
    return model_push_row_on(arena, team, core, cores, row);
#else
    (void)row;
    model_invoke_on(arena, team, core, cores);
    return 1;
#endif
}

#endif
