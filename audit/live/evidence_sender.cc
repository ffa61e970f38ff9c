#include "audit/live/evidence_sender.h"

#include <cstdio>
#include <random>
#include <utility>

#include "audit/render/text_util.h"
#include "base/mutex.h"
#include "transport/diagnosis.h"
#include "transport/stream_sender.h"

namespace plumbline::audit {
namespace {

using std::chrono::milliseconds;

// Limits of the queue in memory, in addition to the data that the caller keeps.
constexpr uint64_t kMostWaiting = 16u << 20;  // bytes
constexpr uint64_t kMostBatches = 512;

// Maps a set of a stream to an id that is unique in the combined stream.
uint64_t SetWithin(uint64_t stream_id, uint64_t set) {
  uint64_t mixed = (stream_id ^ (set * 0x9e3779b97f4a7c15)) * 0xbf58476d1ce4e5b9;
  mixed ^= mixed >> 29;
  return mixed | 1;
}

uint64_t RandomId() {
  std::random_device random;
  return (static_cast<uint64_t>(random()) << 32 | random()) | 1;
}

}  // namespace

class EvidenceSender::Impl {
 public:
  explicit Impl(std::string server) : outbox_({}) {
    config_.target = std::move(server);
    config_.stream_id = RandomId();
    config_.tool_version = "plumb";
    config_.reconnecting = 1;
    config_.credentials = transport::CredentialsFromEnvironment();
    config_.newest_step = [this] { return newest_.load(); };
    config_.on_refused = [this](const grpc::Status& status) {
      // The same names are rejected each time.
      if (status.error_code() == grpc::StatusCode::INVALID_ARGUMENT) GiveUp(status.error_message());
      Report(config_.target + " refuses the data: " + Why(status));
    };
    config_.on_unreachable = [this](const grpc::Status& status) {
      Report(Why(status) + ". The data are sent when a server accepts them.");
    };
  }
  ~Impl() { Stop(); }

  bool room() const {
    const transport::Outbox::State state = outbox_.state();
    return state.bytes < kMostWaiting && state.batches < kMostBatches;
  }
  uint64_t waiting() const { return outbox_.state().batches; }
  uint64_t refused() const { return outbox_.state().rejected; }
  bool connected() const { return counters_.connections.load() > 0; }
  std::string hopeless() const {
    const MutexLock lock(mutex_);
    return hopeless_;
  }

  void Push(v1::Batch batch) {
    const uint64_t stream = batch.stream_id();
    for (v1::SeriesSet& set : *batch.mutable_series_sets()) set.set_id(SetWithin(stream, set.id()));
    for (v1::SeriesRows& rows : *batch.mutable_series())
      rows.set_set(SetWithin(stream, rows.set()));
    for (const v1::Progress& progress : batch.progress()) {
      if (progress.newest_step() > newest_.load()) newest_ = progress.newest_step();
    }
    if (!thread_.joinable()) Start(batch);
    outbox_.Push(transport::Seal(batch));
  }

  bool Finish(milliseconds patience) {
    finishing_ = true;
    using Clock = std::chrono::steady_clock;
    Clock::time_point last = Clock::now();
    uint64_t left = waiting();
    while (thread_.joinable() && left > 0 && hopeless().empty() && Clock::now() - last < patience) {
      std::this_thread::sleep_for(milliseconds(10));
      if (const uint64_t now = waiting(); now != left) {
        left = now;
        last = Clock::now();
      }
    }
    if (left == 0 && thread_.joinable()) thread_.join();  // sends the goodbye
    Stop();
    return waiting() == 0;
  }

 private:
  std::string Why(const grpc::Status& status) const {
    return transport::Diagnose(config_.target, config_.credentials, status).text;
  }

  // gRPC starts its threads here; signals are already blocked.
  void Start(const v1::Batch& first) {
    for (const v1::Source& source : first.sources()) config_.sources.push_back(source);
    thread_ = std::thread([this] {
      transport::StreamSender(
          config_, &outbox_, &counters_,
          {[this] { return finishing_.load(); }, [this] { return stopping_.load(); }})
          .Run();
    });
  }

  void Stop() {
    stopping_ = true;
    if (thread_.joinable()) thread_.join();
  }

  void GiveUp(const std::string& why) {
    const MutexLock lock(mutex_);
    hopeless_ = why;
  }

  // Called on the sender's thread.
  void Report(const std::string& what) {
    if (stated_ == what) return;
    stated_ = what;
    std::fprintf(stderr, "plumb: %s\n", Printable(what).c_str());
  }

  transport::StreamConfig config_;
  transport::Outbox outbox_;
  transport::StreamCounters counters_;
  std::atomic<int64_t> newest_{-1};
  std::atomic<bool> finishing_{false}, stopping_{false};
  std::string stated_;
  mutable Mutex mutex_;
  std::string hopeless_ PLUMB_GUARDED_BY(mutex_);
  std::thread thread_;
};

EvidenceSender::EvidenceSender(std::string server)
    : impl_(std::make_unique<Impl>(std::move(server))) {}
EvidenceSender::~EvidenceSender() = default;
bool EvidenceSender::room() const { return impl_->room(); }
void EvidenceSender::Push(v1::Batch batch) { impl_->Push(std::move(batch)); }
uint64_t EvidenceSender::waiting() const { return impl_->waiting(); }
uint64_t EvidenceSender::refused() const { return impl_->refused(); }
bool EvidenceSender::connected() const { return impl_->connected(); }
std::string EvidenceSender::hopeless() const { return impl_->hopeless(); }
bool EvidenceSender::Finish(milliseconds patience) { return impl_->Finish(patience); }

}  // namespace plumbline::audit
