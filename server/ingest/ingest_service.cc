#include "server/ingest/ingest_service.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/support/proto_buffer_reader.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plumbline/v1/ingest.grpc.pb.h"
#include "server/ingest/ack_policy.h"
#include "server/ingest/ack_timer.h"
#include "server/ingest/stream_table.h"

namespace plumbline::server {
namespace {

constexpr uint32_t kProtocol = 1;

grpc::Status ToGrpc(const absl::Status& status) {
  // The codes of both libraries are the same numbers.
  return grpc::Status(static_cast<grpc::StatusCode>(status.raw_code()),
                      std::string(status.message()));
}

bool SameRank(const v1::Source& a, const v1::Source& b) {
  return a.rank() == b.rank() && a.attempt() == b.attempt() && a.role() == b.role() &&
         a.run() == b.run();
}

class Session;

// What the sessions share.
struct Core {
  Core(const IngestOptions& o, Judge* j, Counters* c)
      : options(o), judge(j), counters(c), table(o.max_streams, o.waiting), timer(o.ack_delay) {}

  const IngestOptions options;
  Judge* const judge;
  Counters* const counters;
  StreamTable table;
  AckTimer timer;

  std::mutex mutex;
  std::map<Session*, std::weak_ptr<Session>> sessions;
};

// One connection. Reads are handled one after another by gRPC; writes, the end and the resumption
// of reading are guarded by `mutex_`. Lives until OnDone.
class Session : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                public std::enable_shared_from_this<Session> {
 public:
  static Session* Start(Core* core) {
    auto session = std::make_shared<Session>(core);
    session->self_ = session;
    {
      std::lock_guard lock(core->mutex);
      core->sessions[session.get()] = session;
    }
    session->StartRead(&session->incoming_);
    return session.get();
  }

  explicit Session(Core* core) : core_(core), acks_(core->options.ack_batches) {}

  void OnReadDone(bool ok) override {
    if (!ok) return End(grpc::Status::OK);  // half-closed or broken
    const bool room = Consume();
    std::lock_guard lock(mutex_);
    if (!room && !std::exchange(resumed_early_, false)) {
      paused_ = true;
      return;
    }
    ReadLocked();
  }

  void OnWriteDone(bool ok) override {
    std::lock_guard lock(mutex_);
    writing_ = false;
    broken_ |= !ok;
    Pump();
  }

  void OnCancel() override { End(grpc::Status::CANCELLED); }

  void OnDone() override {
    Leave();
    {
      std::lock_guard lock(core_->mutex);
      core_->sessions.erase(this);
    }
    self_.reset();
  }

  // Sends what is owed, then ends the call. The first reason wins.
  void End(const grpc::Status& status) {
    std::lock_guard lock(mutex_);
    if (ending_) return;
    ending_ = true;
    status_ = status;
    Pump();
  }

 private:
  // ---- reading ----

  // Handles one message. False: the judge's queue is full, do not read on.
  bool Consume() {
    v1::AgentMessage message;
    const size_t bytes = incoming_.Length();
    grpc::ProtoBufferReader reader(&incoming_);
    const bool parsed = reader.status().ok() && message.ParseFromZeroCopyStream(&reader);
    incoming_.Clear();
    ++messages_;
    if (!parsed) return Unparsable(message);
    switch (message.what_case()) {
      case v1::AgentMessage::kHello:
        return OnHello(message.hello());
      case v1::AgentMessage::kBatch:
        return OnBatch({std::move(*message.mutable_batch()), bytes});
      case v1::AgentMessage::kHeartbeat:
      case v1::AgentMessage::WHAT_NOT_SET:  // from a newer agent
        break;
    }
    return true;
  }

  bool Fail(grpc::StatusCode code, const std::string& what) {
    ++core_->counters->broken_streams;
    spdlog::warn("stream {:016x} ended: {:?}", stream_ ? stream_->id : 0, what);
    End(grpc::Status(code, what));
    return true;
  }

