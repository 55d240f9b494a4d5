/* recipe_yaml: YAML text to a tree of nodes that know their places. Anchors share nodes; tags and
 * merge keys mean nothing. */
#ifndef FRONTEND_RECIPE_YAML_H
#define FRONTEND_RECIPE_YAML_H

#include "base/session.h"

typedef enum FrontNodeKind { FRONT_NODE_SCALAR, FRONT_NODE_LIST, FRONT_NODE_MAP } FrontNodeKind;

typedef struct FrontNode FrontNode;

typedef struct FrontEntry {
    Sym key;
    Span span; /* the key's */
    FrontNode *value;
} FrontEntry;

struct FrontNode {
    FrontNodeKind kind;
    bool quoted; /* SCALAR: written in quotes or as a block, so it is text whatever it looks like */
    Span span;
    const char *text; /* SCALAR */
    VEC(FrontNode *) items;  /* LIST */
    VEC(FrontEntry) entries; /* MAP */
};

/* One document; `*out_root` is NULL where the text holds none. Errors: syntax, duplicate keys, keys
 * that are no words, more than one document, nesting deeper than any recipe needs. */
Status front_yaml_parse(Session *s, const Source *source, FrontNode **out_root);

FrontNode *front_node_map(Session *s, Span span);
FrontEntry *front_node_find(const FrontNode *map, Sym key); /* NULL if there is none */
bool front_node_is_none(const FrontNode *node); /* null, ~, none or nothing at all */
const char *front_node_what(const FrontNode *node); /* `a list`, or a scalar's text, for messages */

#endif
