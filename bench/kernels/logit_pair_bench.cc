// Measures the CPU reference on one core: logits of each side per second. Peers: a memcpy of both
// sides, and the same figures in as many passes as a tensor library needs: log_softmax of both
// (maximum, sum, difference), both divergences, both entropies and varentropies, the mean and the
// largest difference, the argmaxes and the sums of a line fit, each a separate loop over f32.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "base/half.h"
#include "kernels/logits/pair.h"

namespace plumbline {
namespace {

constexpr int64_t kRows = 8;

struct Logits {
  int64_t vocabulary;
  std::vector<uint16_t> half[2];
  std::vector<float> full[2];

  explicit Logits(int64_t v) : vocabulary(v) {
    std::mt19937_64 random(1);
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < kRows * v; ++i) {
      const float mu = 3 * normal(random);
      const float pi = mu + 0.02f * normal(random);
      half[0].push_back(FloatToBF16(pi));
      half[1].push_back(FloatToBF16(mu));
      full[0].push_back(pi);
      full[1].push_back(mu);
    }
  }

  LogitPlan Plan(DType t) const {
    LogitInput in;
    const auto data = [&](int s) -> const void* {
      if (t == DType::kF32) return full[s].data();
      return half[s].data();
    };
    in.train = TensorView::Dense(data(0), t, kRows, vocabulary);
    in.rollout = TensorView::Dense(data(1), t, kRows, vocabulary);
    return PlanLogits(in);
  }
};

void Count(benchmark::State& state, const Logits& logits, size_t size) {
  const int64_t pairs = state.iterations() * kRows * logits.vocabulary;
  state.SetItemsProcessed(pairs);
  state.SetBytesProcessed(2 * pairs * static_cast<int64_t>(size));
}

template <DType T, bool detailed>
void CpuReference(benchmark::State& state) {
  const Logits logits(state.range(0));
  const LogitPlan plan = logits.Plan(T);
  for (auto _ : state) {
    for (int64_t row = 0; row < kRows; ++row)
      benchmark::DoNotOptimize(MeasureLogitRow(plan, row, detailed));
  }
  Count(state, logits, DTypeSize(T));
}

void Memcpy(benchmark::State& state) {
  const Logits logits(state.range(0));
  std::vector<uint16_t> to[2] = {logits.half[0], logits.half[1]};
  for (auto _ : state) {
    for (int s = 0; s < 2; ++s) {
      std::memcpy(to[s].data(), logits.half[s].data(), to[s].size() * sizeof(uint16_t));
      benchmark::DoNotOptimize(to[s].data());
      benchmark::ClobberMemory();
    }
  }
  Count(state, logits, sizeof(uint16_t));
}

// Computes one row like a tensor library, one operation after another.
class ManyPasses {
 public:
  explicit ManyPasses(size_t n) : n_(n) {
    for (auto* v : {&log_[0], &log_[1], &p_[0], &p_[1], &difference_}) v->resize(n);
  }

  double Measure(const float* train, const float* rollout) {
    const float* z[2] = {train, rollout};
    double sum = 0;
    for (int s = 0; s < 2; ++s) {
      LogSoftmax(z[s], &log_[s]);
      for (size_t i = 0; i < n_; ++i) p_[s][i] = std::exp(log_[s][i]);
      sum += Entropy(s) + static_cast<double>(std::max_element(z[s], z[s] + n_) - z[s]);
    }
    for (int s = 0; s < 2; ++s) {
      double kl = 0;
      for (size_t i = 0; i < n_; ++i) kl += p_[s][i] * (log_[s][i] - log_[1 - s][i]);
      sum += kl;
    }
    for (size_t i = 0; i < n_; ++i) difference_[i] = train[i] - rollout[i];
    double mean = 0;
    for (size_t i = 0; i < n_; ++i) mean += difference_[i];
    mean /= static_cast<double>(n_);
    double largest = 0, x = 0, xx = 0, xy = 0;
    for (size_t i = 0; i < n_; ++i) largest = std::max(largest, std::fabs(difference_[i] - mean));
    for (size_t i = 0; i < n_; ++i) x += rollout[i];
    for (size_t i = 0; i < n_; ++i) xx += static_cast<double>(rollout[i]) * rollout[i];
    for (size_t i = 0; i < n_; ++i) xy += static_cast<double>(rollout[i]) * difference_[i];
    return sum + largest + x + xx + xy;
  }

 private:
  void LogSoftmax(const float* z, std::vector<float>* out) const {
    const float max = *std::max_element(z, z + n_);
    double sum = 0;
    for (size_t i = 0; i < n_; ++i) sum += std::exp(z[i] - max);
    const auto lse = static_cast<float>(max + std::log(sum));
    for (size_t i = 0; i < n_; ++i) (*out)[i] = z[i] - lse;
  }
  double Entropy(int s) const {
    double entropy = 0, variance = 0;
    for (size_t i = 0; i < n_; ++i) entropy -= p_[s][i] * log_[s][i];
    for (size_t i = 0; i < n_; ++i)
      variance += p_[s][i] * (log_[s][i] + entropy) * (log_[s][i] + entropy);
    return entropy + variance;
  }

  size_t n_;
  std::vector<float> log_[2], p_[2], difference_;
};

void MultiPass(benchmark::State& state) {
  const Logits logits(state.range(0));
  ManyPasses passes(static_cast<size_t>(logits.vocabulary));
  for (auto _ : state) {
    for (int64_t row = 0; row < kRows; ++row) {
      const int64_t at = row * logits.vocabulary;
      benchmark::DoNotOptimize(
          passes.Measure(logits.full[0].data() + at, logits.full[1].data() + at));
    }
  }
  Count(state, logits, sizeof(float));
}

BENCHMARK(Memcpy)->Arg(4096)->Arg(131072);
BENCHMARK(MultiPass)->Arg(4096)->Arg(131072);
BENCHMARK(CpuReference<DType::kBF16, false>)->Name("CpuReference/bf16")->Arg(4096)->Arg(131072);
BENCHMARK(CpuReference<DType::kF32, false>)->Name("CpuReference/f32")->Arg(4096)->Arg(131072);
BENCHMARK(CpuReference<DType::kBF16, true>)
    ->Name("CpuReference/bf16/detailed")
    ->Arg(4096)
    ->Arg(131072);

}  // namespace
}  // namespace plumbline