  // A message of which the parser understood the number of the batch that is due is refused by
  // that number; otherwise nobody can say what was lost and the stream ends.
  bool Unparsable(const v1::AgentMessage& message) {
    const std::string reason = absl::StrCat("message ", messages_, " is no valid AgentMessage");
    if (stream_ != nullptr && message.has_batch() && message.batch().sequence() > 0) {
      std::unique_lock lock(stream_->mutex);
      const bool due = message.batch().sequence() == stream_->sequencer.contiguous() + 1;
      lock.unlock();
      if (due) return Number(message.batch().sequence(), std::nullopt, reason, 0);
    }
    return Fail(grpc::StatusCode::INVALID_ARGUMENT, reason);
  }

  bool OnHello(const v1::Hello& hello) {
    if (stream_ != nullptr) {
      return Fail(grpc::StatusCode::FAILED_PRECONDITION, "a second hello on one stream");
    }
    if (hello.protocol() == 0 || hello.stream_id() == 0) {
      return Fail(grpc::StatusCode::INVALID_ARGUMENT, "hello needs protocol and stream_id");
    }
    if (auto s = CheckHelloSources(hello); !s.ok()) {
      return Fail(grpc::StatusCode::INVALID_ARGUMENT, std::string(s.message()));
    }
    auto opened = core_->table.Open(hello.stream_id());
    if (!opened.ok()) {
      ++core_->counters->broken_streams;
      End(ToGrpc(opened.status()));
      return true;
    }
    stream_ = std::move(*opened);
    return Join(hello);
  }

  absl::Status CheckHelloSources(const v1::Hello& hello) const {
    if (hello.sources_size() > core_->options.limits.max_sources) {
      return absl::InvalidArgumentError(absl::StrCat("hello: ", hello.sources_size(),
                                                     " sources, at most ",
                                                     core_->options.limits.max_sources));
    }
    for (const v1::Source& source : hello.sources()) {
      if (auto s = CheckSource(source, core_->options.limits); !s.ok()) {
        return absl::InvalidArgumentError(absl::StrCat("hello: ", std::string(s.message())));
      }
    }
    return absl::OkStatus();
  }

  bool Join(const v1::Hello& hello) {
    std::function<void()> end_older;
    bool room = true;
    uint64_t acknowledged = 0;
    {
      std::lock_guard lock(stream_->mutex);
      connection_ = ++stream_->connection;
      end_older = std::exchange(stream_->end_connection, [weak = weak_from_this()] {
        if (auto session = weak.lock()) {
          session->End({grpc::StatusCode::ABORTED, "this stream was opened again elsewhere"});
        }
      });
      for (const v1::Source& source : hello.sources()) {
        if (auto s = ClaimLocked(source); !s.ok()) {
          End(ToGrpc(s));
          return true;
        }
      }
      // What this server holds itself: after a restart that is nothing, although the numbers go
      // on, and the agent then declares its sites again.
      acknowledged = stream_->sequencer.contiguous();
      std::vector<ParsedBatch> ready;
      const uint64_t skipped = stream_->sequencer.SkipTo(hello.next_sequence(), &ready);
      if (acknowledged > 0) core_->counters->skipped_batches += skipped;
      JudgeItem item;
      item.kind = JudgeItem::Kind::kConnected;
      item.stream_id = stream_->id;
      item.sources = stream_->sources;
      core_->judge->Push(std::move(item), nullptr);
      room = HandOnLocked(std::move(ready));
    }
    if (end_older) end_older();
    ++core_->counters->streams;
    Welcome(acknowledged);
    return room;
  }

  bool OnBatch(ParsedBatch batch) {
    if (stream_ == nullptr) {
      return Fail(grpc::StatusCode::FAILED_PRECONDITION, "the first message must be a hello");
    }
    const uint64_t sequence = batch.batch.sequence();
    if (sequence == 0) {
      return Fail(grpc::StatusCode::INVALID_ARGUMENT, "a batch without a sequence number");
    }
    if (batch.batch.stream_id() != stream_->id) {
      return Number(sequence, std::nullopt, "stream_id is not the one of the hello",
                    batch.batch.evidence_size());
    }
    if (auto s = CheckBatch(batch.batch, core_->options.limits); !s.ok()) {
      return Number(sequence, std::nullopt, std::string(s.message()), batch.batch.evidence_size());
    }
    return Number(sequence, std::move(batch), "", 0);
  }

