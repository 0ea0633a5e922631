/* Included before the code of a model that several cores run: with HARNESS_TRACE the first one has each operation's
 * outputs written down while the others wait. */
#ifdef HARNESS_TRACE
void harness_after_op(int op);
#define MODEL_AFTER_OP(op)                \
    do {                                  \
        MODEL_BARRIER(team, core, cores); \
        if (core == 0) {                  \
            harness_after_op(op);         \
        }                                 \
        MODEL_BARRIER(team, core, cores); \
    } while (0)
#endif
