#include "server/query/query_service.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "plumbline/v1/query.grpc.pb.h"
#include "server/query/watch.h"

namespace plumbline::server {
namespace {

// Wakes the watchers from a thread of its own: serialising for a hundred of them is no business
// of the judging thread's.
class WatchHub {
 public:
  explicit WatchHub(IncidentBook* book) : book_(book) {
    book_->SetOnChange([this] {
      std::lock_guard lock(mutex_);
      changed_ = true;
      wake_.notify_one();
    });
    thread_ = std::thread([this] { Loop(); });
  }

  ~WatchHub() {
    book_->SetOnChange(nullptr);
    {
      std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }

  Watch* Start(const v1::WatchIncidentsRequest& request) {
    auto watch = std::make_shared<Watch>(request, book_, [this](Watch* done) {
      std::lock_guard lock(mutex_);
      watches_.erase(done);
    });
    {
      std::lock_guard lock(mutex_);
      watches_[watch.get()] = watch;
    }
    watch->Begin();
    return watch.get();
  }

  void EndAll(const grpc::Status& status) {
    for (const auto& watch : All()) watch->End(status);
  }

 private:
  std::vector<std::shared_ptr<Watch>> All() {
    std::vector<std::shared_ptr<Watch>> all;
    std::lock_guard lock(mutex_);
    for (const auto& [raw, weak] : watches_) {
      if (auto watch = weak.lock()) all.push_back(std::move(watch));
    }
    return all;
  }

  void Loop() {
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [this] { return changed_ || stopped_; });
        if (stopped_) return;
        changed_ = false;
      }
      for (const auto& watch : All()) watch->Wake();
    }
  }

  IncidentBook* const book_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool changed_ = false;
  bool stopped_ = false;
  std::map<Watch*, std::weak_ptr<Watch>> watches_;
  std::thread thread_;
};

class QueryServiceImpl : public QueryService, public v1::Query::CallbackService {
 public:
  QueryServiceImpl(std::string version, const Judge* judge, IncidentBook* book,
                   const Counters* counters)
      : version_(std::move(version)),
        started_unix_ns_(std::chrono::duration_cast<std::chrono::nanoseconds>(
                             std::chrono::system_clock::now().time_since_epoch())
                             .count()),
        judge_(judge),
        book_(book),
        counters_(counters),
        hub_(book) {}

  grpc::Service* service() override { return this; }
  void Shutdown() override {
    hub_.EndAll({grpc::StatusCode::UNAVAILABLE, "the server is shutting down"});
  }

  grpc::ServerUnaryReactor* ListRuns(grpc::CallbackServerContext* context,
                                     const v1::ListRunsRequest*,
                                     v1::ListRunsResponse* response) override {
    for (v1::RunInfo& run : judge_->Runs()) *response->add_runs() = std::move(run);
    return Done(context);
  }

  grpc::ServerUnaryReactor* ListIncidents(grpc::CallbackServerContext* context,
                                          const v1::ListIncidentsRequest* request,
                                          v1::ListIncidentsResponse* response) override {
    const IncidentFilter filter{request->run(), request->rule(), request->min_level()};
    for (v1::Incident& i : book_->List(filter)) *response->add_incidents() = std::move(i);
    return Done(context);
  }

  grpc::ServerUnaryReactor* ListVerdicts(grpc::CallbackServerContext* context,
                                         const v1::ListVerdictsRequest* request,
                                         v1::ListVerdictsResponse* response) override {
    *response = judge_->Verdicts(request->run());
    return Done(context);
  }

  grpc::ServerWriteReactor<v1::IncidentEvent>* WatchIncidents(
      grpc::CallbackServerContext*, const v1::WatchIncidentsRequest* request) override {
    return hub_.Start(*request);
  }

  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context,
                                          const v1::GetServerInfoRequest*,
                                          v1::ServerInfo* info) override {
    info->set_version(version_);
    info->set_protocol(1);
    info->set_started_unix_ns(started_unix_ns_);
    info->set_batches(counters_->batches);
    info->set_evidence(counters_->evidence);
    info->set_streams(counters_->streams);
    info->set_duplicates(counters_->duplicates);
    info->set_out_of_order(counters_->out_of_order);
    info->set_paused_reads(counters_->paused_reads);
    auto& dropped = *info->mutable_dropped();
    dropped["rejected-batches"] = counters_->rejected_batches;
    dropped["rejected-evidence"] = counters_->rejected_evidence;
    dropped["engine-refused"] = counters_->engine_refused;
    dropped["skipped-batches"] = counters_->skipped_batches;
    return Done(context);
  }

 private:
  static grpc::ServerUnaryReactor* Done(grpc::CallbackServerContext* context) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  const std::string version_;
  const int64_t started_unix_ns_;
  const Judge* const judge_;
  IncidentBook* const book_;
  const Counters* const counters_;
  WatchHub hub_;
};

}  // namespace

std::unique_ptr<QueryService> QueryService::Create(std::string version, const Judge* judge,
                                                   IncidentBook* book, const Counters* counters) {
  return std::make_unique<QueryServiceImpl>(std::move(version), judge, book, counters);
}

}  // namespace plumbline::server
