#include "frontend/recipe_yaml.h"

#include <string.h>
#include <strings.h>
#include <yaml.h>

#include "base/diag.h"

enum { MAX_DEPTH = 32 };

typedef struct Anchor {
    const char *name;
    FrontNode *node; /* NULL while the node is still open: an alias inside itself */
} Anchor;

typedef struct Reader {
    Session *s;
    Sym file;
    size_t length;
    yaml_parser_t parser;
    yaml_event_t event;
    VEC(Anchor) anchors;
} Reader;

static Span span_of(const Reader *r, yaml_mark_t start, yaml_mark_t end)
{
    uint32_t length = start.line == end.line ? (uint32_t)(end.column - start.column) : 0;
    return (Span){r->file, (uint32_t)start.line + 1, (uint32_t)start.column + 1, length};
}

static Span event_span(const Reader *r)
{
    return span_of(r, r->event.start_mark, r->event.end_mark);
}

static Status next_event(Reader *r)
{
    yaml_event_delete(&r->event);
    if (yaml_parser_parse(&r->parser, &r->event))
        return STATUS_OK;
    memset(&r->event, 0, sizeof r->event);
    const char *context = r->parser.context;
    bool at_end = context && r->parser.problem_mark.index >= r->length; /* then where it began */
    yaml_mark_t at = at_end ? r->parser.context_mark : r->parser.problem_mark;
    diag(r->s, span_of(r, at, at), recipe_syntax,
         r->parser.problem ? r->parser.problem : "not readable as text", context ? ", " : "",
         context ? context : "");
    return STATUS_USER;
}

static Anchor *anchor_find(Reader *r, const char *name)
{
    for (uint32_t i = r->anchors.n; i-- > 0;)
        if (!strcmp(r->anchors.at[i].name, name))
            return &r->anchors.at[i];
    return NULL;
}

/* Index of the node's anchor, or UINT32_MAX. */
static uint32_t anchor_open(Reader *r, const yaml_char_t *name)
{
    if (!name)
        return UINT32_MAX;
    vec_push(r->s->arena, &r->anchors, ((Anchor){sym(r->s, (const char *)name), NULL}));
    return r->anchors.n - 1;
}

static Status read_node(Reader *r, uint32_t depth, FrontNode **out_node);

static Status read_map_key(Reader *r, FrontNode *map, FrontEntry *out_entry)
{
    *out_entry = (FrontEntry){.span = event_span(r)};
    if (r->event.type != YAML_SCALAR_EVENT) {
        diag(r->s, out_entry->span, recipe_key_no_word);
        return STATUS_USER;
    }
    out_entry->key = sym(r->s, (const char *)r->event.data.scalar.value);
    const FrontEntry *first = front_node_find(map, out_entry->key);
    if (first) {
        diag(r->s, out_entry->span, recipe_duplicate, out_entry->key);
        diag(r->s, first->span, recipe_first_here);
        return STATUS_USER;
    }
    return STATUS_OK;
}

static Status read_map(Reader *r, uint32_t depth, FrontNode *node)
{
    for (;;) {
        FrontEntry entry;
        TRY(next_event(r));
        if (r->event.type == YAML_MAPPING_END_EVENT)
            return STATUS_OK;
        TRY(read_map_key(r, node, &entry));
        TRY(next_event(r));
        TRY(read_node(r, depth + 1, &entry.value));
        vec_push(r->s->arena, &node->entries, entry);
    }
}

static Status read_list(Reader *r, uint32_t depth, FrontNode *node)
{
    for (;;) {
        FrontNode *item;
        TRY(next_event(r));
        if (r->event.type == YAML_SEQUENCE_END_EVENT)
            return STATUS_OK;
        TRY(read_node(r, depth + 1, &item));
        vec_push(r->s->arena, &node->items, item);
    }
}

