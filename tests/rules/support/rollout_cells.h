// Contexts of a simulated policy: the sampling distribution, and what each side logs.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "tests/rules/support/spec_values.h"

namespace plumbline::rules::testing {

struct RolloutSpec;

// H = E[-log p], V = Var[-log p].
struct Spread {
  double entropy = 0;
  double varentropy = 0;
};

struct RolloutCell {
  std::vector<double> rollout, train;  // [V] logged log-probabilities; -inf if cut off
  std::vector<double> chance;          // [V] alias table of the sampling distribution
  std::vector<int32_t> alias;
  std::vector<double> behaviour;  // [V] the trainer's at the labelled version, if requested
  bool flipped = false;
  Spread of_rollout, of_train;  // of the logged distributions
  double kl_train_rollout = 0, kl_rollout_train = 0;
  double moment_d2 = 0;                  // sum of pi d^2 over the common support
  std::array<double, 14> log_moments{};  // of -log mu - H under mu, as in LogitsRow
  std::array<double, 7> downward_means{};

  int32_t DrawToken(Draw& draw) const {
    const double u = draw.Uniform() * static_cast<double>(chance.size());
    const auto i = static_cast<size_t>(u);
    return u - static_cast<double>(i) < chance[i] ? static_cast<int32_t>(i) : alias[i];
  }
};

// Selects cells: those of one lag, one size of a fault, with or without a router flip.
struct CellKind {
  int lag = 0;       // as labelled
  int after = 0;     // number of versions between the sides
  double extra = 0;  // deviation of further noise
  bool flipped = false;
  int sinful = 0;  // 1: at the spec's temperature, 2: at its other one
  int engine = 0;  // version of the engine's weights, if both sides learn
  int pass = 0;    // number of the trainer's pass, if each one has its own noise
  auto operator<=>(const CellKind&) const = default;
};

class RolloutCells {
 public:
  explicit RolloutCells(const RolloutSpec& spec);
  int contexts() const { return contexts_; }
  int vocabulary() const { return vocabulary_; }
  // Computed on first use.
  const RolloutCell& Get(const CellKind& kind, int context);

 private:
  std::vector<double> BaseLogits(int context) const;
  std::vector<double> Moved(std::vector<double> logits, int context, int updates) const;
  std::unique_ptr<RolloutCell> Make(const CellKind& kind, int context) const;

  const RolloutSpec& spec_;
  int vocabulary_, contexts_;
  std::map<CellKind, std::vector<std::unique_ptr<RolloutCell>>> cells_;
};

}  // namespace plumbline::rules::testing
