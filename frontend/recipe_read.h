/* recipe_read: one key's YAML node to its typed value, by the key's type and rule. */
#ifndef FRONTEND_RECIPE_READ_H
#define FRONTEND_RECIPE_READ_H

#include "frontend/recipe.h"
#include "frontend/recipe_yaml.h"

#define FRONT_KEY_TYPES(X)     \
    X(Int, "integer")          \
    X(Float, "number")         \
    X(Bool, "bool")            \
    X(Word, "word")            \
    X(Words, "list of words")  \
    X(Dtype, "dtype")          \
    X(Bytes, "bytes")          \
    X(Pair, "two numbers")     \
    X(Json, "section")         \
    X(Groups, "list of groups")

typedef enum FrontKeyType {
#define FRONT_KEY_ENUM(id, name) FRONT_KEY_##id,
    FRONT_KEY_TYPES(FRONT_KEY_ENUM)
#undef FRONT_KEY_ENUM
} FrontKeyType;

typedef struct FrontField { /* one key while it is read */
    Session *s;
    const char *path;
    FrontKeyType type;
    const char *rule;
    void *field;
    Span span; /* of the key */
} FrontField;

/* Fills the field and marks it given. Nothing at all, `null` and `~` leave the field as it was, and
 * so does `none`, unless it is one of the key's choices. */
void front_field_read(const FrontField *value, const FrontNode *node);
void front_field_mark_default(const FrontField *value);

#endif
