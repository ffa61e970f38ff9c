// The ranks that the tables of processes belong to, and the communicators of each.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "audit/calls/process_calls.h"

namespace plumbline::audit {

// One communicator, as its members on this host know it.
struct CallGroup {
  std::string name;        // "world", "ranks 0, 1"
  uint32_t ranks = 0;      // 0: not known
  bool comparable = true;  // false: its creation was not seen, so members cannot be joined
  struct Member {
    uint32_t process;
    uint32_t comm;  // index in the process
    uint32_t rank;  // within the group
    uint32_t agent;
  };
  std::vector<Member> members;
};

class CallAgents {
 public:
  explicit CallAgents(const std::vector<ProcessCalls>& processes);

  const std::vector<CallGroup>& groups() const { return groups_; }
  // Returns the agent of calls that belong to no communicator; of a process without calls too.
  uint32_t AgentOf(uint32_t process) const { return first_.at(process); }
  uint32_t process(uint32_t agent) const { return agents_[agent].process; }
  uint32_t rank(uint32_t agent) const { return agents_[agent].rank; }
  size_t size() const { return agents_.size(); }

 private:
  struct Agent {
    uint32_t process;
    uint32_t rank = 0;
    uint32_t of_ranks = 0;  // size of the communicator that gave the rank
    bool known = false;
  };
  void MakeGroups(const std::vector<ProcessCalls>& processes);
  void ResolveSplits(const std::vector<ProcessCalls>& processes);
  void MakeAgents(const std::vector<ProcessCalls>& processes);
  void MakeRanksUnique();
  void MakeNames();

  std::vector<CallGroup> groups_;
  std::vector<Agent> agents_;
  std::vector<uint32_t> first_;
};

}  // namespace plumbline::audit
