/* Listens at [::] before the device is open, with "only" as the argument for IPv6 alone; prints the address of the device. The declarations
   are those of rdma/rdma_cma.h, which the tests do not need. */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <string.h>

#include "check.h"

#define PORT_SPACE_TCP 0x106
#define OPTION_ID 0
#define OPTION_ID_AFONLY 2

int main(int count, char **arguments)
{
	void *library = dlopen("librdmacm.so.1", RTLD_NOW);
	CHECK(library);
	void *(*create_channel)(void) = dlsym(library, "rdma_create_event_channel");
	int (*create_id)(void *, void **, void *, int) = dlsym(library, "rdma_create_id");
	int (*set_option)(void *, int, int, void *, size_t) = dlsym(library, "rdma_set_option");
	int (*bind_address)(void *, struct sockaddr *) = dlsym(library, "rdma_bind_addr");
	int (*listen_at)(void *, int) = dlsym(library, "rdma_listen");
	void *id, *channel = create_channel();
	CHECK(channel && !create_id(channel, &id, NULL, PORT_SPACE_TCP));
	int only = 1;
	if (count == 2 && !strcmp(arguments[1], "only"))
		CHECK(!set_option(id, OPTION_ID, OPTION_ID_AFONLY, &only, sizeof only));
	struct sockaddr_in6 all = { .sin6_family = AF_INET6 };
	CHECK(!bind_address(id, (struct sockaddr *)&all) && !listen_at(id, 1));

	union ibv_gid gid;
	char text[INET6_ADDRSTRLEN];
	CHECK(!ibv_query_gid(opened(), 1, 0, &gid) && inet_ntop(AF_INET6, &gid, text, sizeof text));
	puts(text);
	return 0;
}
