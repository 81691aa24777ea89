/* libnichrome-devices.so: shows nichrome0 in /sys and /dev to the process that it is preloaded into.

   Programs find RDMA devices in two ways: through libibverbs, and through files in /sys/class/infiniband and
   /dev/infiniband. UCX, NCCL and Mooncake use both. This library defines the C library's functions that take a path. It
   replaces a path of the device by one in the folder `devices` beside the library, which has the structure of /sys and /dev.
   All other paths and results pass unchanged, at the cost of comparing four bytes.

   | file | concept |
   |---|---|
   | paths.c | recognises the device's paths and maps them to `devices` |
   | attribute.c | attributes whose value differs between processes: GIDs, GUIDs, the network interface |
   | status.c, opening.c, links.c, folders.c | the C library's functions, by purpose |
   | log.c | the record for `nichrome rdma doctor` |

   It is separate from libibverbs.so.1, whose symbols have versions: only a symbol without a version interposes on every
   version of another. It is C because open() takes a variable number of arguments, which Rust cannot define, and because it
   must work before the C library and any runtime are initialised. It allocates nothing itself, has no constructor, keeps no
   state but the addresses of the functions that it interposes on, and needs no library but libc. */

#ifndef NICHROME_SHIM_H
#define NICHROME_SHIM_H

#include <dlfcn.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/types.h>

#define EXPORTED __attribute__((visibility("default")))

/* The next definition of `name`: the C library's, or that of a library preloaded after this one. Threads may race to look it
   up; all find the same address. */
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

/* Kinds of paths. */
enum kind {
	OTHER,      /* not the device's: used unchanged */
	ENTRY,      /* a file or folder in `devices` */
	CHARACTER,  /* /dev/infiniband/uverbs0: /dev/null with other device numbers */
};

/* A path of the program and the path that replaces it. */
struct place {
	enum kind kind;
	const char *path;     /* the path to use */
	char buffer[1024];      /* longer paths are OTHER: signal handlers call these functions on small stacks */
};

/* Returns false if the first four bytes of a path show that it is not the device's. */
static inline bool may_be_ours(const char *path)
{
	return path && path[0] == '/' && ((path[1] == 's' && path[2] == 'y' && path[3] == 's') ||
					  (path[1] == 'd' && path[2] == 'e' && path[3] == 'v'));
}

/* Maps a path, and records it if it is the device's. `caller` is the C library's function that the program called. */
void find_place(struct place *place, const char *path, const char *caller);

/* Removes the folder `devices` from the start of a path, in place. */
void show_as_root(char *path);

/* Opens the attribute at `path`. Returns -1 if its value is the same in all processes, or `flags` do not only read. */
int open_attribute(const char *path, int flags);

/* Returns the part of a path below a folder, without the leading slash: "" for the folder itself, NULL for other paths. */
const char *below(const char *path, const char *prefix);

/* Appends a call with a path of the device to the record of `nichrome rdma doctor`, if there is one. */
void record(const char *caller, const char *path);

#endif
