/* Included before the model's own code: the addresses where operations end, for a counter to find. No instruction is
 * added, so what is counted is what runs without it. */
#define MODEL_AFTER_OP(op) __asm__ volatile("1: .pushsection .marks, \"a\"\n.word 1b\n.popsection" : : : "memory")
