/* The core's threads, waits, files and memory as instruments of the Performance Schema. */
#ifndef FERRITE_PSI_H
#define FERRITE_PSI_H

/* Before fe_engine_open(). Does nothing where the Performance Schema is off. */
void ferrite_observe_core();

#endif
