#include "analysis/routing/policies/cell_keys.h"

#include <algorithm>
#include <cmath>

#include "base/parallel.h"

namespace plumbline::analysis {
namespace {

// Up to this number of candidates, cells are read one at a time. Then all remaining cells are read
// at once.
constexpr size_t kReadAlone = 4096;
// If a cell has at least this number of candidates, a further thread saves time.
constexpr int64_t kWorthAThread = 16384;

int Threads(const RoutingCase& c) { return ThreadsFor(c.routing->sample().scores().data().size()); }

}  // namespace

Key QueueKey(const std::vector<Key>& row, size_t at, QueueBy by) {
  if (by == QueueBy::kChoice) return row[at];
  Key all{-HUGE_VAL, 0};
  for (const Key& key : row) {
    if (by == QueueBy::kSumOfRow) {
      all.value = all.value == -HUGE_VAL ? key.value : all.value + key.value;
      all.tolerance += key.tolerance;
    } else if (key.value > all.value) {
      all = key;
    }
  }
  return all;
}

std::array<std::vector<Key>, 3> KeysOfSome(const RoutingCase& c, std::span<const int32_t> choices,
                                           size_t stride, KeyKind kind) {
  std::array<std::vector<Key>, 3> keys;
  RowKeyReader reader(c, kind);
  for (size_t i = 0; i < choices.size(); i += stride) {
    const auto choice = static_cast<size_t>(choices[i]);
    const int32_t token = c.choices[choice].token;
    const auto at = choice - static_cast<size_t>(c.first_choice[static_cast<size_t>(token)]);
    const std::vector<Key>& row = reader.Keys(token);
    for (size_t by = 0; by < (c.top_k > 1 ? 3 : 1); ++by)
      keys[by].push_back(QueueKey(row, at, static_cast<QueueBy>(by)));
  }
  return keys;
}

std::vector<Key> KeysOfChoices(const RoutingCase& c, const std::vector<uint8_t>& included,
                               KeyKind kind, QueueBy by) {
  std::vector<Key> keys(c.choices.size());
  ParallelParts(c.tokens, Threads(c), [&](int, int64_t first, int64_t last) {
    RowKeyReader reader(c, kind);
    for (auto t = static_cast<int32_t>(first); t < last; ++t) {
      const std::span<const Choice> row = c.ChoicesOf(t);
      const bool requested =
          c.judged(t) && std::any_of(row.begin(), row.end(), [&](const Choice& x) {
            return included[CellOfToken(c, t, x.expert)] != 0;
          });
      if (!requested) continue;
      const std::vector<Key>& read = reader.Keys(t);
      const auto begin = static_cast<size_t>(c.first_choice[static_cast<size_t>(t)]);
      for (size_t i = 0; i < row.size(); ++i) keys[begin + i] = QueueKey(read, i, by);
    }
  });
  return keys;
}

CellKeys::Keys CellKeys::ReadCell(size_t cell) const {
  const size_t begin = cells_.begin[cell];
  const auto count = static_cast<int64_t>(cells_.begin[cell + 1] - begin);
  const size_t ways = c_.top_k > 1 ? 3 : 1;
  Keys keys;
  for (size_t by = 0; by < ways; ++by) keys[by].resize(static_cast<size_t>(count));
  const int threads = count >= 2 * kWorthAThread ? Threads(c_) : 1;
  ParallelParts(count, threads, [&](int, int64_t first, int64_t last) {
    RowKeyReader reader(c_, kind_);
    for (auto i = static_cast<size_t>(first); i < static_cast<size_t>(last); ++i) {
      const auto choice = static_cast<size_t>(cells_.choices[begin + i]);
      const int32_t token = c_.choices[choice].token;
      const auto at = choice - static_cast<size_t>(c_.first_choice[static_cast<size_t>(token)]);
      const std::vector<Key>& row = reader.Keys(token);
      for (size_t by = 0; by < ways; ++by) {
        keys[by][i] = QueueKey(row, at, static_cast<QueueBy>(by));
      }
    }
  });
  return keys;
}

std::span<const Key> CellKeys::Sample(QueueBy by, size_t stride) {
  if (sample_[0].empty()) sample_ = KeysOfSome(c_, cells_.ChoicesOf(0), stride, kind_);
  return sample_[static_cast<size_t>(by)];
}

std::span<const Key> CellKeys::Cell(size_t cell, QueueBy by, bool fits) {
  const bool rest_holds = !rest_.empty() && rest_by_ == by && rest_from_ <= cell;
  if (!rest_holds && (cells_.begin[cell] < kReadAlone || !fits)) {
    const auto [entry, fresh] = read_.try_emplace(cell);
    if (fresh) entry->second = ReadCell(cell);
    return entry->second[static_cast<size_t>(by)];
  }
  if (!rest_holds) {
    std::vector<uint8_t> included(static_cast<size_t>(c_.pools) * static_cast<size_t>(c_.experts));
    for (size_t i = cell; i < cells_.size(); ++i) included[cells_.cell[i]] = 1;
    rest_ = KeysOfChoices(c_, included, kind_, by);
    rest_by_ = by;
    rest_from_ = cell;
  }
  gathered_.clear();
  for (int32_t choice : cells_.ChoicesOf(cell)) {
    gathered_.push_back(rest_[static_cast<size_t>(choice)]);
  }
  return gathered_;
}

}  // namespace plumbline::analysis
