// Converts calls of collectives to evidence, in the order of their numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "audit/readers/nccl_log/communicators.h"
#include "audit/readers/nccl_log/joined_calls.h"
#include "plumbline/v1/batch.pb.h"

namespace plumbline::audit {

// A call's step is its number in its communicator, because the log has no other clock. A site is a
// communicator and a kind of collective.
class NcclEvidence {
 public:
  // `calls` has an entry per group. Leaves out calls of ambiguous communicators.
  NcclEvidence(const NcclCommunicators& communicators, std::vector<NcclJoinedCalls>* calls);

  // Returns the next batch; false if all were returned.
  bool Next(v1::Batch* batch);
  std::vector<v1::Source> processes() const;
  uint64_t left_out() const { return left_out_; }  // number of calls of ambiguous communicators

 private:
  struct Call {
    uint32_t group;
    NcclJoined joined;
  };
  void Add(const Call& call, v1::Batch* batch);
  void AddRank(const Call& call, uint32_t rank, const NcclStatement& statement, v1::Batch* batch);
  uint32_t SourceOf(uint32_t agent, v1::Batch* batch);
  v1::Source Process(uint32_t agent) const;

  const NcclCommunicators& communicators_;
  std::vector<uint32_t> ranks_;     // agent -> rank
  std::vector<std::string> names_;  // group -> name
  uint32_t world_ = 0;
  std::vector<Call> calls_;
  size_t next_ = 0;
  std::vector<int64_t> source_of_;  // agent -> source in the current batch; -1 if none
  uint64_t left_out_ = 0;
};

}  // namespace plumbline::audit
