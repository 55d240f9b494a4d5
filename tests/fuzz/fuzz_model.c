/* The model language: a definition, a NUL, and the config.json that it is written out with. What
 * comes out is a valid module. */
#include "tests/fuzz/fuzz.h"

#include "frontend/frontend.h"
#include "ir/verify.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *cut = size ? memchr(data, 0, size) : NULL;
    if (!cut || memmem(data, size, "include", 7)) /* files are none of its business */
        return -1;
    Session *s = fuzz_session();
    FrontModelRequest request = {.batch = 2, .seq = 8, .param_dtype = DTYPE_F32};
    FrontModel model;
    const char *text = arena_strndup(s->arena, (const char *)data, size);
    if (front_model_from_text(s, &request, text, text + (cut - data) + 1, &model) == STATUS_OK)
        fuzz_must(ir_verify(s, model.m) == STATUS_OK);
    session_free(s);
    return 0;
}
