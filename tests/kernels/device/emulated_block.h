// Runs all threads of the block of core/graph_block.h, one after another.
#pragma once

#include <functional>

namespace plumbline {

struct EmulatedBlock {
  int threads;
  std::function<void()> after_first;  // called after the first thread has done its part

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
