/* Recipes: YAML, keys, and the rules between keys. */
#include "tests/fuzz/fuzz.h"

#include "frontend/recipe.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Session *s = fuzz_session();
    Source source = fuzz_source(s, "input.yaml", data, size);
    FrontRecipe recipe;
    FrontBatch batch;
    FrontRecompute recompute;
    FrontPrecision precision;
    FrontOptimizer optimizer;
    FrontSchedule schedule;
    if (front_recipe_parse(s, &source, NULL, 0, &recipe) == STATUS_OK) {
        front_recipe_supported(s, &recipe);
        if (front_recipe_batch(s, &recipe, 0, &batch) == STATUS_OK) {
            fuzz_must(batch.rows > 0 && batch.seq > 0 && batch.micro_batches > 0);
            front_recipe_record_unused(s, &recipe, &batch, false);
        }
        front_recipe_recompute(s, &recipe, &recompute);
        front_recipe_precision(s, &recipe, &precision);
        front_recipe_optimizer(s, &recipe, &optimizer);
        front_recipe_schedule(s, &recipe, &schedule);
    }
    session_free(s);
    return 0;
}
