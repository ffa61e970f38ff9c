#include "audit/calls/agents.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace plumbline::audit {

CallAgents::CallAgents(const std::vector<ProcessCalls>& processes) {
  MakeGroups(processes);
  ResolveSplits(processes);
  MakeAgents(processes);
  MakeRanksUnique();
  MakeNames();
}

void CallAgents::MakeGroups(const std::vector<ProcessCalls>& processes) {
  std::map<uint64_t, size_t> group_of;
  for (uint32_t p = 0; p < processes.size(); ++p) {
    for (uint32_t c = 0; c < processes[p].comms.size(); ++c) {
      const ProcessComm& comm = processes[p].comms[c];
      if (comm.calls == 0) continue;
      const bool known = comm.id != 0;
      const auto [at, fresh] =
          known ? group_of.try_emplace(comm.id, groups_.size()) : std::pair(group_of.end(), true);
      if (fresh) groups_.push_back({.ranks = comm.ranks, .comparable = known});
      CallGroup& group = fresh ? groups_.back() : groups_[at->second];
      const uint32_t rank = comm.rank >= 0 ? static_cast<uint32_t>(comm.rank) : 0;
      group.members.push_back({p, c, rank, 0});
    }
  }
}

// The members of a split are numbered by (key, rank in the parent), as NCCL does. If some of them
// are on other hosts, the numbers are only an order.
void CallAgents::ResolveSplits(const std::vector<ProcessCalls>& processes) {
  for (CallGroup& group : groups_) {
    const auto comm_of = [&](const CallGroup::Member& m) -> const ProcessComm& {
      return processes[m.process].comms[m.comm];
    };
    if (comm_of(group.members[0]).parent == 0) continue;
    std::sort(group.members.begin(), group.members.end(), [&](const auto& a, const auto& b) {
      return std::pair(comm_of(a).key, comm_of(a).parent_rank) <
             std::pair(comm_of(b).key, comm_of(b).parent_rank);
    });
    for (uint32_t i = 0; i < group.members.size(); ++i) group.members[i].rank = i;
    group.ranks = static_cast<uint32_t>(group.members.size());
  }
}

// A process is one agent, or one for each of its communicators of one group (a thread per device).
void CallAgents::MakeAgents(const std::vector<ProcessCalls>& processes) {
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> agent_of;  // (process, device)
  const auto agent = [&](uint32_t process, uint32_t device) {
    const auto [at, fresh] =
        agent_of.try_emplace({process, device}, static_cast<uint32_t>(agents_.size()));
    if (fresh) agents_.push_back({.process = process});
    return at->second;
  };
  for (uint32_t p = 0; p < processes.size(); ++p) {
    first_.push_back(agent(p, 0));
    if (processes[p].rank >= 0)
      agents_.back() = {p, static_cast<uint32_t>(processes[p].rank), 0, true};
  }
  for (CallGroup& group : groups_) {
    std::map<uint32_t, uint32_t> devices;
    for (CallGroup::Member& member : group.members) {
      member.agent = agent(member.process, devices[member.process]++);
      Agent& at = agents_[member.agent];
      if (!group.comparable || group.ranks <= at.of_ranks) continue;
      at.rank = member.rank;
      at.of_ranks = group.ranks;
      at.known = true;
    }
  }
}

// Two agents with one rank would be one process for the rules.
void CallAgents::MakeRanksUnique() {
  std::set<uint32_t> seen;
  bool unique = true;
  for (const Agent& agent : agents_)
    if (agent.known) unique &= seen.insert(agent.rank).second;
  if (!unique) {
    for (uint32_t i = 0; i < agents_.size(); ++i) agents_[i].rank = i;
    return;
  }
  uint32_t next = 0;
  for (Agent& agent : agents_) {
    if (agent.known) continue;
    while (!seen.insert(next).second) ++next;
    agent.rank = next;
  }
}

void CallAgents::MakeNames() {
  uint32_t most = 0;
  for (const CallGroup& group : groups_)
    if (group.comparable) most = std::max(most, group.ranks);
  std::map<std::string, int> times;
  for (CallGroup& group : groups_) {
    std::set<uint32_t> ranks;
    for (const CallGroup::Member& member : group.members) ranks.insert(agents_[member.agent].rank);
    const bool world = group.comparable && group.ranks == most;
    group.name = world ? "world" : absl::StrCat("ranks ", absl::StrJoin(ranks, ", "));
    if (!group.comparable) group.name = absl::StrCat("unknown communicator of ", group.name);
    const int nth = ++times[group.name];
    if (nth > 1) group.name += absl::StrCat(" #", nth);
  }
}

}  // namespace plumbline::audit
