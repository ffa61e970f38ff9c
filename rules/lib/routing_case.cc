#include "rules/lib/routing_case.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rules/lib/own_choices.h"

namespace plumbline::rules {
namespace {

// ---- the decoder -----------------------------------------------------------------------------

// Rows in rank order that an order by number would not have so: 1 in a million by accident.
constexpr int64_t kTellingRows = 20;

class Decoder {
 public:
  explicit Decoder(const v1::Routing& routing)
      : config_(routing.config()), sample_(routing.sample()) {
    case_.routing = &routing;
  }

  absl::StatusOr<RoutingCase> Decode() {
    for (auto step : {&Decoder::Shapes, &Decoder::Groups, &Decoder::Bias, &Decoder::Tokens,
                      &Decoder::Pools, &Decoder::Recorded}) {
      if (absl::Status status = (this->*step)(); !status.ok()) return status;
    }
    // The group score is often unrecorded: the reading that explains more rows is the one used.
    const bool ambiguous =
        rule_.limited() && config_.group_score() == v1::RoutingConfig::GROUP_SCORE_ABSENT;
    rule_.group_score = config_.group_score() == v1::RoutingConfig::GROUP_SCORE_SUM2
                            ? GroupScore::kSum2
                            : GroupScore::kMax;
    std::optional<Decoder> other;
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
    return std::move(case_);
  }

 private:
  absl::Status Shapes() {
    const v1::Tensor& scores = sample_.scores();
    if (!sample_.has_scores()) return Cannot("no-scores: the router's scores were not recorded");
    if (scores.shape_size() != 2 || scores.shape(0) < 1 || scores.shape(1) < 1) {
      return Cannot(
          absl::StrCat("bad-tensor: scores: expected shape [T, E] with at least one row, found ",
                       ShapeText(scores)));
    }
    if (scores.shape(1) > kMaxExperts || scores.shape(0) > (int64_t{1} << 28)) {
      return Cannot(absl::StrCat("bad-tensor: scores: expected at most ", kMaxExperts,
                                 " experts and 2^28 rows, found ", ShapeText(scores)));
    }
    case_.tokens = static_cast<int32_t>(scores.shape(0));
    case_.experts = static_cast<int32_t>(scores.shape(1));
    if (auto status = CheckTensor("scores", scores, {case_.tokens, case_.experts}, true);
        !status.ok())
      return status;
    case_.scores = Matrix(&scores.data(), static_cast<DType>(scores.dtype()), case_.experts);
    const uint32_t k = config_.top_k();
    if (k < 1) return Cannot("no-top-k: top_k was not recorded");
    if (k > static_cast<uint32_t>(case_.experts)) {
      return Cannot(
          absl::StrCat("k-exceeds-experts: top_k is ", k, " with ", case_.experts, " experts"));
    }
    if (k > kMaxTopK)
      return Cannot(
          absl::StrCat("k-too-large: top_k is ", k, ", at most ", kMaxTopK, " are judged"));
    if (config_.capacity() > (uint64_t{1} << 40)) {
      return Cannot(absl::StrCat("bad-capacity: capacity is ", config_.capacity(),
                                 ", at most 2^40 are judged"));
    }
    case_.top_k = static_cast<int32_t>(k);
    rule_.experts = case_.experts;
    rule_.top_k = case_.top_k;
    rule_.dtype = case_.scores.dtype();
    rule_.function = sample_.scores_are_logits()
                         ? static_cast<ScoreFunction>(config_.score_function())
                         : ScoreFunction::kIdentity;
    return absl::OkStatus();
  }

  absl::Status Groups() {
    const auto groups = static_cast<int64_t>(config_.groups());
    const auto top = static_cast<int64_t>(config_.top_groups());
    if (groups <= 1) return absl::OkStatus();
    if (case_.experts % groups != 0 || top < 1 || top > groups ||
        top * (case_.experts / groups) < case_.top_k) {
      return Cannot(absl::StrCat("bad-groups: ", groups, " groups of which ", top,
                                 " are chosen cannot give ", case_.top_k, " of ", case_.experts,
                                 " experts"));
    }
    rule_.groups = static_cast<int>(groups);
    rule_.top_groups = static_cast<int>(top);
    return absl::OkStatus();
  }

