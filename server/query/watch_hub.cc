#include "server/query/watch_hub.h"

#include <utility>

namespace plumbline::server {

WatchHub::WatchHub(IncidentTable* incident_table, DeletedRuns deleted)
    : incident_table_(incident_table), deleted_(std::move(deleted)) {
  subscription_ = incident_table_->Subscribe([this] {
    const MutexLock lock(mutex_);
    changed_ = true;
    wake_.NotifyOne();
  });
  thread_ = std::thread([this] { Loop(); });
}

WatchHub::~WatchHub() {
  incident_table_->Unsubscribe(subscription_);
  {
    const MutexLock lock(mutex_);
    stopped_ = true;
  }
  wake_.NotifyOne();
  thread_.join();
}

Watch* WatchHub::Start(const v1::WatchIncidentsRequest& request, std::shared_ptr<Lease> lease) {
  auto watch = std::make_shared<Watch>(request, incident_table_, std::move(lease), deleted_,
                                       [this](Watch* done) {
                                         const MutexLock lock(mutex_);
                                         watches_.erase(done);
                                       });
  {
    const MutexLock lock(mutex_);
    watches_[watch.get()] = watch;
  }
  watch->Begin();
  return watch.get();
}

void WatchHub::EndAll(const grpc::Status& status) {
  for (const auto& watch : All()) watch->End(status);
}

std::vector<std::shared_ptr<Watch>> WatchHub::All() {
  std::vector<std::shared_ptr<Watch>> all;
  const MutexLock lock(mutex_);
  for (const auto& [raw, weak] : watches_) {
    if (auto watch = weak.lock()) all.push_back(std::move(watch));
  }
  return all;
}

void WatchHub::Loop() {
  for (;;) {
    {
      MutexLock lock(mutex_);
      wake_.Wait(lock, [this]() PLUMB_REQUIRES(mutex_) { return changed_ || stopped_; });
      if (stopped_) return;
      changed_ = false;
    }
    for (const auto& watch : All()) watch->Wake();
  }
}

}  // namespace plumbline::server
