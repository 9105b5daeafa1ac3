/* logins: logs in to a broker as often as it can, each time on a new TLS connection.
 *
 *   logins PORT MECHANISM SECONDS USER SECRET THREADS
 *
 * Each thread connects, sends SaslHandshake and SaslAuthenticate, and closes the connection. SECRET is
 * a password (SCRAM-SHA-256) or a token (OAUTHBEARER). The password is stretched once, as clients do
 * that remember it. The certificate is not checked. Prints how many logins there were.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <openssl/sha.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MOST 16384 /* bytes of a message */

struct connection {
    int fd;
    SSL *tls;
};

struct stretched {
    unsigned char salt[256];
    int salt_size, rounds;
    unsigned char key[32];
};

static SSL_CTX *context;
static int port;
static const char *mechanism, *user, *secret;
static uint64_t stop_at;

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void fail(const char *what) {
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static void open_connection(struct connection *c) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    struct timeval patience = {.tv_sec = 60};
    int one = 1;
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(c->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&address, sizeof address)) fail("connect");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    c->tls = SSL_new(context);
    SSL_set_fd(c->tls, c->fd);
    if (SSL_connect(c->tls) != 1) fail("the TLS handshake failed");
}

static void close_connection(struct connection *c) {
    struct linger reset = {.l_onoff = 1, .l_linger = 0}; /* or ports run out */
    SSL_free(c->tls);
    setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    close(c->fd);
}

static void put_32(unsigned char *at, uint32_t value) {
    value = htonl(value);
    memcpy(at, &value, 4);
}

static uint32_t get_32(const unsigned char *at) {
    uint32_t value;
    memcpy(&value, at, 4);
    return ntohl(value);
}

static void receive(struct connection *c, unsigned char *bytes, uint32_t size) {
    for (uint32_t got = 0; got < size;) {
        int n = SSL_read(c->tls, bytes + got, (int)(size - got));
        if (n <= 0) fail("the broker closed the connection during a login");
        got += (uint32_t)n;
    }
}

/* Sends a request in version 1; its answer goes to `answer`, without the size, and ends with a zero. */
static uint32_t ask(struct connection *c, int key, const void *body, uint32_t size,
                    unsigned char *answer) {
    static const unsigned char head[] = {0, 0, 0, 1, 0, 0, 0, 7, 0, 5, 'b', 'e', 'n', 'c', 'h'};
    unsigned char request[MOST];
    put_32(request, (uint32_t)sizeof head + size);
    memcpy(request + 4, head, sizeof head);
    request[5] = (unsigned char)key;
    memcpy(request + 4 + sizeof head, body, size);
    if (SSL_write(c->tls, request, (int)(4 + sizeof head + size)) <= 0) fail("cannot send");
    receive(c, answer, 4);
    size = get_32(answer);
    if (size >= MOST) fail("the answer is too large");
    receive(c, answer, size);
    answer[size] = 0;
    if (answer[4] || answer[5]) fail("the login was refused");
    return size;
}

/* Sends a token; the broker's goes to `answer` and ends with a zero. */
static void authenticate(struct connection *c, const char *token, size_t size, char *answer) {
    unsigned char body[MOST], got[MOST];
    put_32(body, (uint32_t)size);
    memcpy(body + 4, token, size);
    ask(c, 36, body, 4 + (uint32_t)size, got);
    int16_t text = (int16_t)(got[6] << 8 | got[7]);
    unsigned char *at = got + 8 + (text > 0 ? text : 0);
    uint32_t found = get_32(at);
    memcpy(answer, at + 4, found);
    answer[found] = 0;
}

static void hmac(const unsigned char *key, const char *text, size_t size, unsigned char *out) {
    HMAC(EVP_sha256(), key, SHA256_DIGEST_LENGTH, (const unsigned char *)text, size, out, NULL);
}

