/* Messages over TCP links of our own, one between each two ranks. They meet at
 * MASTER_ADDR:MASTER_PORT, where rank 0 hears each of the others and tells them where all
 * listen; the link between two is then made by the higher one. */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "base/diag.h"
#include "runtime/comm.h"
#include "runtime/profile.h"

enum { HELLO = 0x73746570 /* "step" */, BACKLOG = 1024 };

typedef struct Hello { /* what a rank says first on a link */
    uint32_t magic, rank, size;
    uint16_t port, pad; /* where it listens, network order */
} Hello;

typedef struct Address { /* where a rank listens */
    struct sockaddr_storage at;
    socklen_t length, pad;
} Address;

typedef struct Guest { /* somebody who has come, and may be a rank */
    int fd;
    struct sockaddr_storage from;
    Hello hello; /* of which there are `have` bytes */
    size_t have;
} Guest;

typedef struct Hall { /* those who have not said who they are, by when they came */
    int listener;
    Guest *guests;
    struct pollfd *polls;
    uint32_t n, most;
} Hall;

typedef struct Side { /* one direction of a transfer */
    uint32_t peer;
    unsigned char *bytes;
    uint64_t left;
    bool sends;
} Side;

typedef struct Tcp {
    RtWorld *world;
    int *sockets; /* by rank; own: -1 */
    Side *sides;
    struct pollfd *polls;
    uint32_t n;
    int64_t deadline; /* of the meeting */
    bool stays;       /* MASTER_ADDR is this machine for itself: nobody comes from elsewhere */
} Tcp;

/* -- a round -- */

static bool start(void *link, const RtTransfer *transfers, uint32_t n)
{
    Tcp *tcp = link;
    tcp->n = 0;
    for (uint32_t i = 0; i < n; i++) {
        const RtTransfer *t = &transfers[i];
        if (t->receive_bytes)
            tcp->sides[tcp->n++] = (Side){t->peer, t->receive, t->receive_bytes, false};
        if (t->send_bytes)
            tcp->sides[tcp->n++] =
                (Side){t->peer, (unsigned char *)(uintptr_t)t->send, t->send_bytes, true};
    }
    return true;
}

/* False: the peer has gone. */
static bool move(const Tcp *tcp, Side *side)
{
    int fd = tcp->sockets[side->peer];
    while (side->left) {
        ssize_t n = side->sends ? send(fd, side->bytes, side->left, MSG_NOSIGNAL | MSG_DONTWAIT)
                                : recv(fd, side->bytes, side->left, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
            return true;
        if (n <= 0)
            return false;
        side->bytes += n;
        side->left -= (uint64_t)n;
    }
    return true;
}

static RtTransferState poll_sides(void *link, uint32_t *out_peer)
{
    enum { WAIT_MS = 50 };
    Tcp *tcp = link;
    uint32_t left = 0;
    for (uint32_t i = 0; i < tcp->n; i++) {
        Side *side = &tcp->sides[i];
        if (!move(tcp, side)) {
            *out_peer = side->peer;
            return RT_TRANSFER_LOST;
        }
        if (side->left) {
            tcp->polls[left] =
                (struct pollfd){tcp->sockets[side->peer], side->sends ? POLLOUT : POLLIN, 0};
            tcp->sides[left++] = *side;
        }
    }
    tcp->n = left;
    if (!left)
        return RT_TRANSFER_DONE;
    *out_peer = tcp->sides[0].peer;
    poll(tcp->polls, left, WAIT_MS);
    return RT_TRANSFER_PENDING;
}

/* A link whose other end is closed reads as its end. */
static bool gone(void *link, uint32_t *out_peer)
{
    const Tcp *tcp = link;
    char byte;
    for (uint32_t r = 0; r < tcp->world->size; r++) {
        ssize_t n =
            tcp->sockets[r] >= 0 ? recv(tcp->sockets[r], &byte, 1, MSG_PEEK | MSG_DONTWAIT) : 1;
        if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)))
            continue;
        *out_peer = r;
        return true;
    }
    return false;
}

static void close_all(void *link)
{
    Tcp *tcp = link;
    for (uint32_t r = 0; r < tcp->world->size; r++)
        if (tcp->sockets[r] >= 0)
            close(tcp->sockets[r]);
}

/* The others find their links closed. */
static void end(void *link, int status)
{
    (void)status;
    close_all(link);
}

