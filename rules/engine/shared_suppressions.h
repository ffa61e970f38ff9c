// The suppressions of an engine, which its runs share. Thread-safe.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/archive.h"
#include "base/mutex.h"
#include "rules/suppressions.h"

namespace plumbline::rules {

class SharedSuppressions {
 public:
  void Set(std::vector<Suppression> list, int32_t today) {
    const MutexLock lock(mutex_);
    suppressor_.Set(std::move(list), today);
  }
  bool Is(const std::vector<Suppression>& list, int32_t today) const {
    const MutexLock lock(mutex_);
    return suppressor_.Is(list, today);
  }
  void Mark(v1::Finding* finding) {
    const MutexLock lock(mutex_);
    if (!suppressor_.empty()) suppressor_.Mark(finding);
  }
  // Both return verdicts of meta/unused-suppression on a run.
  std::vector<v1::Verdict> Expired(const std::string& run) {
    const MutexLock lock(mutex_);
    return suppressor_.Expired(run);
  }
  template <typename Ran>
  std::vector<v1::Verdict> Unused(const std::string& run, const Ran& ran) {
    const MutexLock lock(mutex_);
    return suppressor_.Unused(run, ran);
  }
  void Clear() {
    const MutexLock lock(mutex_);
    suppressor_ = Suppressor();
  }
  void Persist(Archive& archive) {
    const MutexLock lock(mutex_);
    archive(suppressor_);
  }

 private:
  mutable Mutex mutex_;
  Suppressor suppressor_ PLUMB_GUARDED_BY(mutex_);
};

}  // namespace plumbline::rules
