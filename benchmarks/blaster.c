/* blaster: sends prebuilt Kafka requests as fast as a broker answers them, so that the broker and
 * not the client is what is measured.
 *
 *   blaster PORT FRAMES CONNECTIONS DEPTH WARM_SECONDS SECONDS ERROR_AT MIN_ANSWER
 *
 * FRAMES is a file of whole requests, each with its four bytes of length. Connection c starts with
 * frame c * count / CONNECTIONS and goes round, with DEPTH requests in flight; so a file of one
 * frame repeats it, and a file of a thousand fetches walks through a log.
 * An answer counts as an error when the int16 at byte ERROR_AT (after the length; -1: do not look)
 * is not 0, or when it is shorter than MIN_ANSWER bytes.
 * Answers within WARM_SECONDS are not measured. The result is one line of JSON on stdout.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MAX_DEPTH 64
#define HEAD_BYTES 512 /* of every answer these are kept and looked at; the rest is thrown away */
#define BUCKETS 4000000u /* latencies in microseconds; the last bucket takes what is longer */

struct frame {
    const unsigned char *bytes;
    size_t size;
};

struct connection {
    int fd;
    size_t next_frame;
    size_t sent; /* of the frame that is being sent */
    int in_flight;
    int wants_write;
    uint64_t sent_at[MAX_DEPTH];
    unsigned first, last; /* of sent_at, as a ring */
    uint32_t answer_size; /* without the length itself; known once `got` is 4 */
    uint64_t got;         /* bytes of the answer with its length */
    unsigned char head[4 + HEAD_BYTES];
};

static struct frame *frames;
static size_t frame_count;
static int depth, poller, error_at, stopping, measuring;
static uint32_t min_answer;
static uint64_t requests, all_requests, request_bytes, answer_bytes, errors;
static uint32_t *latencies;

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint32_t big_endian_32(const unsigned char *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void load_frames(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) fail(path);
    fseek(file, 0, SEEK_END);
    size_t size = (size_t)ftell(file);
    rewind(file);
    unsigned char *bytes = malloc(size);
    if (!bytes || fread(bytes, 1, size, file) != size) fail(path);
    fclose(file);
    for (size_t at = 0; at < size;) {
        frames = realloc(frames, (frame_count + 1) * sizeof *frames);
        frames[frame_count].bytes = bytes + at;
        frames[frame_count].size = big_endian_32(bytes + at) + 4u;
        at += frames[frame_count++].size;
    }
}

static void watch(struct connection *c, int write_too) {
    if (c->wants_write == write_too) return;
    c->wants_write = write_too;
    struct epoll_event event = {.events = EPOLLIN | (write_too ? EPOLLOUT : 0), .data.ptr = c};
    epoll_ctl(poller, EPOLL_CTL_MOD, c->fd, &event);
}

static void send_more(struct connection *c) {
    while (c->sent || (!stopping && c->in_flight < depth)) {
        const struct frame *f = &frames[c->next_frame];
        if (!c->sent) {
            c->sent_at[c->last++ % MAX_DEPTH] = now_ns();
            c->in_flight++;
        }
        ssize_t n = send(c->fd, f->bytes + c->sent, f->size - c->sent, MSG_NOSIGNAL);
        if (n < 0) {
            if (errno != EAGAIN) fail("send");
            if (!c->sent) { /* nothing left yet: take the start back, it begins when it can */
                c->last--;
                c->in_flight--;
            }
            watch(c, 1);
            return;
        }
        c->sent += (size_t)n;
        if (c->sent == f->size) {
            c->sent = 0;
            c->next_frame = (c->next_frame + 1) % frame_count;
        }
    }
    watch(c, 0);
}

static void answered(struct connection *c) {
    uint64_t micros = (now_ns() - c->sent_at[c->first++ % MAX_DEPTH]) / 1000;
    c->in_flight--;
    all_requests++;
    int bad = c->answer_size < min_answer;
    if (error_at >= 0 && c->answer_size >= (uint32_t)error_at + 2)
        bad |= c->head[4 + error_at] != 0 || c->head[5 + error_at] != 0;
    errors += (uint64_t)bad;
    if (measuring) {
        requests++;
        answer_bytes += c->answer_size + 4u;
        /* Frames of one file are of one size, so the next one stands for the one just answered. */
        request_bytes += frames[c->next_frame].size;
        latencies[micros < BUCKETS ? micros : BUCKETS - 1]++;
    }
    c->got = 0;
}

