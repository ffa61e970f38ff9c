#include "audit/calls/hung_calls.h"

#include <algorithm>
#include <map>
#include <string>

#include "audit/calls/collective_calls.h"

namespace plumbline::audit {
namespace {

constexpr double kBlockedSeconds = 30;

struct Counts {
  uint64_t least = UINT64_MAX, most = 0;
};

Counts CountsOf(const std::vector<ProcessCalls>& processes, const CallGroup& group) {
  Counts counts;
  for (const CallGroup::Member& member : group.members) {
    const uint64_t calls = processes[member.process].comms[member.comm].calls;
    counts.least = std::min(counts.least, calls);
    counts.most = std::max(counts.most, calls);
  }
  return counts;
}

// The calls of a member from the last one that all members made on: that one is complete, the later
// ones wait.
void AddMember(const ProcessCalls& process, const CallGroup& group, const CallGroup::Member& member,
               uint64_t least, const CallAgents& agents, v1::FlightRecorder* recorder) {
  const auto number = static_cast<uint32_t>(recorder->groups_size());
  const auto calls = static_cast<int64_t>(process.comms[member.comm].calls);
  v1::FlightRecorder::Group& at = *recorder->add_groups();
  at.set_name(group.name);
  for (const CallGroup::Member& other : group.members) at.add_ranks(agents.rank(other.agent));
  at.set_last_enqueued(calls);
  at.set_last_completed(static_cast<int64_t>(least));
  for (const LoggedCall& call : process.logged) {
    if (call.kind.comm != member.comm || call.in_comm + 1 < least) continue;
    const bool waits = call.in_comm + 1 > least;
    v1::FlightRecorder::Operation& op = *recorder->add_operations();
    op.set_group(number);
    op.set_sequence(call.in_comm + 1);
    op.set_name(SiteNameOf(call.kind.function));
    op.set_state(waits ? v1::FlightRecorder::STATE_STARTED : v1::FlightRecorder::STATE_COMPLETED);
    op.set_input_shape("[" + std::to_string(call.count) + "]");
    op.set_output_shape(op.input_shape());
  }
}

}  // namespace

void AddHungCalls(const std::vector<ProcessCalls>& processes, const CallAgents& agents,
                  double seconds, int64_t step, std::vector<v1::Evidence>* evidence) {
  std::map<uint32_t, v1::FlightRecorder> recorders;
  bool differ = false;
  for (const CallGroup& group : agents.groups()) {
    if (!group.comparable || group.members.size() != group.ranks) continue;
    const Counts counts = CountsOf(processes, group);
    differ |= counts.least != counts.most;
    for (const CallGroup::Member& member : group.members)
      AddMember(processes[member.process], group, member, counts.least, agents,
                &recorders[member.agent]);
  }
  if (!differ) return;
  for (auto& [agent, recorder] : recorders) {
    v1::Evidence& one = evidence->emplace_back();
    one.set_source(agent);
    one.mutable_site()->set_layer("NCCL");
    one.mutable_site()->set_op("calls");
    one.set_step(step);
    one.set_exercised(seconds >= kBlockedSeconds ? v1::EXERCISED_YES : v1::EXERCISED_NO);
    *one.mutable_flight_recorder() = std::move(recorder);
  }
}

}  // namespace plumbline::audit
