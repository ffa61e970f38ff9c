/* Plumbline's C ABI. A trainer calls it so that its routers, tensors, sums, updates, series and
 * stages are checked.
 *
 * Every call returns a plumbline_status_t. No call throws or aborts. Only plumbline_flush and
 * plumbline_close block, for at most the given timeout. The trainer need not handle a missing
 * server, a missing agent library or a forked child: then calls return at once.
 *
 * Thread-safety: any call may be made from any thread. For one run, step_begin and step_end must
 * come from one thread at a time. Strings are NUL-terminated UTF-8 and are borrowed for the call.
 * Handles (runs, sites) stay readable until the process ends. After plumbline_close, calls on them
 * return PLUMBLINE_DISABLED.
 *
 * ABI: structs begin with their size. New fields are only added at the end; zero there means "not
 * given". Initialise a struct with its ..._INIT macro. */
#ifndef PLUMBLINE_PLUMBLINE_H_
#define PLUMBLINE_PLUMBLINE_H_

#include "plumbline/basics.h"
#include "plumbline/in_hand.h"
#include "plumbline/observations.h"
#include "plumbline/products.h"
#include "plumbline/rollouts.h"
#include "plumbline/routing.h"
#include "plumbline/runs.h"
#include "plumbline/series.h"
#include "plumbline/sites.h"

#endif /* PLUMBLINE_PLUMBLINE_H_ */
