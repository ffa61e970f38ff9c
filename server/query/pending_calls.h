// Calls that wait for the judge. When the server goes, the judge may never come to them: then they
// are ended here.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <unordered_set>
#include <utility>

#include "base/mutex.h"

namespace plumbline::server {

// Thread-safe.
class PendingCalls {
 public:
  // A call that ends once: with what `finish` returns, or when the server goes.
  class Call {
   public:
    explicit Call(grpc::ServerUnaryReactor* reactor) : reactor_(reactor) {}
    // `status` may still fill in the response; it does not run when the call is over.
    void Finish(const std::function<grpc::Status()>& status) {
      const MutexLock lock(mutex_);
      if (reactor_ == nullptr) return;
      std::exchange(reactor_, nullptr)->Finish(status());
    }

   private:
    Mutex mutex_;
    grpc::ServerUnaryReactor* reactor_ PLUMB_GUARDED_BY(mutex_);
  };

  std::shared_ptr<Call> Add(grpc::ServerUnaryReactor* reactor) {
    auto call = std::make_shared<Call>(reactor);
    const MutexLock lock(mutex_);
    calls_.insert(call);
    return call;
  }
  void Remove(const std::shared_ptr<Call>& call) {
    const MutexLock lock(mutex_);
    calls_.erase(call);
  }
  void EndAll(const grpc::Status& status) {
    const MutexLock lock(mutex_);
    for (const auto& call : calls_) call->Finish([&] { return status; });
    calls_.clear();
  }

 private:
  Mutex mutex_;
  std::unordered_set<std::shared_ptr<Call>> calls_ PLUMB_GUARDED_BY(mutex_);
};

}  // namespace plumbline::server
