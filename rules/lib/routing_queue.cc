#include "rules/lib/routing_queue.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>

namespace plumbline::rules {
namespace {

// Stable counting sort of `order` by value[row]; falls back to comparison where values are sparse.
template <typename T>
void StableSortBy(const std::vector<T>& value, std::vector<int32_t>& order) {
  const auto at = [&](int32_t row) { return value[static_cast<size_t>(row)]; };
  const auto below = [&](int32_t a, int32_t b) { return at(a) < at(b); };
  if (std::is_sorted(order.begin(), order.end(), below)) return;
  const auto [least, most] = std::minmax_element(value.begin(), value.end());
  const uint64_t range = static_cast<uint64_t>(*most) - static_cast<uint64_t>(*least);
  if (range > 4 * static_cast<uint64_t>(order.size()) + 1024) {
    std::stable_sort(order.begin(), order.end(), below);
    return;
  }
  std::vector<int32_t> begin(static_cast<size_t>(range) + 2, 0);
  const auto bucket = [&](int32_t row) {
    return static_cast<size_t>(static_cast<uint64_t>(at(row)) - static_cast<uint64_t>(*least));
  };
  for (int32_t row : order) ++begin[bucket(row) + 1];
  std::partial_sum(begin.begin(), begin.end(), begin.begin());
  std::vector<int32_t> sorted(order.size());
  for (int32_t row : order) sorted[static_cast<size_t>(begin[bucket(row)]++)] = row;
  order.swap(sorted);
}

// The stored rows are a queue in time order when each sequence's positions rise.
bool RowsInTimeOrder(const RoutingCase& c) {
  std::unordered_map<int64_t, int64_t> last;
  int64_t sequence = 0, position = 0;
  bool first = true;
  for (int32_t t = 0; t < c.tokens; ++t) {
    if (!c.judged(t)) continue;
    const auto row = static_cast<size_t>(t);
    // Runs of one sequence are the common case: the table is asked only when it changes.
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

// Are the stored rows by (pool, major, minor)?
bool InOrder(const RoutingCase& c, const std::vector<int64_t>& major,
             const std::vector<int64_t>& minor) {
  for (size_t row = 1; row < major.size(); ++row) {
    const size_t last = row - 1;
    if (c.pool[row] != c.pool[last]) {
      if (c.pool[row] < c.pool[last]) return false;
    } else if (major[row] != major[last]) {
      if (major[row] < major[last]) return false;
    } else if (minor[row] < minor[last]) {
      return false;
    }
  }
  return true;
}

std::vector<int32_t> StoredOrder(const RoutingCase& c) {
  std::vector<int32_t> order(static_cast<size_t>(c.tokens));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

std::vector<int32_t> RowOrder(const RoutingCase& c, const std::vector<int64_t>& major,
                              const std::vector<int64_t>& minor) {
  std::vector<int32_t> order = StoredOrder(c);
  if (InOrder(c, major, minor)) return order;
  StableSortBy(minor, order);
  StableSortBy(major, order);
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
  add("batch-major", RowOrder(c, c.sequence, c.position));
  add("seq-major", RowOrder(c, c.position, c.sequence));
  if (RowsInTimeOrder(c)) {
    std::vector<int32_t> order = StoredOrder(c);
    StableSortBy(c.pool, order);
    add("rows", std::move(order));
  }
  return queues;
}

std::vector<int32_t> RowsByPosition(const RoutingCase& c) {
  std::vector<int32_t> order = StoredOrder(c);
  StableSortBy(c.position, order);
  return order;
}

}  // namespace plumbline::rules
