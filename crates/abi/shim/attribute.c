/* Attributes whose value differs between processes.

   Each process has its own address, so attributes that depend on the address cannot be files on disk. libibverbs.so.1
   returns the value, and opening the attribute returns a descriptor of a memfd with this value. An attribute opened relative
   to a descriptor of its folder is the file in `devices`, where GIDs are zero. */

#include "shim.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Defined by Nichrome's libibverbs.so.1: writes the value of nichrome0's attribute to `out` and returns its length in bytes,
   or -1 if the attribute is the same in all processes. */
typedef ssize_t value_of_attribute(const char *name, char *out, size_t size);

/* Returns the attribute's path below nichrome0's folder, or NULL if `path` is not in it. */
static const char *attribute_name(const char *path)
{
	static const char *const folders[] = {
		"/sys/class/infiniband/nichrome0",
		"/sys/devices/platform/nichrome.0/infiniband/nichrome0",
	};

	for (size_t i = 0; i < sizeof(folders) / sizeof(*folders); i++) {
		const char *name = below(path, folders[i]);
		if (name && *name)
			return name;
	}
	return NULL;
}

int open_attribute(const char *path, int flags)
{
	char value[128];
	const char *name = attribute_name(path);
	value_of_attribute *value_of;
	ssize_t length;
	int descriptor;

	if (!name || (flags & O_ACCMODE) != O_RDONLY)
		return -1;
	value_of = (value_of_attribute *)dlsym(RTLD_DEFAULT, "nichrome_attribute");
	length = value_of ? value_of(name, value, sizeof(value)) : -1;
	if (length < 0)
		return -1;
	descriptor = memfd_create("nichrome0", flags & O_CLOEXEC ? MFD_CLOEXEC : 0);
	if (descriptor < 0)
		return -1;
	if (pwrite(descriptor, value, length, 0) != length) {
		close(descriptor);
		return -1;
	}
	return descriptor;
}
