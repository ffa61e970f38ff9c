// One run inside the engine: joins its evidence by (attempt, role, step, site) and decides when a
// step is complete. Knows nothing of rules.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "rules/rule.h"

namespace plumbline::rules {

class RunState {
 public:
  // What is called as steps close: `site` for each site of a step, then `step` once.
  struct OnClose {
    std::function<void(const SiteStep&)> site;
    std::function<void(const StepEnd&)> step;
  };

  RunState(std::string run, int64_t window_steps) : window_(window_steps) {
    summary_.run = std::move(run);
  }

  // What `batch` says about this run. Only sources of this run are looked at. Valid input assumed.
  void Take(const std::shared_ptr<const v1::Batch>& batch, const OnClose& on_close);
  void MarkGone(const v1::Source& source, const OnClose& on_close);
  // Closes everything that is open, complete or not.
  void CloseAll(const OnClose& on_close);

  RunSummary& summary() { return summary_; }
  const RunSummary& summary() const { return summary_; }
  // Newest step below which all is closed, over the newest attempt; -1 before the first.
  int64_t closed_step() const;

 private:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::min();

  struct Rank {
    int64_t complete_through = kNever;
    int64_t newest_step = kNever;
    bool done = false;  // said goodbye, or is gone: never waited for again
    bool said_progress = false;
  };
  struct Held {
    std::shared_ptr<const v1::Batch> batch;  // keeps the two pointers alive
    const v1::Source* source;
    const v1::Evidence* evidence;
  };
  // One attempt of one role.
  struct Group {
    uint32_t world_size = 0;
    std::map<uint32_t, Rank> ranks;
    std::map<int64_t, std::vector<Held>> open;  // by step
    int64_t closed = kNever;
    int64_t newest_step = kNever;
  };
  using GroupKey = std::pair<uint32_t, v1::Role>;  // (attempt, role)

  Group& GroupOf(const v1::Source& source);
  void Hold(const std::shared_ptr<const v1::Batch>& batch, const v1::Evidence& evidence);
  void CountLoss(const v1::Source& source, const v1::Loss& loss);
  void SupersedeOlder(const std::shared_ptr<const v1::Batch>& batch, const OnClose& on_close);
  void CloseReady(const GroupKey& key, Group& group, const OnClose& on_close);
  void CloseStep(const GroupKey& key, Group& group, int64_t step, const OnClose& on_close);
  bool Covered(const Group& group, uint32_t rank, int64_t step) const;
  bool FarBehind(const Group& group, int64_t step) const;
  bool Ready(const Group& group, int64_t step) const;

  int64_t window_;
  RunSummary summary_;
  std::set<uint32_t> ranks_seen_;
  std::map<std::pair<std::string, std::string>, std::set<uint32_t>> declared_;
  std::map<GroupKey, Group> groups_;
  uint32_t newest_attempt_ = 0;
};

}  // namespace plumbline::rules
