#include "analysis/routing/call/case.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "analysis/routing/call/keys.h"
#include "analysis/routing/call/own_choices.h"
#include "analysis/routing/call/recorded.h"

namespace plumbline::analysis {
namespace {

// Rows in rank order that would be in another order if sorted by number: 1 in a million by chance.
constexpr int64_t kInformativeRows = 20;

// Reconstructs the choices and which of them were kept, row by row, from the scores' own choices
// and the recorded ones.
class Reconstruction {
 public:
  explicit Reconstruction(RecordedRouting recorded)
      : config_(recorded.call.routing->config()),
        sample_(recorded.call.routing->sample()),
        rule_(recorded.rule),
        indices_(std::move(recorded.indices)),
        keep_(std::move(recorded.keep)),
        case_(std::move(recorded.call)) {}

  RoutingCase Case() {
    // The group score is often not recorded. The reading that explains more rows is used.
    const bool ambiguous =
        rule_.limited() && config_.group_score() == v1::RoutingConfig::GROUP_SCORE_ABSENT;
    rule_.group_score = config_.group_score() == v1::RoutingConfig::GROUP_SCORE_SUM2
                            ? GroupScore::kSum2
                            : GroupScore::kMax;
    std::optional<Reconstruction> other;
    if (ambiguous) other.emplace(*this);
    Reconstruct();
    if (other.has_value()) {
      other->rule_.group_score = GroupScore::kSum2;
      other->Reconstruct();
      if (other->case_.explained > case_.explained) {
        case_ = std::move(other->case_);
        rule_ = other->rule_;
      }
    }
    if (rule_.limited())
      case_.group_score_used = rule_.group_score == GroupScore::kSum2 ? "sum2" : "max";
    case_.IndexChoices();
    case_.softmax = std::make_shared<SoftmaxScales>(case_.tokens);
    return std::move(case_);
  }

 private:
  size_t ChoiceAt(int32_t t, int32_t j) const {
    return static_cast<size_t>(t) * static_cast<size_t>(case_.top_k) + static_cast<size_t>(j);
  }
  int32_t Index(int32_t t, int32_t j) const { return indices_[ChoiceAt(t, j)]; }

  // Sets in_map_ and mapped_ for row t.
  void ReadMap(int32_t t) {
    if (!sample_.has_routing_map()) return;
    ReadMask(sample_.routing_map(), int64_t{t} * case_.experts, case_.experts, in_map_.data());
    // A map padded to capacity has true entries of probability zero.
    const bool padded = case_.probs.present() && case_.probs.columns() == case_.experts;
    mapped_.clear();
    for (int32_t e = 0; e < case_.experts; ++e) {
      uint8_t& in = in_map_[static_cast<size_t>(e)];
      if (in == 0) continue;
      if (padded && case_.probs.At(t, e) == 0) {
        in = 0;
      } else {
        mapped_.push_back(e);
      }
    }
  }
  // For the row that ReadMap read.
  bool InMap(int32_t e) const { return in_map_[static_cast<size_t>(e)] != 0; }
  bool Kept(int32_t t, int32_t j, int32_t e) const {
    if (!keep_.empty() && keep_[ChoiceAt(t, j)] == 0) return false;
    return e < 0 || !sample_.has_routing_map() || InMap(e);
  }

  void Reconstruct() {
    const OwnChoices own(rule_, case_.scores, case_.tokens, case_.bias);
    in_map_.resize(static_cast<size_t>(case_.experts));
    case_.kept_per_row.assign(static_cast<size_t>(case_.tokens), 0);
    case_.choices.reserve(static_cast<size_t>(case_.tokens) * static_cast<size_t>(case_.top_k));
    for (int32_t t = 0; t < case_.tokens; ++t) {
      own_ = own.Row(t);
      ReadMap(t);
      RowOf(t);
    }
    if (disordered_rows_ == 0 && informative_rows_ >= kInformativeRows) RanksFromColumns();
  }

  // If scores leave the order of a row's choices open, uses its columns, provided that every
  // decidable row has them in rank order.
  void RanksFromColumns() {
    int32_t token = -1;
    int16_t column = 0;
    for (Choice& choice : case_.choices) {
      column = choice.token == token ? static_cast<int16_t>(column + 1) : int16_t{0};
      token = choice.token;
      if (choice.rank < 0 && case_.judged(token) && column < case_.top_k) choice.rank = column;
    }
  }

  // Counts whether a row of known ranks lists them in rank order, and whether an order by number
  // would differ.
  void CompareOrder(int32_t t) {
    bool ranked = true, numbered = true;
    for (int32_t j = 0; j < case_.top_k; ++j) {
      ranked &= OwnRank(Index(t, j)) == j;
      numbered &= j == 0 || OwnExpert(j - 1) < OwnExpert(j);
    }
    disordered_rows_ += ranked ? 0 : 1;
    informative_rows_ += ranked && !numbered ? 1 : 0;
  }

  // Enters one row: its state, its choices, and which were kept.
  void RowOf(int32_t t) {
    RowState& state = case_.rows[static_cast<size_t>(t)];
    if (state == RowState::kPadding) {
      KeptOnly(t);
      return;
    }
    ++case_.judged_rows;
    if (!own_.finite) {
      state = RowState::kNonFinite;
      ++case_.non_finite;
    } else if (own_.tied) {
      state = RowState::kTied;
      ++case_.tied;
    } else {
      state = RowState::kExplained;
    }
    case_.indices_recorded ? FromIndices(t, state) : FromMap(t, state);
    if (state == RowState::kExplained) ++case_.explained;
    if (state == RowState::kUnexplained) ++case_.unexplained;
  }

