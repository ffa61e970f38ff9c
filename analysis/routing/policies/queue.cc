#include "analysis/routing/policies/queue.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>

namespace plumbline::analysis {
namespace {

// Sorts `order` by value[row], stably, by counting. If values are sparse, sorts by comparison.
template <typename T>
void StableSortBy(const std::vector<T>& value, std::vector<int32_t>& order) {
  const auto at = [&](int32_t row) { return value[static_cast<size_t>(row)]; };
  const auto below = [&](int32_t a, int32_t b) { return at(a) < at(b); };
  if (std::is_sorted(order.begin(), order.end(), below)) return;
  const auto ends = std::minmax_element(value.begin(), value.end());
  const auto least = static_cast<uint64_t>(*ends.first);
  const uint64_t range = static_cast<uint64_t>(*ends.second) - least;
  if (range > 4 * static_cast<uint64_t>(order.size()) + 1024) {
    std::stable_sort(order.begin(), order.end(), below);
    return;
  }
  std::vector<int32_t> begin(static_cast<size_t>(range) + 2, 0);
  const auto bucket = [&](int32_t row) {
    return static_cast<size_t>(static_cast<uint64_t>(at(row)) - least);
  };
  for (int32_t row : order) ++begin[bucket(row) + 1];
  std::partial_sum(begin.begin(), begin.end(), begin.begin());
  std::vector<int32_t> sorted(order.size());
  for (int32_t row : order) sorted[static_cast<size_t>(begin[bucket(row)]++)] = row;
  order.swap(sorted);
}

// Returns true if the stored rows are a queue in time order: each sequence's positions rise.
bool RowsInTimeOrder(const RoutingCase& c) {
  std::unordered_map<int64_t, int64_t> last;
  int64_t sequence = 0, position = 0;
  bool first = true;
  for (int32_t t = 0; t < c.tokens; ++t) {
    if (!c.judged(t)) continue;
    const auto row = static_cast<size_t>(t);
    // Usually a sequence's rows are consecutive, so the table is read only when the sequence
    // changes.
    if (!first && c.sequence[row] == sequence) {
      if (c.position[row] <= position) return false;
    } else {
      if (!first) last[sequence] = position;
      const auto seen = last.find(c.sequence[row]);
      if (seen != last.end() && c.position[row] <= seen->second) return false;
    }
    first = false;
    sequence = c.sequence[row];
    position = c.position[row];
  }
  return true;
}

std::vector<int32_t> StoredOrder(const RoutingCase& c) {
  std::vector<int32_t> order(static_cast<size_t>(c.tokens));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

// Returns the rows by (major, minor).
std::vector<int32_t> RowsBy(const RoutingCase& c, const std::vector<int64_t>& major,
                            const std::vector<int64_t>& minor) {
  std::vector<int32_t> order = StoredOrder(c);
  const auto before = [&](int32_t a, int32_t b) {
    const auto i = static_cast<size_t>(a), j = static_cast<size_t>(b);
    return major[i] != major[j] ? major[i] < major[j] : minor[i] < minor[j];
  };
  if (std::is_sorted(order.begin(), order.end(), before)) return order;
  StableSortBy(minor, order);
  StableSortBy(major, order);
  return order;
}

std::vector<int32_t> PoolByPool(const RoutingCase& c, std::vector<int32_t> order) {
  StableSortBy(c.pool, order);
  return order;
}

}  // namespace

std::vector<TimeQueue> TimeQueues(const RoutingCase& c) {
  std::vector<TimeQueue> queues;
  const auto add = [&](const char* name, std::vector<int32_t> order) {
    const bool known = std::any_of(queues.begin(), queues.end(),
                                   [&](const TimeQueue& queue) { return queue.order == order; });
    if (known) return;
    queues.push_back({name, std::move(order)});
  };
  add("batch-major", PoolByPool(c, RowsBy(c, c.sequence, c.position)));
  add("seq-major", PoolByPool(c, RowsBy(c, c.position, c.sequence)));
  if (RowsInTimeOrder(c)) add("rows", PoolByPool(c, StoredOrder(c)));
  return queues;
}

std::vector<int32_t> RowsByPosition(const RoutingCase& c) {
  std::vector<int32_t> order = StoredOrder(c);
  StableSortBy(c.position, order);
  return order;
}

std::vector<int32_t> RowsBySequence(const RoutingCase& c) {
  return RowsBy(c, c.sequence, c.position);
}

std::vector<PoolRows> RowsOfPools(const RoutingCase& c, const TimeQueue& queue) {
  std::vector<PoolRows> pools;
  int32_t pool = -1;
  for (size_t place = 0; place < queue.order.size(); ++place) {
    if (queue.At(c, place).choices.empty()) continue;
    const int32_t here = c.pool[static_cast<size_t>(queue.order[place])];
    if (pools.empty() || here != pool) pools.emplace_back(c, queue);
    pool = here;
    pools.back().Add(place);
  }
  return pools;
}

}  // namespace plumbline::analysis
