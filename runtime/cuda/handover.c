#include "runtime/cuda/handover.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

typedef struct Letter {
    uint64_t secret;
    uint32_t from, pad;
} Letter;

typedef union Room { /* for one descriptor beside a letter */
    char bytes[CMSG_SPACE(sizeof(int))];
    struct cmsghdr aligned;
} Room;

/* An abstract name: no file, gone with the socket. */
static socklen_t address_of(const RtHandoverName *name, struct sockaddr_un *out)
{
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    int n = snprintf(out->sun_path + 1, sizeof out->sun_path - 1, "stepc.%016llx%016llx",
                     (unsigned long long)name->name[0], (unsigned long long)name->name[1]);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

int rt_handover_open(RtHandoverName *out_name)
{
    struct sockaddr_un at;
    if (getrandom(out_name, sizeof *out_name, 0) != (ssize_t)sizeof *out_name)
        return -1;
    socklen_t length = address_of(out_name, &at);
    int s = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s >= 0 && bind(s, (struct sockaddr *)&at, length)) {
        close(s);
        return -1;
    }
    return s;
}

bool rt_handover_send(int socket, const RtHandoverName *to, uint32_t from, int fd)
{
    Letter letter = {.secret = to->secret, .from = from};
    struct iovec text = {&letter, sizeof letter};
    struct sockaddr_un at;
    Room room = {{0}};
    struct msghdr message = {.msg_name = &at,
                             .msg_namelen = address_of(to, &at),
                             .msg_iov = &text,
                             .msg_iovlen = 1,
                             .msg_control = room.bytes,
                             .msg_controllen = sizeof room.bytes};
    struct cmsghdr *with = CMSG_FIRSTHDR(&message);
    with->cmsg_level = SOL_SOCKET;
    with->cmsg_type = SCM_RIGHTS;
    with->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(with), &fd, sizeof fd);
    return sendmsg(socket, &message, 0) == (ssize_t)sizeof letter;
}

int rt_handover_receive(int socket, const RtHandoverName *own, uint32_t *out_from)
{
    for (;;) {
        Letter letter;
        struct iovec text = {&letter, sizeof letter};
        Room room;
        struct msghdr message = {.msg_iov = &text,
                                 .msg_iovlen = 1,
                                 .msg_control = room.bytes,
                                 .msg_controllen = sizeof room.bytes};
        ssize_t n = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
        if (n < 0)
            return -1;
        const struct cmsghdr *with = CMSG_FIRSTHDR(&message);
        int fd = -1;
        if (with && with->cmsg_level == SOL_SOCKET && with->cmsg_type == SCM_RIGHTS &&
            with->cmsg_len == CMSG_LEN(sizeof fd))
            memcpy(&fd, CMSG_DATA(with), sizeof fd);
        if (fd >= 0 && n == (ssize_t)sizeof letter && letter.secret == own->secret) {
            *out_from = letter.from;
            return fd;
        }
        if (fd >= 0)
            close(fd);
    }
}
