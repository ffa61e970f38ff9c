#include "agent/core/sites/looks.h"

#include <algorithm>

namespace plumbline::agent {

int64_t Looks::Query(int64_t step, uint32_t steps, uint64_t step_bytes) {
  constexpr uint64_t kAtFirst = 512;  // steps
  const int64_t until = until_.load();
  const int64_t from = std::max(step, until + 1);
  const auto run = static_cast<uint64_t>(std::max<int64_t>(step, 0));
  const uint64_t allowed = (kAtFirst + run / 2) * traffic_bytes_;
  const uint64_t spent = bytes_.load();
  const uint64_t left = allowed > spent ? allowed - spent : 0;
  int64_t more = step + static_cast<int64_t>(steps) - from;
  more = std::min(more, kOpening + step / kOneIn - steps_.load());
  if (step_bytes > 0) more = std::min(more, static_cast<int64_t>(left / step_bytes));
  if (more <= 0) return until;
  bytes_ += step_bytes * static_cast<uint64_t>(more);
  steps_ += more;
  until_ = from + more - 1;
  return from + more - 1;
}

}  // namespace plumbline::agent
