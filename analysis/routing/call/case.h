// One recorded router call, decoded and checked: who chose what, who was kept, who competed with
// whom. Everything that judges routing starts from this.
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

namespace plumbline::rules {

// One token's wish for one expert and what became of it. Only conditions whose fate is known
// are listed.
struct Choice {
  int32_t token;
  int32_t expert;
  int16_t rank;  // choice rank, 0 = first; -1 where neither scores nor indices tell
  bool kept;
};

enum class RowState : uint8_t {
  kPadding,
  kNonFinite,  // a NaN, a +inf, or fewer than k candidates (-inf masks an expert)
  kTied,       // the recorded precision leaves its own choice open
  kExplained,  // the recorded choice is its own scores' choice
  kUnexplained,
};

// How it is known which tokens competed for one capacity.
enum class PoolBasis {
  kUnrecorded,  // taken to be the whole call, and nothing may rest on that
  kMetadata,    // `pool` says so: an assumption
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
  std::vector<double> bias;                // [E], empty when absent
  bool bias_matters = false;               // present and not the same for every expert
  std::shared_ptr<SoftmaxScales> softmax;  // of the rows that were asked for

  std::vector<RowState> rows;     // [T]
  std::vector<int64_t> sequence;  // [T], empty: not recorded
  // [T] ids as hashes, where they were redacted; `sequence` then numbers them in the order of the
  // ids that they hide. Empty: `sequence` holds the recorded ids.
  std::vector<int64_t> hashed_sequence;
  std::vector<int64_t> position;  // [T], empty: not recorded
  std::vector<int32_t> pool;      // [T], dense 0..pools-1
  int32_t pools = 1;
  PoolBasis pool_basis = PoolBasis::kUnrecorded;
  std::vector<int64_t> pool_rows;  // [pools], padding included

  bool indices_recorded = false;
  bool drops_recorded = false;  // a keep mask or a map was recorded
  bool kept_outside_choice =
      false;                    // a map keeps an untied row's expert that its scores did not choose
  std::vector<Choice> choices;  // by token; padding rows only where kept (they take capacity)
  std::vector<int32_t> first_choice;  // [T+1] where each row's choices begin
  std::vector<int32_t> kept_per_row;  // [T]
  std::string group_score_used;       // "max", "sum2" or empty

  int64_t judged_rows = 0;  // not padding
  int64_t tied = 0;
  int64_t non_finite = 0;
  int64_t explained = 0;
  int64_t unexplained = 0;
  int64_t dropped = 0;           // choices of judged rows that were refused
  int64_t unknown_refusals = 0;  // rows that were refused something that cannot be told
  bool holders_unknown = false;  // some kept choices are at experts that cannot be told

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
  // explained / (explained + unexplained); 0 when there are none
  double explained_share() const {
    const int64_t known = explained + unexplained;
    return known == 0 ? 0 : static_cast<double>(explained) / static_cast<double>(known);
  }
};

// FailedPrecondition with "short-id: sentence" where the content cannot be judged: that text is the
// inconclusive verdict's reason.
absl::StatusOr<RoutingCase> DecodeRouting(const v1::Routing& routing);

}  // namespace plumbline::rules
