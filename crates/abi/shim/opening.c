/* open(), fopen() and their variants. */

#include "shim.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The headers declare these only with _FORTIFY_SOURCE. */
int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);
int __openat_2(int folder, const char *path, int flags);
int __openat64_2(int folder, const char *path, int flags);

/* Returns true if the flags require a mode argument. */
static bool has_mode(int flags)
{
	return (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE;
}

/* The optional mode argument of a function whose last named argument is `flags`; 0 if there is none. */
#define MODE(flags) \
	({ \
		mode_t given = 0; \
		if (has_mode(flags)) { \
			va_list arguments; \
			va_start(arguments, flags); \
			given = va_arg(arguments, mode_t); \
			va_end(arguments); \
		} \
		given; \
	})

/* If the value at `path` differs between processes, returns its descriptor from the calling function. */
#define RETURN_ATTRIBUTE(place, path, flags) \
	do { \
		int attribute = (place).kind == ENTRY ? open_attribute(path, flags) : -1; \
		if (attribute >= 0) \
			return attribute; \
	} while (0)

#define OPEN(name) \
	EXPORTED int name(const char *path, int flags, ...) \
	{ \
		mode_t mode = MODE(flags); \
		struct place place; \
		find_place(&place, path, #name); \
		RETURN_ATTRIBUTE(place, path, flags); \
		return NEXT(name)(place.path, flags, mode); \
	}

OPEN(open)
OPEN(open64)

#define OPEN_AT(name) \
	EXPORTED int name(int folder, const char *path, int flags, ...) \
	{ \
		mode_t mode = MODE(flags); \
		struct place place; \
		find_place(&place, path, #name); \
		RETURN_ATTRIBUTE(place, path, flags); \
		return NEXT(name)(folder, place.path, flags, mode); \
	}

OPEN_AT(openat)
OPEN_AT(openat64)

#define CHECKED_OPEN(name) \
	EXPORTED int name(const char *path, int flags) \
	{ \
		struct place place; \
		find_place(&place, path, #name); \
		RETURN_ATTRIBUTE(place, path, flags); \
		return NEXT(name)(place.path, flags); \
	}

CHECKED_OPEN(__open_2)
CHECKED_OPEN(__open64_2)

#define CHECKED_OPEN_AT(name) \
	EXPORTED int name(int folder, const char *path, int flags) \
	{ \
		struct place place; \
		find_place(&place, path, #name); \
		RETURN_ATTRIBUTE(place, path, flags); \
		return NEXT(name)(folder, place.path, flags); \
	}

CHECKED_OPEN_AT(__openat_2)
CHECKED_OPEN_AT(__openat64_2)

/* Opens a stream of an attribute whose value differs between processes; NULL for other paths. */
static FILE *attribute_stream(const struct place *place, const char *path, const char *mode)
{
	int descriptor = -1;
	FILE *stream;

	if (place->kind == ENTRY && mode[0] == 'r' && !strchr(mode, '+'))
		descriptor = open_attribute(path, strchr(mode, 'e') ? O_CLOEXEC : 0);
	if (descriptor < 0)
		return NULL;
	stream = fdopen(descriptor, mode);
	if (!stream)
		close(descriptor);
	return stream;
}

#define FOPEN(name) \
	EXPORTED FILE *name(const char *restrict path, const char *restrict mode) \
	{ \
		struct place place; \
		FILE *attribute; \
		find_place(&place, path, #name); \
		attribute = attribute_stream(&place, path, mode); \
		return attribute ? attribute : NEXT(name)(place.path, mode); \
	}

FOPEN(fopen)
FOPEN(fopen64)

/* An attribute whose value differs between processes is reopened as /proc/self/fd/N of its memfd. */
#define FREOPEN(name) \
	EXPORTED FILE *name(const char *restrict path, const char *restrict mode, FILE *restrict stream) \
	{ \
		struct place place; \
		char link[32]; \
		FILE *result; \
		int attribute; \
		find_place(&place, path, #name); \
		attribute = place.kind == ENTRY && mode[0] == 'r' ? open_attribute(path, O_CLOEXEC) : -1; \
		if (attribute < 0) \
			return NEXT(name)(place.path, mode, stream); \
		snprintf(link, sizeof(link), "/proc/self/fd/%d", attribute); \
		result = NEXT(name)(link, mode, stream); \
		close(attribute); \
		return result; \
	}

FREOPEN(freopen)
FREOPEN(freopen64)
