/* settings: the recipe as the runtime needs it, one JSON object that the plan carries
 * (docs/recipes.md). */
#ifndef DRIVER_SETTINGS_H
#define DRIVER_SETTINGS_H

#include "driver/compile.h"

const char *driver_settings_json(Session *s, const DriverCompiled *compiled);

#endif
