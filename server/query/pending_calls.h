// Calls that wait for the judge. If the server shuts down, the judge may never handle them; then
// they are ended here.
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
  // A call that ends once: with the result of `status`, or when the server shuts down.
  class Call {
   public:
    explicit Call(grpc::ServerUnaryReactor* reactor) : reactor_(reactor) {}
    // Ends the call. `status` may still fill in the response; if the call is over, it does not run.
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
