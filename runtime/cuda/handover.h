/* handover: file descriptors, from process to process of one machine. */
#ifndef RUNTIME_CUDA_HANDOVER_H
#define RUNTIME_CUDA_HANDOVER_H

#include <stdbool.h>
#include <stdint.h>

/* Where a process takes them: known to those that are to send some, by other ways. */
typedef struct RtHandoverName {
    uint64_t name[2], secret; /* drawn; a message without the secret is another's */
} RtHandoverName;

/* The socket, or -1. Nothing waits: what has been sent lies there until it is received. */
int rt_handover_open(RtHandoverName *out_name);
bool rt_handover_send(int socket, const RtHandoverName *to, uint32_t from, int fd);
/* The next one, or -1; the caller closes it. */
int rt_handover_receive(int socket, const RtHandoverName *own, uint32_t *out_from);

#endif
