#include "agent/core/calls/fingerprint.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "agent/core/calls/copy_text.h"
#include "analysis/sums/sums.h"

namespace plumbline::agent {
namespace {

DType DTypeOf(const DLDataType& type) {
  if (type.lanes != 1) return DType::kUnspecified;
  switch (type.code) {
    case PLUMBLINE_DL_FLOAT:
      return type.bits == 64   ? DType::kF64
             : type.bits == 32 ? DType::kF32
             : type.bits == 16 ? DType::kF16
                               : DType::kUnspecified;
    case PLUMBLINE_DL_BFLOAT:
      return type.bits == 16 ? DType::kBF16 : DType::kUnspecified;
    case PLUMBLINE_DL_FLOAT8_E4M3FN:
      return DType::kE4M3;
    case PLUMBLINE_DL_FLOAT8_E5M2:
      return DType::kE5M2;
    default:
      return DType::kUnspecified;
  }
}

sums::Target::BatchedCall BatchedCallOf(const plumbline_sum_t& sum) {
  return [&sum](int batch, absl::Span<const double> a, absl::Span<const double> b, double* y) {
    const int32_t status =
        sum.sum(sum.context, a.data(), b.data(), a.size(), static_cast<uint32_t>(batch), y);
    if (status == 0) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat("fingerprint: expected the function to return 0, found ", status));
  };
}

void Fill(const sums::Fingerprint& found, plumbline_fingerprint_result_t* result) {
  result->verdict = static_cast<int32_t>(found.verdict);
  result->calls = found.calls;
  result->tree_calls = found.tree_calls;
  result->matches = found.matches;
  result->samples = found.samples;
  CopyText(found.tree_hash, result->tree);
  CopyText(found.evidence, result->evidence);
  CopyText(found.order, result->order);
  CopyText(found.verdict == sums::Verdict::kVerified ? found.arithmetic : "", result->arithmetic);
  CopyText(sums::FingerprintText(found), result->text);
  const std::string contract = sums::ContractToml(sums::ContractOf(found));
  CopyText(contract.size() < sizeof(result->contract) ? contract : "", result->contract);
}

}  // namespace

absl::Status TakeFingerprint(const plumbline_sum_t& sum, plumbline_fingerprint_result_t* result) {
  if (sum.kind < PLUMBLINE_SUM_SUM || sum.kind > PLUMBLINE_SUM_ALL_REDUCE) {
    return absl::InvalidArgumentError(
        absl::StrCat("fingerprint: expected a kind of PLUMBLINE_SUM_*, found ", sum.kind));
  }
  sums::Target target;
  target.name = sum.name == nullptr ? "sum" : sum.name;
  target.library = sum.library == nullptr ? "" : sum.library;
  target.kind = static_cast<sums::Kind>(sum.kind);
  target.n = static_cast<int>(std::min<uint64_t>(sum.n, 1u << 30));
  target.input = DTypeOf(sum.input);
  target.output = DTypeOf(sum.output);
  const auto batched = BatchedCallOf(sum);
  target.call = [&batched](absl::Span<const double> a, absl::Span<const double> b, double* y) {
    return batched(1, a, b, y);
  };
  if (sum.batches != 0) target.batched = batched;
  sums::FingerprintOptions options;
  options.seed = sum.seed;
  if (sum.samples != 0)
    options.samples = static_cast<int>(std::min<uint32_t>(sum.samples, 1u << 20));
  const auto found = sums::TakeFingerprint(target, options);
  if (!found.ok()) return found.status();
  Fill(*found, result);
  return absl::OkStatus();
}

}  // namespace plumbline::agent
