// Tracks the communicators of all processes, from the log lines at their creation.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "audit/readers/nccl_log/line.h"

namespace plumbline::audit {

// One communicator with all its ranks.
struct NcclGroup {
  uint32_t nranks = 0;                       // 0 if unknown
  std::map<uint32_t, uint32_t> members;      // rank -> agent, for ranks whose logs are present
  std::vector<std::vector<uint32_t>> rings;  // ring of each channel, as rank 0 logged it
  bool known = false;                        // the log has the creation, so the ranks are known
  bool ambiguous = false;                    // two agents have the same rank in it
};

// A caller: one device of a process.
struct NcclAgent {
  uint32_t rank = 0, nranks = 0;  // in its largest communicator (if there are several, the first)
};

// Numbers groups and agents in order of appearance. Memory is bounded; entries beyond the bound are
// counted. Not thread-safe.
class NcclCommunicators {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  // Returns the number of a process of a file; the same name has the same number.
  uint32_t Process(uint32_t file, std::string_view name);

  void Init(uint32_t process, const NcclInit& init);
  void End(uint32_t process, uint64_t comm) { open_.erase({process, comm}); }
  // Ring takes a ring that a thread logs while it creates a communicator. Made takes the
  // communicator that the thread has then created.
  void Ring(uint32_t process, std::string_view thread, const NcclRing& ring);
  void Made(uint32_t process, std::string_view thread, const NcclInit& init);

  struct Member {
    uint32_t group = kNone, agent = kNone, rank = 0;
  };
  // Returns the communicator that the call's pointer refers to now. If the log does not have its
  // creation, returns a group that belongs only to this process.
  Member Of(uint32_t process, const NcclCall& call);

  const std::vector<NcclGroup>& groups() const { return groups_; }
  const std::vector<NcclAgent>& agents() const { return agents_; }
  uint64_t beyond() const { return beyond_; }

  // Returns a rank for each agent: the rank in its largest communicator. If these are not unique,
  // its position in order of appearance.
  std::vector<uint32_t> RanksOfAgents() const;
  // Returns the name of each group: "world", "ranks 0-3", "ranks 0, 4", "8 ranks with 0, 1 #2".
  std::vector<std::string> NamesOfGroups(const std::vector<uint32_t>& ranks) const;

 private:
  static constexpr size_t kMostGroups = 1 << 16;
  static constexpr size_t kMostProcesses = 1 << 17;
  static constexpr size_t kMostAgents = 1 << 17;
  static constexpr size_t kMostMembers = 1 << 22;
  static constexpr size_t kMostRingRanks = 1 << 22;
  static constexpr size_t kMostThreads = 1 << 12;

  struct Open {
    Member member;
    bool complete = false;
  };
  uint32_t Agent(uint32_t process, int device);
  uint32_t Group(const std::string& key, uint32_t nranks);
  std::string KeyOf(uint32_t process, uint32_t agent, const NcclInit& init);

  std::vector<NcclGroup> groups_;
  std::vector<NcclAgent> agents_;
  std::vector<bool> made_any_;  // process -> true if it logged a communicator
  std::unordered_map<std::string, uint32_t> process_of_, group_of_;
  std::vector<std::string> keys_;  // key of each group
  std::map<std::pair<uint32_t, int>, uint32_t> agent_of_;
  // (process, current pointer) -> communicator.
  std::map<std::pair<uint32_t, uint64_t>, Open> open_;
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> made_;  // (agent, nranks) -> count
  // Thread -> rings that it logged.
  std::unordered_map<std::string, std::vector<std::vector<uint32_t>>> rings_;
  size_t members_ = 0, ring_ranks_ = 0;
  uint64_t beyond_ = 0;
};

}  // namespace plumbline::audit
