#include "analysis/drift/logits.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "analysis/frame/frame.h"
#include "base/half.h"

namespace plumbline::analysis {

void LogitDrift::Take(const v1::Logits& call, int64_t step) {
  const v1::LogitsSummary& s = call.summary();
  step_first = rows == 0 ? step : std::min(step_first, step);
  step_last = std::max(step_last, step);
  rows += s.rows();
  rows_seen += s.rows_seen() > 0 ? s.rows_seen() : s.rows();
  non_finite += s.train_non_finite() + s.rollout_non_finite();
  support_differs += s.support_differs();
  if (s.usable() == 0) return;
  if (std::isnan(s.kl_train_rollout()) || std::isnan(s.kl_rollout_train())) return;
  usable += s.usable();
  const double n = static_cast<double>(s.usable());
  kl_train_rollout += n * s.kl_train_rollout();  // infinite if only one side masks a token
  kl_rollout_train += n * s.kl_rollout_train();  // likewise
  top1_differs += s.top1_differs();
  if (s.max_abs_delta() > max_abs_delta) max_abs_delta = s.max_abs_delta();
  for (const v1::LogitsRow& row : call.rows()) {
    if (std::isfinite(row.slope()) && std::isfinite(row.fit_r2()) && row.fit_r2() > 0) {
      slope.Add(row.slope());
      unexplained.Add(1 - row.fit_r2());
    }
    TakeLattice(row);
    const double kl = std::max(row.kl_train_rollout(), row.kl_rollout_train());
    if (std::isnan(kl)) continue;
    kl_rows.Add(std::min(kl, 1.0));
    if (kl > worst_kl) {
      worst_kl = kl;
      worst =
          absl::StrFormat("step %d, row %d%s: KL %.3g nats", step, row.row(),
                          row.sequence_id().empty() ? "" : " of sequence " + row.sequence_id(), kl);
    }
  }
}

void LogitDrift::TakeLattice(const v1::LogitsRow& row) {
  ++captured;
  if (!(row.lattice_train() == 1 && row.lattice_rollout() == 1)) return;
  ++both_rounded;
  const double size = std::max(std::fabs(row.lse_train()), std::fabs(row.lse_rollout()));
  rounding_sized += row.max_abs_delta() <= 2 * UlpOf(size, DType::kBF16);
}

bool LogitDrift::rounded() const {
  constexpr uint64_t kFewest = 16;
  return captured >= kFewest && 100 * both_rounded >= 99 * captured &&
         100 * rounding_sized >= 90 * captured;
}

double LogitDrift::mean_kl_train_rollout() const {
  return kl_train_rollout / static_cast<double>(usable);
}
double LogitDrift::mean_kl_rollout_train() const {
  return kl_rollout_train / static_cast<double>(usable);
}
double LogitDrift::top1_disagreement() const {
  return static_cast<double>(top1_differs) / static_cast<double>(usable);
}

bool LogitDrift::biased() const {
  constexpr uint64_t kFewestRows = 16;
  if (slope.count < kFewestRows || !(unexplained.mean <= 0.4)) return false;
  const double n = static_cast<double>(slope.count);
  const double error = std::sqrt(slope.m2 / (n - 1) / n);
  return std::fabs(slope.mean - 1) > std::max(unexplained.mean, 1e-3) + 5 * error;
}

void LogitDrift::Describe(google::protobuf::Struct& details) const {
  Put(details, "rows", static_cast<double>(rows));
  if (rows_seen > rows) Put(details, "rows_seen", static_cast<double>(rows_seen));
  if (usable > 0) {
    Put(details, "kl_train_rollout", mean_kl_train_rollout());
    Put(details, "kl_rollout_train", mean_kl_rollout_train());
    Put(details, "max_abs_delta", max_abs_delta);
    Put(details, "top1_disagreement", top1_disagreement());
  }
  if (support_differs > 0) Put(details, "support_differs", static_cast<double>(support_differs));
  if (non_finite > 0) Put(details, "non_finite_logits", static_cast<double>(non_finite));
  if (both_rounded > 0) Put(details, "rows_on_16_bit_grid", static_cast<double>(both_rounded));
  if (slope.count > 0) {
    google::protobuf::Struct& fit = PutStruct(details, "affine_fit");
    Put(fit, "slope", slope.mean);
    Put(fit, "r2", 1 - unexplained.mean);
    Put(fit, "rows", static_cast<double>(slope.count));
  }
}

void LogitLooks::Take(const LogitDrift& drift) {
  const uint64_t rows = drift.usable - rows_;
  if (rows < kFewestRows) return;
  const double sum = std::max(drift.kl_train_rollout - train_, drift.kl_rollout_train - rollout_);
  newest_ = sum / static_cast<double>(rows);
  if (!(newest_ <= worst_)) worst_ = newest_;
  rows_ = drift.usable;
  train_ = drift.kl_train_rollout;
  rollout_ = drift.kl_rollout_train;
  ++looks_;
}

std::string LogitLooks::Words() const {
  if (looks_ < 2) return "";
  return absl::StrFormat(" Worst look: KL %.2g. Newest look: KL %.2g.", worst_, newest_);
}

void LogitLooks::Describe(google::protobuf::Struct& details) const {
  Put(details, "steps_judged", static_cast<double>(rows_));
  if (looks_ < 2) return;
  Put(details, "worst_look", worst_);
  Put(details, "newest_look", newest_);
}

}  // namespace plumbline::analysis
