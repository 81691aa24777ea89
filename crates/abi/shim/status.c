/* stat(), access(), getxattr() and their variants that take a path. */

#include "shim.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

/* The device numbers of uverbs0 (IB_UVERBS_MAJOR, IB_UVERBS_BASE_MINOR in Linux). */
enum { MAJOR = 231, MINOR = 192 };

/* Turns the status of /dev/null into that of uverbs0. */
static int shown(int result, const struct place *place, struct stat *status)
{
	if (result == 0 && place->kind == CHARACTER) {
		status->st_mode = S_IFCHR | 0666;
		status->st_rdev = makedev(MAJOR, MINOR);
	}
	return result;
}

/* struct stat64 is struct stat on 64-bit systems. */
#define STATUS(name, structure) \
	EXPORTED int name(const char *path, struct structure *status) \
	{ \
		struct place place; \
		find_place(&place, path, #name); \
		return shown(NEXT(name)(place.path, status), &place, (struct stat *)status); \
	}

STATUS(stat, stat)
STATUS(stat64, stat64)
STATUS(lstat, stat)
STATUS(lstat64, stat64)

#define STATUS_AT(name, structure) \
	EXPORTED int name(int folder, const char *path, struct structure *status, int flags) \
	{ \
		struct place place; \
		find_place(&place, path, #name); \
		return shown(NEXT(name)(folder, place.path, status, flags), &place, (struct stat *)status); \
	}

STATUS_AT(fstatat, stat)
STATUS_AT(fstatat64, stat64)

/* Programs linked with glibc before 2.33 import these. */
#define OLD_STATUS(name, current) \
	EXPORTED int name(int version, const char *path, struct stat *status); \
	EXPORTED int name(int version, const char *path, struct stat *status) \
	{ \
		(void)version; \
		return current(path, status); \
	}

OLD_STATUS(__xstat, stat)
OLD_STATUS(__xstat64, stat)
OLD_STATUS(__lxstat, lstat)
OLD_STATUS(__lxstat64, lstat)

#define OLD_STATUS_AT(name) \
	EXPORTED int name(int version, int folder, const char *path, struct stat *status, int flags); \
	EXPORTED int name(int version, int folder, const char *path, struct stat *status, int flags) \
	{ \
		(void)version; \
		return fstatat(folder, path, status, flags); \
	}

OLD_STATUS_AT(__fxstatat)
OLD_STATUS_AT(__fxstatat64)

EXPORTED int statx(int folder, const char *restrict path, int flags, unsigned int mask, struct statx *restrict status)
{
	struct place place;
	int result;

	find_place(&place, path, "statx");
	result = NEXT(statx)(folder, place.path, flags, mask, status);
	if (result == 0 && place.kind == CHARACTER) {
		status->stx_mode = S_IFCHR | 0666;
		status->stx_rdev_major = MAJOR;
		status->stx_rdev_minor = MINOR;
	}
	return result;
}

#define ACCESS(name) \
	EXPORTED int name(const char *path, int mode) \
	{ \
		struct place place; \
		find_place(&place, path, #name); \
		return NEXT(name)(place.path, mode); \
	}

ACCESS(access)
ACCESS(euidaccess)
ACCESS(eaccess)

/* ls -l reads access control lists. */
#define EXTENDED_ATTRIBUTE(name) \
	EXPORTED ssize_t name(const char *path, const char *attribute, void *value, size_t size) \
	{ \
		struct place place; \
		find_place(&place, path, #name); \
		return NEXT(name)(place.path, attribute, value, size); \
	}

EXTENDED_ATTRIBUTE(getxattr)
EXTENDED_ATTRIBUTE(lgetxattr)

EXPORTED int faccessat(int folder, const char *path, int mode, int flags)
{
	struct place place;

	find_place(&place, path, "faccessat");
	return NEXT(faccessat)(folder, place.path, mode, flags);
}