  // Puts batch `sequence` into its place; nullopt with a reason when it was refused.
  bool Number(uint64_t sequence, std::optional<ParsedBatch> batch, std::string refused, int items) {
    bool finished = false;
    bool room = true;
    uint64_t held = 0;
    Sequencer::Offer offer;
    {
      std::lock_guard lock(stream_->mutex);
      if (stream_->connection != connection_) return true;  // superseded, and ending
      if (batch) {
        for (const v1::Source& source : batch->batch.sources()) {
          if (auto s = ClaimLocked(source); !s.ok()) {
            items = batch->batch.evidence_size();
            refused = std::string(s.message());
            batch.reset();
            break;
          }
        }
      }
      std::vector<ParsedBatch> ready;
      offer = stream_->sequencer.Take(sequence, std::move(batch), &ready);
      held = stream_->sequencer.contiguous();
      for (const ParsedBatch& b : ready) finished |= NoteFinishedLocked(b.batch);
      room = HandOnLocked(std::move(ready));
    }
    if (offer == Sequencer::Offer::kOverflow) {
      return Fail(grpc::StatusCode::FAILED_PRECONDITION,
                  absl::StrCat("batch ", sequence, " came, but too much waits for batch ", held + 1,
                               "; send again from there"));
    }
    if (offer == Sequencer::Offer::kDuplicate) ++core_->counters->duplicates;
    if (offer == Sequencer::Offer::kWaits) ++core_->counters->out_of_order;
    if (!refused.empty() && offer != Sequencer::Offer::kDuplicate) {
      ++core_->counters->rejected_batches;
      core_->counters->rejected_evidence += static_cast<uint64_t>(items);
      spdlog::warn("stream {:016x} batch {} refused: {:?}", stream_->id, sequence, refused);
    } else {
      refused.clear();
    }
    Acknowledge(held, sequence, std::move(refused), finished);
    return room;
  }

  absl::Status ClaimLocked(const v1::Source& source) {
    for (const v1::Source& known : stream_->sources) {
      if (SameRank(known, source)) return absl::OkStatus();
    }
    if (auto s = core_->table.Claim(stream_->id, source); !s.ok()) return s;
    stream_->sources.push_back(source);
    return absl::OkStatus();
  }

  bool NoteFinishedLocked(const v1::Batch& batch) {
    bool any = false;
    for (const v1::Progress& progress : batch.progress()) {
      if (!progress.finished()) continue;
      any = true;
      core_->table.Release(stream_->id, batch.sources(static_cast<int>(progress.source())));
    }
    return any;
  }

  // The seam of durability: what this function has taken may be acknowledged. A journal commits
  // here, before the judge sees the batch.
  bool HandOnLocked(std::vector<ParsedBatch> ready) {
    bool room = true;
    for (size_t i = 0; i < ready.size(); ++i) {
      ++core_->counters->batches;
      core_->counters->evidence += static_cast<uint64_t>(ready[i].batch.evidence_size());
      JudgeItem item;
      item.stream_id = stream_->id;
      item.batch = std::move(ready[i]);
      const bool last = i + 1 == ready.size();
      room = core_->judge->Push(std::move(item), last ? Resumption() : nullptr);
    }
    if (!room) ++core_->counters->paused_reads;
    return room;
  }

  std::function<void()> Resumption() {
    return [weak = weak_from_this()] {
      if (auto session = weak.lock()) session->Resume();
    };
  }

  void Resume() {
    std::lock_guard lock(mutex_);
    if (std::exchange(paused_, false)) {
      ReadLocked();
    } else {
      resumed_early_ = true;  // OnReadDone has not looked yet
    }
  }

  void ReadLocked() {
    if (!ending_) StartRead(&incoming_);
  }

  void Leave() {
    if (stream_ == nullptr) return;
    std::lock_guard lock(stream_->mutex);
    if (stream_->connection != connection_) return;  // a newer connection speaks for the stream
    stream_->end_connection = nullptr;
    core_->table.Closed(stream_->id);
    JudgeItem item;
    item.kind = JudgeItem::Kind::kDisconnected;
    item.stream_id = stream_->id;
    item.sources = stream_->sources;
    core_->judge->Push(std::move(item), nullptr);
  }

