/* Looks for nichrome0 in /sys and /dev without libibverbs, also by paths that libnichrome-devices.so does not recognise.
   Prints the GID. */

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

/* Returns the first line of a file. */
static const char *line_of(const char *path)
{
	static char line[128];
	FILE *file = fopen(path, "r");

	if (!file || !fgets(line, sizeof(line), file))
		fail(path);
	fclose(file);
	return line;
}

/* Returns the only entry of a folder. */
static const char *entry_of(const char *path)
{
	static char name[NAME_MAX + 1];
	DIR *folder = opendir(path);
	struct dirent *entry;
	int entries = 0;

	if (!folder)
		fail(path);
	while ((entry = readdir(folder)))
		if (entry->d_name[0] != '.') {
			strcpy(name, entry->d_name);
			entries++;
		}
	closedir(folder);
	if (entries != 1)
		fail(path);
	return name;
}

int main(void)
{
	const char *uverbs = "/dev/../dev/infiniband/uverbs0";
	char path[PATH_MAX], byte;
	struct stat status;
	int file;

	if (stat(uverbs, &status) || !S_ISCHR(status.st_mode) || access(uverbs, R_OK | W_OK) || open(uverbs, O_RDWR) < 0)
		fail(uverbs);
	if (strcmp(entry_of("/sys/class/../class/infiniband"), "nichrome0") || strcmp(entry_of("/dev/./infiniband"), "uverbs0"))
		fail("the entries");
	if (strcmp(line_of("/sys/class/net/../infiniband_verbs/uverbs0/ibdev"), "nichrome0\n"))
		fail("ibdev");
	if (!realpath("/sys/class/infiniband/nichrome0/../..", path) || strcmp(path, "/sys/devices/platform/nichrome.0"))
		fail(path);
	/* The machine's own files are still there. */
	if (strcmp(line_of("/sys/class/net/lo/ifindex"), "1\n"))
		fail("lo");
	file = open("/dev/urandom", O_RDONLY);
	if (file < 0 || read(file, &byte, 1) != 1 || access("/dev/fd/0", F_OK) || access("/dev/shm", W_OK))
		fail("the other files in /dev");
	fputs(line_of("/sys/./class/infiniband/nichrome0/ports/1/gids/0"), stdout);
	return 0;
}
