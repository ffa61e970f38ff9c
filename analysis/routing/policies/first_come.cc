#include "analysis/routing/policies/first_come.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "analysis/routing/call/call.h"

namespace plumbline::analysis {
namespace {

// Counts of one cell within the current piece.
struct CellCounts {
  int64_t kept = 0;  // including padding
  int64_t judged_kept = 0;
  int64_t refused = 0;
  uint64_t hash = 0;  // of the scores of its judged candidates
};

// Takes choices piece by piece. Reports if they contradict one capacity per piece (and choice
// rank).
class PieceLedger {
 public:
  // Cells are (expert, rank), with `ranks` ranks. If `capacity` < 0, the capacity is what the first
  // refusing cell of that rank holds in a piece of the same number of rows.
  PieceLedger(size_t experts, size_t ranks, int64_t capacity, bool queued)
      : ranks_(ranks),
        cells_(experts * ranks),
        unranked_(experts, 0),
        declared_(capacity),
        queued_(queued) {}

  // Returns false after an admission that follows a refusal, or if more than the declared capacity
  // is held.
  bool Take(size_t expert, size_t rank, bool kept, bool judged) {
    const size_t cell = expert * ranks_ + rank;
    CellCounts& tally = cells_[cell];
    if (tally.kept + tally.refused == 0) touched_.push_back(cell);
    if (!kept) {
      tally.refused += judged;
      return true;
    }
    if (queued_ && judged && tally.refused > 0) return false;
    tally.judged_kept += judged;
    return ++tally.kept <= declared_ || declared_ < 0;
  }

  // Takes a choice whose rank is not known. An admission counts at one of the expert's cells.
  void TakeUnranked(size_t expert, bool kept) { unranked_[expert] += kept; }

  // Ends a piece of `rows` rows. Returns false if refusing cells hold different numbers, or if
  // another cell holds more. A short piece may have a different capacity.
  bool Close(int64_t rows, bool is_short) {
    bool fits = true;
    for (size_t rank = 0; rank < ranks_; ++rank) fits = fits && CloseRank(rank, rows, is_short);
    for (size_t cell : touched_) {
      cells_[cell] = {};
      unranked_[cell / ranks_] = 0;
    }
    touched_.clear();
    return fits;
  }

  int64_t refusing() const { return refusing_; }

 private:
  bool CloseRank(size_t rank, int64_t rows, bool is_short) {
    int64_t most = 0, holding = -1;
    for (size_t cell : touched_) {
      if (cell % ranks_ != rank) continue;
      most = std::max(most, cells_[cell].kept);
      if (cells_[cell].refused > 0) holding = std::max(holding, cells_[cell].kept);
    }
    const std::pair<size_t, int64_t> kind{rank, rows};
    int64_t& largest = largest_[kind];
    if (!is_short) largest = std::max(largest, most);
    if (holding >= 0) {
      for (size_t cell : touched_) {
        const bool refuses = cell % ranks_ == rank && cells_[cell].refused > 0;
        refusing_ += refuses;
        if (refuses && cells_[cell].kept + unranked_[cell / ranks_] < holding) return false;
      }
      if (most > holding) return false;
      if (!is_short && declared_ >= 0) return holding == declared_;
      if (!is_short && capacity_.try_emplace(kind, holding).first->second != holding) return false;
    }
    const auto known = capacity_.find(kind);
    return is_short || known == capacity_.end() || largest <= known->second;
  }

  size_t ranks_;
  std::vector<CellCounts> cells_;
  std::vector<int64_t> unranked_;
  std::vector<size_t> touched_;
  int64_t declared_;
  bool queued_;
  std::map<std::pair<size_t, int64_t>, int64_t> capacity_;  // by rank and rows of a piece
  std::map<std::pair<size_t, int64_t>, int64_t> largest_;
  int64_t refusing_ = 0;
};

// How a queue is cut into pieces, and which choices share a capacity in a piece.
struct Variant {
  enum class Pieces { kPools, kSequences, kShortLast, kShortFirst };
  Pieces pieces = Pieces::kPools;
  int32_t chunk = 0;        // rows, for the last two
  int16_t first_ranks = 0;  // if > 0: choices of this rank and above are unused
  bool per_rank = false;
};

class Stream {
 public:
  Stream(const RoutingCase& c, const TimeQueue& queue) : c_(c), queue_(queue) {}

