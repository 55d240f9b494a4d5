/* slow_fsync: preloaded into a step executable, its first fsync takes SLOW_FSYNC seconds, as on a
 * slow disk. */
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

int fsync(int file)
{
    const char *seconds = getenv("SLOW_FSYNC");
    if (seconds) {
        sleep((unsigned)atoi(seconds));
        unsetenv("SLOW_FSYNC");
    }
    return (int)syscall(SYS_fsync, file);
}
