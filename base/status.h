/* status: what a fallible function returns; the values are the process's exit codes. */
#ifndef BASE_STATUS_H
#define BASE_STATUS_H

typedef enum Status {
    STATUS_OK = 0,
    STATUS_USER = 1,  /* the input is wrong */
    STATUS_CHECK = 2, /* a check that was asked for does not hold */
    STATUS_ENV = 3,   /* file, disk, driver, library */
    STATUS_BUG = 70,  /* ours */
} Status;

/* The one macro that returns from its caller. */
#define TRY(call)                           \
    do {                                    \
        Status try_status_ = (call);        \
        if (try_status_ != STATUS_OK)       \
            return try_status_;             \
    } while (0)

#endif
