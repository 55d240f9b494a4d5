/* frontend: texts to IR of level MODEL, and recipes. */
#ifndef FRONTEND_FRONTEND_H
#define FRONTEND_FRONTEND_H

#include "ir/ir.h"

typedef struct FrontModelRequest {
    const char *models_dir; /* where definitions and published configs are shipped */
    /* a directory with config.json, a config.json, a published name, or NULL: overrides alone */
    const char *pretrained;
    const char *definition; /* a .model file; NULL: the one in models_dir for the model_type */
    const char *overrides_json; /* object laid over config.json (model.text_config), or NULL */
    int64_t batch, seq;         /* sizes of the axes `batch` and `seq` */
    bool positions, segments, keep; /* which optional inputs the batches have */
    DType param_dtype;              /* what `round(x)` rounds to */
    Span span;                      /* of the recipe's key, for errors */
    Span overrides_span;            /* of the overrides */
    Span definition_span;           /* of `definition` */
} FrontModelRequest;

typedef struct FrontModel {
    IrModule *m;
    const char *config_text;  /* config.json for saves: under the overrides */
    const char *config_path;
    const char *weights_dir;  /* the directory that holds weights, or NULL */
    bool has_optional_input[3]; /* positions, segments, keep: declared by the model */
} FrontModel;

Status front_model_load(Session *s, const FrontModelRequest *request, FrontModel *out_model);
/* The same from NUL-terminated texts, for tests and fuzzing: the request's paths are not read. */
Status front_model_from_text(Session *s, const FrontModelRequest *request, const char *definition,
                             const char *config_json, FrontModel *out_model);
/* What `stepc import` says of a folder or a config.json: definition, type, sizes, parameters. */
Status front_config_describe(Session *s, const FrontModelRequest *request, FILE *out);

#endif
