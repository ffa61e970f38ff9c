#include "kernels/evidence/logits.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/parallel.h"
#include "kernels/evidence/tensor.h"
#include "kernels/sample/gather.h"

namespace plumbline {
namespace {

constexpr double kNaN = __builtin_nan("");

// The number of the i-th measured row in the input, and its name.
struct Selection {
  const LogitOptions& options;
  int64_t count;
  uint64_t Row(size_t i) const { return options.rows ? (*options.rows)[i] : i; }
  uint64_t Name(size_t i) const { return options.names.empty() ? Row(i) : options.names[i]; }
};

double Worse(const LogitRow& row) { return std::max(row.kl_train_rollout, row.kl_rollout_train); }

// Fills means over usable rows, in their order.
void FillSummary(const std::vector<LogitRow>& rows, v1::LogitsSummary* out) {
  double kl[2] = {0, 0}, entropy[2] = {0, 0}, largest = 0;
  uint64_t usable = 0, differs = 0, top1 = 0, reads = 0, faults[2] = {0, 0};
  uint64_t tokens = 0;
  double mean = 0, m2 = 0, k3 = 0;
  for (const LogitRow& row : rows) {
    for (int s = 0; s < 2; ++s) faults[s] += row.non_finite[s];
    // If a row has a fault, its support is not known.
    const bool faulty = row.non_finite[0] + row.non_finite[1] > 0;
    differs += !faulty && row.only[0] + row.only[1] > 0 ? 1 : 0;
    reads += row.second_reads;
    if (!row.usable) continue;
    ++usable;
    top1 += row.top1_differs ? 1 : 0;
    kl[0] += row.kl_train_rollout;
    kl[1] += row.kl_rollout_train;
    for (int s = 0; s < 2; ++s) entropy[s] += row.entropy[s];
    largest = std::max(largest, row.max_abs_delta);
    const double d = row.logprob[kTrain] - row.logprob[kRollout];
    if (row.token < 0 || !std::isfinite(d)) continue;
    const double from_mean = d - mean;
    mean += from_mean / static_cast<double>(++tokens);
    m2 += from_mean * (d - mean);
    k3 += std::expm1(d) - d;
  }
  const auto over = [](double sum, uint64_t n) {
    return n == 0 ? kNaN : sum / static_cast<double>(n);
  };
  out->set_rows(rows.size());
  out->set_usable(usable);
  out->set_train_non_finite(faults[kTrain]);
  out->set_rollout_non_finite(faults[kRollout]);
  out->set_support_differs(differs);
  out->set_top1_differs(top1);
  out->set_second_reads(reads);
  out->set_kl_train_rollout(over(kl[0], usable));
  out->set_kl_rollout_train(over(kl[1], usable));
  out->set_max_abs_delta(usable == 0 ? kNaN : largest);
  out->set_entropy_train(over(entropy[kTrain], usable));
  out->set_entropy_rollout(over(entropy[kRollout], usable));
  out->set_tokens(tokens);
  out->set_d_mean(tokens == 0 ? kNaN : mean);
  out->set_d_m2(tokens == 0 ? kNaN : m2);
  out->set_k3_mean(over(k3, tokens));
}

void FillRow(const LogitRow& row, uint64_t name, v1::LogitsRow* out) {
  out->set_row(name);
  out->set_lse_train(row.lse[kTrain]);
  out->set_lse_rollout(row.lse[kRollout]);
  out->set_kl_train_rollout(row.kl_train_rollout);
  out->set_kl_rollout_train(row.kl_rollout_train);
  out->set_max_abs_delta(row.max_abs_delta);
  out->set_top1_differs(row.top1_differs);
  out->set_topk_common(static_cast<uint32_t>(row.topk_common));
  out->set_entropy_train(row.entropy[kTrain]);
  out->set_entropy_rollout(row.entropy[kRollout]);
  out->set_varentropy_train(row.varentropy[kTrain]);
  out->set_varentropy_rollout(row.varentropy[kRollout]);
  out->set_slope(row.slope);
  out->set_intercept(row.intercept);
  out->set_fit_r2(row.fit_r2);
  out->set_only_train(row.only[kTrain]);
  out->set_only_rollout(row.only[kRollout]);
  out->set_lattice_train(row.lattice[kTrain]);
  out->set_lattice_rollout(row.lattice[kRollout]);
  out->set_token(row.token);
  out->set_logprob_train(row.logprob[kTrain]);
  out->set_logprob_rollout(row.logprob[kRollout]);
  out->set_position(-1);
  if (!row.usable) return;
  for (const double moment : row.log_moments) out->add_log_moments(moment);
  for (const double mean : row.downward) out->add_downward_means(mean);
  out->set_js(row.js);
  out->set_total_variation(row.total_variation);
}

absl::Status PackRow(const LogitPart& part, uint64_t row, int64_t vocabulary, v1::Tensor* out) {
  TensorView view = TensorView::Dense(nullptr, part.dtype, vocabulary);
  view.stride[0] = part.stride;
  view.data =
      static_cast<const std::byte*>(part.data) +
      part.rows.Offset(static_cast<int64_t>(row)) * static_cast<int64_t>(DTypeSize(part.dtype));
  return PackTensor(view, out);
}

// Fills the rows that diverge most, the worst first.
absl::Status FillWorst(const LogitPlan& plan, const std::vector<LogitRow>& rows,
                       const Selection& selection, v1::Logits* out) {
  const uint64_t row_bytes =
      static_cast<uint64_t>(plan.vocabulary) *
      (DTypeSize(plan.side[kTrain].dtype) + DTypeSize(plan.side[kRollout].dtype));
  const LogitOptions& options = selection.options;
  const uint64_t most =
      std::min<uint64_t>(options.max_witnesses, options.witness_bytes / row_bytes);
  std::vector<size_t> order;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].usable && Worse(rows[i]) > 0) order.push_back(i);
  }
  const size_t kept = std::min<size_t>(order.size(), most);
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept), order.end(),
                    [&](size_t a, size_t b) {
                      const double x = Worse(rows[a]), y = Worse(rows[b]);
                      return x != y ? x > y : a < b;
                    });
  for (size_t i = 0; i < kept; ++i) {
    v1::LogitsWitness& witness = *out->add_worst();
    const uint64_t row = selection.Row(order[i]);
    witness.set_row(selection.Name(order[i]));
    absl::Status s = PackRow(plan.side[kTrain], row, plan.vocabulary, witness.mutable_train());
    if (s.ok()) s = PackRow(plan.side[kRollout], row, plan.vocabulary, witness.mutable_rollout());
    if (!s.ok()) return s;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status FillLogits(const LogitInput& in, const LogitOptions& options, v1::Logits* out) {
  if (absl::Status s = CheckLogits(in); !s.ok()) return s;
  if (!in.train.on_host()) {
    return absl::InvalidArgumentError("train: expected a host tensor, found one on a device");
  }
  const LogitPlan plan = PlanLogits(in);
  const Selection selection{options,
                            options.rows ? static_cast<int64_t>(options.rows->size()) : plan.rows};
  for (size_t i = 0; i < static_cast<size_t>(selection.count); ++i) {
    absl::Status s = CheckToken(plan, static_cast<int64_t>(selection.Row(i)));
    if (!s.ok()) return s;
  }
  const auto detailed =
      SampleIndices(options.key, static_cast<uint64_t>(selection.count), options.max_rows);
  std::vector<LogitRow> rows(static_cast<size_t>(selection.count));
  std::vector<bool> wanted(rows.size());
  for (const uint64_t i : detailed) wanted[i] = true;
  ParallelParts(selection.count, options.threads, [&](int, int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const auto at = static_cast<size_t>(i);
      rows[at] = MeasureLogitRow(plan, static_cast<int64_t>(selection.Row(at)), wanted[at]);
    }
  });
  v1::LogitsConfig& config = *out->mutable_config();
  config.set_vocabulary(static_cast<uint64_t>(plan.vocabulary));
  config.set_train_dtype(static_cast<v1::DType>(in.train.dtype));
  config.set_rollout_dtype(static_cast<v1::DType>(in.rollout.dtype));
  FillSummary(rows, out->mutable_summary());
  for (const uint64_t i : detailed) FillRow(rows[i], selection.Name(i), out->add_rows());
  return FillWorst(plan, rows, selection, out);
}

}  // namespace plumbline