  int32_t OwnExpert(int32_t rank) const { return own_.expert[static_cast<size_t>(rank)]; }
  int OwnRank(int32_t e) const {
    const auto at = std::find(own_.expert.begin(), own_.expert.end(), e);
    return at == own_.expert.end() ? -1 : static_cast<int>(at - own_.expert.begin());
  }

  void Enter(int32_t t, int32_t e, int rank, bool kept) {
    case_.choices.push_back({t, e, static_cast<int16_t>(rank), kept});
    if (kept) ++case_.kept_per_row[static_cast<size_t>(t)];
    if (!kept && case_.judged(t)) ++case_.dropped;
  }

  void FromIndices(int32_t t, RowState& state) {
    bool own = state == RowState::kExplained;
    bool whole = true;  // no choice is missing
    for (int32_t j = 0; j < case_.top_k && own; ++j) {
      whole &= Index(t, j) >= 0;
      own = Index(t, j) < 0 || OwnRank(Index(t, j)) >= 0;
    }
    if (state == RowState::kExplained && !own) state = RowState::kUnexplained;
    // Indices may be sorted by number, so the scores give the ranks (one choice has only one rank).
    const bool ranks_known = state == RowState::kExplained && own_.rank_order_known;
    if (ranks_known && whole && case_.top_k > 1) CompareOrder(t);
    for (int32_t j = 0; j < case_.top_k; ++j) {
      const int32_t e = Index(t, j);
      if (e < 0) continue;
      Enter(t, e, case_.top_k == 1 ? 0 : ranks_known ? OwnRank(e) : -1, Kept(t, j, e));
    }
    if (!sample_.has_routing_map()) return;
    for (const int32_t e : mapped_) {
      bool listed = false;
      for (int32_t j = 0; j < case_.top_k; ++j) listed |= Index(t, j) == e;
      if (!listed) KeepOutside(t, e, state);
    }
  }

  void KeepOutside(int32_t t, int32_t e, RowState& state) {
    case_.kept_outside_choice = true;
    if (state == RowState::kExplained) state = RowState::kUnexplained;
    Enter(t, e, -1, true);
  }

  void FromMap(int32_t t, RowState& state) {
    if (!sample_.has_routing_map()) return FromMaskAlone(t, state);
    const auto kept = static_cast<int32_t>(mapped_.size());
    const bool known = state == RowState::kExplained;
    if (!known && kept < case_.top_k) ++case_.unknown_refusals;
    for (int32_t e = 0; e < case_.experts; ++e) {
      const int rank = known ? OwnRank(e) : -1;
      if (InMap(e)) {
        if (known && rank < 0) {
          KeepOutside(t, e, state);
        } else {
          Enter(t, e, known && own_.rank_order_known ? rank : -1, true);
        }
      } else if (known && rank >= 0 &&
                 kept < case_.top_k) {  // if a row keeps k, it was refused none
        Enter(t, e, own_.rank_order_known ? rank : -1, false);
      }
    }
  }

  // A keep mask [T,k] without indices is about the choices in rank order.
  void FromMaskAlone(int32_t t, const RowState& state) {
    if (state != RowState::kExplained || !own_.rank_order_known) {
      int kept = 0;
      for (int32_t j = 0; j < case_.top_k; ++j) kept += Kept(t, j, -1) ? 1 : 0;
      if (kept < case_.top_k) ++case_.unknown_refusals;
      case_.holders_unknown |= kept > 0;
      return;
    }
    for (int32_t j = 0; j < case_.top_k; ++j) Enter(t, OwnExpert(j), j, Kept(t, j, OwnExpert(j)));
  }

  // Padding may take capacity, but its refusals do not matter.
  void KeptOnly(int32_t t) {
    if (sample_.has_routing_map()) {
      for (const int32_t e : mapped_) Enter(t, e, -1, true);
      return;
    }
    if (!case_.indices_recorded) {
      for (int32_t j = 0; j < case_.top_k; ++j) case_.holders_unknown |= Kept(t, j, -1);
      return;
    }
    for (int32_t j = 0; j < case_.top_k; ++j) {
      const int32_t e = Index(t, j);
      if (e < 0 && sample_.has_keep_mask()) case_.holders_unknown |= Kept(t, j, -1);
      if (e >= 0 && case_.drops_recorded && Kept(t, j, e)) Enter(t, e, -1, true);
    }
  }

  const v1::RoutingConfig& config_;
  const v1::RoutingSample& sample_;
  RouterRule rule_;
  OwnChoices::Choice own_;
  std::vector<int32_t> indices_;  // [T,k]
  std::vector<uint8_t> keep_;     // [T,k], empty if not recorded
  std::vector<uint8_t> in_map_;   // [E], of one row
  std::vector<int32_t> mapped_;   // its experts, ascending
  int64_t disordered_rows_ = 0;   // rows of known ranks whose columns are in another order
  int64_t informative_rows_ = 0;  // rows in rank order that are not in numerical order
  RoutingCase case_;
};

}  // namespace

void RoutingCase::IndexChoices() {
  first_choice.assign(static_cast<size_t>(tokens) + 1, 0);
  for (const Choice& choice : choices) ++first_choice[static_cast<size_t>(choice.token) + 1];
  std::partial_sum(first_choice.begin(), first_choice.end(), first_choice.begin());
}

absl::StatusOr<RoutingCase> DecodeRouting(const v1::Routing& routing) {
  absl::StatusOr<RecordedRouting> recorded = ReadRouting(routing);
  if (!recorded.ok()) return recorded.status();
  return Reconstruction(*std::move(recorded)).Case();
}

}  // namespace plumbline::analysis
