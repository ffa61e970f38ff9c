// Calls of collectives as evidence, in the order of their numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "audit/readers/nccl_log/communicators.h"
#include "audit/readers/nccl_log/joined_calls.h"
#include "plumbline/v1/batch.pb.h"

namespace plumbline::audit {

// A call's step is its number in its communicator: the log has no other clock. A site is a
// communicator and a kind of collective.
class NcclEvidence {
 public:
  // `calls` by group. What cannot be told apart is left out.
  NcclEvidence(const NcclCommunicators& communicators, std::vector<NcclJoinedCalls>* calls);

  // The next batch; false: all were given out.
  bool Next(v1::Batch* batch);
  std::vector<v1::Source> processes() const;
  uint64_t left_out() const { return left_out_; }  // calls of communicators that are ambiguous

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
  std::vector<uint32_t> ranks_;     // of agents
  std::vector<std::string> names_;  // of groups
  uint32_t world_ = 0;
  std::vector<Call> calls_;
  size_t next_ = 0;
  std::vector<int64_t> source_of_;  // by agent, in the batch that is filled; -1: none
  uint64_t left_out_ = 0;
};

}  // namespace plumbline::audit
