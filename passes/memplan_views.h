/* memplan_views: which values need no memory of their own because their elements lie in another's:
 * a reshape, a slice where all its readers can walk it, and the parts of a concat where the op that
 * makes them can write them in place. */
#ifndef PASSES_MEMPLAN_VIEWS_H
#define PASSES_MEMPLAN_VIEWS_H

#include "ir/ir.h"
#include "passes/options.h"

/* By value: base, view_offset, run, pitch as in IrValueRec.place; base 0: no view. */
typedef IrPlace *PassViews;

static inline bool pass_view_strided(const IrPlace *view)
{
    return view->base.i && view->run != view->pitch;
}

/* Before regions are formed: a slice is a view when every op that reads it can walk it. Values that
 * g reads of `params_of` under the same name keep the layout that they have there; `readers` reads
 * g's results in the same way. Both may be NULL. */
PassViews pass_views_local(const IrGraph *g, const IrGraph *params_of, PassViews params_views,
                           const IrGraph *readers, PassTarget target, Arena *arena);

/* Of a PLANNED graph: reshapes and slices outside of kernel regions, and parts of concats: all of a
 * concat's, or none. */
PassViews pass_views_planned(const IrGraph *g, Arena *arena);

#endif
