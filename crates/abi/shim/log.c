/* The record for `nichrome rdma doctor`: appends a line to the file that NICHROME_DOCTOR names for each call with a path of
   the device. */

#include "shim.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static void append(const char *file, const char *caller, const char *path)
{
	char line[1024];
	int log, length = snprintf(line, sizeof(line), "%d path %s %s\n", (int)getpid(), caller, path);

	if (length < 0 || (size_t)length >= sizeof(line))
		return;
	log = NEXT(open)(file, O_WRONLY | O_APPEND | O_CLOEXEC);
	if (log < 0)
		return;
	/* Errors are ignored. */
	(void)!write(log, line, length);
	close(log);
}

void record(const char *caller, const char *path)
{
	const char *file = getenv("NICHROME_DOCTOR");
	int error = errno;

	if (file)
		append(file, caller, path);
	errno = error;
}
