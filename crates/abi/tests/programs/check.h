/* Ends the program with the line and the text of a condition that does not hold. */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(what) do { if (!(what)) { fprintf(stderr, "line %d: %s\n", __LINE__, #what); exit(1); } } while (0)
