#include "server/ingest/ingest_service.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "plumbline/v1/ingest.grpc.pb.h"
#include "server/ingest/intake.h"
#include "server/ingest/session.h"

namespace plumbline::server {
namespace {

constexpr std::chrono::milliseconds kShortPace{20}, kLongPace{500};
// Hellos that wait for a place are refused if none has become free for three times the delay of
// acknowledgements (3 s). The judge looks for runs that are over twice a second, and at least every
// two seconds under load.
constexpr int kPlaceWait = 3;

// All streams share one limit. It is not divided among senders, because a sender that sends in
// order does not use it.
Sequencer::Limits WaitingOf(const IngestOptions& options) {
  Sequencer::Limits limits = options.waiting;
  limits.of_all = std::make_shared<SharedBytes>(options.waiting_bytes, Shares(), "waiting batches",
                                                "ingest.queue_bytes");
  return limits;
}

// Uses the raw form of the method, so that this code can refuse a message that does not parse, and
// the bytes are kept as received.
class IngestServiceImpl : public IngestService,
                          public v1::Ingest::WithRawCallbackMethod_Stream<v1::Ingest::Service> {
 public:
  IngestServiceImpl(const IngestOptions& options, const StreamPositions& known, Journal* journal,
                    Judge* judge, Gate* gate, Counters* counters, const Askers& askers)
      : gate_(gate),
        max_calls_(2 * options.max_streams),
        shares_(options.shares),
        name_bytes_(std::make_shared<SharedBytes>(
            options.name_bytes, options.shares, "names of series and sites", "limits.name_bytes")),
        table_({options.max_streams, options.max_ranks, options.shares, name_bytes_},
               WaitingOf(options)),
        names_(options.max_runs, options.max_series, options.shares, name_bytes_),
        admission_(&names_, counters, kPlaceWait * options.ack_delay),
        pacer_({options.window_steps, options.patience}),
        intake_(options.limits, &table_, &names_, &pacer_, journal, judge, counters),
        timer_(options.ack_delay),
        pace_timer_(
            std::clamp<std::chrono::nanoseconds>(options.patience / 8, kShortPace, kLongPace)),
        judge_(judge),
        context_{&intake_,
                 &admission_,
                 &timer_,
                 counters,
                 askers.capsules,
                 askers.stops,
                 &judge->liveness(),
                 options.server_version,
                 options.ack_batches,
                 journal->durable(),
                 options.hello_within,
                 options.redactor.get()},
        redactor_(options.redactor) {
    table_.Restore(known);
    Pace();
    judge_->SetOwners([this](const std::string& run) -> Judge::Owner {
      const std::string owner = names_.OwnerOf(run);
      return {owner, shares_.Of(owner)};
    });
    judge_->SetOnOver([this](const std::string& run) { names_.Forget(run); });
    judge_->SetKnownStreams([this](uint64_t stream_id) { return table_.Knows(stream_id); });
  }
  ~IngestServiceImpl() override {
    judge_->SetOwners(nullptr);
    judge_->SetOnOver(nullptr);
    judge_->SetKnownStreams(nullptr);
  }

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Stream(
      grpc::CallbackServerContext* context) override {
    auto lease = gate_->Enter(*context);
    const std::string owner = lease->Names();
    auto session = std::make_shared<Session>(&context_, std::move(lease), context->peer(),
                                             [this, owner](Session* done) {
                                               const MutexLock lock(mutex_);
                                               sessions_.erase(done);
                                               --calls_of_[owner];
                                             });
    bool room;
    {
      const MutexLock lock(mutex_);
      sessions_[session.get()] = session;
      const size_t own = ++calls_of_[owner];
      room = sessions_.size() <= max_calls_ && own <= shares_.Part(owner, max_calls_);
    }
    session->Begin();
    if (!room) {
      session->End({grpc::StatusCode::RESOURCE_EXHAUSTED,
                    "too many calls at once (ingest.max_streams); try again later"});
    }
    return session.get();
  }

  grpc::Service* service() override { return this; }

  void Shutdown() override {
    std::vector<std::shared_ptr<Session>> sessions;
    {
      const MutexLock lock(mutex_);
      for (const auto& [raw, weak] : sessions_) {
        if (auto session = weak.lock()) sessions.push_back(std::move(session));
      }
    }
    for (const auto& session : sessions) {
      session->End({grpc::StatusCode::UNAVAILABLE, "the server is shutting down"});
    }
  }

  size_t connected() const override {
    const MutexLock lock(mutex_);
    return sessions_.size();
  }

 private:
  // Restores the ranks that an earlier process knew, once the judge has found them in the journal.
  // Resumes streams that are held only by silent streams.
  void Pace() {
    std::vector<Pacer::Resume> free;
    if (!restored_ && !judge_->catching_up()) {
      restored_ = true;
      names_.Note(judge_->TakeNames());
      for (const KnownRank& rank : judge_->Ranks())
        pacer_.Restore(rank.stream_id, rank.source, rank.through, rank.over, rank.alone, &free);
    }
    pacer_.Tick(&free);
    for (const auto& resume : free) resume();
    pace_timer_.Schedule([this] { Pace(); });
  }

  Gate* const gate_;
  const size_t max_calls_;  // includes calls that have sent no hello
  const Shares shares_;
  const std::shared_ptr<SharedBytes> name_bytes_;
  StreamTable table_;
  NameTable names_;
  AdmissionQueue admission_;
  Pacer pacer_;
  Intake intake_;
  AckTimer timer_;
  AckTimer pace_timer_;
  Judge* const judge_;
  bool restored_ = false;  // used only by the timer
  const SessionContext context_;
  const std::shared_ptr<const transport::Redactor> redactor_;
  mutable Mutex mutex_;
  std::map<Session*, std::weak_ptr<Session>> sessions_ PLUMB_GUARDED_BY(mutex_);
  std::map<std::string, size_t> calls_of_ PLUMB_GUARDED_BY(mutex_);  // by owner
};

}  // namespace

std::unique_ptr<IngestService> IngestService::Create(const IngestOptions& options,
                                                     const StreamPositions& known, Journal* journal,
                                                     Judge* judge, Gate* gate, Counters* counters,
                                                     Askers askers) {
  return std::make_unique<IngestServiceImpl>(options, known, journal, judge, gate, counters,
                                             askers);
}

}  // namespace plumbline::server
