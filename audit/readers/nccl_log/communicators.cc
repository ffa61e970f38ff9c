#include "audit/readers/nccl_log/communicators.h"

#include <algorithm>

namespace plumbline::audit {
namespace {

std::string ThreadKey(uint32_t process, std::string_view thread) {
  return std::to_string(process) + "/" + std::string(thread);
}

// Describes sorted ranks briefly: "0-3", "0, 4", "0-6 by 2", "0, 1, 5 and 9 more".
std::string RangeWords(const std::vector<uint32_t>& ranks) {
  constexpr size_t kNamed = 8;
  const size_t n = ranks.size();
  if (n >= 3) {
    const uint32_t by = ranks[1] - ranks[0];
    bool even = by > 0;
    for (size_t i = 1; i < n && even; ++i) even = ranks[i] - ranks[i - 1] == by;
    if (even)
      return std::to_string(ranks[0]) + "-" + std::to_string(ranks[n - 1]) +
             (by == 1 ? "" : " by " + std::to_string(by));
  }
  std::string words;
  for (size_t i = 0; i < std::min(n, kNamed); ++i)
    words += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  if (n > kNamed) words += " and " + std::to_string(n - kNamed) + " more";
  return words;
}

}  // namespace

uint32_t NcclCommunicators::Process(uint32_t file, std::string_view name) {
  const auto [at, fresh] = process_of_.try_emplace(std::to_string(file) + "/" + std::string(name),
                                                   static_cast<uint32_t>(process_of_.size()));
  if (!fresh) return at->second;
  if (process_of_.size() > kMostProcesses) {
    process_of_.erase(at);
    ++beyond_;
    return kNone;
  }
  made_any_.push_back(false);
  return at->second;
}

uint32_t NcclCommunicators::Agent(uint32_t process, int device) {
  const auto [at, fresh] =
      agent_of_.try_emplace({process, device}, static_cast<uint32_t>(agents_.size()));
  if (!fresh) return at->second;
  if (agents_.size() == kMostAgents) {
    agent_of_.erase(at);
    ++beyond_;
    return kNone;
  }
  agents_.push_back({});
  return at->second;
}

uint32_t NcclCommunicators::Group(const std::string& key, uint32_t nranks) {
  const auto found = group_of_.find(key);
  if (found != group_of_.end()) return found->second;
  if (groups_.size() == kMostGroups) {
    ++beyond_;
    return kNone;
  }
  const auto number = static_cast<uint32_t>(groups_.size());
  group_of_.emplace(key, number);
  keys_.push_back(key);
  groups_.emplace_back().nranks = nranks;
  return number;
}

// Returns the key that all ranks of a communicator share: its id. For a split, the id of the
// parent, the number of the split, and the colour. Before NCCL 2.18 there is no id. The n-th
// communicators of this size on all ranks are then assumed to be the same, unless two agents have
// the same rank in it.
std::string NcclCommunicators::KeyOf(uint32_t process, uint32_t agent, const NcclInit& init) {
  const std::string size = "/" + std::to_string(init.nranks);
  if (init.comm_id != 0) return "id " + std::to_string(init.comm_id) + size;
  if (init.split) {
    const auto parent = open_.find({process, init.parent});
    if (parent != open_.end() && parent->second.member.group != kNone) {
      const std::string& whole = keys_[parent->second.member.group];
      if (whole.size() < 512)
        return whole + " part " + std::to_string(init.child) + ":" + std::to_string(init.color) +
               size;
    }
  }
  return "nth " + std::to_string(made_[{agent, init.nranks}]++) + size;
}

void NcclCommunicators::Init(uint32_t process, const NcclInit& init) {
  if (process == kNone) return;
  const auto at = open_.find({process, init.comm});
  if (init.complete && at != open_.end() && !at->second.complete &&
      at->second.member.rank == init.rank) {
    at->second.complete = true;  // the creation began before, so this line completes it
    return;
  }
  made_any_[process] = true;
  const bool full = members_ == kMostMembers || open_.size() == kMostMembers;
  beyond_ += full ? 1 : 0;
  const uint32_t agent = full ? kNone : Agent(process, init.device);
  if (agent == kNone) return;
  const uint32_t number = Group(KeyOf(process, agent, init), init.nranks);
  if (number == kNone) return;
  NcclGroup& group = groups_[number];
  group.known = true;
  const auto [member, fresh] = group.members.try_emplace(init.rank, agent);
  members_ += fresh ? 1 : 0;
  if (member->second != agent) group.ambiguous = true;
  NcclAgent& who = agents_[agent];
  if (init.nranks > who.nranks) who = {init.rank, init.nranks};
  open_[{process, init.comm}] = {{number, agent, init.rank}, init.complete};
}

void NcclCommunicators::Ring(uint32_t process, std::string_view thread, const NcclRing& ring) {
  constexpr uint32_t kMostChannels = 1 << 10;  // a limit of the rules
  if (process == kNone || ring.channels > kMostChannels) return;
  if (ring_ranks_ + ring.ranks.size() > kMostRingRanks || rings_.size() >= kMostThreads) {
    ++beyond_;
    return;
  }
  auto& rings = rings_[ThreadKey(process, thread)];
  // If the list was interrupted, discards it.
  if (ring.channel != rings.size()) rings.clear();
  if (ring.channel != rings.size()) return;
  ring_ranks_ += ring.ranks.size();
  rings.push_back(ring.ranks);
}

void NcclCommunicators::Made(uint32_t process, std::string_view thread, const NcclInit& init) {
  const auto rings = rings_.find(ThreadKey(process, thread));
  if (rings == rings_.end()) return;
  const auto open = open_.find({process, init.comm});
  if (init.complete && open != open_.end() && open->second.member.group != kNone) {
    NcclGroup& group = groups_[open->second.member.group];
    const bool whole = std::all_of(rings->second.begin(), rings->second.end(),
                                   [&](const auto& r) { return r.size() == group.nranks; });
    if (whole && group.rings.empty()) group.rings = std::move(rings->second);
  }
  rings_.erase(rings);
}

NcclCommunicators::Member NcclCommunicators::Of(uint32_t process, const NcclCall& call) {
  if (process == kNone) return {};
  const auto at = open_.find({process, call.comm});
  if (at != open_.end()) {
    const Member& member = at->second.member;
    // If the size differs from the logged one, the pointer now belongs to another communicator.
    if (call.nranks == 0 || groups_[member.group].nranks == call.nranks) return member;
    return {};
  }
  // The process logs its communicators but not this one, so the line is mixed with another line.
  if (made_any_[process] || members_ == kMostMembers) return {};
  const uint32_t agent = Agent(process, -1);
  if (agent == kNone) return {};
  const uint32_t number =
      Group("own " + std::to_string(process) + " " + std::to_string(call.comm), call.nranks);
  if (number == kNone) return {};
  const Member member{number, agent, 0};
  members_ += groups_[number].members.try_emplace(0, agent).second ? 1 : 0;
  return member;
}

std::vector<uint32_t> NcclCommunicators::RanksOfAgents() const {
  std::vector<uint32_t> ranks;
  std::set<uint32_t> seen;
  bool unique = true;
  for (const NcclAgent& agent : agents_) {
    ranks.push_back(agent.rank);
    unique &= seen.insert(agent.rank).second;
  }
  if (unique) return ranks;
  for (size_t i = 0; i < ranks.size(); ++i) ranks[i] = static_cast<uint32_t>(i);
  return ranks;
}

std::vector<std::string> NcclCommunicators::NamesOfGroups(
    const std::vector<uint32_t>& ranks) const {
  uint32_t most = 0;
  for (const NcclGroup& group : groups_) most = std::max(most, group.nranks);
  std::vector<std::string> names;
  std::map<std::string, int> times;
  for (const NcclGroup& group : groups_) {
    std::vector<uint32_t> members;
    for (const auto& [rank, agent] : group.members) members.push_back(ranks[agent]);
    std::sort(members.begin(), members.end());
    std::string name = "ranks " + RangeWords(members);
    if (group.known && group.nranks == most) {
      name = "world";
    } else if (members.size() != group.nranks) {
      name = (group.nranks == 0 ? "some" : std::to_string(group.nranks)) + " ranks with " +
             RangeWords(members);
    }
    const int nth = ++times[name];
    names.push_back(nth == 1 ? name : name + " #" + std::to_string(nth));
  }
  return names;
}

}  // namespace plumbline::audit
