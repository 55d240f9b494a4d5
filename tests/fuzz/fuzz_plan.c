/* Plans: the header's length and hash are made to fit, so that what they guard is reached. */
#include "tests/fuzz/fuzz.h"

#include "base/map.h"
#include "runtime/run.h"
#include "runtime/settings.h"

enum { NATIVE_KERNELS = 64 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Session *s = fuzz_session();
    unsigned char *bytes = malloc(size); /* aligned, and watched to its last byte */
    memcpy(bytes, data, size);
    if (size >= sizeof(PlanHeader)) {
        PlanHeader *header = (void *)bytes;
        header->magic = PLAN_MAGIC;
        header->version = PLAN_VERSION;
        header->total_bytes = size;
        header->hash = map_hash(bytes + sizeof *header, size - sizeof *header, 0);
    }
    RtPlan plan;
    RtSettings settings;
    if (rt_plan_map(s, bytes, size, NATIVE_KERNELS, &plan) == STATUS_OK) {
        rt_describe(&plan, 2, fuzz_nowhere());
        rt_settings_read(s, rt_plan_string(&plan, plan.header->settings), &settings);
    }
    free(bytes);
    session_free(s);
    return 0;
}
