/* The config.json that a save writes: the file's own text where all of it holds, else its keys
 * under the overrides, with the dtype that the weights are saved in. */
#include "frontend/config.h"


static bool says_rope(const cJSON *keys)
{
    static const char *const names[] = {"rope_parameters", "rope_scaling", "rope_theta",
                                        "partial_rotary_factor"};
    for (uint32_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (cJSON_GetObjectItemCaseSensitive(keys, names[i]))
            return true;
    return false;
}

/* Overrides of rope are laid over one layout, whose other spellings would then contradict it. */
static void override_rope(cJSON *root, cJSON *body, cJSON *over, cJSON *nested)
{
    front_config_unify_rope(body);
    front_config_unify_rope(over);
    front_config_unify_rope(nested);
    front_config_override(root, body, over);
    cJSON_DeleteItemFromObjectCaseSensitive(body, "rope_scaling");
    cJSON_DeleteItemFromObjectCaseSensitive(body, "rope_theta");
    cJSON_DeleteItemFromObjectCaseSensitive(body, "partial_rotary_factor");
}

/* true: the keys said another dtype. */
static bool set_dtype(cJSON *keys, DType dtype)
{
    static const char *const spellings[] = {"dtype", "torch_dtype"};
    const char *name = dtype == DTYPE_BF16  ? "bfloat16"
                       : dtype == DTYPE_F32 ? "float32"
                       : dtype == DTYPE_F64 ? "float64"
                                            : NULL;
    bool changed = false;
    for (uint32_t i = 0; i < 2 && name; i++) {
        const cJSON *old = cJSON_GetObjectItemCaseSensitive(keys, spellings[i]);
        if (!cJSON_IsString(old) || !strcmp(old->valuestring, name))
            continue;
        cJSON_ReplaceItemInObjectCaseSensitive(keys, spellings[i], cJSON_CreateString(name));
        changed = true;
    }
    return changed;
}

/* Numbers whose text is known are printed as that text: 30.0 stays a float. */
static void print_as_read(cJSON *item)
{
    if (cJSON_IsNumber(item) && item->valuestring)
        item->type = cJSON_Raw;
    cJSON *child;
    cJSON_ArrayForEach(child, item) print_as_read(child);
}

static const char *print(Session *s, cJSON *root)
{
    print_as_read(root);
    char *text = cJSON_Print(root);
    const char *copy = arena_printf(s->arena, "%s\n", text ? text : "{}");
    cJSON_free(text);
    return copy;
}

const char *front_config_settled(Session *s, const FrontConfig *c, const char *overrides_json,
                                 DType dtype)
{
    cJSON *root = cJSON_Parse(c->text);
    cJSON *over = overrides_json ? cJSON_Parse(overrides_json) : NULL;
    cJSON *body = cJSON_GetObjectItemCaseSensitive(root, "text_config");
    cJSON *nested = cJSON_GetObjectItemCaseSensitive(over, "text_config");
    body = body ? body : root;
    front_config_keep_numbers(c->text, root);
    bool changed = over && over->child;
    if (says_rope(over) || says_rope(nested))
        override_rope(root, body, over, nested);
    else if (over)
        front_config_override(root, body, over);
    changed |= set_dtype(root, dtype);
    changed |= body != root && set_dtype(body, dtype);
    const char *text = changed ? print(s, root) : c->text;
    cJSON_Delete(over);
    cJSON_Delete(root);
    return text;
}
