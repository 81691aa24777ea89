/* Looks the device up with every C library function that takes a path, and prints those that fail. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define DEVICE "/dev/infiniband/uverbs0"
#define TYPE "/sys/class/infiniband/nichrome0/node_type"
#define GID "/sys/class/infiniband/nichrome0/ports/1/gids/0"
#define LINK "/sys/class/infiniband/nichrome0"
#define PARENT "/sys/devices/platform/nichrome.0"

static int failures;

#define EXPECT(condition) \
	do { \
		if (!(condition)) { \
			printf("line %d: %s (%s)\n", __LINE__, #condition, strerror(errno)); \
			failures++; \
		} \
	} while (0)

static int is_device(mode_t mode, unsigned major_number, unsigned minor_number)
{
	return mode == (S_IFCHR | 0666) && major_number == 231 && minor_number == 192;
}

#define IS_DEVICE(status) is_device((status).st_mode, major((status).st_rdev), minor((status).st_rdev))

static void status(void)
{
	struct stat s;
	struct stat64 l;
	struct statx x;
	int (*old)(int, const char *, struct stat *);
	int (*old_at)(int, int, const char *, struct stat *, int);

	EXPECT(stat(DEVICE, &s) == 0 && IS_DEVICE(s));
	EXPECT(lstat(DEVICE, &s) == 0 && IS_DEVICE(s));
	EXPECT(fstatat(AT_FDCWD, DEVICE, &s, 0) == 0 && IS_DEVICE(s));
	EXPECT(stat64(DEVICE, &l) == 0 && IS_DEVICE(l));
	EXPECT(lstat64(DEVICE, &l) == 0 && IS_DEVICE(l));
	EXPECT(fstatat64(AT_FDCWD, DEVICE, &l, AT_SYMLINK_NOFOLLOW) == 0 && IS_DEVICE(l));
	EXPECT(statx(AT_FDCWD, DEVICE, 0, STATX_ALL, &x) == 0 &&
	       is_device(x.stx_mode, x.stx_rdev_major, x.stx_rdev_minor));
	for (const char **name = (const char *[]){"__xstat", "__xstat64", "__lxstat", "__lxstat64", NULL}; *name; name++) {
		old = (int (*)(int, const char *, struct stat *))dlsym(RTLD_DEFAULT, *name);
		EXPECT(old && old(1, DEVICE, &s) == 0 && IS_DEVICE(s));
	}
	for (const char **name = (const char *[]){"__fxstatat", "__fxstatat64", NULL}; *name; name++) {
		old_at = (int (*)(int, int, const char *, struct stat *, int))dlsym(RTLD_DEFAULT, *name);
		EXPECT(old_at && old_at(1, AT_FDCWD, DEVICE, &s, 0) == 0 && IS_DEVICE(s));
	}
	EXPECT(stat(LINK, &s) == 0 && S_ISDIR(s.st_mode));
	EXPECT(lstat(LINK, &s) == 0 && S_ISLNK(s.st_mode));
	EXPECT(stat("/sys/class/infiniband/absent", &s) == -1 && errno == ENOENT);
	EXPECT(stat("/sys/class/infiniband_other", &s) == -1 && errno == ENOENT);
	EXPECT(stat("/dev/null", &s) == 0 && major(s.st_rdev) == 1 && minor(s.st_rdev) == 3);
	EXPECT(access(DEVICE, R_OK | W_OK) == 0 && access(TYPE, R_OK) == 0);
	EXPECT(euidaccess(DEVICE, R_OK | W_OK) == 0 && eaccess(DEVICE, R_OK | W_OK) == 0);
	EXPECT(faccessat(AT_FDCWD, DEVICE, R_OK | W_OK, 0) == 0);
}

static int reads(int descriptor, const char *expected)
{
	char text[64];
	ssize_t length = read(descriptor, text, sizeof(text) - 1);

	close(descriptor);
	if (length < 0)
		return 0;
	text[length] = '\0';
	return strcmp(text, expected) == 0;
}

static int stream_reads(FILE *stream, const char *expected)
{
	char text[64] = "";
	int same = stream && fgets(text, sizeof(text), stream) && strcmp(text, expected) == 0;

	if (stream)
		fclose(stream);
	return same;
}

/* The GID of NICHROME_IP=127.0.0.9. */
#define ADDRESS "0000:0000:0000:0000:0000:ffff:7f00:0009\n"