const RtTransport rt_transport_tcp = {"TCP", start, poll_sides, gone, close_all, end};

/* -- meeting -- */

static Status failed(const Tcp *tcp, const char *what, const char *why)
{
    diag(tcp->world->s, no_span, ranks_meet, tcp->world->rank, what, why);
    return STATUS_ENV;
}

static bool late(const Tcp *tcp)
{
    return rt_clock_ns() > tcp->deadline;
}

static void pause_a_little(void)
{
    struct timespec time = {0, 20000000};
    nanosleep(&time, NULL);
}

static void no_delay(int fd)
{
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

/* Whole, before the deadline. */
static bool read_all(const Tcp *tcp, int fd, void *bytes, size_t n)
{
    unsigned char *at = bytes;
    while (n && !late(tcp)) {
        struct pollfd ready = {fd, POLLIN, 0};
        if (poll(&ready, 1, 100) <= 0)
            continue;
        ssize_t got = recv(fd, at, n, 0);
        if (got == 0 || (got < 0 && errno != EINTR))
            return false;
        at += got > 0 ? got : 0;
        n -= got > 0 ? (size_t)got : 0;
    }
    return !n;
}

static bool write_all(int fd, const void *bytes, size_t n)
{
    const unsigned char *at = bytes;
    while (n) {
        ssize_t wrote = send(fd, at, n, MSG_NOSIGNAL);
        if (wrote < 0 && errno != EINTR)
            return false;
        at += wrote > 0 ? wrote : 0;
        n -= wrote > 0 ? (size_t)wrote : 0;
    }
    return true;
}

static int listen_at(const struct sockaddr *at, socklen_t length)
{
    int on = 1, fd = socket(at->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (fd >= 0 && !bind(fd, at, length) && !listen(fd, BACKLOG))
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

/* While nothing listens at a port from which connections start, one may be made from that very
 * port, to itself; it would also keep the port from who is to listen there. */
static bool is_to_itself(int fd)
{
    struct sockaddr_storage self = {0}, other = {0};
    socklen_t n_self = sizeof self, n_other = sizeof other;
    return !getsockname(fd, (struct sockaddr *)&self, &n_self) &&
           !getpeername(fd, (struct sockaddr *)&other, &n_other) && n_self == n_other &&
           !memcmp(&self, &other, n_self);
}

/* Once at least, and again until the deadline: the other side may not listen yet. */
static int connect_to(const Tcp *tcp, const struct sockaddr *at, socklen_t length)
{
    do {
        int fd = socket(at->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        bool connected = fd >= 0 && !connect(fd, at, length);
        if (connected && !is_to_itself(fd)) {
            no_delay(fd);
            return fd;
        }
        if (connected) /* at once, so that the port is free again */
            setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1},
                       sizeof(struct linger));
        if (fd >= 0)
            close(fd);
        pause_a_little();
    } while (!late(tcp));
    return -1;
}

static uint16_t *port_of(struct sockaddr_storage *at)
{
    return at->ss_family == AF_INET6 ? &((struct sockaddr_in6 *)(void *)at)->sin6_port
                                     : &((struct sockaddr_in *)(void *)at)->sin_port;
}

static socklen_t length_of(const struct sockaddr_storage *at)
{
    return at->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

static bool is_loopback(const struct sockaddr_storage *at)
{
    if (at->ss_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)at)->sin6_addr);
    const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)at;
    return ntohl(in->sin_addr.s_addr) >> 24 == 127;
}

/* A machine's own name may stand for its loopback address, and others come to another one. */
static int listen_anywhere(const Tcp *tcp, struct sockaddr_storage at)
{
    if (!tcp->stays && at.ss_family == AF_INET6)
        ((struct sockaddr_in6 *)(void *)&at)->sin6_addr = in6addr_any;
    else if (!tcp->stays)
        ((struct sockaddr_in *)(void *)&at)->sin_addr.s_addr = htonl(INADDR_ANY);
    return listen_at((const struct sockaddr *)&at, length_of(&at));
}

/* Takes in who has come. Where there is no room, the one that has been silent longest goes. */
static void open_door(Hall *hall)
{
    Guest guest = {0};
    socklen_t length = sizeof guest.from;
    guest.fd = accept4(hall->listener, (struct sockaddr *)&guest.from, &length, SOCK_CLOEXEC);
    if (guest.fd < 0)
        return;
    no_delay(guest.fd);
    if (hall->n == hall->most) {
        close(hall->guests[0].fd);
        memmove(hall->guests, hall->guests + 1, --hall->n * sizeof guest);
    }
    hall->guests[hall->n++] = guest;
}

