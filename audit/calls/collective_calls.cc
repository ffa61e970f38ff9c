#include "audit/calls/collective_calls.h"

#include <algorithm>
#include <set>
#include <tuple>

namespace plumbline::audit {
namespace {

constexpr size_t kMostDifferent = 64, kMostExamples = 48;  // of one communicator

// Converts ncclDataType_t.
v1::DType DTypeOfCall(uint8_t type) {
  static constexpr v1::DType kTypes[] = {
      v1::DTYPE_I8,  v1::DTYPE_U8,  v1::DTYPE_I32, v1::DTYPE_U32,  v1::DTYPE_I64,  v1::DTYPE_U64,
      v1::DTYPE_F16, v1::DTYPE_F32, v1::DTYPE_F64, v1::DTYPE_BF16, v1::DTYPE_E4M3, v1::DTYPE_E5M2};
  return type < std::size(kTypes) ? kTypes[type] : v1::DTYPE_UNSPECIFIED;
}

// Converts ncclRedOp_t. A sum with a factor per rank is an average, as far as rules need it.
v1::ReductionCall::Op OpOfCall(uint8_t op) {
  using Out = v1::ReductionCall;
  static constexpr Out::Op kOps[] = {Out::OP_SUM, Out::OP_PRODUCT, Out::OP_MAX,
                                     Out::OP_MIN, Out::OP_AVG,     Out::OP_AVG};
  return op < std::size(kOps) ? kOps[op] : Out::OP_OTHER;
}

}  // namespace

const char* SiteNameOf(CallFunction function) {
  switch (function) {
    case CallFunction::ncclAllReduce:
      return "all_reduce";
    case CallFunction::ncclReduceScatter:
      return "reduce_scatter";
    case CallFunction::ncclAllGather:
      return "all_gather";
    case CallFunction::ncclReduce:
      return "reduce";
    default:
      return "broadcast";
  }
}

namespace {

struct OfMember {
  const CallGroup::Member* member;
  const LoggedCall* call;
};

auto KindOf(const LoggedCall& call) {
  const CallKind& k = call.kind;
  return std::tuple(k.function, k.a, k.op, call.root);
}

bool Agree(const std::vector<OfMember>& ranks) {
  return std::all_of(ranks.begin(), ranks.end(), [&](const OfMember& one) {
    return KindOf(*one.call) == KindOf(*ranks[0].call) && one.call->count == ranks[0].call->count;
  });
}

CallFunction MostCalled(const std::vector<OfMember>& ranks) {
  std::map<CallFunction, int> counts;
  for (const OfMember& one : ranks) ++counts[one.call->kind.function];
  return std::max_element(counts.begin(), counts.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; })
      ->first;
}

v1::Evidence EvidenceOf(const CallGroup& group, const OfMember& one, const char* site) {
  v1::Evidence evidence;
  const LoggedCall& call = *one.call;
  evidence.set_source(one.member->agent);
  evidence.mutable_site()->set_layer(group.name);
  evidence.mutable_site()->set_op(site);
  evidence.set_step(static_cast<int64_t>(call.in_comm));
  evidence.set_sample_size(call.count);
  evidence.set_exercised(v1::EXERCISED_YES);
  evidence.mutable_reduction()->set_no_sample_reason("only the call was seen");
  v1::ReductionCall& out = *evidence.mutable_reduction()->mutable_call();
  out.set_group(group.name);
  out.set_sequence(call.in_comm);
  out.set_sequence_known(true);
  out.set_op(OpOfCall(call.kind.op));
  out.set_wire_dtype(DTypeOfCall(call.kind.a));
  out.set_count(call.count);
  out.set_group_size(group.ranks);
  out.set_group_rank(one.member->rank);
  out.set_root(call.root);
  out.set_transport("nccl");
  return evidence;
}

class GroupCalls {
 public:
  GroupCalls(const std::vector<ProcessCalls>& processes, const CallGroup& group) : group_(group) {
    for (const CallGroup::Member& member : group.members)
      for (const LoggedCall& call : processes[member.process].logged)
        if (call.kind.comm == member.comm) calls_[call.in_comm].push_back({&member, &call});
  }

  void Add(std::vector<v1::Evidence>* evidence) {
    for (const auto& [number, ranks] : calls_) {
      if (!IsKept(ranks)) continue;
      const char* const site = SiteNameOf(MostCalled(ranks));
      for (const OfMember& one : ranks) evidence->push_back(EvidenceOf(group_, one, site));
    }
  }

 private:
  // An example needs all members, so that the ranks were compared.
  bool IsKept(const std::vector<OfMember>& ranks) {
    if (!Agree(ranks)) return ++different_ <= kMostDifferent;
    if (ranks.size() < group_.members.size()) return false;
    return examples_.size() < kMostExamples && examples_.insert(KindOf(*ranks[0].call)).second;
  }

  const CallGroup& group_;
  std::map<uint64_t, std::vector<OfMember>> calls_;
  size_t different_ = 0;
  std::set<std::tuple<CallFunction, uint8_t, uint8_t, uint32_t>> examples_;
};

}  // namespace

void AddCollectives(const std::vector<ProcessCalls>& processes, const CallAgents& agents,
                    std::vector<v1::Evidence>* evidence) {
  for (const CallGroup& group : agents.groups()) GroupCalls(processes, group).Add(evidence);
}

}  // namespace plumbline::audit
