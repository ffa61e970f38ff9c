#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/load.h"
#include "kernels/core/float_mode.h"
#include "kernels/logits/core.h"
#include "kernels/logits/loops.h"
#include "kernels/logits/pair.h"

namespace plumbline {
namespace {

constexpr double kInfinity = __builtin_inf();

// Returns elements [first, first + n) of a part's row, dense: in place if they are dense there.
const std::byte* Elements(const LogitPart& part, int64_t row_at, int64_t first, int n,
                          std::byte* buffer) {
  const size_t size = DTypeSize(part.dtype);
  const auto* data = static_cast<const std::byte*>(part.data) +
                     (row_at + first * part.stride) * static_cast<int64_t>(size);
  if (part.stride == 1) return data;
  const int64_t step = part.stride * static_cast<int64_t>(size);
  for (int i = 0; i < n; ++i) {
    std::memcpy(buffer + static_cast<size_t>(i) * size, data + i * step, size);
  }
  return buffer;
}

class RowMeter {
 public:
  RowMeter(const LogitPlan& plan, int64_t row) : plan_(plan), loops_(LoopsOfLogits()) {
    for (int s = 0; s < 2; ++s) at_[s] = plan.side[s].rows.Offset(row);
    if (plan.allowed.data != nullptr) allowed_at_ = plan.allowed.rows.Offset(row);
  }

  LogitRow Measure(int64_t token, bool detailed) {
    detailed_ = detailed;
    for (int64_t first = 0; first < plan_.vocabulary; first += kLogitChunk) {
      Load(first);
      AddChunk(first);
    }
    LogitRow row = FinishLogits(sums_, reference_);
    if (!row.usable) return row;
    row.topk_common = CommonLogits(top_[0], top_[1]);
    SetToken(token, &row);
    if (detailed) AddDetails(&row);
    return row;
  }

 private:
  void Load(int64_t first) {
    const int n = static_cast<int>(std::min<int64_t>(kLogitChunk, plan_.vocabulary - first));
    alignas(64) std::byte buffer[kLogitChunk * sizeof(float)];
    alignas(64) std::byte mask[kLogitChunk];
    const uint8_t* allowed = nullptr;
    if (plan_.allowed.data != nullptr) {
      allowed =
          reinterpret_cast<const uint8_t*>(Elements(plan_.allowed, allowed_at_, first, n, mask));
    }
    for (int s = 0; s < 2; ++s) {
      const LogitPart& part = plan_.side[s];
      loops_.widen(Elements(part, at_[s], first, n, buffer), part.dtype, allowed, n, &chunk_[s]);
    }
  }

  void AddChunk(int64_t first) {
    for (int s = 0; s < 2; ++s) {
      Raise(s);
      AddTop(s, first);
      loops_.add_side(&chunk_[s], &sums_.side[s]);
    }
    if (detailed_) loops_.add_powers(chunk_[kRollout], sums_.side[kRollout].max, &powers_);
    if (!reference_.set) FindReference();
    if (!reference_.set) return;
    loops_.add_common(chunk_[0], chunk_[1], reference_, &sums_);
    FindSharedTop();
  }

  void Raise(int s) {
    LogitSide<double>& side = sums_.side[s];
    const double max = chunk_[s].max;
    if (!(max > side.max)) return;
    if (s == kRollout) {
      const double down = side.max - max;
      for (int i = 0; i < kLogitThetas; ++i) powers_.sum[i] *= std::exp((1 - Theta(i)) * down);
    }
    RaiseMax(&side, max);
    sums_.shared_top = false;
  }

  static double Theta(int i) {
    constexpr int kEach = kLogitThetas / 2;
    return i < kEach ? std::ldexp(1.0, -1 - i) : -std::ldexp(1.0, -1 - (i - kEach));
  }

