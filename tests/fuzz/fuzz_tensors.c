/* safetensors: every tensor of a file that is taken lies in its bytes, and can be found by name. */
#include "tests/fuzz/fuzz.h"

#include "runtime/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Session *s = fuzz_session();
    RtTensorFile file;
    if (rt_tensors_parse(s, "input.safetensors", data, size, &file) == STATUS_OK)
        for (uint32_t i = 0; i < file.n_tensors; i++) {
            const RtFileTensor *tensor = &file.tensors[i];
            fuzz_must(tensor->data >= data && tensor->bytes <= size &&
                      tensor->data + tensor->bytes <= data + size);
            fuzz_must(tensor->bytes == tensor->numel * tensor->element_bytes);
            fuzz_must(rt_tensors_find(s, &file, tensor->name) == tensor);
        }
    session_free(s);
    return 0;
}
