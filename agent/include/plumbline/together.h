/* Plumbline's C ABI, optional: groups observations of one thread into few launches. Include it in
 * addition to plumbline.h, whose rules apply. */
#ifndef PLUMBLINE_TOGETHER_H_
#define PLUMBLINE_TOGETHER_H_

#include "plumbline/plumbline.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Begins and ends a group. Floating tensors and updates on a device that this thread observes in
 * between wait, and are launched together: 15 tensors or 5 updates of one stream per launch (4
 * tensors if elements have 8 bytes), instead of one launch each. Use it around a loop over a
 * model's parameters:
 *
 *   plumbline_together_begin(run);
 *   for (...) plumbline_observe_tensor(site[i], &tensor[i]);
 *   plumbline_together_end(run);
 *
 * The tensors must exist and stay unchanged until end has returned: no work that is enqueued on
 * their streams in between may write them. The evidence is the same, bit for bit. Everything else
 * (host tensors, router calls, products, reductions, captured calls) and the observations of other
 * threads are not delayed.
 *
 * begin returns NOT_DUE if another thread has a group open, or if nothing was due yet: then this
 * thread's calls are launched one by one, and its end does nothing. Groups may be nested: each end
 * launches the waiting calls, and the outermost one ends the group. plumbline_flush and
 * plumbline_capture_begin also launch them. If calls still wait when the step ends or the run
 * closes, they are not measured and are counted as `after-step-end`. A waiting call has returned
 * OK; if its launch finds no memory or the device fails, that is counted. One thread of a run at a
 * time. */
PLUMBLINE_API plumbline_status_t plumbline_together_begin(plumbline_run_t* run);
PLUMBLINE_API plumbline_status_t plumbline_together_end(plumbline_run_t* run);

#ifdef __cplusplus
} /* extern "C" */

namespace plumbline {

/* The same in C++. The destructor ends the group. `run` may be null. */
class Together {
 public:
  explicit Together(plumbline_run_t* run)
      : run_(run != nullptr && plumbline_together_begin(run) == PLUMBLINE_OK ? run : nullptr) {}
  ~Together() {
    if (run_ != nullptr) plumbline_together_end(run_);
  }
  Together(const Together&) = delete;
  Together& operator=(const Together&) = delete;

 private:
  plumbline_run_t* run_;
};

}  // namespace plumbline
#endif

#endif /* PLUMBLINE_TOGETHER_H_ */
