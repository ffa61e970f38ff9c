// The load of a mixture's experts, step by step: joins the summaries of all ranks and micro-batches
// of one step, and keeps a window over the latest steps.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "analysis/frame/frame.h"
#include "base/archive.h"

namespace plumbline::analysis {

inline constexpr size_t kPositionBins = 16;

// One step of one layer. Wanted = kept + refused. Both include the choices of padding rows, of
// which only the number is known.
struct MixtureStep {
  int64_t step = 0;
  std::vector<uint32_t> wanted;  // [E]
  std::vector<uint32_t> kept;    // [E]; if empty, equal to wanted
  uint64_t choices = 0;          // by tokens that are not padding
  uint64_t dropped = 0;          // of `choices`: those that were dropped
  uint64_t padding_choices = 0;  // kept choices of padding rows
  double entropy = 0;            // mean over tokens of H(p)/ln E; NaN if no call gave one
  bool positions = true;         // every call that dropped choices has their positions
  std::array<uint64_t, kPositionBins>
      offered{};  // choices by position, for calls that dropped some
  std::array<uint64_t, kPositionBins> refused{};

  uint64_t experts() const { return wanted.size(); }
  uint64_t kept_of(size_t e) const { return kept.empty() ? wanted[e] : kept[e]; }
  // Returns the drop share at the last position minus that at the first, in points, by weighted
  // least squares over the bins. If there are no drops, returns 0. If positions are not known,
  // returns NaN.
  double SlopePoints() const;
  double LargestOverMean() const;  // for wanted loads

  void Persist(Archive& a) {
    a(step, wanted, kept, choices, dropped, padding_choices, entropy, positions, offered, refused);
  }
};

// A router's site of this op only has the load of experts: no rows, and often only some of the
// tokens. Its steps are joined with those of the layer's whole calls (kRoutingOp).
inline constexpr char kLoadsOp[] = "loads";
inline constexpr char kRoutingOp[] = "routing";

// The stream of steps that a summary belongs to: evaluation batches are separate from training's.
struct MixtureKey {
  v1::Role role = v1::ROLE_UNSPECIFIED;
  std::string layer;
  std::string op;
  bool evaluation = false;
  auto operator<=>(const MixtureKey& other) const {
    return std::tie(role, layer, op, evaluation) <=>
           std::tie(other.role, other.layer, other.op, other.evaluation);
  }
  void Persist(Archive& a) { a(role, layer, op, evaluation); }
};

// What was left out of a join.
struct MixtureGaps {
  uint64_t unreadable = 0;  // calls without a summary, or whose counts do not add up
  uint64_t repeated = 0;    // calls that another rank recorded too (tensor parallel); counted once
  void Persist(Archive& a) { a(unreadable, repeated); }
};

struct JoinedMixture {
  MixtureKey key;
  std::shared_ptr<const MixtureStep> step;  // null if no call could be read
  MixtureGaps gaps;
};

// Returns the routing evidence of a step, joined. If there is none, returns an empty vector.
// Computed once for all rules of the step (SiteStep::cache).
std::shared_ptr<const std::vector<JoinedMixture>> JoinMixture(const SiteStep& step);

// The latest steps of one key, with running sums. Sums are of integers, so they do not drift.
class MixtureWindow {
 public:
  explicit MixtureWindow(size_t size) : size_(size) {}

  // Takes a step. If a later attempt repeats steps, the old ones are removed. If the number of
  // experts changes, starts again.
  void Take(uint32_t attempt, std::shared_ptr<const MixtureStep> step);

  bool full() const { return steps_.size() == size_; }
  // Sampled steps count too: a window is judged when it has kFewest steps that span `size` and are
  // spread over it, so that the dense steps at a run's beginning do not dominate.
  static constexpr size_t kFewest = 20;
  bool enough() const { return full() || (steps_.size() >= kFewest && Spread()); }
  // A total collapse needs fewer steps: kFewestOfAll that span `size`, at least three of them after
  // its first quarter.
  static constexpr size_t kFewestOfAll = 4;
  bool enough_of_all() const;
  int64_t span() const {
    return steps_.empty() ? 0 : steps_.back()->step - steps_.front()->step + 1;
  }
  uint64_t taken() const { return taken_; }
  const std::deque<std::shared_ptr<const MixtureStep>>& steps() const { return steps_; }
  uint64_t experts() const { return wanted_.size(); }
  const std::vector<uint64_t>& wanted() const { return wanted_; }  // [E] sums over the window
  const std::vector<uint64_t>& kept() const { return kept_; }
  uint64_t choices() const { return choices_; }
  uint64_t dropped() const { return dropped_; }
  uint64_t padding_choices() const { return padding_choices_; }

  void Persist(Archive& a) {
    a.Version(1);
    a(attempt_, taken_, steps_, wanted_, kept_, choices_, dropped_, padding_choices_);
  }

 private:
  void Add(const MixtureStep& step, bool add);
  // True if it spans `size_` steps, and no quarter of these has more than half of the observations.
  bool Spread() const;

  size_t size_;
  uint32_t attempt_ = 0;
  uint64_t taken_ = 0;  // steps since the number of experts last changed
  std::deque<std::shared_ptr<const MixtureStep>> steps_;
  std::vector<uint64_t> wanted_;
  std::vector<uint64_t> kept_;
  uint64_t choices_ = 0;
  uint64_t dropped_ = 0;
  uint64_t padding_choices_ = 0;
};

}  // namespace plumbline::analysis