static void receive(struct connection *c) {
    static unsigned char scratch[1 << 20];
    for (;;) {
        uint64_t end = c->got < 4 ? 4 : 4 + (uint64_t)c->answer_size;
        uint64_t kept = end < sizeof c->head ? end : sizeof c->head;
        ssize_t n;
        if (c->got < kept) {
            n = recv(c->fd, c->head + c->got, kept - c->got, 0);
        } else { /* MSG_TRUNC: the kernel drops the bytes instead of copying them */
            uint64_t left = end - c->got;
            n = recv(c->fd, scratch, left < sizeof scratch ? left : sizeof scratch, MSG_TRUNC);
        }
        if (n == 0) {
            fprintf(stderr, "the broker closed the connection\n");
            exit(1);
        }
        if (n < 0) {
            if (errno != EAGAIN) fail("recv");
            return;
        }
        c->got += (uint64_t)n;
        if (c->got == 4) c->answer_size = big_endian_32(c->head);
        if (c->got >= 4 && c->got == 4 + (uint64_t)c->answer_size) {
            answered(c);
            send_more(c);
            if (c->in_flight == 0) return;
        }
    }
}

static void connect_to(struct connection *c, int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&address, sizeof address)) fail("connect");
    int one = 1;
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    epoll_ctl(poller, EPOLL_CTL_ADD, c->fd, &event);
}

static unsigned percentile(double share) {
    uint64_t wanted = (uint64_t)((double)requests * share), seen = 0;
    for (unsigned i = 0; i < BUCKETS; i++) {
        seen += latencies[i];
        if (seen > wanted) return i;
    }
    return 0;
}

int main(int argc, char **argv) {
    if (argc != 9) {
        fprintf(stderr, "usage: blaster PORT FRAMES CONNECTIONS DEPTH WARM_SECONDS SECONDS "
                        "ERROR_AT MIN_ANSWER\n");
        return 2;
    }
    int port = atoi(argv[1]), count = atoi(argv[3]);
    double warm_s = atof(argv[5]), measured_s = atof(argv[6]);
    load_frames(argv[2]);
    depth = atoi(argv[4]) < MAX_DEPTH ? atoi(argv[4]) : MAX_DEPTH;
    error_at = atoi(argv[7]);
    min_answer = (uint32_t)atol(argv[8]);
    latencies = calloc(BUCKETS, sizeof *latencies);
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);

    poller = epoll_create1(0);
    struct connection *connections = calloc((size_t)count, sizeof *connections);
    for (int i = 0; i < count; i++) {
        connections[i].next_frame = (size_t)i * frame_count / (size_t)count;
        if ((size_t)count > frame_count) connections[i].next_frame = (size_t)i % frame_count;
        connect_to(&connections[i], port);
    }
    uint64_t measure_from = now_ns() + (uint64_t)(warm_s * 1e9), began = 0, ended = 0;
    uint64_t stop_at = measure_from + (uint64_t)(measured_s * 1e9);
    for (int i = 0; i < count; i++) send_more(&connections[i]);

    struct epoll_event events[512];
    while (!stopping) {
        int n = epoll_wait(poller, events, 512, 100);
        uint64_t t = now_ns();
        if (!measuring && t >= measure_from) measuring = 1, began = t;
        if (t >= stop_at) stopping = 1, ended = t;
        for (int i = 0; i < n && !stopping; i++) {
            if (events[i].events & EPOLLOUT) send_more(events[i].data.ptr);
            if (events[i].events & ~(uint32_t)EPOLLOUT) receive(events[i].data.ptr);
        }
    }
    double seconds = (double)(ended - began) / 1e9;
    printf("{\"requests_per_s\": %.1f, \"sent_mb_per_s\": %.2f, \"received_mb_per_s\": %.2f, "
           "\"p50_us\": %u, \"p99_us\": %u, \"errors\": %llu, \"requests\": %llu, "
           "\"all_requests\": %llu, \"seconds\": %.3f}\n",
           (double)requests / seconds, (double)request_bytes / seconds / 1e6,
           (double)answer_bytes / seconds / 1e6, percentile(0.5), percentile(0.99),
           (unsigned long long)errors, (unsigned long long)requests,
           (unsigned long long)all_requests, seconds);
    return 0;
}
