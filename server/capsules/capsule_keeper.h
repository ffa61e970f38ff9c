// Takes capsules: requests the calls of a finding's site at one step from every rank, collects the
// parts, and stores the complete ones.
//
// The step must be ahead of every rank when the request arrives, and the ranks' present steps are
// unknown. So the first try is a few steps after the newest step that the server has seen. A rank
// that was past this step reports so at once. Then all ranks get a request for a step twice as far
// after the newest rank. So a fast trainer needs a few tries, and a slow trainer causes no wait.
//
// One thread does all the work; callers only queue tasks. The queue is bounded: a part that does
// not fit is dropped and counted, and requested again.
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
  std::string directory;  // empty: nothing is stored or requested
  // of findings whose capsules are taken automatically; UNSPECIFIED: only on request
  v1::Level level = v1::LEVEL_ERROR;
  uint64_t rank_bytes = uint64_t{8} << 20;
  uint64_t bytes = uint64_t{1} << 30;  // limit of all; the oldest are removed
  uint32_t ranks = 64;                 // of one capsule; first those that the finding names
  uint32_t per_run = 16;               // that are taken automatically
  int64_t dense_steps = 8;             // sampled densely at the site of such a finding
  std::chrono::nanoseconds grace = std::chrono::seconds(30);  // for a rank that is disconnected
  // A rank is requested again after this time: a request or its answer may have been dropped.
  std::chrono::nanoseconds silence = std::chrono::seconds(5);
  size_t queue_bytes = 32u << 20;  // of parts that wait to be written
  // capsules; if there are more, the oldest are removed and none are taken automatically
  size_t most = 2048;
  // Null: ids are not redacted.
  std::shared_ptr<const transport::Redactor> redactor;
};

// Thread-safe, except Start and destruction.
class CapsuleKeeper {
 public:
  // `known` returns the state of a run; called on any thread.
  CapsuleKeeper(CapsuleOptions options, std::function<RunKnown(const std::string&)> known,
                Counters* counters);
  ~CapsuleKeeper();

  // Loads the capsules of an earlier process. Returns InvalidArgument if the directory cannot be
  // used.
  absl::Status Start();
  void Stop();
  bool keeps() const { return !options_.directory.empty(); }

  // Record connections and disconnections of streams. `connection` rises with each connection of a
  // stream.
  void Joined(uint64_t stream_id, uint64_t connection, std::weak_ptr<Connection> line,
              const v1::Hello& hello);
  void Left(uint64_t stream_id, uint64_t connection);
  void OnPart(uint64_t stream_id, v1::CapsulePart part);
  void OnReport(uint64_t stream_id, const v1::DirectiveReport& report);

  // Handles a new finding of a run in progress.
  void OnFinding(const v1::Finding& finding);

  // Requests a capsule: `done` gets the capsule's info, on the keeper's thread. If the keeper stops
  // before, `done` is never called.
  void Request(const v1::Finding& finding, bool anew,
               std::function<void(absl::StatusOr<v1::CapsuleInfo>)> done);

  std::vector<v1::CapsuleInfo> List(const std::string& run, const std::string& fingerprint) const;
  // Returns the path of the bytes of `info.ranks(index)`, if they are stored.
  std::string PathOf(const v1::CapsuleInfo& info, int index) const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Rank {           // parallel to CapsuleInfo.ranks
    uint64_t stream = 0;  // 0: not connected
    Clock::time_point gone_at{};
    Clock::time_point spoke{};  // the last message from it or to it
    int again = 0;              // repeated requests for the same part
    int without_call = 0;       // steps in which it did not call the site
  };
  struct Capsule {
    v1::CapsuleInfo info;
    std::vector<Rank> ranks;
    Clock::time_point begun{};
    Clock::time_point retry_at = Clock::time_point::max();
    bool passed = false;  // true if a rank was past the step
    int64_t newest = -1;  // newest step of the ranks that refused
  };

  bool Post(size_t bytes, std::function<void()> task);
  void Loop();
  void Tick();
  // capsule_taking.cc: the ranks that get requests
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
  void QueryAll(Capsule* capsule);
  void Query(Capsule* capsule, int index);
  void Release(const Capsule& capsule, int index);
  void Direct(uint64_t stream_id, v1::Directive directive);
  void SampleDensely(const v1::Finding& finding);
  void TakeUp(uint64_t stream_id);
  // capsule_parts.cc: received parts
  void PartCame(uint64_t stream_id, const v1::CapsulePart& part);
  void PartCame(Capsule* capsule, int index, const v1::CapsulePart& part);
  void Refused(Capsule* capsule, int index, const v1::CapsulePart& part);
  absl::Status Check(const Capsule& capsule, int index, const v1::CapsulePart& part) const;
  absl::Status Finish(Capsule* capsule, int index, const v1::CapsulePart& part);
  absl::Status Redact(const v1::CapsuleInfo& info, v1::CapsuleRank* rank, v1::Batch* batch,
                      std::string* digest);
  void QueryAgain(Capsule* capsule, int index, const absl::Status& why);
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

  // Used only by the keeper's thread.
  RunProcesses run_processes_;
  std::map<std::string, Capsule> capsules_;       // by fingerprint
  std::unordered_map<uint64_t, Capsule*> by_id_;  // the same
  bool grown_ = false;                            // a capsule was finished since the last Shrink

  mutable Mutex mutex_;  // guards what follows
  CondVar wake_;
  std::deque<std::pair<size_t, std::function<void()>>> tasks_ PLUMB_GUARDED_BY(mutex_);
  size_t waiting_bytes_ PLUMB_GUARDED_BY(mutex_) = 0;
  bool stopped_ PLUMB_GUARDED_BY(mutex_) = false;
  std::map<std::string, v1::CapsuleInfo> view_ PLUMB_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace plumbline::server
