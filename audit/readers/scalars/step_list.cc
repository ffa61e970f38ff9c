#include "audit/readers/scalars/step_list.h"

namespace plumbline::audit {

// Adds a step that is not equidistant: from here on all steps are stored individually.
void StepList::PushListed(int64_t step) {
  if (listed_.empty()) {
    listed_.reserve(2 * size_);
    for (size_t i = 0; i < size_; ++i) listed_.push_back(static_cast<int64_t>(At(i)));
    first_ = apart_ = 0;
  }
  listed_.push_back(step);
  ++size_;
}

}  // namespace plumbline::audit
