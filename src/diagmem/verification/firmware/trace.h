/* Included before the model's own code: has each operation's outputs written down. */
void harness_after_op(int op);
#define MODEL_AFTER_OP(op) harness_after_op(op)
