/* realpath(), readlink() and their variants. Results are paths in /sys and /dev, not in `devices`. */

#include "shim.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

char *__realpath_chk(const char *path, char *resolved, size_t size);
ssize_t __readlink_chk(const char *path, char *out, size_t length, size_t size);
ssize_t __readlinkat_chk(int folder, const char *path, char *out, size_t length, size_t size);

/* Converts the resolved path of `place` to the path that the program sees, in place. */
static char *shown(char *resolved, const struct place *place)
{
	if (!resolved)
		return NULL;
	if (place->kind == CHARACTER)
		/* Overwrites "/dev/null". It fits: the buffer has PATH_MAX bytes, whether the C library or the program
		   allocates it. */
		return strcpy(resolved, "/dev/infiniband/uverbs0");
	if (place->kind == ENTRY)
		show_as_root(resolved);
	return resolved;
}

/* Returns the resolved path in allocated memory, which the program frees. */
static char *resolve_allocated(const struct place *place)
{
	char out[PATH_MAX];

	if (!NEXT(realpath)(place->path, out))
		return NULL;
	return strdup(shown(out, place));
}

EXPORTED char *realpath(const char *restrict path, char *restrict resolved)
{
	struct place place;

	find_place(&place, path, "realpath");
	if (place.kind != OTHER && !resolved)
		return resolve_allocated(&place);
	return shown(NEXT(realpath)(place.path, resolved), &place);
}

EXPORTED char *__realpath_chk(const char *path, char *resolved, size_t size)
{
	struct place place;

	find_place(&place, path, "__realpath_chk");
	if (place.kind != OTHER && !resolved)
		return resolve_allocated(&place);
	return shown(NEXT(__realpath_chk)(place.path, resolved, size), &place);
}

EXPORTED char *canonicalize_file_name(const char *path)
{
	struct place place;

	find_place(&place, path, "canonicalize_file_name");
	if (place.kind != OTHER)
		return resolve_allocated(&place);
	return NEXT(canonicalize_file_name)(path);
}

/* Links in `devices` are relative, as in /sys, so their targets need no conversion. */
EXPORTED ssize_t readlink(const char *restrict path, char *restrict out, size_t length)
{
	struct place place;

	find_place(&place, path, "readlink");
	return NEXT(readlink)(place.path, out, length);
}

EXPORTED ssize_t readlinkat(int folder, const char *restrict path, char *restrict out, size_t length)
{
	struct place place;

	find_place(&place, path, "readlinkat");
	return NEXT(readlinkat)(folder, place.path, out, length);
}

EXPORTED ssize_t __readlink_chk(const char *path, char *out, size_t length, size_t size)
{
	struct place place;

	find_place(&place, path, "__readlink_chk");
	return NEXT(__readlink_chk)(place.path, out, length, size);
}

EXPORTED ssize_t __readlinkat_chk(int folder, const char *path, char *out, size_t length, size_t size)
{
	struct place place;

	find_place(&place, path, "__readlinkat_chk");
	return NEXT(__readlinkat_chk)(folder, place.path, out, length, size);
}
