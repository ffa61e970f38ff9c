#include "rules/lib/routing_case.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "base/load.h"
#include "base/router_scores.h"

namespace plumbline::rules {
namespace {

absl::Status Cannot(const std::string& reason) { return absl::FailedPreconditionError(reason); }

// ---- tensors of a message --------------------------------------------------------------------

std::string ShapeText(const v1::Tensor& tensor) {
  std::string text = "[";
  for (int i = 0; i < tensor.shape_size(); ++i)
    absl::StrAppend(&text, i ? ", " : "", tensor.shape(i));
  return text + "]";
}

// The tensor must have exactly this shape and its bytes.
absl::Status CheckTensor(const char* name, const v1::Tensor& tensor, std::vector<int64_t> shape,
                         bool floating) {
  const auto dtype = static_cast<DType>(tensor.dtype());
  if (DTypeSize(dtype) == 0 || IsFloating(dtype) != floating) {
    return Cannot(absl::StrCat("bad-tensor: ", name, ": expected ",
                               floating ? "a floating" : "an integer", " dtype, found ",
                               DTypeName(dtype)));
  }
  if (!std::equal(shape.begin(), shape.end(), tensor.shape().begin(), tensor.shape().end())) {
    v1::Tensor expected;
    for (int64_t extent : shape) expected.add_shape(extent);
    return Cannot(absl::StrCat("bad-tensor: ", name, ": expected shape ", ShapeText(expected),
                               ", found ", ShapeText(tensor)));
  }
  const auto elements =
      std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  const auto bytes = static_cast<size_t>(elements) * DTypeSize(dtype);
  if (tensor.data().size() != bytes) {
    return Cannot(absl::StrCat("bad-tensor: ", name, ": expected ", bytes, " bytes, found ",
                               tensor.data().size()));
  }
  return absl::OkStatus();
}

int64_t IntegerAt(const v1::Tensor& tensor, int64_t i) {
  return LoadInt64(tensor.data().data(), static_cast<DType>(tensor.dtype()), i);
}

absl::StatusOr<std::vector<int64_t>> Column(const char* name, bool has, const v1::Tensor& tensor,
                                            int64_t rows) {
  std::vector<int64_t> values;
  if (!has) return values;
  if (auto status = CheckTensor(name, tensor, {rows}, false); !status.ok()) return status;
  values.resize(static_cast<size_t>(rows));
  for (int64_t i = 0; i < rows; ++i) values[static_cast<size_t>(i)] = IntegerAt(tensor, i);
  return values;
}

// ---- the decoder -----------------------------------------------------------------------------

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
    std::vector<int32_t> order;
    for (int32_t t = 0; t < case_.tokens; ++t) {
      if (case_.judged(t)) order.push_back(t);
    }
    const auto key = [&](int32_t t) {
      return std::make_pair(case_.sequence[static_cast<size_t>(t)],
                            case_.position[static_cast<size_t>(t)]);
    };
    std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return key(a) < key(b); });
    const auto twice = std::adjacent_find(order.begin(), order.end(),
                                          [&](int32_t a, int32_t b) { return key(a) == key(b); });
    if (twice == order.end()) return absl::OkStatus();
    return Cannot(absl::StrCat("repeated-position: rows ", std::min(twice[0], twice[1]), " and ",
                               std::max(twice[0], twice[1]), " are both position ",
                               key(*twice).second, " of sequence ", key(*twice).first));
  }

  absl::Status Pools() {
    const auto kind = config_.pool();
    auto ids = Column("pool_id", sample_.has_pool_id(), sample_.pool_id(), case_.tokens);
    if (!ids.ok()) return ids.status();
    case_.pool.assign(static_cast<size_t>(case_.tokens), 0);
    if (!ids->empty()) {
      case_.pool_basis = PoolBasis::kRecorded;
    } else if (kind == v1::RoutingConfig::POOL_SEQUENCE && !case_.sequence.empty()) {
      ids = case_.sequence;
      case_.pool_basis = PoolBasis::kMetadata;
    } else if (kind == v1::RoutingConfig::POOL_MICROBATCH) {
      case_.pool_basis = PoolBasis::kMetadata;
    }
    if (!ids->empty()) {
      std::unordered_map<int64_t, int32_t> dense;
      for (size_t t = 0; t < ids->size(); ++t) {
        case_.pool[t] =
            dense.try_emplace((*ids)[t], static_cast<int32_t>(dense.size())).first->second;
      }
      case_.pools = static_cast<int32_t>(dense.size());
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

  absl::Status CheckIndices() const {
    const v1::Tensor& indices = sample_.topk_indices();
    if (auto status = CheckTensor("topk_indices", indices, {case_.tokens, case_.top_k}, false);
        !status.ok()) {
      return status;
    }
    std::vector<int32_t> seen(static_cast<size_t>(case_.experts), -1);
    for (int32_t t = 0; t < case_.tokens; ++t) {
      for (int32_t j = 0; j < case_.top_k; ++j) {
        const int64_t e = Index(t, j);
        if (e == -1 && !case_.judged(t)) continue;
        if (e == -1)
          return Cannot(absl::StrCat("no-choice: topk_indices is -1 at row ", t, ", choice ", j));
        if (e < 0 || e >= case_.experts) {
          return Cannot(absl::StrCat("index-out-of-range: topk_indices: expected 0 to ",
                                     case_.experts - 1, ", found ", e, " at row ", t, ", choice ",
                                     j));
        }
        if (std::exchange(seen[static_cast<size_t>(e)], t) == t) {
          return Cannot(
              absl::StrCat("index-repeated: topk_indices names expert ", e, " twice in row ", t));
        }
      }
    }
    return absl::OkStatus();
  }

  int64_t Index(int32_t t, int32_t j) const {
    return IntegerAt(sample_.topk_indices(), int64_t{t} * case_.top_k + j);
  }
  // A map padded to capacity carries true entries of probability zero.
  bool InMap(int32_t t, int32_t e) const {
    if (IntegerAt(sample_.routing_map(), int64_t{t} * case_.experts + e) == 0) return false;
    return !(case_.probs.present() && case_.probs.columns() == case_.experts &&
             case_.probs.At(t, e) == 0);
  }
  bool Kept(int32_t t, int32_t j, int32_t e) const {
    if (sample_.has_keep_mask() &&
        IntegerAt(sample_.keep_mask(), int64_t{t} * case_.top_k + j) == 0)
      return false;
    return e < 0 || !sample_.has_routing_map() || InMap(t, e);
  }

  void Reconstruct() {
    RouterScratch scratch;
    std::vector<double> row(static_cast<size_t>(case_.experts));
    case_.kept_per_row.assign(static_cast<size_t>(case_.tokens), 0);
    case_.choices.reserve(static_cast<size_t>(case_.tokens) * static_cast<size_t>(case_.top_k));
    for (int32_t t = 0; t < case_.tokens; ++t) {
      for (int32_t e = 0; e < case_.experts; ++e)
        row[static_cast<size_t>(e)] = case_.scores.At(t, e);
      ChooseExperts(rule_, row.data(), rule_.has_bias ? case_.bias.data() : nullptr, &scratch,
                    &own_);
      RowOf(t);
    }
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

  int OwnRank(int32_t e) const {
    const auto* end = own_.expert + own_.count;
    const auto* at = std::find(own_.expert, end, e);
    return at == end ? -1 : static_cast<int>(at - own_.expert);
  }

  void Enter(int32_t t, int32_t e, int rank, bool kept) {
    case_.choices.push_back({t, e, static_cast<int16_t>(rank), kept});
    if (kept) ++case_.kept_per_row[static_cast<size_t>(t)];
    if (!kept && case_.judged(t)) ++case_.dropped;
  }

  void FromIndices(int32_t t, RowState& state) {
    bool own = state == RowState::kExplained;
    for (int32_t j = 0; j < case_.top_k && own; ++j)
      own = OwnRank(static_cast<int32_t>(Index(t, j))) >= 0;
    if (state == RowState::kExplained && !own) state = RowState::kUnexplained;
    // Indices may be sorted by number: only the scores tell ranks (one choice has but one rank).
    const bool ranks_known = state == RowState::kExplained && own_.rank_order_known;
    for (int32_t j = 0; j < case_.top_k; ++j) {
      const auto e = static_cast<int32_t>(Index(t, j));
      Enter(t, e, case_.top_k == 1 ? 0 : ranks_known ? OwnRank(e) : -1, Kept(t, j, e));
    }
    if (!sample_.has_routing_map()) return;
    for (int32_t e = 0; e < case_.experts; ++e) {
      if (!InMap(t, e)) continue;
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
    int kept = 0;
    for (int32_t e = 0; e < case_.experts; ++e) kept += InMap(t, e) ? 1 : 0;
    const bool known = state == RowState::kExplained;
    if (!known && kept < case_.top_k) ++case_.unknown_refusals;
    for (int32_t e = 0; e < case_.experts; ++e) {
      const int rank = known ? OwnRank(e) : -1;
      if (InMap(t, e)) {
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
    for (int32_t j = 0; j < case_.top_k; ++j)
      Enter(t, own_.expert[j], j, Kept(t, j, own_.expert[j]));
  }

  // Padding may take capacity; what it was refused is nobody's loss.
  void KeptOnly(int32_t t) {
    if (sample_.has_routing_map()) {
      for (int32_t e = 0; e < case_.experts; ++e) {
        if (InMap(t, e)) Enter(t, e, -1, true);
      }
      return;
    }
    if (!case_.indices_recorded) {
      for (int32_t j = 0; j < case_.top_k; ++j) case_.holders_unknown |= Kept(t, j, -1);
      return;
    }
    for (int32_t j = 0; j < case_.top_k; ++j) {
      const auto e = static_cast<int32_t>(Index(t, j));
      if (e < 0 && sample_.has_keep_mask()) case_.holders_unknown |= Kept(t, j, -1);
      if (e >= 0 && case_.drops_recorded && Kept(t, j, e)) Enter(t, e, -1, true);
    }
  }

  const v1::RoutingConfig& config_;
  const v1::RoutingSample& sample_;
  RouterRule rule_;
  RouterChoice own_;
  RoutingCase case_;
};

}  // namespace

double Matrix::At(int64_t row, int64_t column) const {
  return LoadDouble(data_->data(), dtype_, row * columns_ + column);
}

double RoutingCase::tied_share() const {
  return judged_rows == 0 ? 0 : static_cast<double>(tied) / static_cast<double>(judged_rows);
}

double RoutingCase::explained_share() const {
  const int64_t known = explained + unexplained;
  return known == 0 ? 0 : static_cast<double>(explained) / static_cast<double>(known);
}

absl::StatusOr<RoutingCase> DecodeRouting(const v1::Routing& routing) {
  return Decoder(routing).Decode();
}

}  // namespace plumbline::rules
