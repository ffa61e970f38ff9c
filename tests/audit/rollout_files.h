// Rollout records for tests: seeded sequences as JSON lines, compressed files of them, and the
// result of reading files.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "audit/session/audit.h"
#include "plumbline/v1/batch.pb.h"

namespace plumbline::audit::testing {

// A healthy sequence in native columns; the first tokens are masked.
nlohmann::ordered_json Rollout(int64_t step, const std::string& id, size_t tokens = 12,
                               uint32_t seed = 1);

// One per line.
std::string Lines(const std::vector<nlohmann::ordered_json>& records);

std::string Gzip(const std::string& bytes);
std::string Zstd(const std::string& bytes);

struct RolloutRead {
  std::deque<InputReport> inputs;
  std::vector<v1::Batch> batches;

  // From every batch, in order.
  std::vector<v1::LogprobsSequence> sequences() const;
  std::vector<int64_t> steps() const;  // of the sequences
  std::string problems() const;        // one per line
};

// Reads files (or directories) to their end with the reader that recognises them, or with `mapped`.
RolloutRead ReadRollouts(const std::vector<std::string>& paths, const Reader* mapped = nullptr);

// A tensor's elements as doubles.
std::vector<double> Elements(const v1::Tensor& tensor);

}  // namespace plumbline::audit::testing
