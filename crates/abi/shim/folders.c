/* Functions that list or enter folders: opendir(), chdir(), scandir(), glob(). */

#include "shim.h"

#include <dirent.h>
#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

EXPORTED DIR *opendir(const char *path)
{
	struct place place;

	find_place(&place, path, "opendir");
	return NEXT(opendir)(place.path);
}

EXPORTED int chdir(const char *path)
{
	struct place place;

	find_place(&place, path, "chdir");
	return NEXT(chdir)(place.path);
}

#define SCANDIR(name, entry) \
	EXPORTED int name(const char *restrict path, struct entry ***restrict found, \
			  int (*selects)(const struct entry *), \
			  int (*compares)(const struct entry **, const struct entry **)) \
	{ \
		struct place place; \
		find_place(&place, path, #name); \
		return NEXT(name)(place.path, found, selects, compares); \
	}

SCANDIR(scandir, dirent)
SCANDIR(scandir64, dirent64)

/* The C library's glob() calls its internal functions to read folders, so GLOB_ALTDIRFUNC passes this library's instead. */
#define GLOB(name, structure, entry, status) \
	static struct entry *read_##name(void *folder) \
	{ \
		return read##entry##_of(folder); \
	} \
	EXPORTED int name(const char *restrict pattern, int flags, int (*failed)(const char *, int), \
			  structure *restrict found) \
	{ \
		if (may_be_ours(pattern) && !(flags & GLOB_ALTDIRFUNC)) { \
			flags |= GLOB_ALTDIRFUNC; \
			found->gl_opendir = open_folder; \
			found->gl_readdir = read_##name; \
			found->gl_closedir = close_folder; \
			found->gl_stat = stat##status; \
			found->gl_lstat = lstat##status; \
		} \
		return NEXT(name)(pattern, flags, failed, found); \
	}

static void *open_folder(const char *path)
{
	return opendir(path);
}

static void close_folder(void *folder)
{
	closedir(folder);
}

static struct dirent *readdirent_of(void *folder)
{
	return readdir(folder);
}

static struct dirent64 *readdirent64_of(void *folder)
{
	return readdir64(folder);
}

GLOB(glob, glob_t, dirent, )
GLOB(glob64, glob64_t, dirent64, 64)
