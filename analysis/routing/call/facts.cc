#include "analysis/routing/call/facts.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

namespace plumbline::analysis {
namespace {

using Config = v1::RoutingConfig;

// If a text repeats a few words, its scores may be equal at the first layer.
constexpr int64_t kFewestRows = 8;

class RowBytes {
 public:
  explicit RowBytes(const RoutingCase& c)
      : data_(c.scores.data()),
        size_(static_cast<size_t>(c.experts) * DTypeSize(c.scores.dtype())) {}
  std::string_view operator[](int32_t token) const {
    return {data_ + static_cast<size_t>(token) * size_, size_};
  }

 private:
  const char* data_;
  size_t size_;
};

bool AlikeWithinASequence(const RoutingCase& c) {
  struct Sequence {
    int32_t first = 0;
    int64_t rows = 0;
    bool alike = true;
  };
  std::unordered_map<int64_t, Sequence> sequences;
  const RowBytes rows(c);
  Sequence* at = nullptr;
  int64_t id = 0;
  for (int32_t t = 0; t < c.tokens; ++t) {
    if (!c.judged(t)) continue;
    // Usually a sequence's rows are consecutive.
    if (const int64_t mine = c.sequence[static_cast<size_t>(t)]; at == nullptr || mine != id) {
      id = mine;
      at = &sequences.try_emplace(id, Sequence{t}).first->second;
    }
    ++at->rows;
    at->alike = at->alike && rows[t] == rows[at->first];
  }
  return std::any_of(sequences.begin(), sequences.end(), [](const auto& entry) {
    return entry.second.alike && entry.second.rows >= kFewestRows;
  });
}

bool HardlyAnyUnlike(const RoutingCase& c) {
  const RowBytes rows(c);
  std::unordered_set<std::string_view> unlike;
  for (int32_t t = 0; t < c.tokens; ++t) {
    if (c.judged(t)) unlike.insert(rows[t]);
    if (static_cast<int64_t>(unlike.size()) * kFewestRows > c.judged_rows) return false;
  }
  return c.judged_rows >= kFewestRows;
}

}  // namespace

bool SetsCapacity(const Config& config) {
  return config.capacity_kind() == Config::CAPACITY_DECLARED;
}

bool DeclaresCapacity(const Config& config) {
  return SetsCapacity(config) && config.capacity_source() != Config::CAPACITY_SOURCE_INFERRED;
}

bool ExcludesCapacity(const Config& config) {
  return config.capacity_kind() == Config::CAPACITY_NONE;
}

bool OwnDraws(const Config& config) {
  return !config.randomness().empty() && config.randomness() != "token-selection";
}

bool NamesNoQueue(const Config& config) {
  const std::string& policy = config.policy();
  return policy == "score-capacity" || policy == "rank-major-capacity" ||
         policy == "random-capacity" || policy == "tie-order-capacity" ||
         config.randomness() == "token-selection";
}

bool NamesQueue(const Config& config) { return config.policy() == "fifo-capacity"; }

bool UnrecordedDraws(const RoutingCase& c) {
  const bool explained = c.explained > 0 && c.unexplained == 0 && !c.kept_outside_choice;
  return OwnDraws(c.routing->config()) && !explained;
}

bool CapacityCannotRefuse(const RoutingCase& c) {
  const Config& config = c.routing->config();
  if (!DeclaresCapacity(config) || c.pool_basis == PoolBasis::kUnrecorded) return false;
  const int64_t most = *std::max_element(c.pool_rows.begin(), c.pool_rows.end());
  return config.capacity() >= static_cast<uint64_t>(most);
}

bool ScoresOfSequences(const RoutingCase& c) {
  // With one expert, all scores may be alike because there is nothing to choose.
  if (c.experts < 2) return false;
  return c.sequence.empty() ? HardlyAnyUnlike(c) : AlikeWithinASequence(c);
}

}  // namespace plumbline::analysis