  size_t Cells(const Variant& v) const {
    return static_cast<size_t>(c_.experts) * static_cast<size_t>(v.per_rank ? c_.top_k : 1);
  }
  size_t CellOf(const Variant& v, const Choice& choice) const {
    const auto expert = static_cast<size_t>(choice.expert);
    if (!v.per_rank) return expert;
    return expert * static_cast<size_t>(c_.top_k) +
           static_cast<size_t>(std::max<int16_t>(choice.rank, 0));
  }

  // Calls take(choice, judged) along the queue and close(rows, is_short) after each piece. Stops at
  // the first false.
  template <typename Take, typename Close>
  bool Walk(const Variant& v, Take take, Close close) const {
    for (int32_t from = 0; from < c_.tokens;) {
      const int32_t to = PieceEnd(v, from);
      for (int32_t place = from; place < to; ++place) {
        const QueuedRow row = queue_.At(c_, static_cast<size_t>(place));
        for (const Choice& choice : row.choices) {
          if (!take(choice, row.judged)) return false;
        }
      }
      if (!close(to - from, v.chunk > 0 && to - from < v.chunk)) return false;
      from = to;
    }
    return true;
  }

  // Returns the pieces as pools.
  Chunking Pools(const Variant& v) const {
    Chunking out;
    out.pool.resize(static_cast<size_t>(c_.tokens));
    for (int32_t from = 0; from < c_.tokens; ++out.pools) {
      const int32_t to = PieceEnd(v, from);
      for (; from < to; ++from) {
        out.pool[static_cast<size_t>(queue_.order[static_cast<size_t>(from)])] = out.pools;
      }
    }
    out.how = Name(v);
    return out;
  }

  std::string Name(const Variant& v) const {
    std::string name = queue_.name + " order";
    if (v.pieces == Variant::Pieces::kSequences) name = "sequence by sequence";
    if (v.chunk > 0) absl::StrAppend(&name, " in chunks of ", v.chunk, " rows");
    if (v.chunk > 0 && c_.tokens % v.chunk != 0) {
      absl::StrAppend(&name, v.pieces == Variant::Pieces::kShortFirst ? ", the first one shorter"
                                                                      : ", the last one shorter");
    }
    if (v.first_ranks > 0) absl::StrAppend(&name, ", first ", v.first_ranks, " choices only");
    if (v.per_rank) absl::StrAppend(&name, ", a capacity for each choice rank");
    return name;
  }

 private:
  int32_t PieceEnd(const Variant& v, int32_t from) const {
    const int32_t rest = v.chunk > 0 ? c_.tokens % v.chunk : 0;
    if (v.pieces == Variant::Pieces::kShortFirst && from == 0 && rest != 0) return rest;
    if (v.chunk > 0) return std::min(from + v.chunk, c_.tokens);
    int32_t to = from + 1;
    while (to < c_.tokens && SamePiece(v, from, to)) ++to;
    return to;
  }
  bool SamePiece(const Variant& v, int32_t a, int32_t b) const {
    const auto row_a = static_cast<size_t>(queue_.order[static_cast<size_t>(a)]);
    const auto row_b = static_cast<size_t>(queue_.order[static_cast<size_t>(b)]);
    if (v.pieces == Variant::Pieces::kSequences) return c_.sequence[row_a] == c_.sequence[row_b];
    return c_.pool[row_a] == c_.pool[row_b];
  }

