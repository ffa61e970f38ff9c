// One recorded router call, decoded and checked: the choices, which of them were kept, and which
// tokens competed. All judgements of routing start from this.
//
// A case is built from one v1::Routing with a sample and borrows its score tensor: it must not
// outlive the message.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "analysis/sample/sample.h"
#include "base/dtype.h"
#include "plumbline/v1/evidence.pb.h"

namespace plumbline::analysis {

// One token's choice of one expert, and its fate. Only choices with a known fate are listed.
struct Choice {
  int32_t token;
  int32_t expert;
  int16_t rank;  // choice rank, 0 = first; -1 if neither scores nor indices show it
  bool kept;
};

enum class RowState : uint8_t {
  kPadding,
  kNonFinite,  // a NaN, a +inf, or fewer than k candidates (-inf masks an expert)
  kTied,       // the recorded precision does not determine its own choice
  kExplained,  // the recorded choice equals the choice by its own scores
  kUnexplained,
};

// How it is known which tokens competed for one capacity.
enum class PoolBasis {
  kUnrecorded,  // assumed to be the whole call; no result may depend on it
  kMetadata,    // as the field `pool` states: an assumption
  kRecorded,    // `pool_id`, row by row
};

class SoftmaxScales;  // call/keys.h

struct RoutingCase {
  const v1::Routing* routing = nullptr;
  int32_t tokens = 0;   // T
  int32_t experts = 0;  // E
  int32_t top_k = 0;

  Matrix scores;                           // [T,E] as recorded
  Matrix probs;                            // [T,E] or [T,k]
  std::vector<double> bias;                // [E], empty if absent
  bool bias_matters = false;               // present and not equal for every expert
  std::shared_ptr<SoftmaxScales> softmax;  // of the rows that were used

  std::vector<RowState> rows;     // [T]
  std::vector<int64_t> sequence;  // [T], empty if not recorded
  // [T] ids as hashes, if they were redacted. `sequence` then numbers them in the order of the
  // hidden ids. If empty, `sequence` holds the recorded ids.
  std::vector<int64_t> hashed_sequence;
  std::vector<int64_t> position;  // [T], empty if not recorded
  std::vector<int32_t> pool;      // [T], dense 0..pools-1
  int32_t pools = 1;
  PoolBasis pool_basis = PoolBasis::kUnrecorded;
  std::vector<int64_t> pool_rows;  // [pools], including padding
  // True if all rows of every pool belong to prompts, which are never generated. If this is true
  // only for some pools, the rows of those count as padding.
  bool prompt_only = false;

  bool indices_recorded = false;
  bool drops_recorded = false;  // a keep mask or a map was recorded
  bool kept_outside_choice =
      false;  // a map keeps, for an untied row, an expert that its scores did not choose
  std::vector<Choice> choices;        // by token; padding rows only if kept (they take capacity)
  std::vector<int32_t> first_choice;  // [T+1] first index of each row's choices
  std::vector<int32_t> kept_per_row;  // [T]
  std::string group_score_used;       // "max", "sum2" or empty

  int64_t judged_rows = 0;  // rows that are not padding
  int64_t tied = 0;
  int64_t non_finite = 0;
  int64_t explained = 0;
  int64_t unexplained = 0;
  int64_t dropped = 0;           // refused choices of judged rows
  int64_t unknown_refusals = 0;  // rows with a refusal that cannot be identified
  bool holders_unknown = false;  // some kept choices are at unknown experts

  bool judged(int32_t token) const {
    return rows[static_cast<size_t>(token)] != RowState::kPadding;
  }
  std::span<const Choice> ChoicesOf(int32_t token) const {
    const auto row = static_cast<size_t>(token);
    return std::span(choices).subspan(
        static_cast<size_t>(first_choice[row]),
        static_cast<size_t>(first_choice[row + 1] - first_choice[row]));
  }
  // Sets first_choice. Call after a change of `choices`.
  void IndexChoices();
  bool ordered() const { return !sequence.empty() && !position.empty(); }
  double tied_share() const {
    return judged_rows == 0 ? 0 : static_cast<double>(tied) / static_cast<double>(judged_rows);
  }
  // Returns explained / (explained + unexplained). If there are none, returns 0.
  double explained_share() const {
    const int64_t known = explained + unexplained;
    return known == 0 ? 0 : static_cast<double>(explained) / static_cast<double>(known);
  }
};

// Decodes a call. If it cannot be judged, returns FailedPrecondition with "short-id: sentence": the
// reason of the inconclusive verdict.
absl::StatusOr<RoutingCase> DecodeRouting(const v1::Routing& routing);

}  // namespace plumbline::analysis