static void opening(void)
{
	/* Flags unknown at compile time: a fortified build calls the checked functions. */
	volatile int flags = O_RDONLY;
	int descriptor;
	char file[] = "/tmp/nichrome-test-XXXXXX";
	struct stat s;

	EXPECT(reads(open(TYPE, flags), "1: CA\n"));
	EXPECT(reads(open64(TYPE, flags), "1: CA\n"));
	EXPECT(reads(openat(AT_FDCWD, TYPE, flags), "1: CA\n"));
	EXPECT(reads(openat64(AT_FDCWD, TYPE, flags), "1: CA\n"));
	EXPECT(reads(open(GID, flags), ADDRESS));
	EXPECT(reads(open64(GID, flags | O_CLOEXEC), ADDRESS));
	EXPECT(reads(openat(AT_FDCWD, GID, flags), ADDRESS));
	EXPECT(stream_reads(fopen(TYPE, "r"), "1: CA\n"));
	EXPECT(stream_reads(fopen64(TYPE, "r"), "1: CA\n"));
	EXPECT(stream_reads(fopen(GID, "re"), ADDRESS));
	EXPECT(stream_reads(freopen(TYPE, "r", fopen("/dev/null", "r")), "1: CA\n"));
	EXPECT(stream_reads(freopen64(GID, "r", fopen("/dev/null", "r")), ADDRESS));
	EXPECT(fopen("/sys/class/infiniband/nichrome0/absent", "r") == NULL && errno == ENOENT);

	descriptor = open(DEVICE, O_RDWR | O_CLOEXEC);
	EXPECT(descriptor >= 0 && write(descriptor, "x", 1) == 1);
	close(descriptor);

	/* A file that is not the device's is created with its mode. */
	descriptor = mkstemp(file);
	close(descriptor);
	unlink(file);
	descriptor = open(file, O_CREAT | O_WRONLY | O_EXCL, 0640);
	EXPECT(descriptor >= 0 && fstat(descriptor, &s) == 0 && (s.st_mode & 0777) == 0640);
	close(descriptor);
	unlink(file);
}

static void links(void)
{
	char room[PATH_MAX];
	char *allocated;
	volatile size_t size = sizeof(room);

	EXPECT(realpath(LINK "/../..", room) && strcmp(room, PARENT) == 0);
	EXPECT(access(room, R_OK) == 0);
	EXPECT(realpath(DEVICE, room) && strcmp(room, DEVICE) == 0);
	allocated = realpath(LINK "/device", NULL);
	EXPECT(allocated && strcmp(allocated, PARENT) == 0);
	free(allocated);
	allocated = canonicalize_file_name(LINK);
	EXPECT(allocated && strcmp(allocated, PARENT "/infiniband/nichrome0") == 0);
	free(allocated);
	EXPECT(realpath("/usr/bin/../bin", room) && strcmp(room, "/usr/bin") == 0);
	memset(room, 0, sizeof(room));
	EXPECT(readlink(LINK, room, size - 1) > 0);
	EXPECT(strcmp(room, "../../devices/platform/nichrome.0/infiniband/nichrome0") == 0);
	memset(room, 0, sizeof(room));
	EXPECT(readlinkat(AT_FDCWD, LINK "/device", room, size - 1) > 0 && strcmp(room, "../../../nichrome.0") == 0);
	EXPECT(readlink(DEVICE, room, size) == -1 && errno == EINVAL);
}

static int has(DIR *folder, const char *name)
{
	struct dirent *entry;
	int found = 0;

	if (!folder)
		return 0;
	while ((entry = readdir(folder)))
		found |= strcmp(entry->d_name, name) == 0;
	closedir(folder);
	return found;
}

static int is_visible(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

static void folders(void)
{
	struct dirent **entries;
	glob_t found;
	char room[PATH_MAX];
	DIR *folder = opendir("/sys/class/infiniband");
	struct stat s;

	EXPECT(folder && fstatat(dirfd(folder), "nichrome0/ports/1/state", &s, 0) == 0);
	EXPECT(has(folder, "nichrome0"));
	EXPECT(has(opendir("/sys/class/infiniband/"), "nichrome0"));
	EXPECT(has(opendir("/sys/class/infiniband_verbs"), "uverbs0"));
	EXPECT(has(opendir("/dev/infiniband"), "uverbs0"));
	EXPECT(has(fdopendir(open("/dev/infiniband", O_RDONLY | O_DIRECTORY)), "uverbs0"));
	EXPECT(has(opendir("/dev"), "null"));
	EXPECT(scandir("/sys/class/infiniband", &entries, is_visible, alphasort) == 1 &&
	       strcmp(entries[0]->d_name, "nichrome0") == 0);
	EXPECT(glob("/sys/class/infiniband/*/ports/*/gids/*", 0, NULL, &found) == 0 && found.gl_pathc == 4 &&
	       strcmp(found.gl_pathv[0], GID) == 0);
	globfree(&found);
	EXPECT(glob("/usr/b[i]n", 0, NULL, &found) == 0 && found.gl_pathc == 1);
	globfree(&found);
	EXPECT(glob("/sys/kerne[l]", 0, NULL, &found) == 0 && found.gl_pathc == 1);
	globfree(&found);
	EXPECT(chdir("/sys/class/infiniband/nichrome0") == 0 && access("ports/1/rate", R_OK) == 0);
	EXPECT(chdir("/") == 0 && getcwd(room, sizeof(room)) && strcmp(room, "/") == 0);
}

int main(void)
{
	status();
	opening();
	links();
	folders();
	return failures > 0;
}
