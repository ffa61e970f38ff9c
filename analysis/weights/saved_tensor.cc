#include "analysis/weights/saved_tensor.h"

#include <algorithm>
#include <cmath>

#include "analysis/sample/sample.h"

namespace plumbline::analysis {
namespace {

// Returns n if the tensor is an n x n matrix, else 0.
uint64_t SideOf(const std::vector<int64_t>& shape) {
  if (shape.size() != 2 || shape[0] != shape[1] || shape[0] <= 1) return 0;
  return static_cast<uint64_t>(shape[0]);
}

uint64_t Mixed(uint64_t x) {
  x = (x ^ (x >> 31)) * 0x9e3779b97f4a7c15ULL;
  return x ^ (x >> 29);
}

}  // namespace

void SavedLook::Take(const v1::TensorState& state, bool sampled) {
  const v1::TensorSummary& s = state.summary();
  digest = {s.digest_low(), s.digest_high()};
  count = s.count();
  zeros = s.zero();
  finite = s.nan() + s.pos_inf() + s.neg_inf() == 0;
  varied = s.min() < s.max();
  floating =
      state.dtype() == v1::DTYPE_UNSPECIFIED || IsFloating(static_cast<DType>(state.dtype()));
  mean_abs = count > 0 ? s.l1() / static_cast<double>(count) : 0;
  shape.assign(state.shape().begin(), state.shape().end());
  matrix = std::count_if(shape.begin(), shape.end(), [](int64_t n) { return n > 1; }) >= 2;
  if (!sampled || !finite || !state.has_sample()) return;
  const auto sample = DecodeTensor(state);
  if (!sample.ok() || sample->offsets.size() != sample->values.size()) return;
  // The choice depends on the shape alone. A mirrored pair is chosen as a whole.
  const uint64_t side = SideOf(shape);
  const size_t stride = (sample->offsets.size() + kMostKept - 1) / kMostKept;
  which = 0xcbf29ce484222325ULL;
  for (size_t i = 0; i < sample->offsets.size(); ++i) {
    const uint64_t at = sample->offsets[i];
    const uint64_t pair = side == 0 ? 0 : std::min(at, at % side * side + at / side);
    if (stride > 1 && (side == 0 ? i : Mixed(pair)) % stride != 0) continue;
    offsets.push_back(at);
    values.push_back(static_cast<float>(sample->values[i]));
    which = (which ^ at) * 0x100000001b3ULL;
  }
}

void SavedTensor::Keep(const SavedLook& look, int64_t step) {
  moved = !past.empty() && past.back().first != look.digest;
  if (past.empty() || moved) past.emplace_back(look.digest, step);
  if (past.size() > kMostPast) past.erase(past.begin());
  last = look.values;
  which = look.which;
  shape = look.shape;
  count = look.count;
  zeros = look.zeros;
  mean_abs = look.mean_abs;
  varied = look.varied;
  finite = look.finite;
}

std::optional<int64_t> SavedTensor::StepOf(const Digest& digest) const {
  for (size_t i = 0; i + 1 < past.size(); ++i) {
    if (past[i].first == digest) return past[i].second;
  }
  return std::nullopt;
}

double CorrelationOf(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size() || a.empty()) return 0;
  const auto n = static_cast<double>(a.size());
  double mean_a = 0, mean_b = 0, aa = 0, bb = 0, ab = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    mean_a += a[i] / n;
    mean_b += b[i] / n;
  }
  for (size_t i = 0; i < a.size(); ++i) {
    const double x = a[i] - mean_a, y = b[i] - mean_b;
    aa += x * x;
    bb += y * y;
    ab += x * y;
  }
  return aa > 0 && bb > 0 ? ab / std::sqrt(aa * bb) : 0;
}

double MirroredCorrelation(const std::vector<float>& before, const SavedLook& now) {
  constexpr size_t kFewest = 64;
  const uint64_t side = SideOf(now.shape);
  if (side == 0 || before.size() != now.values.size()) return 0;
  std::vector<float> a, b;
  for (size_t i = 0; i < now.offsets.size(); ++i) {
    const uint64_t mirrored = now.offsets[i] % side * side + now.offsets[i] / side;
    const auto at = std::lower_bound(now.offsets.begin(), now.offsets.end(), mirrored);
    if (mirrored == now.offsets[i] || at == now.offsets.end() || *at != mirrored) continue;
    a.push_back(before[static_cast<size_t>(at - now.offsets.begin())]);
    b.push_back(now.values[i]);
  }
  return a.size() < kFewest ? 0 : CorrelationOf(a, b);
}

bool MovedBeyondDecay(const std::vector<float>& before, const std::vector<float>& now) {
  if (before.size() != now.size() || before.empty()) return false;
  constexpr double kLeast = 1e-5;  // more than the rounding of bf16
  double bb = 0, nb = 0, change = 0, rest = 0;
  for (size_t i = 0; i < now.size(); ++i) {
    bb += double{before[i]} * before[i];
    nb += double{now[i]} * before[i];
  }
  if (!(bb > 0)) return false;
  for (size_t i = 0; i < now.size(); ++i) {
    const double step = double{now[i]} - before[i], left = now[i] - nb / bb * before[i];
    change += step * step;
    rest += left * left;
  }
  return rest > 0.25 * change && rest > kLeast * bb;
}

}  // namespace plumbline::analysis
