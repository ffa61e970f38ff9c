#include "analysis/routing/policies/zigzag.h"

#include <algorithm>
#include <map>

#include "analysis/routing/policies/queue.h"

namespace plumbline::analysis {

Sequences NumberSequences(const RoutingCase& c) {
  std::map<int64_t, int32_t> numbers;
  for (size_t row = 0; row < c.sequence.size(); ++row) {
    // Usually a sequence's rows are consecutive.
    if (row == 0 || c.sequence[row] != c.sequence[row - 1]) numbers.try_emplace(c.sequence[row], 0);
  }
  int32_t next = 0;
  for (auto& [id, number] : numbers) number = next++;
  Sequences out;
  out.number.resize(c.sequence.size());
  out.length.resize(numbers.size(), 0);
  for (size_t row = 0; row < c.sequence.size(); ++row) {
    const bool same = row > 0 && c.sequence[row] == c.sequence[row - 1];
    out.number[row] = same ? out.number[row - 1] : numbers[c.sequence[row]];
    int64_t& length = out.length[static_cast<size_t>(out.number[row])];
    length = std::max(length, c.position[row] + 1);
    out.longest = std::max(out.longest, length);
  }
  return out;
}

double ZigzagPlace(const RoutingCase& c, const Sequences& s, int32_t ranks, bool by_position,
                   size_t row) {
  const auto sequence = static_cast<double>(s.number[row]);
  const auto position = static_cast<double>(c.position[row]);
  const int64_t length = s.length[static_cast<size_t>(s.number[row])];
  const int64_t chunk = std::max<int64_t>((length + 2 * ranks - 1) / (2 * ranks), 1);
  const int64_t index = c.position[row] / chunk;
  const auto rank = static_cast<double>(std::min(index, 2 * ranks - 1 - index));
  const auto sequences = static_cast<double>(s.length.size());
  const auto longest = static_cast<double>(s.longest);
  return by_position ? (rank * longest + position) * sequences + sequence
                     : (rank * sequences + sequence) * longest + position;
}

bool ZigzagKeepsTime(const RoutingCase& c, const Sequences& s, int32_t ranks, bool by_position) {
  struct Last {
    int32_t sequence = -1;
    double place = 0;
  };
  std::vector<Last> last(static_cast<size_t>(c.pools));  // of each pool, by (sequence, position)
  for (int32_t token : RowsBySequence(c)) {
    if (!c.judged(token)) continue;
    const auto row = static_cast<size_t>(token);
    Last& before = last[static_cast<size_t>(c.pool[row])];
    const double place = ZigzagPlace(c, s, ranks, by_position, row);
    if (before.sequence == s.number[row] && place < before.place) return false;
    before = {s.number[row], place};
  }
  return true;
}

}  // namespace plumbline::analysis
