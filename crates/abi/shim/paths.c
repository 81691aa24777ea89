/* Recognises the device's paths and maps them to the folder `devices`.

   Paths of real devices below the same classes are not mapped. Listing a class shows nichrome0 only, the one device that
   libibverbs.so.1 opens. A real uverbs0 is hidden. */

#include "shim.h"

#include <stdio.h>
#include <string.h>

const char *below(const char *path, const char *prefix)
{
	size_t length = strlen(prefix);

	if (strncmp(path, prefix, length) != 0 || (path[length] != '/' && path[length] != '\0'))
		return NULL;
	path += length;
	while (*path == '/')
		path++;
	return path;
}

/* Returns true for the entries "." and "..". */
static bool is_folder_itself(const char *name)
{
	return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

static bool is_of_class(const char *path, const char *class, const char *device)
{
	const char *rest = below(path, class);

	return rest && (*rest == '\0' || is_folder_itself(rest) || below(rest, device) || below(rest, "abi_version"));
}

static bool is_entry(const char *path)
{
	const char *rest = below(path, "/dev/infiniband");

	return is_of_class(path, "/sys/class/infiniband", "nichrome0") ||
	       is_of_class(path, "/sys/class/infiniband_verbs", "uverbs0") ||
	       below(path, "/sys/devices/platform/nichrome.0") || (rest && (*rest == '\0' || is_folder_itself(rest)));
}

static bool is_character_device(const char *path)
{
	const char *rest = below(path, "/dev/infiniband");

	return rest && strcmp(rest, "uverbs0") == 0;
}

/* Not mapped: libibverbs.so.1 emulates librdmacm's device file. Recorded for `nichrome rdma doctor`. */
static bool is_connection_manager(const char *path)
{
	return below(path, "/dev/infiniband/rdma_cm") || below(path, "/sys/class/misc/rdma_cm");
}

/* Writes the path of the folder `devices` beside this library. Returns its length, or 0 if it is unknown or does not fit. */
static size_t root(char *buffer, size_t size)
{
	Dl_info library;
	const char *slash;
	int length;

	if (!dladdr((void *)root, &library) || !library.dli_fname)
		return 0;
	slash = strrchr(library.dli_fname, '/');
	if (!slash)
		return 0;
	length = snprintf(buffer, size, "%.*s/devices", (int)(slash - library.dli_fname), library.dli_fname);
	return length > 0 && (size_t)length < size ? (size_t)length : 0;
}

void find_place(struct place *place, const char *path, const char *caller)
{
	size_t length;

	place->kind = OTHER;
	place->path = path;
	if (!may_be_ours(path))
		return;
	if (is_connection_manager(path)) {
		record(caller, path);
	} else if (is_character_device(path)) {
		place->kind = CHARACTER;
		place->path = "/dev/null";
		record(caller, path);
	} else if (is_entry(path)) {
		length = root(place->buffer, sizeof(place->buffer));
		if (length == 0 || length + strlen(path) >= sizeof(place->buffer))
			return;
		strcpy(place->buffer + length, path);
		place->kind = ENTRY;
		place->path = place->buffer;
		record(caller, path);
	}
}

void show_as_root(char *path)
{
	char buffer[PATH_MAX], real[PATH_MAX];
	const char *prefix = buffer;
	size_t length = root(buffer, sizeof(buffer));

	if (length == 0)
		return;
	/* A resolved path contains the folder's real path. */
	if (NEXT(realpath)(buffer, real))
		prefix = real;
	length = strlen(prefix);
	if (strncmp(path, prefix, length) != 0 || (path[length] != '/' && path[length] != '\0'))
		return;
	memmove(path, path + length, strlen(path + length) + 1);
	if (path[0] == '\0')
		strcpy(path, "/");
}
