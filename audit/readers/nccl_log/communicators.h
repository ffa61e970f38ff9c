// The communicators of all processes, as their logs say when they are made.
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

// One communicator over all its ranks.
struct NcclGroup {
  uint32_t nranks = 0;                       // 0: not said
  std::map<uint32_t, uint32_t> members;      // rank -> agent; those whose logs are here
  std::vector<std::vector<uint32_t>> rings;  // of each channel, as rank 0 says
  bool known = false;                        // its ranks were said: made where the log can be read
  bool ambiguous = false;                    // two agents say that they are one rank of it
};

// Who calls: a device of a process.
struct NcclAgent {
  uint32_t rank = 0, nranks = 0;  // in the largest of its communicators, the first of these
};

// Numbers of groups and agents are by appearance. Memory is bounded; what is beyond is counted.
// Not thread-safe.
class NcclCommunicators {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  // A process of a file; the same name gives the same number.
  uint32_t Process(uint32_t file, std::string_view name);

  void Init(uint32_t process, const NcclInit& init);
  void End(uint32_t process, uint64_t comm) { open_.erase({process, comm}); }
  // A ring that a thread says while it makes a communicator, and what it has made then.
  void Ring(uint32_t process, std::string_view thread, const NcclRing& ring);
  void Made(uint32_t process, std::string_view thread, const NcclInit& init);

  struct Member {
    uint32_t group = kNone, agent = kNone, rank = 0;
  };
  // Whose pointer it is now. Where the log does not say, a group of the process's own.
  Member Of(uint32_t process, const NcclCall& call);

  const std::vector<NcclGroup>& groups() const { return groups_; }
  const std::vector<NcclAgent>& agents() const { return agents_; }
  uint64_t beyond() const { return beyond_; }

  // A rank for each agent: what its largest communicator says, or where that is not one for each,
  // its place in the order of appearance.
  std::vector<uint32_t> RanksOfAgents() const;
  // "world", "ranks 0-3", "ranks 0, 4", "8 ranks with 0, 1 #2"; by group.
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
  std::vector<bool> made_any_;  // by process
  std::unordered_map<std::string, uint32_t> process_of_, group_of_;
  std::vector<std::string> keys_;  // of the groups
  std::map<std::pair<uint32_t, int>, uint32_t> agent_of_;
  std::map<std::pair<uint32_t, uint64_t>, Open> open_;      // by pointer, now
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> made_;  // (agent, nranks) -> how many
  std::unordered_map<std::string, std::vector<std::vector<uint32_t>>> rings_;  // by thread
  size_t members_ = 0, ring_ranks_ = 0;
  uint64_t beyond_ = 0;
};

}  // namespace plumbline::audit
