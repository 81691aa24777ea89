/* libnichrome-devices.so: shows nichrome0 in /sys and /dev to the process that it is preloaded into.

   Programs look for RDMA devices in two ways: libibverbs lists them, and files in /sys/class/infiniband and
   /dev/infiniband describe them. UCX, NCCL and Mooncake do both. This library defines the functions of the C library that
   take a path, and replaces a path of the device by one in the folder `devices` beside the library, which has the same
   structure as /sys and /dev. All other paths and results are passed on as they are, at the cost of comparing four bytes.

   | file | concept |
   |---|---|
   | paths.c | which paths are the device's, and where they are |
   | attribute.c | attributes whose value depends on the process: GIDs, GUIDs, the network interface |
   | status.c, opening.c, links.c, folders.c | the functions of the C library, by what they do |
   | log.c | the record for `nichrome rdma doctor` |

   It is a library of its own, and not a part of libibverbs.so.1, because the symbols of libibverbs.so.1 have versions, while
   a symbol interposes on any version of another only if it has none. It is C because open() takes a variable number of
   arguments, which Rust cannot define, and because it must work before the C library and any runtime are initialised. It
   allocates nothing, has no constructor, keeps no state but the addresses of the functions behind its own, and needs no
   library but libc. */

#ifndef NICHROME_SHIM_H
#define NICHROME_SHIM_H

#include <dlfcn.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/types.h>

#define EXPORTED __attribute__((visibility("default")))

/* The definition of `name` behind this library's: the C library's, or that of another preloaded library. Threads may
   look it up at once; they find the same. */
#define NEXT(name) \
	({ \
		static void *address; \
		void *found = __atomic_load_n(&address, __ATOMIC_RELAXED); \
		if (!found) { \
			found = dlsym(RTLD_NEXT, #name); \
			__atomic_store_n(&address, found, __ATOMIC_RELAXED); \
		} \
		(__typeof__(&name))found; \
	})

/* What a path leads to. */
enum kind {
	OTHER,      /* nothing of the device: the path is used as it is */
	ENTRY,      /* a file or a folder below `devices` */
	CHARACTER,  /* /dev/infiniband/uverbs0: /dev/null with other numbers */
};

/* Where a path leads to. */
struct place {
	enum kind kind;
	const char *path;     /* the path to use */
	char room[1024];      /* longer paths are OTHER: signal handlers call these functions on small stacks */
};

/* Decides in four bytes that a path is not the device's. */
static inline bool may_be_ours(const char *path)
{
	return path && path[0] == '/' && ((path[1] == 's' && path[2] == 'y' && path[3] == 's') ||
					  (path[1] == 'd' && path[2] == 'e' && path[3] == 'v'));
}

/* Finds the place of a path for the function `caller`. */
void find_place(struct place *place, const char *path, const char *caller);

/* Replaces the folder `devices` at the beginning of a path by the root, in place. */
void show_as_root(char *path);

/* A descriptor of the attribute at `path`, if its value depends on the process; otherwise -1. */
int open_attribute(const char *path, int flags);

/* The part of a path below a prefix, without the slash, or NULL. The path that equals the prefix has the part "". */
const char *below(const char *path, const char *prefix);

/* Records that the program asked for a path of the device. */
void record(const char *caller, const char *path);

#endif
