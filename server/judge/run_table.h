// The runs a server knows: who reports, who is gone, how far they are. Decides when a rank counts
// as gone and when a run is over. Time is passed in, so that tests need not wait.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/archive.h"
#include "plumbline/v1/batch.pb.h"
#include "plumbline/v1/query.pb.h"

namespace plumbline::server {

// Of a run, over all ranks of its newest attempt, as far as was judged.
struct RunKnown {
  int64_t newest_step = -1;        // -1: none, or no such run
  std::map<int, uint32_t> worlds;  // ranks by role
};

// Not thread-safe.
class RunTable {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit RunTable(std::chrono::nanoseconds grace) : grace_(grace) {}

  void Connected(uint64_t stream_id, const v1::Source& source, Time now, int64_t unix_ns);
  void Account(uint64_t stream_id, const v1::Batch& batch, Time now, int64_t unix_ns);
  // The stream ended. Its unfinished ranks may come back within the grace period.
  void Disconnected(uint64_t stream_id, const v1::Source& source, Time now);

  // A former process's streams are all gone; their unfinished ranks may come back likewise.
  void DisconnectAll(Time now);

  // Ranks whose grace ended, each reported once.
  std::vector<v1::Source> TakeGone(Time now);
  // Runs in which every rank has finished or is gone, each reported once until it reports again. A
  // rank that never appeared is waited for as long as one that broke off.
  std::vector<std::string> TakeEnded(Time now);

  // What a former process found by the two above.
  void SetGone(const v1::Source& source);
  void SetEnded(const std::string& run);

  RunKnown Known(const std::string& run) const;
  bool Ended(const std::string& run) const;  // also one that is not known
  void SetClosedStep(const std::string& run, int64_t step);
  void SetAllClosed(const std::string& run);  // the run is over: every step has been judged
  std::vector<std::string> RunsOf(const v1::Batch& batch) const;

  // Everything but times: call DisconnectAll after reading.
  void Persist(Archive& archive);

  // Name order; `open_incidents` is left to the caller.
  std::vector<v1::RunInfo> List() const;

 private:
  using Rank = std::pair<int, uint32_t>;  // (role, rank)
  struct RankState {
    v1::Source source;
    uint64_t stream_id = 0;
    bool connected = false;
    bool finished = false;
    bool gone = false;
    Time deadline{};  // of a rank that is not connected
    bool waiting() const { return !connected && !finished && !gone; }
    bool over() const { return finished || gone; }
    void Persist(Archive& archive);
  };
  struct Run {
    uint32_t attempt = 0;
    bool ended = false;
    std::map<Rank, RankState> ranks;  // of the newest attempt
    std::map<int, uint32_t> world;    // by role
    Time last_activity{};
    v1::RunInfo info;  // counters and steps; ranks are counted when listed
    void Persist(Archive& archive);
  };

  void Touch(Run& run, uint64_t stream_id, const v1::Source& source);
  static RankState* Find(Run& run, uint64_t stream_id, const v1::Source& source);
  Run& RunOf(const v1::Source& source, Time now, int64_t unix_ns);
  bool AllRanksSeen(const Run& run) const;
  bool AllRanksOver(const Run& run) const;

  const std::chrono::nanoseconds grace_;
  std::map<std::string, Run> runs_;
};

}  // namespace plumbline::server