static Status read_alias(Reader *r, FrontNode **out_node)
{
    const char *name = (const char *)r->event.data.alias.anchor;
    const Anchor *anchor = anchor_find(r, name);
    if (!anchor || !anchor->node) {
        diag(r->s, event_span(r), recipe_alias, name);
        return STATUS_USER;
    }
    *out_node = anchor->node;
    return STATUS_OK;
}

/* Reads the node that the current event begins. */
static Status read_node(Reader *r, uint32_t depth, FrontNode **out_node)
{
    FrontNode *node = ARENA_NEW(r->s->arena, FrontNode);
    uint32_t anchor = UINT32_MAX;
    node->span = event_span(r);
    if (depth > MAX_DEPTH) {
        diag(r->s, node->span, recipe_deep, MAX_DEPTH);
        return STATUS_USER;
    }
    switch (r->event.type) {
    case YAML_ALIAS_EVENT:
        return read_alias(r, out_node);
    case YAML_SCALAR_EVENT:
        anchor = anchor_open(r, r->event.data.scalar.anchor);
        node->kind = FRONT_NODE_SCALAR;
        node->text = arena_strndup(r->s->arena, (const char *)r->event.data.scalar.value,
                                   r->event.data.scalar.length);
        node->quoted = r->event.data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
        break;
    case YAML_SEQUENCE_START_EVENT:
        anchor = anchor_open(r, r->event.data.sequence_start.anchor);
        node->kind = FRONT_NODE_LIST;
        TRY(read_list(r, depth, node));
        break;
    default: /* a parser that gives events in the grammar's order has only mappings left here */
        anchor = anchor_open(r, r->event.data.mapping_start.anchor);
        node->kind = FRONT_NODE_MAP;
        TRY(read_map(r, depth, node));
    }
    if (anchor != UINT32_MAX)
        r->anchors.at[anchor].node = node;
    *out_node = node;
    return STATUS_OK;
}

static Status read_documents(Reader *r, FrontNode **out_root)
{
    *out_root = NULL;
    for (;;) {
        TRY(next_event(r));
        if (r->event.type == YAML_STREAM_END_EVENT)
            return STATUS_OK;
        if (r->event.type == YAML_STREAM_START_EVENT || r->event.type == YAML_DOCUMENT_END_EVENT)
            continue;
        if (r->event.type == YAML_DOCUMENT_START_EVENT) {
            if (*out_root) {
                diag(r->s, event_span(r), recipe_documents);
                return STATUS_USER;
            }
            continue;
        }
        TRY(read_node(r, 0, out_root));
    }
}

Status front_yaml_parse(Session *s, const Source *source, FrontNode **out_root)
{
    Reader r = {.s = s, .file = source->name, .length = source->length};
    if (!yaml_parser_initialize(&r.parser)) {
        diag(s, no_span, environment, "out of memory");
        return STATUS_ENV;
    }
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)source->text, source->length);
    Status status = read_documents(&r, out_root);
    yaml_event_delete(&r.event);
    yaml_parser_delete(&r.parser);
    return status;
}

FrontNode *front_node_map(Session *s, Span span)
{
    FrontNode *node = ARENA_NEW(s->arena, FrontNode);
    node->kind = FRONT_NODE_MAP;
    node->span = span;
    return node;
}

FrontEntry *front_node_find(const FrontNode *map, Sym key)
{
    for (uint32_t i = 0; i < map->entries.n; i++)
        if (map->entries.at[i].key == key)
            return &map->entries.at[i];
    return NULL;
}

bool front_node_is_none(const FrontNode *node)
{
    return node->kind == FRONT_NODE_SCALAR && !node->quoted &&
           (!*node->text || !strcmp(node->text, "~") || !strcasecmp(node->text, "null") ||
            !strcasecmp(node->text, "none"));
}

const char *front_node_what(const FrontNode *node)
{
    if (node->kind == FRONT_NODE_LIST)
        return "a list";
    if (node->kind == FRONT_NODE_MAP)
        return "a section";
    return *node->text ? node->text : "empty";
}