  // ---- writing ----

  void Welcome(uint64_t acknowledged) {
    v1::ServerMessage message;
    message.mutable_welcome()->set_protocol(kProtocol);
    message.mutable_welcome()->set_server_version(core_->options.server_version);
    message.mutable_welcome()->set_acknowledged(acknowledged);
    std::lock_guard lock(mutex_);
    queue_.push_back(std::move(message));
    Pump();
  }

  void Acknowledge(uint64_t held, uint64_t sequence, std::string refused, bool at_once) {
    std::lock_guard lock(mutex_);
    acks_.Held(held);
    if (!refused.empty()) acks_.Refused(sequence, std::move(refused));
    if (at_once) acks_.Urgent();
    if (!acks_.due() && !ack_scheduled_) {
      ack_scheduled_ = true;
      core_->timer.Schedule([weak = weak_from_this()] {
        if (auto session = weak.lock()) session->OnAckTimer();
      });
    }
    Pump();
  }

  void OnAckTimer() {
    std::lock_guard lock(mutex_);
    ack_scheduled_ = false;
    if (acks_.anything()) acks_.Urgent();
    Pump();
  }

  // Writes the next message, or ends the call when it should end and nothing is owed. One
  // operation at a time.
  void Pump() {
    if (writing_ || finished_) return;
    if (!broken_ && queue_.empty() && (acks_.due() || (ending_ && acks_.anything()))) {
      *queue_.emplace_back().mutable_ack() = acks_.Take();
    }
    if (!broken_ && !queue_.empty()) {
      outgoing_.Clear();
      bool own_buffer = false;
      grpc::SerializationTraits<v1::ServerMessage>::Serialize(queue_.front(), &outgoing_,
                                                              &own_buffer);
      queue_.erase(queue_.begin());
      writing_ = true;
      StartWrite(&outgoing_);
      return;
    }
    if (!ending_) return;
    finished_ = true;
    Finish(status_);
  }

  Core* const core_;
  std::shared_ptr<Session> self_;

  // Read side.
  grpc::ByteBuffer incoming_;
  uint64_t messages_ = 0;
  std::shared_ptr<StreamState> stream_;  // null before the hello
  uint64_t connection_ = 0;

  std::mutex mutex_;
  bool paused_ = false;
  bool resumed_early_ = false;
  AckPolicy acks_;
  bool ack_scheduled_ = false;
  std::vector<v1::ServerMessage> queue_;
  grpc::ByteBuffer outgoing_;
  bool writing_ = false;
  bool broken_ = false;  // a write failed: nobody listens
  bool ending_ = false;
  bool finished_ = false;
  grpc::Status status_;
};

// The raw form of the method: a message that does not parse is then ours to refuse, and the bytes
// can be kept as they came.
class IngestServiceImpl : public IngestService,
                          public v1::Ingest::WithRawCallbackMethod_Stream<v1::Ingest::Service> {
 public:
  IngestServiceImpl(const IngestOptions& options, Judge* judge, Counters* counters)
      : core_(options, judge, counters) {}

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Stream(
      grpc::CallbackServerContext*) override {
    return Session::Start(&core_);
  }

  grpc::Service* service() override { return this; }

  void Shutdown() override {
    std::vector<std::shared_ptr<Session>> sessions;
    {
      std::lock_guard lock(core_.mutex);
      for (const auto& [raw, weak] : core_.sessions) {
        if (auto session = weak.lock()) sessions.push_back(std::move(session));
      }
    }
    for (const auto& session : sessions) {
      session->End({grpc::StatusCode::UNAVAILABLE, "the server is shutting down"});
    }
  }

  size_t connected() const override {
    std::lock_guard lock(core_.mutex);
    return core_.sessions.size();
  }

 private:
  mutable Core core_;
};

}  // namespace

std::unique_ptr<IngestService> IngestService::Create(const IngestOptions& options, Judge* judge,
                                                     Counters* counters) {
  return std::make_unique<IngestServiceImpl>(options, judge, counters);
}

}  // namespace plumbline::server