  const RoutingCase& c_;
  const TimeQueue& queue_;
};

int64_t DeclaredCapacity(const RoutingCase& c) {
  const v1::RoutingConfig& config = c.routing->config();
  return DeclaresCapacity(config) ? static_cast<int64_t>(config.capacity()) : -1;
}

// Returns true if the variant gives every known choice as recorded.
bool Fits(const RoutingCase& c, const TimeQueue& queue, const Variant& v, bool queued,
          int64_t* budget) {
  const Stream stream(c, queue);
  const size_t ranks = v.per_rank ? static_cast<size_t>(c.top_k) : 1;
  // A capacity per choice rank differs from the declared one.
  PieceLedger ledger(static_cast<size_t>(c.experts), ranks, v.per_rank ? -1 : DeclaredCapacity(c),
                     queued);
  const auto take = [&](const Choice& choice, bool judged) {
    --*budget;
    const auto expert = static_cast<size_t>(choice.expert);
    const bool by_rank = v.per_rank || v.first_ranks > 0;
    if (by_rank && choice.rank < 0) {
      // If the choice was refused, its rank may be unused.
      if (v.first_ranks > 0 && choice.kept) return ledger.Take(expert, 0, true, judged);
      ledger.TakeUnranked(expert, choice.kept);
      return true;
    }
    if (v.first_ranks > 0 && choice.rank >= v.first_ranks) return !choice.kept;
    const size_t rank = v.per_rank ? static_cast<size_t>(choice.rank) : 0;
    return ledger.Take(expert, rank, choice.kept, judged);
  };
  const auto close = [&](int64_t rows, bool is_short) { return ledger.Close(rows, is_short); };
  return stream.Walk(v, take, close) && (!queued || ledger.refusing() > 0 || v.first_ranks > 0);
}

// Returns log2 of the number of other kept sets that each refusing cell could have. Cells with
// equal scores count once.
double ArrangementBits(const RoutingCase& c, const TimeQueue& queue, const Variant& v) {
  const Stream stream(c, queue);
  std::vector<CellCounts> cells(stream.Cells(v));
  std::vector<size_t> touched;
  std::set<std::pair<size_t, uint64_t>> seen;
  double bits = 0;
  int64_t ranked = 0, unused = 0;
  const auto take = [&](const Choice& choice, bool judged) {
    if (!judged || ((v.first_ranks > 0 || v.per_rank) && choice.rank < 0)) return true;
    ++ranked;
    if (v.first_ranks > 0 && choice.rank >= v.first_ranks) {
      ++unused;
      return true;
    }
    const size_t cell = stream.CellOf(v, choice);
    CellCounts& tally = cells[cell];
    if (tally.judged_kept + tally.refused == 0) touched.push_back(cell);
    ++(choice.kept ? tally.judged_kept : tally.refused);
    tally.hash = MixScore(tally.hash, c.scores.At(choice.token, choice.expert));
    return true;
  };
  const auto close = [&](int64_t, bool) {
    for (size_t cell : touched) {
      const CellCounts& tally = cells[cell];
      if (tally.refused > 0 && seen.insert({cell, tally.hash}).second) {
        bits += Log2Choose(static_cast<double>(tally.judged_kept + tally.refused),
                           static_cast<double>(tally.judged_kept));
      }
      cells[cell] = {};
    }
    touched.clear();
    return true;
  };
  stream.Walk(v, take, close);
  return bits + Log2Choose(static_cast<double>(ranked), static_cast<double>(unused));
}

// Returns the sizes of equal chunkings into 2 to 1,024 pieces.
std::vector<int32_t> ChunkSizes(int32_t rows) {
  std::vector<int32_t> sizes;
  for (int32_t n = 2; n <= std::min(rows, 1024); ++n) {
    const int32_t size = (rows + n - 1) / n;
    if (sizes.empty() || sizes.back() != size) sizes.push_back(size);
  }
  return sizes;
}

// Returns false if it stops because the budget of choices is used up.
template <typename Visit>
bool ForEachChunking(const RoutingCase& c, const std::vector<TimeQueue>& queues, int64_t* budget,
                     Visit visit) {
  using Pieces = Variant::Pieces;
  for (const TimeQueue& queue : queues) {
    if (queue.name == "batch-major") visit(queue, Variant{.pieces = Pieces::kSequences});
    for (int32_t size : ChunkSizes(c.tokens)) {
      if (*budget <= 0) return false;
      visit(queue, Variant{.pieces = Pieces::kShortLast, .chunk = size});
      if (c.tokens % size != 0) visit(queue, Variant{.pieces = Pieces::kShortFirst, .chunk = size});
    }
  }
  return true;
}

// Most chunkings fail early, but some recordings let thousands run to their end.
int64_t ChunkingBudget(const RoutingCase& c) {
  return 16 * static_cast<int64_t>(c.choices.size()) + 20'000'000;
}

// Returns the number of judged rows that each cell kept.
std::vector<int64_t> JudgedKept(const RoutingCase& c, const Saturation& s) {
  std::vector<int64_t> kept(s.cells.size(), 0);
  for (const Choice& choice : c.choices) {
    if (!choice.kept || !c.judged(choice.token)) continue;
    ++kept[CellOfToken(c, choice.token, choice.expert)];
  }
  return kept;
}

// Returns the share of the refusing cells' choices that one queue gives as recorded. `room` is the
// capacity of each cell.
double QueueShare(const RoutingCase& c, const Saturation& s, const TimeQueue& queue,
                  std::vector<int64_t> room) {
  int64_t agree = 0;
  for (size_t place = 0; place < queue.order.size(); ++place) {
    const QueuedRow row = queue.At(c, place);
    for (const Choice& choice : row.choices) {
      const size_t cell = CellOfToken(c, choice.token, choice.expert);
      const bool open = !row.judged || s.cells[cell].refused == 0;
      agree += open || (room[cell]-- > 0) == choice.kept ? 1 : 0;
    }
  }
  return static_cast<double>(agree) / static_cast<double>(std::max<size_t>(c.choices.size(), 1));
}

}  // namespace

StoredNumbers ClosingPlaces(const RoutingCase& c, const TimeQueue& queue) {
  StoredNumbers places(queue.name + " order", static_cast<size_t>(c.experts));
  int32_t pool = -1;
  size_t begin = 0;
  for (size_t place = 0; place < queue.order.size(); ++place) {
    const QueuedRow row = queue.At(c, place);
    const int32_t here = c.pool[static_cast<size_t>(queue.order[place])];
    if (here != pool) begin = place;
    pool = here;
    const auto number = static_cast<double>(place - begin);
    for (const Choice& choice : row.choices) {
      const auto expert = static_cast<size_t>(choice.expert);
      if (choice.kept && row.judged) places.AtLeast(expert, number + 0.5);
      if (!choice.kept && row.judged) places.AtMost(expert, number);
    }
  }
  return places;
}

double BestQueueShare(const RoutingCase& c, const Saturation& s,
                      const std::vector<TimeQueue>& queues) {
  const std::vector<int64_t> kept = JudgedKept(c, s);
  double share = 0;
  for (const TimeQueue& queue : queues) share = std::max(share, QueueShare(c, s, queue, kept));
  return share;
}

FirstCome ReplayFirstCome(const RoutingCase& c, const std::vector<TimeQueue>& queues) {
  FirstCome out;
  double tried = 0;
  int64_t budget = ChunkingBudget(c);
  const auto consider = [&](const TimeQueue& queue, const Variant& v) {
    ++tried;
    if (!Fits(c, queue, v, true, &budget)) return false;
    const double bits = ArrangementBits(c, queue, v) - std::log2(tried);
    if (!out.best.fits || bits > out.best.bits) {
      out.best = {true, bits, Stream(c, queue).Name(v), queue.name};
    }
    return true;
  };
  for (const TimeQueue& queue : queues) {
    if (consider(queue, {})) out.exact_orders.push_back(queue.name);
    for (int16_t r = 1; r < c.top_k; ++r) consider(queue, {.first_ranks = r});
    if (c.top_k > 1) consider(queue, {.per_rank = true});
  }
  if (c.pool_basis == PoolBasis::kRecorded || !out.exact_orders.empty()) return out;
  out.searched = ForEachChunking(
      c, queues, &budget, [&](const TimeQueue& queue, const Variant& v) { consider(queue, v); });
  return out;
}

std::vector<Chunking> ConsistentChunkings(const RoutingCase& c,
                                          const std::vector<TimeQueue>& queues, size_t limit,
                                          int64_t* tried) {
  std::vector<Chunking> out;
  *tried = 0;
  int64_t budget = ChunkingBudget(c);
  const bool all =
      ForEachChunking(c, queues, &budget, [&](const TimeQueue& queue, const Variant& v) {
        ++*tried;
        if (out.size() < limit && Fits(c, queue, v, false, &budget)) {
          out.push_back(Stream(c, queue).Pools(v));
        }
      });
  if (!all) out.clear();
  return out;
}

}  // namespace plumbline::analysis