  absl::Status Bias() {
    if (!sample_.has_expert_bias()) return absl::OkStatus();
    const v1::Tensor& bias = sample_.expert_bias();
    if (auto status = CheckTensor("expert_bias", bias, {case_.experts}, true); !status.ok())
      return status;
    case_.bias.resize(static_cast<size_t>(case_.experts));
    for (int32_t e = 0; e < case_.experts; ++e) {
      const double b = LoadDouble(bias.data().data(), static_cast<DType>(bias.dtype()), e);
      if (!std::isfinite(b))
        return Cannot(absl::StrCat("bias-not-finite: expert_bias[", e, "] is not finite"));
      case_.bias[static_cast<size_t>(e)] = b;
    }
    case_.bias_matters = std::any_of(case_.bias.begin(), case_.bias.end(),
                                     [&](double b) { return b != case_.bias[0]; });
    rule_.has_bias = case_.bias_matters;  // a constant changes no choice
    return absl::OkStatus();
  }

  absl::Status Tokens() {
    auto padding =
        Column("padding_mask", sample_.has_padding_mask(), sample_.padding_mask(), case_.tokens);
    if (!padding.ok()) return padding.status();
    case_.rows.assign(static_cast<size_t>(case_.tokens), RowState::kTied);
    for (size_t t = 0; t < padding->size(); ++t) {
      if ((*padding)[t] != 0) case_.rows[t] = RowState::kPadding;
    }
    auto sequence =
        Column("sequence_id", sample_.has_sequence_id(), sample_.sequence_id(), case_.tokens);
    if (!sequence.ok()) return sequence.status();
    auto position = Column("position", sample_.has_position(), sample_.position(), case_.tokens);
    if (!position.ok()) return position.status();
    case_.sequence = std::move(*sequence);
    case_.position = std::move(*position);
    return case_.ordered() ? CheckDistinct() : absl::OkStatus();
  }

  absl::Status CheckDistinct() const {
    std::vector<int32_t> judged;
    judged.reserve(static_cast<size_t>(case_.tokens));
    for (int32_t t = 0; t < case_.tokens; ++t) {
      if (case_.judged(t)) judged.push_back(t);
    }
    const RepeatedRows twice = FindRepeated(judged, case_.sequence, case_.position);
    if (twice.first < 0) return absl::OkStatus();
    const auto row = static_cast<size_t>(twice.first);
    return Cannot(absl::StrCat("repeated-position: rows ", twice.first, " and ", twice.second,
                               " are both position ", case_.position[row], " of sequence ",
                               case_.sequence[row]));
  }

  absl::Status Pools() {
    const auto kind = config_.pool();
    auto ids = Column("pool_id", sample_.has_pool_id(), sample_.pool_id(), case_.tokens);
    if (!ids.ok()) return ids.status();
    if (!ids->empty()) {
      case_.pool_basis = PoolBasis::kRecorded;
    } else if (kind == v1::RoutingConfig::POOL_SEQUENCE && !case_.sequence.empty()) {
      ids = case_.sequence;
      case_.pool_basis = PoolBasis::kMetadata;
    } else if (kind == v1::RoutingConfig::POOL_MICROBATCH) {
      case_.pool_basis = PoolBasis::kMetadata;
    }
    if (ids->empty()) {
      case_.pool.assign(static_cast<size_t>(case_.tokens), 0);
    } else {
      DenseIds dense = NumberIds(*ids);
      case_.pool = std::move(dense.of_row);
      case_.pools = dense.count;
    }
    if (int64_t{case_.pools} * case_.experts > (int64_t{1} << 26)) {
      return Cannot(
          absl::StrCat("too-many-pools: ", case_.pools, " pools of ", case_.experts, " experts"));
    }
    case_.pool_rows.assign(static_cast<size_t>(case_.pools), 0);
    for (int32_t pool : case_.pool) ++case_.pool_rows[static_cast<size_t>(pool)];
    return absl::OkStatus();
  }

  // Shapes and ranges of what was recorded of the choices.
  absl::Status Recorded() {
    const int64_t T = case_.tokens, E = case_.experts, k = case_.top_k;
    case_.indices_recorded = sample_.has_topk_indices();
    if (sample_.has_probs()) {
      const v1::Tensor& probs = sample_.probs();
      const int64_t columns = probs.shape_size() == 2 && probs.shape(1) == k ? k : E;
      if (auto status = CheckTensor("probs", probs, {T, columns}, true); !status.ok())
        return status;
      case_.probs = Matrix(&probs.data(), static_cast<DType>(probs.dtype()), columns);
    }
    if (sample_.has_keep_mask()) {
      if (auto status = CheckTensor("keep_mask", sample_.keep_mask(), {T, k}, false); !status.ok())
        return status;
      keep_.resize(static_cast<size_t>(T * k));
      ReadMask(sample_.keep_mask(), 0, T * k, keep_.data());
    }
    if (sample_.has_routing_map()) {
      if (auto status = CheckTensor("routing_map", sample_.routing_map(), {T, E}, false);
          !status.ok())
        return status;
    }
    if (!case_.indices_recorded && !sample_.has_routing_map() && !sample_.has_keep_mask()) {
      return Cannot("no-choices: neither topk_indices, keep_mask nor routing_map was recorded");
    }
    case_.drops_recorded = sample_.has_keep_mask() || sample_.has_routing_map();
    return case_.indices_recorded ? CheckIndices() : absl::OkStatus();
  }

