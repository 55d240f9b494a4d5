/* The toolkit's assembler, where there is one. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "backend/emit_device.h"
#include "backend/link.h"
#include "base/diag.h"

static const char usual_folder[] = "/usr/local/cuda/bin";

static const char *in_folder(Session *s, const char *folder, size_t length)
{
    const char *path = arena_printf(s->arena, "%.*s/ptxas", (int)length, folder);
    return access(path, X_OK) ? NULL : path;
}

static const char *find_ptxas(Session *s)
{
    const char *folder = getenv("PATH"), *found = NULL;
    while (folder && *folder && !found) {
        size_t length = strcspn(folder, ":");
        found = length ? in_folder(s, folder, length) : NULL;
        folder += length + (folder[length] == ':');
    }
    return found ? found : in_folder(s, usual_folder, sizeof usual_folder - 1);
}

static Status write_text(Session *s, const char *path, const char *text, uint64_t bytes)
{
    FILE *file = fopen(path, "wb");
    bool wrote = file && fwrite(text, 1, bytes, file) == bytes;
    int error = errno;
    if (file && fclose(file)) {
        wrote = false;
        error = errno;
    }
    if (!wrote)
        diag(s, no_span, file_write, path, strerror(error));
    return wrote ? STATUS_OK : STATUS_ENV;
}

static char *copy(Session *s, const char *text)
{
    return arena_strndup(s->arena, text, strlen(text));
}

static Status assemble(Session *s, const char *ptxas, const char *ptx, const char *cubin,
                       const char *log)
{
    char *argv[] = {copy(s, ptxas), copy(s, "-arch=sm_90"), copy(s, "-o"),
                    copy(s, cubin), copy(s, ptx),           NULL};
    int code = link_run(argv, log);
    if (code == 0)
        return STATUS_OK;
    Source output = {.text = strerror(errno)};
    if (code > 0 && session_read_source(s, log, no_span, &output) != STATUS_OK)
        output.text = "";
    diag(s, no_span, backend_ptxas, ptxas, code, output.text);
    return STATUS_ENV;
}

Status emit_device_image(Session *s, const char *ptx, uint64_t ptx_bytes, const void **out_image,
                         uint64_t *out_bytes)
{
    const char *ptxas = find_ptxas(s), *folder;
    *out_image = ptx;
    *out_bytes = ptx_bytes;
    if (!ptxas) {
        diag(s, no_span, backend_no_ptxas, usual_folder);
        return STATUS_OK;
    }
    TRY(link_folder_new(s, &folder));
    const char *text = arena_printf(s->arena, "%s/step.ptx", folder);
    const char *cubin = arena_printf(s->arena, "%s/step.cubin", folder);
    const char *log = arena_printf(s->arena, "%s/ptxas.log", folder);
    Source image;
    Status status = write_text(s, text, ptx, ptx_bytes);
    if (status == STATUS_OK)
        status = assemble(s, ptxas, text, cubin, log);
    if (status == STATUS_OK)
        status = session_read_source(s, cubin, no_span, &image);
    if (status == STATUS_OK) {
        *out_image = image.text;
        *out_bytes = image.length;
    }
    link_folder_remove(folder, (const char *const[]){text, cubin, log, NULL});
    return status;
}
