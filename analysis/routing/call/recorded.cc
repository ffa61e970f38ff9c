#include "analysis/routing/call/recorded.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "analysis/routing/call/facts.h"

namespace plumbline::analysis {
namespace {

class Reader {
 public:
  explicit Reader(const v1::Routing& routing)
      : config_(routing.config()), sample_(routing.sample()) {
    case_.routing = &routing;
  }

  absl::StatusOr<RecordedRouting> Read() {
    for (auto step : {&Reader::Shapes, &Reader::Groups, &Reader::Bias, &Reader::Tokens,
                      &Reader::Pools, &Reader::Recorded, &Reader::Agreement}) {
      if (absl::Status status = (this->*step)(); !status.ok()) return status;
    }
    return RecordedRouting{std::move(case_), rule_, std::move(indices_), std::move(keep_)};
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
    rule_.has_bias = case_.bias_matters;  // a constant bias changes no choice
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
    if (auto status = SequenceOrder(); !status.ok()) return status;
    return case_.ordered() ? CheckDistinct() : absl::OkStatus();
  }

  // Hashes do not preserve the order of the ids, so the recorded order must name the same
  // sequences.
  absl::Status SequenceOrder() {
    auto order = Column("sequence_order", sample_.has_sequence_order(), sample_.sequence_order(),
                        case_.tokens);
    if (!order.ok()) return order.status();
    if (order->empty() || case_.sequence.empty()) return absl::OkStatus();
    const DenseIds ids = NumberIds(case_.sequence), numbers = NumberIds(*order);
    if (ids.of_row != numbers.of_row) {
      return Cannot("bad-tensor: sequence_order: expected one number for each sequence_id");
    }
    case_.hashed_sequence = std::move(case_.sequence);
    case_.sequence = std::move(*order);
    return absl::OkStatus();
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
    return Regions();
  }

  // A pool that has only prompts holds no generated token.
  absl::Status Regions() {
    const auto region = Column("region", sample_.has_region(), sample_.region(), case_.tokens);
    if (!region.ok()) return region.status();
    if (region->empty()) return absl::OkStatus();
    std::vector<uint8_t> generates(static_cast<size_t>(case_.pools));
    for (int32_t t = 0; t < case_.tokens; ++t) {
      const auto row = static_cast<size_t>(t);
      if (case_.judged(t) && (*region)[row] == 0)
        generates[static_cast<size_t>(case_.pool[row])] = 1;
    }
    case_.prompt_only = std::find(generates.begin(), generates.end(), 1) == generates.end();
    if (case_.prompt_only) return absl::OkStatus();
    for (size_t row = 0; row < case_.rows.size(); ++row) {
      if (generates[static_cast<size_t>(case_.pool[row])] == 0)
        case_.rows[row] = RowState::kPadding;
    }
    return absl::OkStatus();
  }

  // Checks the shapes and ranges of the recorded choices.
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
    // If a declared own draw omitted a choice, this is not a choice of the token. Refusals by the
    // capacity are in the mask.
    const bool draws = OwnDraws(config_) && sample_.has_keep_mask();
    auto indices = ReadIndices(sample_.topk_indices(), case_.tokens, case_.top_k, case_.experts,
                               [this, draws](int32_t t) { return case_.judged(t) && !draws; });
    if (!indices.ok()) return indices.status();
    indices_ = std::move(*indices);
    return absl::OkStatus();
  }

  // Both record what was kept, so the map must contain all that the mask keeps.
  absl::Status Agreement() {
    if (indices_.empty() || keep_.empty() || !sample_.has_routing_map()) return absl::OkStatus();
    std::vector<uint8_t> in_map(static_cast<size_t>(case_.experts));
    int64_t missing = 0, first_row = 0;
    int32_t first_expert = 0;
    for (int32_t t = 0; t < case_.tokens; ++t) {
      if (!case_.judged(t)) continue;
      ReadMask(sample_.routing_map(), int64_t{t} * case_.experts, case_.experts, in_map.data());
      for (int32_t j = 0; j < case_.top_k; ++j) {
        const size_t at =
            static_cast<size_t>(t) * static_cast<size_t>(case_.top_k) + static_cast<size_t>(j);
        const int32_t e = indices_[at];
        if (e < 0 || keep_[at] == 0 || in_map[static_cast<size_t>(e)] != 0) continue;
        if (missing++ > 0) continue;
        first_row = t;
        first_expert = e;
      }
    }
    if (missing == 0) return absl::OkStatus();
    return Cannot(absl::StrCat("masks-differ: keep_mask keeps ", missing,
                               " choices that routing_map does not contain, the first at row ",
                               first_row, ", expert ", first_expert,
                               "; both record the kept choices"));
  }

  const v1::RoutingConfig& config_;
  const v1::RoutingSample& sample_;
  RouterRule rule_;
  std::vector<int32_t> indices_;
  std::vector<uint8_t> keep_;
  RoutingCase case_;
};

}  // namespace

absl::StatusOr<RecordedRouting> ReadRouting(const v1::Routing& routing) {
  return Reader(routing).Read();
}

}  // namespace plumbline::analysis