  absl::Status CheckIndices() {
    auto indices = ReadIndices(sample_.topk_indices(), case_.tokens, case_.top_k, case_.experts,
                               [this](int32_t t) { return case_.judged(t); });
    if (!indices.ok()) return indices.status();
    indices_ = std::move(*indices);
    return absl::OkStatus();
  }

  size_t ChoiceAt(int32_t t, int32_t j) const {
    return static_cast<size_t>(t) * static_cast<size_t>(case_.top_k) + static_cast<size_t>(j);
  }
  int32_t Index(int32_t t, int32_t j) const { return indices_[ChoiceAt(t, j)]; }

  // Fills in_map_ and mapped_ for row t.
  void ReadMap(int32_t t) {
    if (!sample_.has_routing_map()) return;
    ReadMask(sample_.routing_map(), int64_t{t} * case_.experts, case_.experts, in_map_.data());
    // A map padded to capacity carries true entries of probability zero.
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
  // Of the row that ReadMap read.
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
    if (disordered_rows_ == 0 && telling_rows_ >= kTellingRows) RanksFromColumns();
  }

  // Where scores leave the order of a row's choices open, its columns give it, once every row that
  // can tell has them in rank order.
  void RanksFromColumns() {
    int32_t token = -1;
    int16_t column = 0;
    for (Choice& choice : case_.choices) {
      column = choice.token == token ? static_cast<int16_t>(column + 1) : int16_t{0};
      token = choice.token;
      if (choice.rank < 0 && case_.judged(token) && column < case_.top_k) choice.rank = column;
    }
  }

  // Does a row of known ranks list them in rank order, and would an order by number differ?
  void CompareOrder(int32_t t) {
    bool ranked = true, numbered = true;
    for (int32_t j = 0; j < case_.top_k; ++j) {
      ranked &= OwnRank(Index(t, j)) == j;
      numbered &= j == 0 || OwnExpert(j - 1) < OwnExpert(j);
    }
    disordered_rows_ += ranked ? 0 : 1;
    telling_rows_ += ranked && !numbered ? 1 : 0;
  }

  // Enters one row: its state, its choices, who was kept.
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
    for (int32_t j = 0; j < case_.top_k && own; ++j) own = OwnRank(Index(t, j)) >= 0;
    if (state == RowState::kExplained && !own) state = RowState::kUnexplained;
    // Indices may be sorted by number: the scores tell ranks (one choice has but one rank).
    const bool ranks_known = state == RowState::kExplained && own_.rank_order_known;
    if (ranks_known && case_.top_k > 1) CompareOrder(t);
    for (int32_t j = 0; j < case_.top_k; ++j) {
      const int32_t e = Index(t, j);
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
      } else if (known && rank >= 0 && kept < case_.top_k) {  // a row that keeps k refused none
        Enter(t, e, own_.rank_order_known ? rank : -1, false);
      }
    }
  }

  // A keep mask [T,k] without indices speaks of the choices in rank order.
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

  // Padding may take capacity; what it was refused is nobody's loss.
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
  std::vector<uint8_t> keep_;     // [T,k], empty when not recorded
  std::vector<uint8_t> in_map_;   // [E], of one row
  std::vector<int32_t> mapped_;   // its experts, ascending
  int64_t disordered_rows_ = 0;   // rows of known ranks whose columns are in another order
  int64_t telling_rows_ = 0;      // rows in rank order that are not in order of number
  RoutingCase case_;
};

}  // namespace

void RoutingCase::IndexChoices() {
  first_choice.assign(static_cast<size_t>(tokens) + 1, 0);
  for (const Choice& choice : choices) ++first_choice[static_cast<size_t>(choice.token) + 1];
  std::partial_sum(first_choice.begin(), first_choice.end(), first_choice.begin());
}

absl::StatusOr<RoutingCase> DecodeRouting(const v1::Routing& routing) {
  return Decoder(routing).Decode();
}

}  // namespace plumbline::rules
