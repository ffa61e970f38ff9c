#include "analysis/flight/recorder.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

namespace plumbline::flight {
namespace {

constexpr size_t kMostMembers = 1u << 17;

// Converts an operation of a dump. If its group is not named, it has no group.
Op OpOf(const v1::FlightRecorder& recorder, const v1::FlightRecorder::Operation& in) {
  Op op;
  if (in.group() < static_cast<uint32_t>(recorder.groups_size()))
    op.group = recorder.groups(static_cast<int>(in.group())).name();
  op.sequence = in.sequence();
  op.kind = KindOf(in.name());
  op.pending = in.state() != v1::FlightRecorder::STATE_COMPLETED;
  op.started = in.state() == v1::FlightRecorder::STATE_STARTED;
  op.point_to_point = in.point_to_point() || op.kind == "send" || op.kind == "recv";
  if (in.peer_known()) op.peer = in.peer();
  op.dtype = in.dtype();
  op.input_shape = in.input_shape();
  op.output_shape = in.output_shape();
  op.where = in.where();
  return op;
}

// Reads one rank: its view of its groups, and its operations in order.
RankRecord RecordOf(uint32_t rank, const v1::FlightRecorder& recorder) {
  RankRecord out;
  out.rank = rank;
  for (const auto& group : recorder.groups()) {
    GroupView& view = out.groups[group.name()];
    view.status_stated = group.has_last_enqueued();
    if (group.has_last_enqueued()) view.last_enqueued = group.last_enqueued();
    if (group.has_last_completed()) view.last_completed = group.last_completed();
  }
  // The remaining entries show what the recorder has overwritten, because numbers of a group
  // ascend.
  for (const auto& operation : recorder.operations()) {
    Op op = OpOf(recorder, operation);
    if (!op.point_to_point && op.sequence < INT64_MAX) {
      GroupView& view = out.groups[op.group];
      view.oldest = std::min(view.oldest, op.sequence);
      const auto number = static_cast<int64_t>(op.sequence);
      view.last_enqueued = std::max(view.last_enqueued, number);
      if (!op.pending) view.last_completed = std::max(view.last_completed, number);
    }
    if (!op.point_to_point)
      out.by_sequence.emplace_back(op.sequence, static_cast<uint32_t>(out.ops.size()));
    out.ops.push_back(std::move(op));
  }
  std::sort(out.by_sequence.begin(), out.by_sequence.end());
  return out;
}

}  // namespace

std::string KindOf(std::string_view name) {
  // Handles "nccl:all_reduce_barrier" and "ALLREDUCE" alike.
  if (const size_t colon = name.rfind(':'); colon != name.npos) name.remove_prefix(colon + 1);
  if (const size_t blank = name.find(' '); blank != name.npos) name = name.substr(0, blank);
  std::string small, joined;
  for (const char c : name.substr(0, 64)) {
    const char lower = c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
    small.push_back(lower);
    if (lower != '_' && lower != '-') joined.push_back(lower);
  }
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 10> kKinds = {{
      {"reducescatter", "reduce_scatter"},
      {"allreduce", "all_reduce"},
      {"allgather", "all_gather"},
      {"alltoall", "all_to_all"},
      {"all2all", "all_to_all"},
      {"barrier", "barrier"},
      {"broadcast", "broadcast"},
      {"send", "send"},
      {"recv", "recv"},
      {"coalesced", "coalesced"},
  }};
  for (const auto& [part, kind] : kKinds) {
    if (joined.find(part) != joined.npos) return std::string(kind);
  }
  return small;
}

bool EndsForAll(std::string_view kind) {
  return kind == "all_reduce" || kind == "all_gather" || kind == "reduce_scatter" ||
         kind == "all_to_all" || kind == "barrier";
}

bool SameShapes(std::string_view kind) {
  return kind == "all_reduce" || kind == "all_gather" || kind == "reduce_scatter" ||
         kind == "broadcast" || kind == "barrier" || kind == "reduce";
}

const Op* RankRecord::head() const {
  const auto found = std::find_if(ops.begin(), ops.end(), [](const Op& op) { return op.pending; });
  return found == ops.end() ? nullptr : &*found;
}

const Op* RankRecord::Find(const std::string& group, uint64_t sequence) const {
  auto at = std::lower_bound(by_sequence.begin(), by_sequence.end(),
                             std::make_pair(sequence, uint32_t{0}));
  for (; at != by_sequence.end() && at->first == sequence; ++at) {
    if (ops[at->second].group == group) return &ops[at->second];
  }
  return nullptr;
}

bool RankRecord::Launched(const std::string& group, uint64_t sequence) const {
  const auto view = groups.find(group);
  return view != groups.end() && view->second.last_enqueued >= 0 &&
         static_cast<uint64_t>(view->second.last_enqueued) >= sequence;
}

bool RankRecord::Completed(const std::string& group, uint64_t sequence) const {
  // If the rank has an entry for this operation, use it. If not, use the group's count.
  if (const Op* op = Find(group, sequence)) return !op->pending;
  const auto view = groups.find(group);
  return view != groups.end() && view->second.last_completed >= 0 &&
         static_cast<uint64_t>(view->second.last_completed) >= sequence;
}

Job JoinRecorders(const std::map<uint32_t, const v1::FlightRecorder*>& recorders) {
  Job job;
  std::map<std::string, std::set<uint32_t>> seen;
  for (const auto& [rank, recorder] : recorders) {
    RankRecord record = RecordOf(rank, *recorder);
    for (const Op& op : record.ops) seen[op.group].insert(rank);
    for (const auto& group : recorder->groups()) {
      auto& members = job.members[group.name()];
      if (members.empty() && static_cast<size_t>(group.ranks_size()) <= kMostMembers)
        members.assign(group.ranks().begin(), group.ranks().end());
    }
    job.ranks.emplace(rank, std::move(record));
  }
  // If no dump describes a group, its members are the ranks that used it.
  for (auto& [group, ranks] : seen) {
    auto& members = job.members[group];
    if (members.empty()) members.assign(ranks.begin(), ranks.end());
  }
  // A peer is given by its place in the group.
  for (auto& [rank, record] : job.ranks) {
    for (Op& op : record.ops) {
      const auto& members = job.members[op.group];
      if (op.peer < 0) continue;
      op.peer = static_cast<size_t>(op.peer) < members.size()
                    ? static_cast<int64_t>(members[static_cast<size_t>(op.peer)])
                    : -1;
    }
  }
  return job;
}

}  // namespace plumbline::flight
