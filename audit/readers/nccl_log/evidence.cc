#include "audit/readers/nccl_log/evidence.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace plumbline::audit {
namespace {

// Converts ncclDataType_t.
v1::DType DTypeOfNccl(uint32_t datatype) {
  static constexpr v1::DType kTypes[] = {
      v1::DTYPE_I8,  v1::DTYPE_U8,  v1::DTYPE_I32, v1::DTYPE_U32,  v1::DTYPE_I64,  v1::DTYPE_U64,
      v1::DTYPE_F16, v1::DTYPE_F32, v1::DTYPE_F64, v1::DTYPE_BF16, v1::DTYPE_E4M3, v1::DTYPE_E5M2};
  return datatype < std::size(kTypes) ? kTypes[datatype] : v1::DTYPE_UNSPECIFIED;
}

// Converts ncclRedOp_t. Programs create the values from 5 on.
v1::ReductionCall::Op OpOfNccl(const NcclStatement& statement) {
  using Out = v1::ReductionCall;
  static constexpr Out::Op kOps[] = {Out::OP_SUM, Out::OP_PRODUCT, Out::OP_MAX, Out::OP_MIN,
                                     Out::OP_AVG};
  const bool reduces = statement.collective == NcclCollective::kAllReduce ||
                       statement.collective == NcclCollective::kReduceScatter ||
                       statement.collective == NcclCollective::kReduce;
  if (!reduces) return Out::OP_OTHER;
  // The log has only the number of a custom operation, and a number may come from two mixed lines.
  return statement.op < std::size(kOps) ? kOps[statement.op] : Out::OP_UNSPECIFIED;
}

// Returns the collective that most ranks call.
NcclCollective MostCalled(const NcclJoined& joined) {
  std::map<NcclCollective, size_t> counts;
  for (const auto& [rank, statement] : joined.ranks) ++counts[statement.collective];
  const auto most =
      std::max_element(counts.begin(), counts.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  return most->first;
}

}  // namespace

NcclEvidence::NcclEvidence(const NcclCommunicators& communicators,
                           std::vector<NcclJoinedCalls>* calls)
    : communicators_(communicators),
      ranks_(communicators.RanksOfAgents()),
      names_(communicators.NamesOfGroups(ranks_)),
      source_of_(ranks_.size(), -1) {
  for (const NcclGroup& group : communicators.groups()) world_ = std::max(world_, group.nranks);
  for (const uint32_t rank : ranks_) world_ = rank < world_ ? world_ : 0;
  for (uint32_t i = 0; i < calls->size(); ++i) {
    NcclJoinedCalls& of_group = (*calls)[i];
    std::vector<NcclJoined> kept = of_group.Take();
    if (communicators.groups()[i].ambiguous) {
      left_out_ += kept.size();
      continue;
    }
    for (NcclJoined& joined : kept) calls_.push_back({i, std::move(joined)});
  }
  std::stable_sort(calls_.begin(), calls_.end(), [](const Call& a, const Call& b) {
    return std::tuple(a.joined.number, a.group, a.joined.ordinal) <
           std::tuple(b.joined.number, b.group, b.joined.ordinal);
  });
}

bool NcclEvidence::Next(v1::Batch* batch) {
  constexpr int kMostEvidence = 4096;
  if (next_ == calls_.size()) return false;
  std::fill(source_of_.begin(), source_of_.end(), -1);
  // Keeps all ranks of a call in one batch. A batch has at most 4,096 processes.
  while (next_ < calls_.size()) {
    const auto more = static_cast<int>(calls_[next_].joined.ranks.size());
    if (batch->evidence_size() > 0 && batch->evidence_size() + more > kMostEvidence) break;
    Add(calls_[next_++], batch);
  }
  return true;
}

void NcclEvidence::Add(const Call& call, v1::Batch* batch) {
  for (const auto& [rank, statement] : call.joined.ranks) AddRank(call, rank, statement, batch);
}

void NcclEvidence::AddRank(const Call& call, uint32_t rank, const NcclStatement& statement,
                           v1::Batch* batch) {
  const NcclGroup& group = communicators_.groups()[call.group];
  v1::Evidence& evidence = *batch->add_evidence();
  evidence.set_source(SourceOf(group.members.at(rank), batch));
  evidence.mutable_site()->set_layer(names_[call.group]);
  evidence.mutable_site()->set_op(SiteNameOf(MostCalled(call.joined)));
  evidence.set_step(static_cast<int64_t>(call.joined.number));
  evidence.set_call(call.joined.ordinal);
  evidence.set_sample_size(statement.count);
  evidence.set_exercised(v1::EXERCISED_YES);
  evidence.mutable_reduction()->set_no_sample_reason("an NCCL log contains no values");
  v1::ReductionCall& out = *evidence.mutable_reduction()->mutable_call();
  out.set_group(names_[call.group]);
  // Calls of one group call have the same number, so the sequence also contains the index among
  // them.
  out.set_sequence(call.joined.number + (uint64_t{call.joined.ordinal} << 40));
  out.set_sequence_known(true);
  out.set_op(OpOfNccl(statement));
  out.set_wire_dtype(DTypeOfNccl(statement.datatype));
  out.set_count(statement.count);
  out.set_group_size(group.nranks != 0 ? group.nranks
                                       : static_cast<uint32_t>(group.members.size()));
  out.set_group_rank(rank);
  out.set_root(statement.root);
  out.set_transport("nccl");
  out.set_channels(static_cast<uint32_t>(group.rings.size()));
  // Adds the list only once per call, because lists of many ranks are long.
  if (rank != call.joined.ranks.begin()->first) return;
  for (const std::vector<uint32_t>& ring : group.rings)
    out.mutable_ring_order()->Add(ring.begin(), ring.end());
}

uint32_t NcclEvidence::SourceOf(uint32_t agent, v1::Batch* batch) {
  if (source_of_[agent] < 0) {
    source_of_[agent] = batch->sources_size();
    *batch->add_sources() = Process(agent);
  }
  return static_cast<uint32_t>(source_of_[agent]);
}

v1::Source NcclEvidence::Process(uint32_t agent) const {
  v1::Source process;
  process.set_role(v1::ROLE_TRAINER);
  process.set_rank(ranks_[agent]);
  process.set_world_size(world_);
  return process;
}

std::vector<v1::Source> NcclEvidence::processes() const {
  std::set<uint32_t> agents;
  for (const Call& call : calls_) {
    for (const auto& [rank, statement] : call.joined.ranks)
      agents.insert(communicators_.groups()[call.group].members.at(rank));
  }
  std::vector<v1::Source> all;
  for (const uint32_t agent : agents) all.push_back(Process(agent));
  return all;
}

}  // namespace plumbline::audit
