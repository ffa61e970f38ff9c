// Drift from full logits: what the calls of one site add up to. Means over usable rows. NaN in one
// call touches no other. Mergeable by calls in order, not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "analysis/drift/moments.h"
#include "base/archive.h"
#include "plumbline/v1/evidence.pb.h"
#include "plumbline/v1/finding.pb.h"

namespace plumbline::rules {

struct LogitDrift {
  uint64_t rows = 0, usable = 0;
  uint64_t rows_seen = 0;        // handed in; `rows` of them were measured
  uint64_t non_finite = 0;       // logits, both sides
  uint64_t support_differs = 0;  // rows
  uint64_t top1_differs = 0;
  double kl_train_rollout = 0, kl_rollout_train = 0;  // sums over usable rows, nats
  double max_abs_delta = 0;
  DriftCell slope;        // a of z_pi = a z_mu + b, of captured rows with a fit
  DriftCell unexplained;  // 1 - R^2 of the same
  DriftCell kl_rows;      // larger of both, of captured rows, at most 1 each
  // Captured rows whose logits are all held exactly by bf16, on both sides; of these, those whose
  // largest difference is at most two of that format's units at the size of the log-sum.
  uint64_t captured = 0, both_rounded = 0, rounding_sized = 0;
  int64_t step_first = 0, step_last = 0;
  std::string worst;  // "row 17: KL 0.03" of the largest divergence in captured rows
  double worst_kl = -1;

  void Take(const v1::Logits& call, int64_t step);
  double mean_kl_train_rollout() const;
  double mean_kl_rollout_train() const;
  double top1_disagreement() const;
  // The trainer's temperature against the rollout's is 1/a. Beyond what errors in z_mu can do to a
  // least-squares slope (they shrink it by at most the unexplained share) and 5 standard errors.
  bool biased() const;
  // Both sides' logits are rounded to 16 bits, and differ by no more than that.
  bool rounded() const;
  double temperature_slope() const { return 1 - 1 / slope.mean; }  // c: the trainer is at 1 - c
  void Persist(Archive& a) {
    a(rows_seen, captured, both_rounded, rounding_sized);
    a(rows, usable, non_finite, support_differs, top1_differs, kl_train_rollout);
    a(kl_rollout_train, max_abs_delta, slope, unexplained, kl_rows, step_first, step_last, worst);
    a(worst_kl);
  }
  void Describe(google::protobuf::Struct& details) const;

 private:
  void TakeLattice(const v1::LogitsRow& row);
};

}  // namespace plumbline::rules
