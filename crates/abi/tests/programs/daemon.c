/* A program that opens a channel for events, becomes a daemon as daemon(3) does, and then uses the channel. Prints the failed check. The
   declarations are those of rdma/rdma_cma.h, which the tests do not need. */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define PORT_SPACE_TCP 0x106

struct event {
	void *id, *listen_id;
	int event, status;
};

int main(void)
{
	void *library = dlopen("librdmacm.so.1", RTLD_NOW);
	CHECK(library);
	void *(*create_channel)(void) = dlsym(library, "rdma_create_event_channel");
	int (*create_id)(void *, void **, void *, int) = dlsym(library, "rdma_create_id");
	int (*resolve)(void *, struct sockaddr *, struct sockaddr *, int) = dlsym(library, "rdma_resolve_addr");
	int (*get_event)(void *, struct event **) = dlsym(library, "rdma_get_cm_event");
	void *channel = create_channel();
	CHECK(channel);
	pid_t child = fork();
	if (child) {
		int status;
		CHECK(waitpid(child, &status, 0) == child && status == 0);
		return 0;
	}
	void *id;
	CHECK(!create_id(channel, &id, NULL, PORT_SPACE_TCP));
	struct sockaddr_in peer = { .sin_family = AF_INET, .sin_port = htons(7000), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	CHECK(!resolve(id, NULL, (struct sockaddr *)&peer, 2000));
	alarm(10);
	struct event *event;
	CHECK(!get_event(channel, &event));
	CHECK(event->event == 0 && event->status == 0);
	_exit(0);
}
