/* Sends messages around a ring of MPI ranks, then puts, gets and adds in their windows. Prints the first wrong result. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST = 1 << 20, ROUNDS = 20, WORDS = 1024 };

static int rank, size;

static void expect(int condition, const char *what)
{
	if (!condition) {
		fprintf(stderr, "rank %d: wrong %s\n", rank, what);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
}

static void ring(void)
{
	unsigned char *sent = malloc(LONGEST), *received = malloc(LONGEST);
	int next = (rank + 1) % size, previous = (rank + size - 1) % size;

	for (size_t length = 1; length <= LONGEST; length *= 8) {
		for (int round = 0; round < ROUNDS; round++) {
			memset(sent, rank + round, length);
			memset(received, 0xEE, length);
			MPI_Sendrecv(sent, length, MPI_BYTE, next, 7, received, length, MPI_BYTE, previous, 7,
				     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			for (size_t i = 0; i < length; i++)
				expect(received[i] == (unsigned char)(previous + round), "message");
		}
	}
	free(sent);
	free(received);
}

static void windows(void)
{
	long *window, put[WORDS], got[WORDS], one = 1, before;
	int next = (rank + 1) % size, previous = (rank + size - 1) % size;
	MPI_Win handle;

	MPI_Win_allocate(WORDS * sizeof(long), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &window, &handle);
	for (int i = 0; i < WORDS; i++)
		put[i] = rank * 10000 + i;
	MPI_Win_fence(0, handle);
	MPI_Put(put, WORDS, MPI_LONG, next, 0, WORDS, MPI_LONG, handle);
	MPI_Win_fence(0, handle);
	for (int i = 0; i < WORDS; i++)
		expect(window[i] == previous * 10000 + i, "put");
	MPI_Get(got, WORDS, MPI_LONG, next, 0, WORDS, MPI_LONG, handle);
	MPI_Win_fence(0, handle);
	expect(memcmp(got, put, sizeof(put)) == 0, "get");
	window[0] = 0;
	MPI_Win_fence(0, handle);
	MPI_Fetch_and_op(&one, &before, MPI_LONG, 0, 0, MPI_SUM, handle);
	MPI_Win_fence(0, handle);
	expect(rank != 0 || window[0] == size, "sum");
	MPI_Win_free(&handle);
}

int main(int count, char **arguments)
{
	MPI_Init(&count, &arguments);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	ring();
	windows();
	MPI_Finalize();
	return 0;
}
