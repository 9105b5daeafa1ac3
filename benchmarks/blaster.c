/* blaster: sends prebuilt Kafka requests as fast as a broker answers them, so that the broker and
 * not the client is what is measured.
 *
 *   blaster PORT FRAMES CONNECTIONS DEPTH WARM_SECONDS SECONDS ERROR_AT MIN_ANSWER [TLS [ONCE]]
 *
 * FRAMES is a file of whole requests, each with its four bytes of length. Connection c starts with
 * frame c * count / CONNECTIONS and goes round, with DEPTH requests in flight; so a file of one
 * frame repeats it, and a file of a thousand fetches walks through a log.
 * An answer counts as an error when the int16 at byte ERROR_AT (after the length; -1: do not look)
 * is not 0, or when it is shorter than MIN_ANSWER bytes.
 * Answers within WARM_SECONDS are not measured. The result is one line of JSON on stdout.
 * With TLS = 1 connections are encrypted (built with -DWITH_TLS only); the certificate is not checked.
 * With ONCE = 1 each connection is closed after its first answer and opened again, without resumption.
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
#ifdef WITH_TLS
#include <openssl/ssl.h>
#endif

#define MAX_DEPTH 64
#define HEAD_BYTES 512 /* of every answer these are kept and looked at; the rest is thrown away */
#define MOST_SETUP_NS 30000000000u
#define BUCKETS 4000000u /* latencies in microseconds; the last bucket takes what is longer */

struct frame {
    const unsigned char *bytes;
    size_t size;
};

struct connection {
    int fd;
#ifdef WITH_TLS
    SSL *tls;
#endif
    int answered; /* whether it has been answered at least once */
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
static int server_port, once;
static int unanswered; /* connections that have had no answer yet */
#ifdef WITH_TLS
static SSL_CTX *tls_context;
#endif

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

/* As send and recv do it: -1 with EAGAIN where the socket has to be waited for. */
#ifdef WITH_TLS
static ssize_t tls_result(struct connection *c, int n) {
    if (n > 0) return n;
    switch (SSL_get_error(c->tls, n)) {
    case SSL_ERROR_WANT_READ:
        errno = EAGAIN;
        return -1;
    case SSL_ERROR_WANT_WRITE:
        watch(c, 1);
        errno = EAGAIN;
        return -1;
    case SSL_ERROR_ZERO_RETURN:
        return 0;
    default:
        errno = EPROTO;
        return -1;
    }
}
#endif

static ssize_t put(struct connection *c, const unsigned char *bytes, size_t size) {
#ifdef WITH_TLS
    if (c->tls) return tls_result(c, SSL_write(c->tls, bytes, size < 16384 ? (int)size : 16384));
#endif
    return send(c->fd, bytes, size, MSG_NOSIGNAL);
}

static ssize_t get(struct connection *c, unsigned char *bytes, size_t size, int flags) {
#ifdef WITH_TLS
    if (c->tls) return tls_result(c, SSL_read(c->tls, bytes, (int)size));
#endif
    return recv(c->fd, bytes, size, flags);
}

static void connect_to(struct connection *c);

static void connect_again(struct connection *c) {
#ifdef WITH_TLS
    if (c->tls) SSL_free(c->tls);
#endif
    struct linger reset = {.l_onoff = 1, .l_linger = 0}; /* or ports run out */
    setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    close(c->fd);
    c->wants_write = 0;
    connect_to(c);
}

static void send_more(struct connection *c) {
    while (c->sent || (!stopping && c->in_flight < depth)) {
        const struct frame *f = &frames[c->next_frame];
        if (!c->sent) {
            c->sent_at[c->last++ % MAX_DEPTH] = now_ns();
            c->in_flight++;
        }
        ssize_t n = put(c, f->bytes + c->sent, f->size - c->sent);
        if (n < 0) {
            if (errno != EAGAIN) fail("send");
            if (!c->sent) { /* nothing left yet: take the start back, it begins when it can */
                c->last--;
                c->in_flight--;
            }
#ifdef WITH_TLS
            if (c->tls) return; /* it waits for what OpenSSL needs */
#endif
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
    if (!c->answered) c->answered = 1, unanswered--;
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
            n = get(c, c->head + c->got, kept - c->got, 0);
        } else { /* MSG_TRUNC: the kernel drops the bytes instead of copying them */
            uint64_t left = end - c->got;
            n = get(c, scratch, left < sizeof scratch ? left : sizeof scratch, MSG_TRUNC);
        }
        if (n == 0) {
            fprintf(stderr, "the broker closed the connection\n");
            exit(1);
        }
        if (n < 0) {
            if (errno != EAGAIN) fail("recv");
#ifdef WITH_TLS
            if (c->tls && !c->in_flight && !stopping) send_more(c); /* the handshake went on */
#endif
            return;
        }
        c->got += (uint64_t)n;
        if (c->got == 4) c->answer_size = big_endian_32(c->head);
        if (c->got >= 4 && c->got == 4 + (uint64_t)c->answer_size) {
            answered(c);
            if (once) {
                if (!stopping) connect_again(c);
                return;
            }
            send_more(c);
            if (c->in_flight == 0) return;
        }
    }
}

static void connect_to(struct connection *c) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)server_port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&address, sizeof address)) fail("connect");
    int one = 1;
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    epoll_ctl(poller, EPOLL_CTL_ADD, c->fd, &event);
#ifdef WITH_TLS
    if (tls_context) {
        c->tls = SSL_new(tls_context);
        SSL_set_fd(c->tls, c->fd);
        SSL_set_connect_state(c->tls);
    }
#endif
    if (once) send_more(c);
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
    if (argc < 9 || argc > 11) {
        fprintf(stderr, "usage: blaster PORT FRAMES CONNECTIONS DEPTH WARM_SECONDS SECONDS "
                        "ERROR_AT MIN_ANSWER [TLS [ONCE]]\n");
        return 2;
    }
    int count = atoi(argv[3]);
    server_port = atoi(argv[1]);
    once = argc > 10 && atoi(argv[10]);
    if (argc > 9 && atoi(argv[9])) {
#ifdef WITH_TLS
        tls_context = SSL_CTX_new(TLS_client_method());
        SSL_CTX_set_session_cache_mode(tls_context, SSL_SESS_CACHE_OFF);
        SSL_CTX_set_mode(tls_context, SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
        SSL_CTX_set_read_ahead(tls_context, 1);
#else
        fprintf(stderr, "this blaster was built without TLS\n");
        return 2;
#endif
    }
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
        connect_to(&connections[i]);
    }
    uint64_t measure_from = 0, stop_at = 0, began = 0, ended = 0, first = now_ns();
    unanswered = count;
    for (int i = 0; i < count && !once; i++) send_more(&connections[i]);

    struct epoll_event events[512];
    while (!stopping) {
        int n = epoll_wait(poller, events, 512, 100);
        uint64_t t = now_ns();
        /* The warm-up begins when all have been answered: many handshakes take their time. */
        if (!measure_from && (unanswered <= 0 || t > first + MOST_SETUP_NS)) {
            measure_from = t + (uint64_t)(warm_s * 1e9);
            stop_at = measure_from + (uint64_t)(measured_s * 1e9);
        }
        if (measure_from && !measuring && t >= measure_from) measuring = 1, began = t;
        if (stop_at && t >= stop_at) stopping = 1, ended = t;
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
