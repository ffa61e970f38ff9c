#include <limits>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/logits/pair.h"

namespace plumbline {
namespace {

std::string ShapeOf(const TensorView& view) {
  std::string text = absl::StrCat(DTypeName(view.dtype), "[");
  for (int i = 0; i < view.rank; ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ",", view.shape[static_cast<size_t>(i)]);
  }
  return text + "]";
}

absl::Status Expected(std::string_view name, std::string_view what, const TensorView& view) {
  return absl::InvalidArgumentError(
      absl::StrCat(absl::string_view(name.data(), name.size()), ": expected ",
                   absl::string_view(what.data(), what.size()), ", found ", ShapeOf(view)));
}

// Returns true if the first `axes` extents of both are equal.
bool SameExtents(const TensorView& a, const TensorView& b, int axes) {
  for (int i = 0; i < axes; ++i) {
    if (a.shape[static_cast<size_t>(i)] != b.shape[static_cast<size_t>(i)]) return false;
  }
  return true;
}

absl::Status CheckSide(std::string_view name, const TensorView& view) {
  int64_t count = 0;
  if (absl::Status s = CheckTensor(view, name, &count); !s.ok()) return s;
  const bool known =
      view.dtype == DType::kF32 || view.dtype == DType::kF16 || view.dtype == DType::kBF16;
  if (!known || view.rank < 1) return Expected(name, "[..., V] of f32, f16 or bf16", view);
  const int64_t vocabulary = view.shape[static_cast<size_t>(view.rank - 1)];
  if (vocabulary >= 1 && vocabulary <= std::numeric_limits<int32_t>::max()) {
    return absl::OkStatus();
  }
  return Expected(name, "a vocabulary of 1 to 2^31 - 1", view);
}

absl::Status CheckTokens(const TensorView& tokens, const TensorView& train) {
  if (!tokens.present()) return absl::OkStatus();
  int64_t count = 0;
  if (absl::Status s = CheckTensor(tokens, "tokens", &count); !s.ok()) return s;
  if (!IsInteger(tokens.dtype) || tokens.dtype == DType::kBool) {
    return Expected("tokens", "integers", tokens);
  }
  if (tokens.rank == train.rank - 1 && SameExtents(tokens, train, tokens.rank)) {
    return absl::OkStatus();
  }
  return Expected("tokens", absl::StrCat("the rows of train, ", ShapeOf(train)), tokens);
}

absl::Status CheckAllowed(const TensorView& allowed, const TensorView& train) {
  if (!allowed.present()) return absl::OkStatus();
  int64_t count = 0;
  if (absl::Status s = CheckTensor(allowed, "allowed", &count); !s.ok()) return s;
  if (allowed.dtype != DType::kBool && allowed.dtype != DType::kU8) {
    return Expected("allowed", "bool or u8", allowed);
  }
  if (allowed.rank == train.rank && SameExtents(allowed, train, train.rank)) {
    return absl::OkStatus();
  }
  return Expected("allowed", absl::StrCat("the shape of train, ", ShapeOf(train)), allowed);
}

// Returns the first `axes` axes of a view.
StridedAxes RowsOf(const TensorView& view, int axes) {
  TensorView leading = view;
  leading.rank = axes;
  return AxesOf(leading);
}

LogitPart LogitPartOf(const TensorView& view) {
  LogitPart part;
  if (!view.present()) return part;
  part.data = view.data;
  part.dtype = view.dtype;
  part.rows = RowsOf(view, view.rank - 1);
  part.stride = view.stride[static_cast<size_t>(view.rank - 1)];
  return part;
}

}  // namespace

absl::Status CheckLogits(const LogitInput& in) {
  if (absl::Status s = CheckSide("train", in.train); !s.ok()) return s;
  if (absl::Status s = CheckSide("rollout", in.rollout); !s.ok()) return s;
  if (in.rollout.rank != in.train.rank || !SameExtents(in.rollout, in.train, in.train.rank)) {
    return Expected("rollout", absl::StrCat("the shape of train, ", ShapeOf(in.train)), in.rollout);
  }
  if (absl::Status s = CheckTokens(in.tokens, in.train); !s.ok()) return s;
  if (absl::Status s = CheckAllowed(in.allowed, in.train); !s.ok()) return s;
  for (const TensorView* view : {&in.rollout, &in.tokens, &in.allowed}) {
    if (view->present() && view->device != in.train.device) {
      return absl::InvalidArgumentError("expected all logits, tokens and masks on one device");
    }
  }
  return absl::OkStatus();
}

LogitPlan PlanLogits(const LogitInput& in) {
  LogitPlan plan;
  plan.rows = 1;
  for (int i = 0; i + 1 < in.train.rank; ++i) plan.rows *= in.train.shape[static_cast<size_t>(i)];
  plan.vocabulary = in.train.shape[static_cast<size_t>(in.train.rank - 1)];
  plan.side[kTrain] = LogitPartOf(in.train);
  plan.side[kRollout] = LogitPartOf(in.rollout);
  plan.allowed = LogitPartOf(in.allowed);
  if (in.tokens.present()) {
    plan.tokens.data = in.tokens.data;
    plan.tokens.dtype = in.tokens.dtype;
    plan.tokens.rows = RowsOf(in.tokens, in.tokens.rank);
  }
  return plan;
}

}  // namespace plumbline
