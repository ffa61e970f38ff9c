/* Plumbline's C ABI, an addition: observations of one thread that leave together. Include it beside
 * plumbline.h, whose rules hold here too. */
#ifndef PLUMBLINE_TOGETHER_H_
#define PLUMBLINE_TOGETHER_H_

#include "plumbline/plumbline.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Between the two, what this thread observes of floating tensors and updates on a device waits, and
 * leaves in as few launches as it fits into: 15 tensors or 5 updates of one stream each (8 byte
 * wide tensors 4), where one by one each is a launch. Around a loop over a model's parameters:
 *
 *   plumbline_together_begin(run);
 *   for (...) plumbline_observe_tensor(site[i], &tensor[i]);
 *   plumbline_together_end(run);
 *
 * Until end has returned, the tensors must live and stay as they are: nothing that is given to
 * their streams in between may write them. What is told of them is the same, bit for bit. All else
 * (host tensors, router calls, products, reductions, captured calls) goes its way at once, as does
 * what other threads observe.
 *
 * begin: NOT_DUE where another thread has begun, or nothing was due yet: this thread's calls are
 * launched one by one, and its end does nothing. May be nested: each end launches what waits, the
 * outermost ends it. plumbline_flush and plumbline_capture_begin launch what waits, too. What still
 * waits when the step ends, or the run closes, is not measured: it is counted as
 * `after-step-end`. A call that waits has returned OK; if its launch finds no room or the device
 * fails, that is counted. One thread of a run at a time. */
PLUMBLINE_API plumbline_status_t plumbline_together_begin(plumbline_run_t* run);
PLUMBLINE_API plumbline_status_t plumbline_together_end(plumbline_run_t* run);

#ifdef __cplusplus
} /* extern "C" */

namespace plumbline {

/* The same in C++, ended by whatever leaves the block. `run` may be null. */
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
