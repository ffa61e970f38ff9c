// The order to end the training, for a finding of the level that the trainer named. The server
// sends it, or local_judge.h gives it.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>

#include "base/mutex.h"
#include "plumbline/v1/ingest.pb.h"

namespace plumbline::agent {

// Thread-safe. The first order that counts stays.
class StopOrder {
 public:
  // `level`: the v1::Level of findings that end the training; 0: none. An order counts only if the
  // finding was made in a step of this process, between `first` and `newest`. A finding of an
  // earlier attempt ends no training.
  void Take(const v1::StopTraining& order, int32_t level, int64_t first, int64_t newest);

  // Copies the reason to `text`, cut to fit, with a closing zero. Returns false if there is no
  // order.
  bool Copy(std::span<char> text) const;

 private:
  std::atomic<bool> ordered_{false};
  mutable Mutex mutex_;
  std::string reason_ PLUMB_GUARDED_BY(mutex_);
};

}  // namespace plumbline::agent
