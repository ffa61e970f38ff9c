#include "analysis/rollout/content.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>

#include "base/load.h"

namespace plumbline::analysis {
namespace {

// Returns true if the drawn tokens have at least 20 nats. Then two draws agree by chance with
// probability e^-20.
bool HoldsEnough(const v1::LogprobsSequence& rollout) {
  constexpr double kNats = 20;
  const v1::Tensor& logs = rollout.rollout().logprobs();
  const auto dtype = static_cast<DType>(logs.dtype());
  const size_t width = DTypeSize(dtype);
  if (width == 0) return false;
  double sum = 0;
  for (size_t i = 0; i < logs.data().size() / width && sum < kNats; ++i) {
    const double log_mu = LoadDouble(logs.data().data(), dtype, static_cast<int64_t>(i));
    if (log_mu < 0 && log_mu > -1e3) sum -= log_mu;
  }
  return sum >= kNats;
}

// The token ids of one half.
struct Ids {
  const v1::Tensor& tensor;
  size_t size = 0;

  explicit Ids(const v1::Tensor& t) : tensor(t) {
    const size_t width = DTypeSize(static_cast<DType>(t.dtype()));
    size = width == 0 ? 0 : t.data().size() / width;
  }
  int64_t At(size_t i) const {
    return LoadInt64(tensor.data().data(), static_cast<DType>(tensor.dtype()),
                     static_cast<int64_t>(i));
  }
};

// Returns the number of ids of `a` that `b` has `shift` rows later.
size_t Agreeing(const Ids& a, const Ids& b, size_t shift) {
  size_t n = 0;
  for (size_t i = 0; i < a.size && i + shift < b.size; ++i) n += a.At(i) == b.At(i + shift);
  return n;
}

}  // namespace

bool SameTokens(const v1::LogprobsSequence& a, const v1::LogprobsSequence& b) {
  if (!a.has_tokens() || !b.has_tokens()) return a.length() == b.length();
  const Ids x(a.tokens()), y(b.tokens());
  return x.size == y.size && Agreeing(x, y, 0) == x.size;
}

bool Akin(const v1::LogprobsSequence& a, const v1::LogprobsSequence& b) {
  constexpr size_t kHead = 4;
  if (!a.has_tokens() || !b.has_tokens()) return true;
  const Ids x(a.tokens()), y(b.tokens());
  size_t head = 0;
  while (head < std::min(x.size, y.size) && x.At(head) == y.At(head)) ++head;
  const size_t least = std::max<size_t>(1, std::min(x.size, y.size) / 4);
  return head >= kHead || Agreeing(x, y, 0) >= least || Agreeing(x, y, 1) >= least ||
         Agreeing(y, x, 1) >= least;
}

std::optional<uint64_t> DrawOf(const v1::LogprobsSequence& rollout) {
  constexpr uint64_t kFewestTokens = 16;
  if (rollout.length() < kFewestTokens || !HoldsEnough(rollout)) return std::nullopt;
  const std::string& ids = rollout.tokens().data();
  const std::string& logs = rollout.rollout().logprobs().data();
  return XXH3_64bits_withSeed(logs.data(), logs.size(), XXH3_64bits(ids.data(), ids.size()));
}

uint64_t ContentOf(const v1::LogprobsSequence& rollout, int64_t step) {
  const auto hash = [](const std::string& bytes, uint64_t seed) {
    return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
  };
  uint64_t h = hash(rollout.id(), static_cast<uint64_t>(rollout.first_position()));
  h = hash(rollout.tokens().data(), h);
  h = hash(rollout.rollout().logprobs().data(), h);
  if (HoldsEnough(rollout)) return h;
  return rollout.has_weight_versions() ? hash(rollout.weight_versions().data(), h)
                                       : XXH3_64bits_withSeed(&step, sizeof step, h);
}

}  // namespace plumbline::analysis
