// Drift from full logits: sums over the calls of one site. Means are over usable rows. NaN in one
// call affects no other call. Mergeable by calls in order, not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "analysis/drift/moments.h"
#include "base/archive.h"
#include "plumbline/v1/evidence.pb.h"
#include "plumbline/v1/finding.pb.h"

namespace plumbline::analysis {

struct LogitDrift {
  uint64_t rows = 0, usable = 0;
  uint64_t rows_seen = 0;        // number of observed rows, of which `rows` were measured
  uint64_t non_finite = 0;       // number of non-finite logits of both sides
  uint64_t support_differs = 0;  // rows in which the supports differ
  uint64_t top1_differs = 0;
  double kl_train_rollout = 0, kl_rollout_train = 0;  // sums over usable rows, nats
  double max_abs_delta = 0;
  DriftCell slope;        // a of z_pi = a z_mu + b, for captured rows with a fit
  DriftCell unexplained;  // 1 - R^2 of the same fits
  DriftCell kl_rows;      // of captured rows: the larger KL of both directions, at most 1 each
  // Captured rows whose logits are exactly representable in bf16 on both sides. rounding_sized: the
  // number of them whose largest difference is at most two units of bf16 at the size of the
  // log-sum.
  uint64_t captured = 0, both_rounded = 0, rounding_sized = 0;
  int64_t step_first = 0, step_last = 0;
  std::string worst;  // "row 17: KL 0.03" for the largest divergence in captured rows
  double worst_kl = -1;

  void Take(const v1::Logits& call, int64_t step);
  double mean_kl_train_rollout() const;
  double mean_kl_rollout_train() const;
  double top1_disagreement() const;
  // True if the slope differs from 1. The trainer's temperature relative to the rollout's is 1/a.
  // The difference must exceed 5 standard errors and the error that noise in z_mu can cause: it
  // shrinks a least-squares slope by at most the unexplained share.
  bool biased() const;
  // True if both sides' logits are rounded to 16 bits and differ by no more than that.
  bool rounded() const;
  double temperature_slope() const {
    return 1 - 1 / slope.mean;
  }  // c: the trainer's temperature is 1 - c
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

// The worst and the newest look at full logits. A look has the rows since the one before.
struct LogitLooks {
  static constexpr uint64_t kFewestRows = 64;

  // Ends a look if it has 64 rows or more.
  void Take(const LogitDrift& drift);
  double worst() const { return worst_; }  // mean KL, the larger direction; 0 if there is no look
  // Returns " Worst look: KL 0.2. Newest look: KL 0.001.", or "" if there is one look or none.
  std::string Words() const;
  void Describe(google::protobuf::Struct& details) const;
  void Persist(Archive& a) { a(looks_, rows_, train_, rollout_, worst_, newest_); }

 private:
  uint64_t looks_ = 0, rows_ = 0;
  double train_ = 0, rollout_ = 0;  // sums at the end of the last look
  double worst_ = 0, newest_ = 0;
};

}  // namespace plumbline::analysis
