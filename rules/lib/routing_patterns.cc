#include "rules/lib/routing_patterns.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <span>

namespace plumbline::rules {
namespace {

// The offers of one pool, row by row.
using RowOffers = std::span<const Offer>;

std::vector<std::vector<RowOffers>> PoolsOf(const RoutingCase& c, const TimeQueue& queue) {
  std::vector<std::vector<RowOffers>> pools;
  int32_t pool = -1;
  const std::vector<Offer>& offers = queue.offers;
  for (size_t i = 0; i < offers.size();) {
    size_t end = i + 1;
    while (end < offers.size() && offers[end].place == offers[i].place) ++end;
    const int32_t here = c.pool[static_cast<size_t>(offers[i].token)];
    if (pools.empty() || here != pool) pools.emplace_back();
    pool = here;
    pools.back().emplace_back(&offers[i], end - i);
    i = end;
  }
  return pools;
}

bool Refuses(const Offer& offer) { return !offer.kept && offer.judged; }

// ---- a cut -----------------------------------------------------------------------------------

// One piece as it grows row by row.
class Piece {
 public:
  explicit Piece(size_t experts) : stamp_(experts, 0), count_(experts), refused_(experts) {}

  void Start() {
    ++now_;
    capacity_ = -1;
    most_ = 0;
  }
  // False: this row cannot belong to the piece.
  bool Add(RowOffers row) {
    for (const Offer& offer : row) {
      if (offer.kept && !Admit(static_cast<size_t>(offer.expert))) return false;
    }
    for (const Offer& offer : row) {
      if (Refuses(offer) && !Refuse(static_cast<size_t>(offer.expert))) return false;
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

// A prefix of a possible piece is a possible piece, so the rows that cuts reach are a run from the
// start: it suffices to push its end. `budget` bounds the work; spent, a cut cannot be excluded.
bool CanCut(const std::vector<RowOffers>& rows, size_t experts, int64_t* budget) {
  Piece piece(experts);
  size_t reach = 0;
  for (size_t from = 0; from <= reach && reach < rows.size(); ++from) {
    piece.Start();
    size_t to = from;
    for (; to < rows.size() && *budget > 0; ++to, --*budget) {
      if (!piece.Add(rows[to])) break;
    }
    if (*budget <= 0) return true;
    reach = std::max(reach, to);
  }
  return reach == rows.size();
}

bool QueueCanBeCut(const std::vector<std::vector<RowOffers>>& pools, size_t experts,
                   size_t offers) {
  int64_t budget = 64 * static_cast<int64_t>(offers) + 1'000'000;
  return std::all_of(pools.begin(), pools.end(), [&](const std::vector<RowOffers>& rows) {
    return CanCut(rows, experts, &budget);
  });
}

// ---- budgets ---------------------------------------------------------------------------------

// Admissions and refusals of one pool as (place of the row, count before).
struct BudgetPoint {
  double place;
  double count;
  bool kept;
};

std::vector<BudgetPoint> BudgetPoints(const std::vector<RowOffers>& rows, size_t experts) {
  std::vector<BudgetPoint> points;
  std::vector<int64_t> count(experts, 0);
  for (RowOffers row : rows) {
    for (const Offer& offer : row) {
      int64_t& held = count[static_cast<size_t>(offer.expert)];
      if (offer.kept || offer.judged) {
        points.push_back({static_cast<double>(offer.place), static_cast<double>(held), offer.kept});
      }
      held += offer.kept;
    }
  }
  return points;
}

// Is there a line with every admission below it and no refusal? With slope c the room between them
// is concave in c, so its maximum is found by thirds.
bool GrowsEvenly(const std::vector<BudgetPoint>& points) {
  const auto room = [&](double slope) {
    double least_refused = HUGE_VAL, most_kept = -HUGE_VAL;
    for (const BudgetPoint& p : points) {
      const double x = p.count - slope * p.place;
      if (p.kept) {
        most_kept = std::max(most_kept, x);
      } else {
        least_refused = std::min(least_refused, x);
      }
    }
    return least_refused - most_kept;
  };
  double low = 0, high = 2;
  for (int i = 0; i < 60; ++i) {
    const double a = low + (high - low) / 3, b = high - (high - low) / 3;
    if (room(a) > 0 || room(b) > 0) return true;
    (room(a) < room(b) ? low : high) = room(a) < room(b) ? a : b;
  }
  return false;
}

// For some c: an expert refuses exactly when its c-th last admission lies less than w rows back.
bool SlidesAlong(const std::vector<std::vector<RowOffers>>& pools, size_t experts) {
  constexpr size_t kMostCount = 64;
  std::vector<double> near(kMostCount, -HUGE_VAL);  // refusals: the farthest c-th last admission
  std::vector<double> far(kMostCount, HUGE_VAL);    // admissions: the nearest
  std::vector<std::vector<double>> admitted(experts);
  for (const auto& rows : pools) {
    for (auto& list : admitted) list.clear();
    for (RowOffers row : rows) {
      for (const Offer& offer : row) {
        auto& list = admitted[static_cast<size_t>(offer.expert)];
        for (size_t c = 0; c < kMostCount && (Refuses(offer) || offer.kept); ++c) {
          const double back = c < list.size()
                                  ? static_cast<double>(offer.place) - list[list.size() - 1 - c]
                                  : HUGE_VAL;
          (offer.kept ? far : near)[c] =
              offer.kept ? std::min(far[c], back) : std::max(near[c], back);
        }
        if (offer.kept) list.push_back(static_cast<double>(offer.place));
      }
    }
  }
  for (size_t c = 0; c < kMostCount; ++c) {
    if (near[c] < far[c]) return true;
  }
  return false;
}

// No refusal at a count that an expert had passed before.
bool BudgetNeverFalls(const std::vector<std::vector<RowOffers>>& pools, size_t experts) {
  for (const std::vector<RowOffers>& rows : pools) {
    double most = 0;  // admitted so far by any expert, before this row
    double row = -1, next = 0;
    for (const BudgetPoint& p : BudgetPoints(rows, experts)) {
      if (p.place != row) most = std::max(most, next);
      row = p.place;
      if (p.kept) next = std::max(next, p.count + 1);
      if (!p.kept && p.count < most) return false;
    }
  }
  return true;
}

bool BudgetGrowsEvenly(const std::vector<std::vector<RowOffers>>& pools, size_t experts) {
  return std::all_of(pools.begin(), pools.end(), [&](const std::vector<RowOffers>& rows) {
    return GrowsEvenly(BudgetPoints(rows, experts));
  });
}

// ---- all or nothing --------------------------------------------------------------------------

bool AllOrNothingFits(const std::vector<std::vector<RowOffers>>& pools, const RoutingCase& c,
                      int64_t capacity) {
  if (c.top_k < 2 || capacity <= 0) return false;
  std::vector<int64_t> count(static_cast<size_t>(c.experts));
  for (const auto& rows : pools) {
    std::fill(count.begin(), count.end(), 0);
    for (RowOffers row : rows) {
      const bool room = std::all_of(row.begin(), row.end(), [&](const Offer& offer) {
        return count[static_cast<size_t>(offer.expert)] < capacity;
      });
      for (const Offer& offer : row) {
        if (offer.judged && offer.kept != room) return false;
        count[static_cast<size_t>(offer.expert)] += offer.kept;
      }
    }
  }
  return true;
}

// ---- the same position across sequences ------------------------------------------------------

bool FitsByPosition(const RoutingCase& c) {
  struct Tally {
    int64_t kept = 0;
    int64_t refused = 0;
  };
  std::map<std::pair<int64_t, int32_t>, Tally> cells;
  for (const Choice& choice : c.choices) {
    if (!c.judged(choice.token)) continue;
    Tally& tally = cells[{c.position[static_cast<size_t>(choice.token)], choice.expert}];
    ++(choice.kept ? tally.kept : tally.refused);
  }
  int64_t capacity = -1, most = 0;
  for (const auto& [cell, tally] : cells) {
    most = std::max(most, tally.kept);
    if (tally.refused == 0) continue;
    if (capacity < 0) capacity = tally.kept;
    if (tally.kept != capacity) return false;
  }
  return most <= capacity;
}

// Fates that (position, expert) decides, seen in several sequences at least 8 times.
bool FitsATable(const RoutingCase& c) {
  std::map<std::pair<int64_t, int32_t>, bool> fate;
  int64_t repeats = 0;
  for (const Choice& choice : c.choices) {
    if (!c.judged(choice.token)) continue;
    const auto [entry, fresh] = fate.try_emplace(
        {c.position[static_cast<size_t>(choice.token)], choice.expert}, choice.kept);
    if (entry->second != choice.kept) return false;
    repeats += fresh ? 0 : 1;
  }
  return repeats >= 8;
}

}  // namespace

const char* CleanPatterns::name() const {
  if (cut) return "a cut of the queue into pieces";
  if (running_budget) return "a budget that grows along the queue";
  if (sliding_window) return "a budget over the last rows of the queue";
  if (all_or_nothing) return "a queue that refuses a token by all experts or by none";
  if (table) return "a table of positions and experts";
  return by_position ? "a choice among the sequences at each position" : "nothing";
}

CleanPatterns FindCleanPatterns(const RoutingCase& c, const Saturation& s,
                                const std::vector<TimeQueue>& queues) {
  CleanPatterns out;
  const auto experts = static_cast<size_t>(c.experts);
  for (const TimeQueue& queue : queues) {
    const auto pools = PoolsOf(c, queue);
    out.cut |= QueueCanBeCut(pools, experts, queue.offers.size());
    out.running_budget |= BudgetGrowsEvenly(pools, experts);
    out.loose_budget |= BudgetNeverFalls(pools, experts);
    out.sliding_window |= SlidesAlong(pools, experts);
    out.all_or_nothing |= AllOrNothingFits(pools, c, s.capacity);
  }
  out.table = FitsATable(c);
  out.by_position = c.pool_basis != PoolBasis::kRecorded && FitsByPosition(c);
  return out;
}

double OwnRefusalBits(const RoutingCase& c, const Saturation& s,
                      const std::vector<TimeQueue>& queues) {
  struct Tally {
    double seen = 0, kept = 0, tail = 0;
  };
  const std::vector<uint8_t> fresh = FreshCells(c, s);
  double least = HUGE_VAL;
  for (const TimeQueue& queue : queues) {
    std::vector<Tally> cells(s.cells.size());
    for (const Offer& offer : queue.offers) {
      if (!offer.judged) continue;
      Tally& tally = cells[CellOfToken(c, offer.token, offer.expert)];
      ++tally.seen;
      tally.kept += offer.kept;
      tally.tail = offer.kept ? 0 : tally.tail + 1;
    }
    double bits = 0;
    for (size_t i = 0; i < cells.size(); ++i) {
      if (!fresh[i]) continue;
      const Tally& t = cells[i];
      const double own = t.seen - t.kept - t.tail;
      const double rate = own / std::max(t.seen - t.tail, 1.0);
      const double log_own = own > 0 ? t.kept * std::log2(1 - rate) + own * std::log2(rate) : 0;
      bits += -log_own - Log2Choose(t.seen, t.kept);
    }
    least = std::min(least, bits);
  }
  return std::isfinite(least) ? least : 0;
}

}  // namespace plumbline::rules