static void log_in_with_scram(struct connection *c, struct stretched *known) {
    unsigned char random[24], salt[256], client_key[32], stored_key[32], signature[32];
    char first[512], challenge[MOST], signed_text[MOST + 2048], final[2048], nonce[40];
    RAND_bytes(random, sizeof random);
    EVP_EncodeBlock((unsigned char *)nonce, random, sizeof random);
    int length = snprintf(first, sizeof first, "n,,n=%s,r=%s", user, nonce);
    authenticate(c, first, (size_t)length, challenge);
    char *salt_text = strstr(challenge, ",s="), *rounds_text = strstr(challenge, ",i=");
    if (!salt_text || !rounds_text || rounds_text - salt_text > 256) fail("no SCRAM challenge");
    int padding = rounds_text[-1] == '=' ? (rounds_text[-2] == '=' ? 2 : 1) : 0;
    int salt_size = (int)(rounds_text - salt_text - 3);
    salt_size = EVP_DecodeBlock(salt, (unsigned char *)salt_text + 3, salt_size) - padding;
    int rounds = atoi(rounds_text + 3);
    if (salt_size != known->salt_size || rounds != known->rounds ||
        memcmp(salt, known->salt, (size_t)salt_size)) {
        PKCS5_PBKDF2_HMAC(secret, (int)strlen(secret), salt, salt_size, rounds, EVP_sha256(), 32,
                          known->key);
        memcpy(known->salt, salt, (size_t)salt_size);
        known->salt_size = salt_size, known->rounds = rounds;
    }
    int end = snprintf(final, sizeof final, "c=biws,%.*s", (int)(salt_text - challenge), challenge);
    length = snprintf(signed_text, sizeof signed_text, "%s,%s,%s", first + 3, challenge, final);
    hmac(known->key, "Client Key", 10, client_key);
    SHA256(client_key, sizeof client_key, stored_key);
    hmac(stored_key, signed_text, (size_t)length, signature);
    for (int i = 0; i < 32; i++) signature[i] ^= client_key[i];
    memcpy(final + end, ",p=", 3);
    end += 3 + EVP_EncodeBlock((unsigned char *)final + end + 3, signature, sizeof signature);
    authenticate(c, final, (size_t)end, challenge);
    if (strncmp(challenge, "v=", 2)) fail("the broker did not prove that it knows the password");
}

static void *log_in_often(void *count) {
    struct stretched known = {.salt_size = -1};
    unsigned char name[64], answer[MOST];
    char token[MOST], refusal[MOST];
    size_t size = strlen(mechanism);
    name[0] = 0, name[1] = (unsigned char)size;
    memcpy(name + 2, mechanism, size);
    while (now_ns() < stop_at) {
        struct connection c;
        open_connection(&c);
        ask(&c, 17, name, 2 + (uint32_t)size, answer);
        if (!strcmp(mechanism, "OAUTHBEARER")) {
            int length = snprintf(token, sizeof token, "n,,\x01%s%s\x01\x01", "auth=Bearer ", secret);
            authenticate(&c, token, (size_t)length, refusal);
            if (*refusal) fail("the token was refused");
        } else {
            log_in_with_scram(&c, &known);
        }
        close_connection(&c);
        ++*(long *)count;
    }
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 7) fail("usage: logins PORT MECHANISM SECONDS USER SECRET THREADS");
    port = atoi(argv[1]), mechanism = argv[2], user = argv[4], secret = argv[5];
    stop_at = now_ns() + (uint64_t)(atof(argv[3]) * 1e9);
    int threads = atoi(argv[6]);
    context = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    pthread_t *thread = calloc((size_t)threads, sizeof *thread);
    long *counts = calloc((size_t)threads, 64), total = 0; /* a cache line each */
    for (int i = 0; i < threads; i++)
        pthread_create(&thread[i], NULL, log_in_often, counts + 8 * i);
    for (int i = 0; i < threads; i++) pthread_join(thread[i], NULL), total += counts[8 * i];
    printf("%ld\n", total);
    return 0;
}
