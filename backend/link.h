/* link: an object and the runtime to an executable, by the system's compiler driver. */
#ifndef BACKEND_LINK_H
#define BACKEND_LINK_H

#include "base/session.h"

/* A folder of this process's own in $TMPDIR (or /tmp), and its removal with the files named. */
Status link_folder_new(Session *s, const char **out_path);
void link_folder_remove(const char *path, const char *const *files);

/* Runs argv (its program is looked up in PATH) with both outputs in the file `log`; the exit
 * status, or -1 with errno. */
int link_run(char *const *argv, const char *log);

/* `cc` is looked up in PATH. The result appears at out_path by rename, or not at all. */
Status link_executable(Session *s, const char *folder, const char *object, const char *runtime_lib,
                       const char *out_path);
/* The same for target cuda: the runtime's part for it comes first, with its own `main`, and no BLAS
 * library. */
Status link_executable_cuda(Session *s, const char *folder, const char *object,
                            const char *cuda_lib, const char *runtime_lib, const char *out_path);

#endif
