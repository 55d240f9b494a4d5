/* checkpoint_folder: a folder that is written beside its final place and then takes it, whole or
 * not at all. */
#ifndef RUNTIME_CHECKPOINT_FOLDER_H
#define RUNTIME_CHECKPOINT_FOLDER_H

#include "base/session.h"

typedef struct RtFolder {
    const char *path; /* final, links resolved */
    const char *temp; /* where it is written; has a folder `state` */
} RtFolder;

Status rt_folder_check(Session *s, const char *dir);
Status rt_folder_begin(Session *s, Arena *scratch, const char *dir, RtFolder *out_folder);
Status rt_folder_commit(Session *s, Arena *scratch, const RtFolder *folder);
void rt_folder_abandon(Arena *scratch, const RtFolder *folder);

#endif
