#include "rules/lib/routing_queue.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>

namespace plumbline::rules {
namespace {

// Stable counting sort of `order` by value[row]; falls back to comparison where values are sparse.
template <typename T>
void StableSortBy(const std::vector<T>& value, std::vector<int32_t>& order) {
  if (order.empty()) return;
  const auto at = [&](int32_t row) { return value[static_cast<size_t>(row)]; };
  const auto [least, most] = std::minmax_element(value.begin(), value.end());
  const uint64_t range = static_cast<uint64_t>(*most) - static_cast<uint64_t>(*least);
  if (range > 4 * static_cast<uint64_t>(order.size()) + 1024) {
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return at(a) < at(b); });
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

std::vector<int32_t> RowOrder(const RoutingCase& c, const std::vector<int64_t>* major,
                              const std::vector<int64_t>* minor) {
  std::vector<int32_t> order(static_cast<size_t>(c.tokens));
  std::iota(order.begin(), order.end(), 0);
  if (minor != nullptr) StableSortBy(*minor, order);
  if (major != nullptr) StableSortBy(*major, order);
  if (c.pools > 1) StableSortBy(c.pool, order);
  return order;
}

void FillOffers(const RoutingCase& c, TimeQueue& queue) {
  std::vector<size_t> begin(static_cast<size_t>(c.tokens) + 1, 0);
  for (const Choice& choice : c.choices) ++begin[static_cast<size_t>(choice.token) + 1];
  std::partial_sum(begin.begin(), begin.end(), begin.begin());
  queue.offers.reserve(c.choices.size());
  for (size_t place = 0; place < queue.order.size(); ++place) {
    const auto row = static_cast<size_t>(queue.order[place]);
    for (size_t i = begin[row]; i < begin[row + 1]; ++i) {
      const Choice& choice = c.choices[i];
      queue.offers.push_back({static_cast<int32_t>(place), static_cast<int32_t>(i), choice.token,
                              static_cast<int16_t>(choice.expert), choice.rank, choice.kept,
                              c.judged(choice.token)});
    }
  }
}

}  // namespace

std::vector<TimeQueue> TimeQueues(const RoutingCase& c) {
  std::vector<TimeQueue> queues;
  const auto add = [&](const char* name, std::vector<int32_t> order) {
    const bool known = std::any_of(queues.begin(), queues.end(),
                                   [&](const TimeQueue& queue) { return queue.order == order; });
    if (known) return;
    queues.push_back({name, {}, std::move(order)});
    FillOffers(c, queues.back());
  };
  add("batch-major", RowOrder(c, &c.sequence, &c.position));
  add("seq-major", RowOrder(c, &c.position, &c.sequence));
  if (RowsInTimeOrder(c)) add("rows", RowOrder(c, nullptr, nullptr));
  return queues;
}

}  // namespace plumbline::rules
