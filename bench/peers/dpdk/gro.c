/*
 * Nanoseconds per packet of DPDK's GRO in its lightweight mode (IPv4 TCP, bursts of 32) on a pcap file's frames.
 *
 * Usage: gro FILE. Prints one line of JSON. Runs on the core it was started on; needs no hugepages and no NIC.
 */
#define _GNU_SOURCE
#include <err.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_gro.h>
#include <rte_mbuf.h>
#include <rte_net.h>
#include <rte_version.h>

enum { BURST = 32, RUNS = 15, PACKETS_PER_RUN = 144000, MAX_FRAMES = 1 << 20 };

struct frame {
    const uint8_t *data;
    uint32_t len;
};

static struct frame frames[MAX_FRAMES];
static size_t frame_count;

static uint32_t le32(const uint8_t *p)
{
    return p[0] | p[1] << 8 | p[2] << 16 | (uint32_t)p[3] << 24;
}

/* Keeps the IPv4 frames of a little-endian classic pcap file with Ethernet frames. */
static void load(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        err(1, "%s", path);
    fseek(file, 0, SEEK_END);
    size_t size = ftell(file);
    rewind(file);
    uint8_t *bytes = malloc(size);
    if (!bytes || fread(bytes, 1, size, file) != size)
        err(1, "%s", path);
    fclose(file);

    uint32_t magic = size < 24 ? 0 : le32(bytes);
    if ((magic != 0xa1b2c3d4 && magic != 0xa1b23c4d) || le32(bytes + 20) != 1)
        errx(1, "%s: not a little-endian pcap file of Ethernet frames", path);

    for (size_t at = 24; size - at >= 16;) {
        uint32_t len = le32(bytes + at + 8);
        const uint8_t *data = bytes + at + 16;
        if (len > size - at - 16)
            errx(1, "%s: cut off", path);
        at += 16 + len;
        if (len < 34 || data[12] != 0x08 || data[13] != 0x00)
            continue;
        if (len > RTE_MBUF_DEFAULT_DATAROOM)
            errx(1, "%s: a frame of %u bytes does not fit an mbuf", path, len);
        if (frame_count == MAX_FRAMES)
            errx(1, "%s: more than %d frames", path, MAX_FRAMES);
        frames[frame_count++] = (struct frame){data, len};
    }
    if (!frame_count)
        errx(1, "%s: no IPv4 frames", path);
}

/* EAL pins this thread to one core and takes plain memory instead of hugepages. */
static void start_eal(void)
{
    char core[16];
    snprintf(core, sizeof core, "%d", sched_getcpu());
    char *args[] = {
        "gro", "-l", core, "-m", "256", "--no-huge", "--no-pci", "--no-shconf", "--no-telemetry",
        "--log-level=error",
    };
    if (rte_eal_init(RTE_DIM(args), args) < 0)
        errx(1, "EAL: %s", rte_strerror(rte_errno));
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * UINT64_C(1000000000) + t.tv_nsec;
}

static void fill(struct rte_mempool *pool, struct rte_mbuf **burst, const struct frame *from, uint16_t count)
{
    if (rte_pktmbuf_alloc_bulk(pool, burst, count))
        errx(1, "out of mbufs");
    for (uint16_t i = 0; i < count; i++)
        memcpy(rte_pktmbuf_append(burst[i], from[i].len), from[i].data, from[i].len);
}

/* What an application must do before GRO when the NIC does not parse, and the GRO itself. */
static uint16_t parse_and_merge(struct rte_mbuf **burst, uint16_t count)
{
    const struct rte_gro_param param = {
        .gro_types = RTE_GRO_TCP_IPV4,
        .max_flow_num = BURST,
        .max_item_per_flow = BURST,
    };
    for (uint16_t i = 0; i < count; i++) {
        struct rte_net_hdr_lens lens;
        burst[i]->packet_type = rte_net_get_ptype(burst[i], &lens, RTE_PTYPE_ALL_MASK);
        burst[i]->l2_len = lens.l2_len;
        burst[i]->l3_len = lens.l3_len;
        burst[i]->l4_len = lens.l4_len;
    }
    return rte_gro_reassemble_burst(burst, count, &param);
}

/* One pass over the file. Adds the packets that came out to *out and returns the timed nanoseconds. */
static uint64_t pass(struct rte_mempool *pool, size_t *out)
{
    uint64_t ns = 0;
    for (size_t at = 0; at < frame_count; at += BURST) {
        struct rte_mbuf *burst[BURST];
        uint16_t count = RTE_MIN((size_t)BURST, frame_count - at);
        fill(pool, burst, frames + at, count);

        uint64_t start = now_ns();
        uint16_t left = parse_and_merge(burst, count);
        ns += now_ns() - start;

        *out += left;
        rte_pktmbuf_free_bulk(burst, left);
    }
    return ns;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    if (argc != 2)
        errx(1, "usage: gro FILE");
    load(argv[1]);
    start_eal();
    struct rte_mempool *pool =
        rte_pktmbuf_pool_create("frames", 1023, 256, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
    if (!pool)
        errx(1, "mbuf pool: %s", rte_strerror(rte_errno));

    const size_t passes = RTE_MAX((size_t)1, PACKETS_PER_RUN / frame_count);
    size_t out = 0;
    for (size_t i = 0; i < passes; i++)
        pass(pool, &out);

    double per_packet[RUNS];
    for (int run = 0; run < RUNS; run++) {
        uint64_t ns = 0;
        for (size_t i = 0; i < passes; i++)
            ns += pass(pool, &out);
        per_packet[run] = (double)ns / ((double)passes * frame_count);
    }
    qsort(per_packet, RUNS, sizeof per_packet[0], by_value);

    printf("{\"peer\":\"dpdk\",\"version\":\"%s\",\"checksum\":false,\"ns_per_packet\":%.1f,"
           "\"packets_in\":%zu,\"packets_out\":%zu,\"runs\":%d}\n",
           rte_version() + strlen("DPDK "), per_packet[RUNS / 2], frame_count,
           out / ((RUNS + 1) * passes), RUNS);
    return 0;
}
