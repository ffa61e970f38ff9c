#include "analysis/routing/policies/patterns.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "analysis/routing/call/call.h"
#include "analysis/routing/policies/bucket.h"
#include "analysis/routing/policies/cut.h"
#include "analysis/routing/policies/table.h"

namespace plumbline::analysis {
namespace {

// ---- budgets ---------------------------------------------------------------------------------

// Admissions and refusals of one pool as (place of the row, count before). Keeps only the points
// that can lie furthest from a rising line: one place per count.
struct BudgetPoints {
  std::vector<double> first_kept;    // by count; infinite if there is none
  std::vector<double> last_refused;  // by count; negative if there is none

  // Uses the first `most` rows.
  BudgetPoints(const PoolRows& rows, size_t experts, size_t most) {
    std::vector<size_t> held(experts, 0);
    rows.All([&](const QueuedRow& row) {
      if (most-- == 0) return false;
      const auto place = static_cast<double>(row.place);
      for (const Choice& choice : row.choices) {
        size_t& count = held[static_cast<size_t>(choice.expert)];
        if (count >= first_kept.size()) {
          first_kept.resize(count + 1, HUGE_VAL);
          last_refused.resize(count + 1, -1);
        }
        if (choice.kept) {
          first_kept[count] = std::min(first_kept[count], place);
        } else if (row.judged) {
          last_refused[count] = place;
        }
        count += choice.kept;
      }
      return true;
    });
  }

