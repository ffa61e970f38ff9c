// Routing policies in the project's own words, plain rather than fast: what the tests take for
// truth (run twice with another suffix) and what replays of a named policy run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace plumbline::rules {

// A batch as a router sees it, rows in the order of its queue.
struct RouterBatch {
  int32_t tokens = 0;
  int32_t experts = 0;
  int32_t top_k = 1;
  std::vector<double> logits;    // [T,E]
  std::vector<int32_t> pool;     // [T], dense; tokens of one pool compete
  std::vector<uint8_t> padding;  // [T]
};

enum class RouterPolicy {
  kTokenChoice,   // dropless top-k
  kFifo,          // capacity, first come first served over the joint top-k order
  kFifoChunks,    // the same, each pool cut into `chunks` contiguous pieces of their own capacity
  kScore,         // capacity, each expert keeps its highest softmax scores
  kExpertChoice,  // each expert takes its `capacity` best tokens of the pool
  kRankMajor,     // capacity, all second choices queue behind all first choices
  kOwnThreshold,  // no capacity: a token drops its own choices below half of its best probability
};

struct RouterResult {
  std::vector<int32_t> indices;  // [T,k] in rank order; empty for expert choice
  std::vector<uint8_t> keep;     // [T,k]; empty for expert choice
  std::vector<uint8_t> map;      // [T,E] kept
};

// `capacity`: tokens an expert takes from one pool (or chunk).
RouterResult Route(const RouterBatch& batch, RouterPolicy policy, int64_t capacity, int chunks = 1);

// Does the assignment of a token depend on later tokens, by what the policy is?
bool PolicyLeaks(RouterPolicy policy);
const char* PolicyName(RouterPolicy policy);
// False when there is no such policy.
bool ParsePolicy(const std::string& name, RouterPolicy* policy);

}  // namespace plumbline::rules
