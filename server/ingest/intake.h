// Takes the batches of a stream from the network to the journal: decides which connection owns
// which rank, in which order batches count, and which are refused or held. Does not depend on gRPC.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "plumbline/v1/ingest.pb.h"
#include "server/ingest/name_table.h"
#include "server/ingest/pacer.h"
#include "server/journal/journal.h"
#include "server/judge/judge.h"
#include "server/process/counters.h"
#include "server/stream/batch_checks.h"
#include "server/stream/stream_table.h"

namespace plumbline::server {

// Thread-safe. A batch that it takes goes to the journal. Once held there, it goes to the judge and
// is acknowledged.
class Intake {
 public:
  // All pointers must outlive it, and the journal must be stopped before it is destroyed.
  Intake(BatchLimits limits, StreamTable* table, NameTable* names, Pacer* pacer, Journal* journal,
         Judge* judge, Counters* counters)
      : limits_(limits),
        table_(table),
        names_(names),
        pacer_(pacer),
        journal_(journal),
        judge_(judge),
        counters_(counters) {}

  // The state that one connection has for its stream.
  struct Joined {
    std::shared_ptr<StreamState> stream;
    uint64_t connection = 0;
    uint64_t held = 0;           // highest number that need not be sent again
    bool room = true;            // false: continue reading after Connection::Resume is called
    uint32_t ahead = 0;          // added to the attempts that its process sends (attempts.h)
    size_t refused = 0;          // batches that waited for its hello and are refused now
    std::set<std::string> runs;  // in its hello; batches of other runs are refused
    std::shared_ptr<NameTable::Hold> names;  // the names of these runs
  };
  // Returns OK if the sender of this hello may write the run. Called for the runs in the hello and
  // those of the stream's earlier connections.
  using MayWrite = std::function<absl::Status(const std::string& run)>;
  static std::set<std::string> RunsOf(const v1::Hello& hello);
  // Returns OK if the hello is well-formed and its sender may write its runs.
  absl::Status MayJoin(const v1::Hello& hello, const MayWrite& may_write) const;
  // Adds a connection to its stream. `sender` is charged for its share; `names` is its place
  // (admission_queue.h). If the process was restarted and does not know it, raises the attempts in
  // `stated`; the attempts of its batches are raised by the same number.
  absl::StatusOr<Joined> Join(v1::Hello* stated, std::weak_ptr<Connection> owner,
                              const MayWrite& may_write, const Sender& sender,
                              std::shared_ptr<NameTable::Hold> names);
  // Records that the connection is gone. `ended`: the connection ended as it does when the process
  // ends; false: unknown.
  void Leave(const Joined& joined, bool ended = false);

  enum class Outcome {
    kTaken,
    kWaits,  // for an earlier batch
    kDuplicate,
    kOverflow,    // too much waits for batch `next`
    kSuperseded,  // a newer connection has the stream
  };
  struct Taken {
    Outcome outcome = Outcome::kTaken;
    bool room = true;
    uint64_t next = 0;  // the next expected number
    uint64_t held = 0;
    size_t refused = 0;  // batches, this batch or those that waited for it; OnRefused follows
  };
  // Takes a batch with `sequence` > 0. Refuses a batch by number if it is malformed or was already
  // refused.
  Taken Offer(const Joined& joined, uint64_t sequence, ParsedBatch batch);
  // Records the progress that the stream reports while it has nothing to send.
  void Hear(const Joined& joined, const v1::Heartbeat& heartbeat);
  // Runs `what` when the journal holds everything that was taken so far. If the journal stops
  // before, `what` never runs.
  void WhenHeld(std::function<void()> what) { journal_->Then(std::move(what)); }
  // Returns true if `sequence` is the next expected number.
  bool IsDue(const Joined& joined, uint64_t sequence) const;

 private:
  void LeaveStream(const Joined& joined, bool ended);
  absl::Status CheckHello(const v1::Hello& hello) const;
  SeriesSets::Declared SetsThatFit(const v1::Hello& hello) const;
  absl::Status AddSetsLocked(StreamState& stream, const SeriesSets::Declared& sets,
                             std::vector<SetRecord>* fresh) const PLUMB_REQUIRES(stream.mutex);
  void JoinLocked(const v1::Hello& hello, Joined* joined, std::vector<Pacer::Resume>* free)
      PLUMB_REQUIRES(joined->stream->mutex);
  absl::Status ClaimLocked(StreamState& stream, const v1::Source& source)
      PLUMB_REQUIRES(stream.mutex);
  struct HandedOn {
    bool room = true;
    size_t refused = 0;
  };
  void RefuseIfMalformed(StreamState& stream, const std::set<std::string>& runs, ParsedBatch* batch)
      PLUMB_REQUIRES(stream.mutex);
  bool NoteFinished(const StreamState& stream, const v1::Batch& batch) PLUMB_REQUIRES(stream.mutex);
  void DeclareLocked(const std::shared_ptr<StreamState>& stream, const v1::Hello& hello)
      PLUMB_REQUIRES(stream->mutex);
  void SkipLocked(const std::shared_ptr<StreamState>& stream, uint64_t first, uint64_t last)
      PLUMB_REQUIRES(stream->mutex);
  Taken OfferLocked(const Joined& joined, uint64_t sequence, ParsedBatch batch,
                    std::vector<Pacer::Resume>* free);
  HandedOn HandOnLocked(const std::shared_ptr<StreamState>& stream, std::vector<ParsedBatch> ready,
                        std::vector<Pacer::Resume>* free) PLUMB_REQUIRES(stream->mutex);
  void KeepLocked(const std::shared_ptr<StreamState>& stream, ParsedBatch batch,
                  std::function<void()> resume, HandedOn* handed) PLUMB_REQUIRES(stream->mutex);
  void RefuseLocked(const std::shared_ptr<StreamState>& stream, uint64_t sequence,
                    ParsedBatch batch) PLUMB_REQUIRES(stream->mutex);
  static void Held(StreamState& stream, uint64_t sequence, bool at_once,
                   const std::string& refused);

  const BatchLimits limits_;
  StreamTable* const table_;
  NameTable* const names_;
  Pacer* const pacer_;
  Journal* const journal_;
  Judge* const judge_;
  Counters* const counters_;
};

}  // namespace plumbline::server
