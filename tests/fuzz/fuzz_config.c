/* config.json of a Gemma4 model, as its definition reads it. */
#include "tests/fuzz/fuzz.h"

#include "frontend/config.h"
#include "ir/verify.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Session *s = fuzz_session();
    FrontModelRequest request = {.batch = 2, .seq = 8, .param_dtype = DTYPE_F32};
    FrontModel model;
    FrontConfig config;
    Source definition, json = fuzz_source(s, "config.json", data, size);
    front_config_parse(s, "config.json", json.text, json.length, NULL, no_span, &config);
    fuzz_must(session_read_source(s, STEPC_FUZZ_DEFINITION, no_span, &definition) == STATUS_OK);
    if (front_model_from_text(s, &request, definition.text, json.text, &model) == STATUS_OK)
        fuzz_must(ir_verify(s, model.m) == STATUS_OK);
    session_free(s);
    return 0;
}
