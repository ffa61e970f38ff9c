// Takes capsules: asks every rank for the calls of a finding's site at one step, gathers the parts,
// and keeps what is whole.
//
// The step must lie ahead of every rank when the order reaches it, and how far ranks are nobody
// knows: the first try is a few steps beyond the newest that the server has seen. A rank that was
// past it says so at once, and everybody is asked again for a step twice as far beyond the newest
// rank. So a fast trainer costs a few tries and a slow one is not waited for.
//
// All is done by one thread of its own; callers hand over and go on. What waits for it is bounded:
// a part that finds no room is dropped and counted, and asked for again.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "plumbline/v1/capsule.pb.h"
#include "plumbline/v1/ingest.pb.h"
#include "server/capsules/capsule_files.h"
#include "server/capsules/run_processes.h"
#include "server/process/counters.h"
#include "server/stream/run_table.h"
#include "server/stream/stream_table.h"
#include "transport/redact.h"

namespace plumbline::server {

struct CapsuleOptions {
  std::string directory;              // empty: nothing is kept and nobody is asked
  v1::Level level = v1::LEVEL_ERROR;  // of findings whose capsules are taken at once;
                                      // UNSPECIFIED: only those that somebody asks for
  uint64_t rank_bytes = uint64_t{8} << 20;
  uint64_t bytes = uint64_t{1} << 30;  // of all that is held; the oldest go
  uint32_t ranks = 64;                 // of one capsule; those that the finding names first
  uint32_t per_run = 16;               // that are taken unasked
  int64_t dense_steps = 8;             // sampled densely at the site of such a finding
  std::chrono::nanoseconds grace = std::chrono::seconds(30);  // a rank may be away
  // After which a rank is asked again: an order or its answer may have been dropped.
  std::chrono::nanoseconds silence = std::chrono::seconds(5);
  size_t queue_bytes = 32u << 20;  // of parts that wait to be written
  size_t most = 2048;              // capsules; the oldest go, and no more are taken unasked
  // Null: ids are kept as they come.
  std::shared_ptr<const transport::Redactor> redactor;
};

// Thread-safe but for Start and destruction.
class CapsuleKeeper {
 public:
  // `known` of a run: any thread.
  CapsuleKeeper(CapsuleOptions options, std::function<RunKnown(const std::string&)> known,
                Counters* counters);
  ~CapsuleKeeper();

  // Takes up what a former process held. InvalidArgument: the directory cannot be used.
  absl::Status Start();
  void Stop();
  bool keeps() const { return !options_.directory.empty(); }

  // Streams, as they come and go. `connection` rises with each connection of a stream.
  void Joined(uint64_t stream_id, uint64_t connection, std::weak_ptr<Connection> line,
              const v1::Hello& hello);
  void Left(uint64_t stream_id, uint64_t connection);
  void OnPart(uint64_t stream_id, v1::CapsulePart part);
  void OnReport(uint64_t stream_id, const v1::DirectiveReport& report);

  // A finding that is new, live.
  void OnFinding(const v1::Finding& finding);

  // Somebody wants one: `done` gets its info, on the keeper's thread; never when it stops before.
  void Request(const v1::Finding& finding, bool anew,
               std::function<void(absl::StatusOr<v1::CapsuleInfo>)> done);

  std::vector<v1::CapsuleInfo> List(const std::string& run, const std::string& fingerprint) const;
  // Where the bytes of `info.ranks(index)` lie, when they are held.
  std::string PathOf(const v1::CapsuleInfo& info, int index) const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Rank {           // beside CapsuleInfo.ranks, in their order
    uint64_t stream = 0;  // 0: not connected
    Clock::time_point gone_at{};
    Clock::time_point spoke{};  // it, or the server to it
    int again = 0;              // times that it was asked to send again
    int without_call = 0;       // steps in which it had not called the site
  };
  struct Capsule {
    v1::CapsuleInfo info;
    std::vector<Rank> ranks;
    Clock::time_point begun{};
    Clock::time_point retry_at = Clock::time_point::max();
    bool passed = false;  // somebody was past the step
    int64_t newest = -1;  // of ranks that refused
  };

  bool Post(size_t bytes, std::function<void()> task);
  void Loop();
  void Tick();
  // capsule_taking.cc: who is asked
  Capsule* Begin(const v1::Finding& finding);
  void BeginWaiting();
  // Sites of capsules that are being taken, by run.
  using Taking = std::map<std::string, std::vector<std::pair<std::string, std::string>>>;
  static void Note(const Capsule& capsule, Taking* taking);
  Taking FindTaking() const;
  bool MayTake(const Capsule& capsule, const Taking& taking) const;
  void Look(Capsule* capsule, Clock::time_point now);
  void Take(Capsule* capsule);
  void AddRanks(Capsule* capsule);
  void AddAway(Capsule* capsule, uint32_t attempt);
  void AskAll(Capsule* capsule);
  void Ask(Capsule* capsule, int index);
  void Release(const Capsule& capsule, int index);
  void Direct(uint64_t stream_id, v1::Directive directive);
  void SampleDensely(const v1::Finding& finding);
  void TakeUp(uint64_t stream_id);
  // capsule_parts.cc: what comes
  void PartCame(uint64_t stream_id, const v1::CapsulePart& part);
  void PartCame(Capsule* capsule, int index, const v1::CapsulePart& part);
  void Refused(Capsule* capsule, int index, const v1::CapsulePart& part);
  absl::Status Check(const Capsule& capsule, int index, const v1::CapsulePart& part) const;
  absl::Status Finish(Capsule* capsule, int index, const v1::CapsulePart& part);
  absl::Status Redact(const v1::CapsuleInfo& info, v1::CapsuleRank* rank, v1::Batch* batch,
                      std::string* digest);
  void AskAgain(Capsule* capsule, int index, const absl::Status& why);
  void FailRank(Capsule* capsule, int index, const std::string& why);
  bool MayYetHaveSite(const Capsule& capsule, const v1::CapsulePart& part) const;
  void Settle(Capsule* capsule);
  void Save(const Capsule& capsule);
  void Shrink();

  const CapsuleOptions options_;
  const std::function<RunKnown(const std::string&)> known_;
  Counters* const counters_;
  CapsuleFiles files_;

  const Clock::time_point started_ = Clock::now();

  // The keeper's thread's own.
  RunProcesses run_processes_;
  std::map<std::string, Capsule> capsules_;       // by fingerprint
  std::unordered_map<uint64_t, Capsule*> by_id_;  // the same
  bool grown_ = false;                            // something was settled since it was last shrunk

  mutable Mutex mutex_;  // guards what follows
  CondVar wake_;
  std::deque<std::pair<size_t, std::function<void()>>> tasks_ PLUMB_GUARDED_BY(mutex_);
  size_t waiting_bytes_ PLUMB_GUARDED_BY(mutex_) = 0;
  bool stopped_ PLUMB_GUARDED_BY(mutex_) = false;
  std::map<std::string, v1::CapsuleInfo> view_ PLUMB_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace plumbline::server