  // Returns the gap between the lowest refusal and the highest admission, relative to a line of
  // this slope.
  double Room(double slope) const {
    double least_refused = HUGE_VAL, most_kept = -HUGE_VAL;
    for (size_t i = 0; i < first_kept.size(); ++i) {
      const auto count = static_cast<double>(i);
      most_kept = std::max(most_kept, count - slope * first_kept[i]);
      if (last_refused[i] < 0) continue;
      least_refused = std::min(least_refused, count - slope * last_refused[i]);
    }
    return least_refused - most_kept;
  }
};

// Returns true if a line has every admission below it and no refusal. The gap is concave in the
// slope c, so ternary search finds its maximum.
bool GrowsEvenly(const BudgetPoints& points) {
  double low = 0, high = 2;
  for (int i = 0; i < 60; ++i) {
    const double a = low + (high - low) / 3, b = high - (high - low) / 3;
    const double room_a = points.Room(a), room_b = points.Room(b);
    if (room_a > 0 || room_b > 0) return true;
    (room_a < room_b ? low : high) = room_a < room_b ? a : b;
  }
  return false;
}

// Returns true if for some c an expert refuses exactly when its c-th last admission is less than w
// rows back.
bool SlidesAlong(const std::vector<PoolRows>& pools, size_t experts) {
  struct Window {
    size_t count;             // c
    double near = -HUGE_VAL;  // refusals: the farthest c-th last admission
    double far = HUGE_VAL;    // admissions: the nearest
  };
  std::vector<Window> open;
  for (size_t count = 1; count <= 64; ++count) open.push_back({count});
  std::vector<std::vector<double>> admitted(experts);
  const auto take = [&](const QueuedRow& row) {
    for (const Choice& choice : row.choices) {
      if (!choice.kept && !row.judged) continue;
      auto& list = admitted[static_cast<size_t>(choice.expert)];
      const auto place = static_cast<double>(row.place);
      for (Window& w : open) {
        const double back = w.count <= list.size() ? place - list[list.size() - w.count] : HUGE_VAL;
        (choice.kept ? w.far : w.near) =
            choice.kept ? std::min(w.far, back) : std::max(w.near, back);
      }
      std::erase_if(open, [](const Window& w) { return !(w.near < w.far); });
      if (choice.kept) list.push_back(place);
    }
    return !open.empty();
  };
  return std::all_of(pools.begin(), pools.end(), [&](const PoolRows& rows) {
    for (auto& list : admitted) list.clear();
    return rows.All(take);
  });
}

// Returns true if no expert refused at a count that an expert had exceeded before.
bool BudgetNeverFalls(const std::vector<PoolRows>& pools, size_t experts) {
  return std::all_of(pools.begin(), pools.end(), [&](const PoolRows& rows) {
    std::vector<int64_t> held(experts, 0);
    int64_t most = 0;  // admitted so far by any expert, before this row
    return rows.All([&](const QueuedRow& row) {
      int64_t next = most;
      for (const Choice& choice : row.choices) {
        int64_t& count = held[static_cast<size_t>(choice.expert)];
        if (!choice.kept && row.judged && count < most) return false;
        count += choice.kept;
        if (choice.kept) next = std::max(next, count);
      }
      most = next;
      return true;
    });
  });
}

bool BudgetGrowsEvenly(const std::vector<PoolRows>& pools, size_t experts) {
  // If the first rows fit no line, all rows fit none.
  constexpr size_t kFirst = 1 << 14;
  return std::all_of(pools.begin(), pools.end(), [&](const PoolRows& rows) {
    return (rows.size() <= kFirst || GrowsEvenly(BudgetPoints(rows, experts, kFirst))) &&
           GrowsEvenly(BudgetPoints(rows, experts, rows.size()));
  });
}

// ---- all or nothing --------------------------------------------------------------------------

bool AllOrNothingFits(const std::vector<PoolRows>& pools, const RoutingCase& c, int64_t capacity) {
  if (c.top_k < 2 || capacity <= 0) return false;
  return std::all_of(pools.begin(), pools.end(), [&](const PoolRows& rows) {
    std::vector<int64_t> held(static_cast<size_t>(c.experts), 0);
    return rows.All([&](const QueuedRow& row) {
      const auto count = [&](const Choice& choice) -> int64_t& {
        return held[static_cast<size_t>(choice.expert)];
      };
      const bool room = std::all_of(row.choices.begin(), row.choices.end(),
                                    [&](const Choice& choice) { return count(choice) < capacity; });
      for (const Choice& choice : row.choices) {
        if (row.judged && choice.kept != room) return false;
        count(choice) += choice.kept;
      }
      return true;
    });
  });
}

// ---- the same position across sequences ------------------------------------------------------

struct FateCounts {
  int64_t kept = 0;
  int64_t refused = 0;
};

// Calls visit(fates) for every (position, expert) that judged rows chose. Stops and returns false
// at the first false.
template <typename Visit>
bool AllByPosition(const RoutingCase& c, Visit visit) {
  const std::vector<int32_t> rows = RowsByPosition(c);
  std::vector<FateCounts> fates(static_cast<size_t>(c.experts));
  std::vector<int32_t> chosen;  // experts with fates at this position
  for (size_t i = 0; i < rows.size();) {
    const int64_t position = c.position[static_cast<size_t>(rows[i])];
    for (; i < rows.size() && c.position[static_cast<size_t>(rows[i])] == position; ++i) {
      if (!c.judged(rows[i])) continue;
      for (const Choice& choice : c.ChoicesOf(rows[i])) {
        FateCounts& of = fates[static_cast<size_t>(choice.expert)];
        if (of.kept + of.refused == 0) chosen.push_back(choice.expert);
        ++(choice.kept ? of.kept : of.refused);
      }
    }
    for (int32_t expert : chosen) {
      if (!visit(std::exchange(fates[static_cast<size_t>(expert)], {}))) return false;
    }
    chosen.clear();
  }
  return true;
}

bool FitsByPosition(const RoutingCase& c) {
  int64_t capacity = -1, most = 0;
  const bool one = AllByPosition(c, [&](const FateCounts& fates) {
    most = std::max(most, fates.kept);
    if (fates.refused > 0 && capacity < 0) capacity = fates.kept;
    return fates.refused == 0 || fates.kept == capacity;
  });
  return one && most <= capacity;
}

}  // namespace

const char* CleanPatterns::name() const {
  if (cut) return "a cut of the queue into pieces";
  if (running_budget) return "a budget that grows along the queue";
  if (sliding_window) return "a budget over the last rows of the queue";
  if (bucket) return "a budget per expert that refills (a token bucket)";
  if (all_or_nothing) return "a queue that refuses a token at all experts or at none";
  if (table) return "a table of positions and experts";
  return by_position ? "a choice among the sequences at each position" : "nothing";
}

const char* CleanPatterns::doubt() const {
  if (loose_table) {
    return " A table of positions gives them too, but would match the capacity only by chance.";
  }
  if (loose_cut) return " A queue with about as many cuts as refusals gives them too.";
  return loose_budget ? " A budget that grows along the queue gives them too." : "";
}

CleanPatterns FindCleanPatterns(const RoutingCase& c, const Saturation& s,
                                const std::vector<TimeQueue>& queues) {
  CleanPatterns out;
  const auto experts = static_cast<size_t>(c.experts);
  for (const TimeQueue& queue : queues) {
    const std::vector<PoolRows> pools = RowsOfPools(c, queue);
    out.running_budget |= BudgetGrowsEvenly(pools, experts);
    out.loose_budget |= BudgetNeverFalls(pools, experts);
    out.sliding_window |= SlidesAlong(pools, experts);
    out.all_or_nothing |= AllOrNothingFits(pools, c, s.capacity);
  }
  out.bucket = BucketsFit(c, s, queues);
  const bool recorded = c.pool_basis == PoolBasis::kRecorded;
  const QueueCut cut = FindCut(c, s, queues);
  out.loose_cut = cut.fits;
  out.cut = cut.fits && (!recorded || cut.explains());
  const PositionTable table = FindTable(c, s, queues);
  out.loose_table = table.fits;
  out.table = table.fits && !(table.count_bits >= kHintBits);
  out.by_position = !recorded && FitsByPosition(c);
  return out;
}

}  // namespace plumbline::analysis
