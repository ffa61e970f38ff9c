#include "audit/readers/scalars/step_list.h"

namespace plumbline::audit {

// What lay evenly apart does so no more: all are kept one by one from here on.
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
