#include "analysis/routing/policies/cut.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace plumbline::analysis {
namespace {

constexpr int64_t kMostEqualPieces = 1024;

// One piece, extended row by row.
class Piece {
 public:
  explicit Piece(size_t experts) : stamp_(experts, 0), count_(experts), refused_(experts) {}

  void Start() {
    ++now_;
    capacity_ = -1;
    most_ = 0;
  }
  // Returns false if this row cannot belong to the piece.
  bool Add(const QueuedRow& row) {
    for (const Choice& choice : row.choices) {
      if (choice.kept && !Admit(static_cast<size_t>(choice.expert))) return false;
    }
    for (const Choice& choice : row.choices) {
      const bool refused = !choice.kept && row.judged;
      if (refused && !Refuse(static_cast<size_t>(choice.expert))) return false;
    }
    return true;
  }

 private:
  void Fresh(size_t e) {
    if (stamp_[e] == now_) return;
    stamp_[e] = now_;
    count_[e] = 0;
    refused_[e] = 0;
  }
  bool Admit(size_t e) {
    Fresh(e);
    most_ = std::max(most_, ++count_[e]);
    return !refused_[e] && (capacity_ < 0 || most_ <= capacity_);
  }
  bool Refuse(size_t e) {
    Fresh(e);
    refused_[e] = 1;
    if (capacity_ < 0) capacity_ = count_[e];
    return count_[e] > 0 && count_[e] == capacity_ && most_ <= capacity_;
  }

  std::vector<int64_t> stamp_;
  std::vector<int64_t> count_;
  std::vector<uint8_t> refused_;
  int64_t now_ = 0;
  int64_t capacity_ = -1;
  int64_t most_ = 0;
};

// Returns the smallest number of pieces. If no cut fits, returns 0. A prefix of a possible piece is
// a possible piece, so the rows that n pieces reach are a run from the start, and it suffices to
// move its end. `budget` bounds the work. If it is used up, a cut cannot be excluded, and the
// result is 1.
int64_t LeastPieces(const PoolRows& rows, size_t experts, int64_t* budget) {
  Piece piece(experts);
  int64_t pieces = 1;
  // Rows that `pieces` pieces reach, and that one piece less reaches.
  size_t reach = 0, of_fewer = 0;
  for (size_t from = 0; from <= reach; ++from) {
    if (from > of_fewer) {
      of_fewer = reach;
      ++pieces;
    }
    piece.Start();
    size_t to = from;
    for (; to < rows.size() && *budget > 0; ++to, --*budget) {
      if (!piece.Add(rows[to])) break;
    }
    if (*budget <= 0) return 1;
    reach = std::max(reach, to);
    if (reach == rows.size()) return pieces;
  }
  return 0;
}

bool RefusesAny(const PoolRows& rows) {
  return !rows.All([](const QueuedRow& row) {
    return !row.judged || std::all_of(row.choices.begin(), row.choices.end(),
                                      [](const Choice& choice) { return choice.kept; });
  });
}

// Returns log2 of the number of places where the pieces may end and of capacities that they may
// have.
double FreeBits(double rows, double pieces, double capacity) {
  return Log2Choose(rows - 1, pieces - 1) + pieces * std::log2(std::max(capacity, 1.0));
}

QueueCut CutOf(const RoutingCase& c, const Saturation& s, const TimeQueue& queue) {
  QueueCut cut;
  const auto experts = static_cast<size_t>(c.experts);
  const auto pools = RowsOfPools(c, queue);
  int64_t budget = 64 * static_cast<int64_t>(c.choices.size()) + 1'000'000;
  for (const PoolRows& rows : pools) {
    if (!RefusesAny(rows)) continue;
    const int64_t pieces = LeastPieces(rows, experts, &budget);
    if (pieces == 0) return cut;
    cut.free_bits += FreeBits(static_cast<double>(rows.size()), static_cast<double>(pieces),
                              static_cast<double>(s.capacity));
  }
  cut.fits = true;
  return cut;
}

// Returns true if pieces of one size, the same in every pool, fit. They have almost no free
// parameters.
bool EqualCutFits(const RoutingCase& c, const TimeQueue& queue) {
  const auto pools = RowsOfPools(c, queue);
  std::vector<int64_t> begin(c.pool_rows.size(), 0);  // the first place of each pool
  std::partial_sum(c.pool_rows.begin(), c.pool_rows.end() - 1, begin.begin() + 1);
  const int64_t longest = *std::max_element(c.pool_rows.begin(), c.pool_rows.end());
  Piece piece(static_cast<size_t>(c.experts));
  int64_t budget = 64 * static_cast<int64_t>(c.choices.size()) + 1'000'000;
  const auto fits = [&](const PoolRows& rows, int64_t size) {
    const auto pool = static_cast<size_t>(c.pool[static_cast<size_t>(rows[0].choices[0].token)]);
    int64_t now = -1;
    return rows.All([&](const QueuedRow& row) {
      const int64_t here = (row.place - begin[pool]) / size;
      if (here != now) piece.Start();
      now = here;
      return --budget <= 0 || piece.Add(row);
    });
  };
  for (int64_t n = 2; n <= std::min(longest, kMostEqualPieces); ++n) {
    const int64_t size = (longest + n - 1) / n;
    if (std::all_of(pools.begin(), pools.end(), [&](const auto& rows) { return fits(rows, size); }))
      return true;
  }
  return false;
}

}  // namespace

QueueCut FindCut(const RoutingCase& c, const Saturation& s, const std::vector<TimeQueue>& queues) {
  QueueCut best;
  for (const TimeQueue& queue : queues) {
    const QueueCut cut = CutOf(c, s, queue);
    if (cut.fits && (!best.fits || cut.free_bits < best.free_bits)) best = cut;
  }
  if (!best.fits) return best;
  for (const Cell& cell : s.cells) {
    best.refusal_bits +=
        Log2Choose(static_cast<double>(cell.candidates()), static_cast<double>(cell.kept));
  }
  const auto equal = [&](const TimeQueue& queue) { return EqualCutFits(c, queue); };
  if (!best.explains() && std::any_of(queues.begin(), queues.end(), equal)) {
    best.free_bits = std::log2(static_cast<double>(kMostEqualPieces));
  }
  return best;
}

}  // namespace plumbline::analysis
