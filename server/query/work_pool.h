// A few threads for calls that read much, so that they do not block gRPC's threads.
#pragma once

#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "base/mutex.h"

namespace plumbline::server {

// Thread-safe. The destructor first runs all submitted work.
class WorkPool {
 public:
  explicit WorkPool(int threads) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Loop(); });
  }
  ~WorkPool() {
    {
      const MutexLock lock(mutex_);
      stopped_ = true;
    }
    wake_.NotifyAll();
    for (std::thread& thread : threads_) thread.join();
  }

  void Submit(std::function<void()> work) {
    {
      const MutexLock lock(mutex_);
      work_.push_back(std::move(work));
    }
    wake_.NotifyOne();
  }

 private:
  void Loop() {
    for (;;) {
      std::function<void()> work;
      {
        MutexLock lock(mutex_);
        wake_.Wait(lock, [this]() PLUMB_REQUIRES(mutex_) { return stopped_ || !work_.empty(); });
        if (work_.empty()) return;
        work = std::move(work_.front());
        work_.pop_front();
      }
      work();
    }
  }

  Mutex mutex_;
  CondVar wake_;
  std::deque<std::function<void()>> work_ PLUMB_GUARDED_BY(mutex_);
  bool stopped_ PLUMB_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace plumbline::server
