/* report: what a plan says about itself. The JSON is the one source; text, page, diff and checks
 * read it. */
#ifndef DRIVER_REPORT_H
#define DRIVER_REPORT_H

#include <cjson/cJSON.h>

#include "driver/compile.h"

/* docs/plan.md lists the fields. The caller deletes it. */
cJSON *driver_report_json(Session *s, const DriverCompiled *compiled);
const char *driver_report_print(Session *s, const cJSON *report, bool pretty);

void driver_report_text(FILE *out, const cJSON *report);
Status driver_report_html(Session *s, const char *path, const cJSON *report);

/* Compares two reports that were written with --json. STATUS_CHECK on growth, where that was asked
 * for. */
Status driver_report_diff(Session *s, FILE *out, const char *a_path, const char *b_path,
                          bool fail_on_growth);

/* The bytes must hold every rank's arena: STATUS_CHECK, with the tensors at the peak. */
Status driver_check_memory(Session *s, const DriverCompiled *compiled, int64_t bytes, Span span);

/* An expression over the report must hold: STATUS_CHECK if it does not, STATUS_USER if it is none.
 */
Status driver_require(Session *s, const cJSON *report, const char *expression, Span from);

/* All that the recipe and the command line ask of a plan; the worst status. */
Status driver_check_all(Session *s, const DriverArgs *args, const DriverCompiled *compiled,
                        const cJSON *report);

/* -- reading a report, for those who print it -- */

double driver_json_number(const cJSON *object, const char *key);    /* 0 where there is none */
const char *driver_json_text(const cJSON *object, const char *key); /* "" where there is none */
const char *driver_bytes_text(char buffer[32], double bytes);       /* `37.02 GiB` */
const char *driver_count_text(char buffer[32], double count);       /* `7.46 B`, `512` */

#endif
