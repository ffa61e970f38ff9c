// The block of core/graph_block.h with all its threads, one after the other.
#pragma once

#include <functional>

namespace plumbline {

struct EmulatedBlock {
  int threads;
  std::function<void()> after_first;  // what happens once the first thread has done its part

  template <typename F>
  void Each(F f) const {
    for (int thread = 0; thread < threads; ++thread) {
      f(thread);
      if (thread == 0 && after_first) after_first();
    }
  }
  void Sync() const {}
};

}  // namespace plumbline