  void AddTop(int s, int64_t first) {
    const LogitChunk& chunk = chunk_[s];
    TopLogits& top = top_[s];
    if (!(chunk.max > -kInfinity) || !top.Takes(static_cast<float>(chunk.max))) return;
    for (int i = 0; i < chunk.n; ++i) {
      const auto z = static_cast<float>(chunk.z[i]);
      if (z > -__builtin_inff() && top.Takes(z)) top.Insert(z, static_cast<int32_t>(first + i));
    }
  }

  // Chooses the most probable logit of the first chunk with common logits.
  void FindReference() {
    double best = -kInfinity;
    for (int i = 0; i < chunk_[0].n; ++i) {
      const double a = chunk_[0].z[i], b = chunk_[1].z[i];
      if (!(a > best) || !(b > -kInfinity)) continue;
      best = a;
      reference_ = {a, b, true};
    }
  }

  void FindSharedTop() {
    const double a = sums_.side[0].max, b = sums_.side[1].max;
    if (sums_.shared_top || chunk_[0].max != a || chunk_[1].max != b) return;
    for (int i = 0; i < chunk_[0].n && !sums_.shared_top; ++i) {
      sums_.shared_top = chunk_[0].z[i] == a && chunk_[1].z[i] == b && a > -kInfinity;
    }
  }

  void SetToken(int64_t token, LogitRow* row) const {
    if (token < 0 || token >= plan_.vocabulary) return;
    row->token = token;
    const LogitPart& mask = plan_.allowed;
    const bool allowed =
        mask.data == nullptr || LoadRaw<uint8_t>(mask.data, allowed_at_ + token * mask.stride) != 0;
    for (int s = 0; s < 2; ++s) {
      const LogitPart& part = plan_.side[s];
      const double z = LoadDouble(part.data, part.dtype, at_[s] + token * part.stride);
      row->logprob[s] = allowed ? z - row->lse[s] : -kInfinity;
    }
  }

  void AddDetails(LogitRow* row) {
    const LogitSide<double>& mu = sums_.side[kRollout];
    const double normaliser = std::log(mu.s0);
    for (int i = 0; i < kLogitThetas; ++i) {
      const double theta = Theta(i);
      row->log_moments[i] =
          std::log(powers_.sum[i]) - (1 - theta) * normaliser - theta * row->entropy[kRollout];
    }
    LogitTails tails;
    for (int64_t first = 0; first < plan_.vocabulary; first += kLogitChunk) {
      Load(first);
      loops_.add_tails(chunk_[0], row->lse[0], chunk_[1], row->lse[1], &tails);
    }
    row->second_reads = 2 * static_cast<uint64_t>(plan_.vocabulary);
    row->js = tails.js;
    row->total_variation = tails.variation;
    std::copy(std::begin(tails.downward), std::end(tails.downward), row->downward);
  }

  const LogitPlan& plan_;
  const LogitLoops& loops_;
  int64_t at_[2], allowed_at_ = 0;
  bool detailed_ = false;
  LogitChunk chunk_[2];
  LogitSums<double> sums_;
  LogitReference reference_;
  LogitPowers powers_;
  TopLogits top_[2];
};

}  // namespace

int64_t TokenOf(const LogitPlan& plan, int64_t row) {
  const LogitPart& part = plan.tokens;
  if (part.data == nullptr) return -1;
  return std::max<int64_t>(-1, LoadInt64(part.data, part.dtype, part.rows.Offset(row)));
}

absl::Status CheckToken(const LogitPlan& plan, int64_t row) {
  const int64_t token = TokenOf(plan, row);
  if (token < plan.vocabulary) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("tokens: expected ids below ", plan.vocabulary,
                                                 ", found ", token, " in row ", row));
}

LogitRow MeasureLogitRow(const LogitPlan& plan, int64_t row, bool detailed) {
  const StandardFloatMode mode;
  return RowMeter(plan, row).Measure(TokenOf(plan, row), detailed);
}

}  // namespace plumbline