/* Reads on; false: this is nobody, or has gone. */
static bool hear(Guest *guest)
{
    ssize_t got = recv(guest->fd, (char *)&guest->hello + guest->have,
                       sizeof guest->hello - guest->have, MSG_DONTWAIT);
    if (got < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
    guest->have += (size_t)got;
    return got > 0;
}

/* One of the higher ranks has said who it is; anybody else on the port is sent away. */
static Status welcome(Tcp *tcp, Guest *guest, Address *addresses)
{
    RtWorld *world = tcp->world;
    const Hello *hello = &guest->hello;
    if (hello->magic != HELLO || hello->rank >= world->size || hello->rank <= world->rank ||
        tcp->sockets[hello->rank] >= 0) {
        close(guest->fd);
        return STATUS_OK;
    }
    tcp->sockets[hello->rank] = guest->fd;
    if (hello->size != world->size)
        return failed(tcp, "a rank has come", "its WORLD_SIZE is another");
    if (addresses) {
        *port_of(&guest->from) = hello->port;
        addresses[hello->rank] = (Address){guest->from, length_of(&guest->from), 0};
    }
    return STATUS_OK;
}

/* Everybody says who they are in their own time: one that says nothing holds up none. */
static Status listen_around(Tcp *tcp, Hall *hall, Address *addresses)
{
    uint32_t n = hall->n, left = 0;
    Status status = STATUS_OK;
    hall->polls[n] = (struct pollfd){hall->listener, POLLIN, 0};
    for (uint32_t i = 0; i < n; i++)
        hall->polls[i] = (struct pollfd){hall->guests[i].fd, POLLIN, 0};
    if (poll(hall->polls, n + 1, 100) <= 0)
        return STATUS_OK;
    for (uint32_t i = 0; i < n; i++) {
        Guest *guest = &hall->guests[i];
        if (hall->polls[i].revents && !hear(guest))
            close(guest->fd);
        else if (guest->have < sizeof guest->hello || status != STATUS_OK)
            hall->guests[left++] = *guest;
        else
            status = welcome(tcp, guest, addresses);
    }
    hall->n = left;
    if (hall->polls[n].revents)
        open_door(hall);
    return status;
}

static Status wait_for_higher(Tcp *tcp, int listener, Address *addresses)
{
    enum { STRANGERS = 64 };
    RtWorld *world = tcp->world;
    Hall hall = {.listener = listener, .most = world->size + STRANGERS};
    hall.guests = ARENA_ARRAY(world->s->arena, Guest, hall.most);
    hall.polls = ARENA_ARRAY(world->s->arena, struct pollfd, hall.most + 1);
    Status status = STATUS_OK;
    for (uint32_t missing = world->rank + 1; status == STATUS_OK;) {
        while (missing < world->size && tcp->sockets[missing] >= 0)
            missing++;
        if (missing == world->size)
            break;
        status = late(tcp) ? failed(tcp, "waiting for the others",
                                    arena_printf(world->s->arena, "rank %u has not come", missing))
                           : listen_around(tcp, &hall, addresses);
    }
    for (uint32_t i = 0; i < hall.n; i++)
        close(hall.guests[i].fd);
    return status;
}

/* Ranks beside rank 0 may have come over the loopback device: for those of other machines they are
 * where rank 0 is for them. */
static void name_neighbours(const Tcp *tcp, Address *addresses)
{
    struct sockaddr_storage own;
    socklen_t length = sizeof own;
    uint32_t r = 1;
    while (r < tcp->world->size && is_loopback(&addresses[r].at))
        r++;
    if (r == tcp->world->size || getsockname(tcp->sockets[r], (struct sockaddr *)&own, &length))
        return;
    for (uint32_t i = 1; i < tcp->world->size; i++) {
        uint16_t port = *port_of(&addresses[i].at);
        if (!is_loopback(&addresses[i].at))
            continue;
        addresses[i] = (Address){own, length_of(&own), 0};
        *port_of(&addresses[i].at) = port;
    }
}

static Status meet_first(Tcp *tcp, const struct addrinfo *at)
{
    RtWorld *world = tcp->world;
    Address *addresses = ARENA_ARRAY(world->s->arena, Address, world->size);
    struct sockaddr_storage own = {0};
    memcpy(&own, at->ai_addr, at->ai_addrlen);
    int listener = listen_anywhere(tcp, own);
    if (listener < 0)
        return failed(tcp, "listening at MASTER_ADDR:MASTER_PORT", strerror(errno));
    Status status = wait_for_higher(tcp, listener, addresses);
    close(listener);
    if (status == STATUS_OK)
        name_neighbours(tcp, addresses);
    for (uint32_t r = 1; status == STATUS_OK && r < world->size; r++)
        if (!write_all(tcp->sockets[r], addresses, sizeof *addresses * world->size))
            status = failed(tcp, "telling the others", strerror(errno));
    return status;
}

static bool greet(const Tcp *tcp, int fd, uint16_t port)
{
    Hello hello = {HELLO, tcp->world->rank, tcp->world->size, port, 0};
    return write_all(fd, &hello, sizeof hello);
}

static Status join_others(Tcp *tcp, int listener, Address *addresses)
{
    RtWorld *world = tcp->world;
    for (uint32_t r = 1; r < world->rank; r++) {
        int fd = connect_to(tcp, (const struct sockaddr *)&addresses[r].at, addresses[r].length);
        tcp->sockets[r] = fd;
        if (fd < 0 || !greet(tcp, fd, 0))
            return failed(tcp, "making a link",
                          arena_printf(world->s->arena, "rank %u cannot be reached", r));
    }
    return wait_for_higher(tcp, listener, NULL);
}

static Status meet_others(Tcp *tcp, const struct addrinfo *at)
{
    RtWorld *world = tcp->world;
    Address *addresses = ARENA_ARRAY(world->s->arena, Address, world->size);
    int first = connect_to(tcp, at->ai_addr, at->ai_addrlen);
    if (first < 0)
        return failed(tcp, "reaching MASTER_ADDR:MASTER_PORT", strerror(errno));
    tcp->sockets[0] = first;
    struct sockaddr_storage own;
    socklen_t length = sizeof own;
    getsockname(first, (struct sockaddr *)&own, &length);
    *port_of(&own) = 0;
    int listener = listen_anywhere(tcp, own);
    length = sizeof own;
    if (listener < 0 || getsockname(listener, (struct sockaddr *)&own, &length))
        return failed(tcp, "listening", strerror(errno));
    Status status = STATUS_OK;
    if (!greet(tcp, first, *port_of(&own)) ||
        !read_all(tcp, first, addresses, sizeof *addresses * world->size))
        status = failed(tcp, "waiting for rank 0", "it has gone, or not all ranks have come");
    if (status == STATUS_OK)
        status = join_others(tcp, listener, addresses);
    close(listener);
    return status;
}

Status rt_tcp_open(RtWorld *world)
{
    Session *s = world->s;
    Tcp *tcp = ARENA_NEW(s->arena, Tcp);
    const char *host = getenv("MASTER_ADDR"), *port = getenv("MASTER_PORT");
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    tcp->world = world;
    if (world->rank >= world->size)
        return failed(tcp, "RANK", "it is not below WORLD_SIZE");
    if (!host || !port)
        return failed(tcp, "RANK and WORLD_SIZE are set", "MASTER_ADDR or MASTER_PORT is not");
    tcp->stays = !strcmp(host, "localhost") || !strncmp(host, "127.", 4) || !strcmp(host, "::1");
    tcp->sockets = ARENA_ARRAY(s->arena, int, world->size);
    for (uint32_t r = 0; r < world->size; r++)
        tcp->sockets[r] = -1;
    tcp->sides = ARENA_ARRAY(s->arena, Side, 2 * world->size);
    tcp->polls = ARENA_ARRAY(s->arena, struct pollfd, 2 * world->size);
    tcp->deadline = rt_clock_ns() + (int64_t)(world->timeout_s * 1e9);
    world->transport = &rt_transport_tcp;
    world->link = tcp;
    int error = getaddrinfo(host, port, &hints, &found);
    if (error)
        return failed(tcp, host, gai_strerror(error));
    Status status = world->rank ? meet_others(tcp, found) : meet_first(tcp, found);
    freeaddrinfo(found);
    if (status != STATUS_OK)
        close_all(tcp);
    return status;
}
