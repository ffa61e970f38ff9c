// Three of the four routing policies of examples/moe_pytorch/routers.py.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace moe {

enum class Policy {
  kDropless,   // every choice is served
  kFifo,       // an expert serves the first C tokens in row order: causal, batch-dependent
  kScoreDrop,  // an expert serves the C best scores: later tokens displace earlier ones
};

// Parses "dropless", "fifo" or "score-drop"; throws std::invalid_argument for any other name.
Policy PolicyOf(const std::string& name);

// One router call over T tokens and E experts, k choices each.
struct Routing {
  int tokens = 0, experts = 0, top_k = 0;
  const char* policy = "";       // the name in verdicts
  int64_t capacity = 0;          // places per expert; 0: no limit
  std::vector<float> logits;     // [T,E]
  std::vector<float> scores;     // [T,E] softmax of the logits
  std::vector<int32_t> indices;  // [T,k] in rank order
  std::vector<uint8_t> keep;     // [T,k]

  double dropped() const;  // share of the choices
};

Routing Route(Policy policy, std::vector<float> logits, int experts, int top_k,
              double capacity_factor);

}  // namespace moe
