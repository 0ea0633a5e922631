/* Included before the model's own code: what threads do at a barrier. */
#include "together.h"

void harness_delay(void);
void harness_relax(void);
#define MODEL_WAKE() harness_delay()
#define MODEL_RELAX() harness_relax()
