/* IR text: whatever parses prints to text that parses to the same text; whatever verifies, still
 * does. */
#include "tests/fuzz/fuzz.h"

#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"

static Source print(Session *s, const IrModule *m)
{
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    ir_print(out, m);
    fclose(out);
    Source source = fuzz_source(s, "again.sir", (const uint8_t *)text, length);
    free(text);
    return source;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Session *s = fuzz_session();
    Source source = fuzz_source(s, "input.sir", data, size);
    IrModule *m, *again;
    if (ir_parse(s, &source, &m) == STATUS_OK) {
        Source text = print(s, m);
        fuzz_must(ir_parse(s, &text, &again) == STATUS_OK);
        Source same = print(s, again);
        fuzz_must(text.length == same.length && !memcmp(text.text, same.text, text.length));
        fuzz_must(ir_verify(s, m) == ir_verify(s, again));
    }
    session_free(s);
    return 0;
}
