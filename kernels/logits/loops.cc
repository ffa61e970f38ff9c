// Compiled for vectors: `omp simd` alone lets the compiler reorder these sums.
#include "kernels/logits/loops.h"

#include <cmath>
#include <cstring>

#include "base/avx2.h"
#include "kernels/core/widen.h"

#define PLUMB_INLINE __attribute__((always_inline)) static inline

namespace plumbline {
namespace {

constexpr double kInfinity = __builtin_inf();

// Returns exp for y <= 0 (a rounding above 0 is correct, too), to 2 ulp; 0 below -708. No branches.
// The series of exp(r), |r| <= ln(2)/2, times 2^n.
PLUMB_INLINE double Exp(double y) {
  constexpr double kLog2E = 1.4426950408889634074;
  constexpr double kLn2High = 6.93147180369123816490e-01;  // 32 bits: n times it is exact
  constexpr double kLn2Low = 1.90821492927058770002e-10;
  constexpr double kShift = 6755399441055744.0;  // 1.5 * 2^52: the last bits of the sum are n
  const double inside = y < -708 ? -708 : y;
  const double shifted = inside * kLog2E + kShift;
  const double n = shifted - kShift;
  const double r = (inside - n * kLn2High) - n * kLn2Low;
  double p = 1.0 / 6227020800;
  p = p * r + 1.0 / 479001600;
  p = p * r + 1.0 / 39916800;
  p = p * r + 1.0 / 3628800;
  p = p * r + 1.0 / 362880;
  p = p * r + 1.0 / 40320;
  p = p * r + 1.0 / 5040;
  p = p * r + 1.0 / 720;
  p = p * r + 1.0 / 120;
  p = p * r + 1.0 / 24;
  p = p * r + 1.0 / 6;
  p = p * r + 0.5;
  p = p * r + 1;
  p = p * r + 1;
  const uint64_t bits =
      __builtin_bit_cast(uint64_t, p) + (__builtin_bit_cast(uint64_t, shifted) << 52);
  return y < -708 ? 0.0 : __builtin_bit_cast(double, bits);
}

PLUMB_INLINE void WidenBits(const std::byte* data, DType dtype, int n, uint32_t* out) {
  if (dtype == DType::kF32) {
    std::memcpy(out, data, static_cast<size_t>(n) * sizeof(uint32_t));
    return;
  }
  alignas(64) uint16_t half[kLogitChunk];
  std::memcpy(half, data, static_cast<size_t>(n) * sizeof(uint16_t));
  if (dtype == DType::kBF16) {
    for (int i = 0; i < n; ++i) out[i] = static_cast<uint32_t>(half[i]) << 16;
  } else {
    for (int i = 0; i < n; ++i) out[i] = WidenF16(half[i]);
  }
}

PLUMB_INLINE void WidenChunk(const std::byte* data, DType dtype, const uint8_t* allowed, int n,
                             LogitChunk* out) {
  constexpr uint32_t kMasked = 0xff800000u;
  alignas(64) uint32_t bits[kLogitChunk];
  WidenBits(data, dtype, n, bits);
  if (allowed != nullptr) {
    for (int i = 0; i < n; ++i) bits[i] = allowed[i] != 0 ? bits[i] : kMasked;
  }
  uint32_t finite = 0, exact = 0, masked = 0;
#pragma omp simd reduction(+ : finite, exact, masked)
  for (int i = 0; i < n; ++i) {
    const bool is_finite = (bits[i] & 0x7f800000u) != 0x7f800000u;
    finite += is_finite ? 1u : 0u;
    exact += is_finite && (bits[i] & 0xffffu) == 0 ? 1u : 0u;
    masked += bits[i] == kMasked ? 1u : 0u;
    bits[i] = is_finite ? bits[i] : kMasked;
  }
  double max = -kInfinity;
#pragma omp simd reduction(max : max)
  for (int i = 0; i < n; ++i) {
    const double z = static_cast<double>(__builtin_bit_cast(float, bits[i]));
    out->z[i] = z;
    max = z > max ? z : max;
  }
  out->n = n;
  out->max = max;
  out->finite = finite;
  out->exact = exact;
  out->faults = static_cast<uint32_t>(n) - finite - masked;
}

PLUMB_INLINE void AddSide(LogitChunk* chunk, LogitSide<double>* side) {
  side->finite += chunk->finite;
  side->exact += chunk->exact;
  side->faults += chunk->faults;
  const double max = side->max;
  double s0 = 0, s1 = 0, s2 = 0;
#pragma omp simd reduction(+ : s0, s1, s2)
  for (int i = 0; i < chunk->n; ++i) {
    const bool in = chunk->z[i] > -kInfinity;
    const double y = in ? chunk->z[i] - max : 0;
    const double e = in ? Exp(y) : 0;
    chunk->e[i] = e;
    s0 += e;
    s1 += e * y;
    s2 += e * y * y;
  }
  side->s0 += s0;
  side->s1 += s1;
  side->s2 += s2;
}

PLUMB_INLINE void AddFit(const double* x, const double* d, const double* in, int n,
                         LogitSums<double>* sums) {
  double common = 0, sx = 0, sxx = 0, sd = 0, sdd = 0, sxd = 0, max = -kInfinity, min = kInfinity;
#pragma omp simd reduction(+ : common, sx, sxx, sd, sdd, sxd) reduction(max : max) \
    reduction(min : min)
  for (int i = 0; i < n; ++i) {
    common += in[i];
    sx += x[i];
    sxx += x[i] * x[i];
    sd += d[i];
    sdd += d[i] * d[i];
    sxd += x[i] * d[i];
    const double high = in[i] > 0 ? d[i] : -kInfinity;
    const double low = in[i] > 0 ? d[i] : kInfinity;
    max = high > max ? high : max;
    min = low < min ? low : min;
  }
  sums->common += static_cast<uint32_t>(common);
  sums->x += sx;
  sums->xx += sxx;
  sums->d += sd;
  sums->dd += sdd;
  sums->xd += sxd;
  sums->max_d = max > sums->max_d ? max : sums->max_d;
  sums->min_d = min < sums->min_d ? min : sums->min_d;
}

PLUMB_INLINE void AddDivergence(const LogitChunk& train, const LogitChunk& rollout, const double* d,
                                const double* in, LogitSums<double>* sums) {
  double pt = 0, pk = 0, p0 = 0, p1 = 0, qt = 0, qk = 0, q0 = 0, q1 = 0;
#pragma omp simd reduction(+ : pt, pk, p0, p1, qt, qk, q0, q1)
  for (int i = 0; i < train.n; ++i) {
    const double p = train.e[i] * in[i];
    const double q = rollout.e[i] * in[i];
    const bool small = d[i] <= kSmallDelta && d[i] >= -kSmallDelta;
    const double near = small ? d[i] : 0;
    const double even =
        near * near *
        (0.5 + near * near * (1.0 / 24 + near * near * (1.0 / 720 + near * near * (1.0 / 40320))));
    const double odd =
        near * near * near * (1.0 / 6 + near * near * (1.0 / 120 + near * near * (1.0 / 5040)));
    pt += p * d[i];
    qt += q * d[i];
    pk += p * (even - odd);
    qk += q * (even + odd);
    const double pl = small ? 0 : p;
    const double ql = small ? 0 : q;
    p0 += pl;
    p1 += pl * d[i];
    q0 += ql;
    q1 += ql * d[i];
  }
  LogitSide<double>&a = sums->side[kTrain], &b = sums->side[kRollout];
  a.t1 += pt;
  a.k += pk;
  a.l0 += p0;
  a.l1 += p1;
  b.t1 += qt;
  b.k += qk;
  b.l0 += q0;
  b.l1 += q1;
}

PLUMB_INLINE void AddCommon(const LogitChunk& train, const LogitChunk& rollout,
                            const LogitReference& r, LogitSums<double>* sums) {
  alignas(64) double x[kLogitChunk], d[kLogitChunk], in[kLogitChunk];
  for (int i = 0; i < train.n; ++i) {
    const bool both = train.z[i] > -kInfinity && rollout.z[i] > -kInfinity;
    in[i] = both ? 1 : 0;
    x[i] = both ? rollout.z[i] - r.rollout : 0;
    d[i] = both ? (train.z[i] - r.train) - x[i] : 0;
  }
  AddFit(x, d, in, train.n, sums);
  AddDivergence(train, rollout, d, in, sums);
}

// u = e^(y/128): e^((1-theta) y) for theta = 2^-k is u^(128 - 2^(7-k)), a product of squares of u,
// and for -theta e^y times one of them. All are at most 1.
PLUMB_INLINE void AddPowers(const LogitChunk& chunk, double max, LogitPowers* powers) {
  double a0 = 0, a1 = 0, a2 = 0, a3 = 0, a4 = 0, a5 = 0, a6 = 0;
  double b0 = 0, b1 = 0, b2 = 0, b3 = 0, b4 = 0, b5 = 0, b6 = 0;
#pragma omp simd reduction(+ : a0, a1, a2, a3, a4, a5, a6, b0, b1, b2, b3, b4, b5, b6)
  for (int i = 0; i < chunk.n; ++i) {
    const bool in = chunk.z[i] > -kInfinity;
    const double y = in ? chunk.z[i] - max : 0;
    const double u1 = in ? Exp(y / 128) : 0;
    const double u2 = u1 * u1, u4 = u2 * u2, u8 = u4 * u4, u16 = u8 * u8, u32 = u16 * u16;
    const double u64 = u32 * u32, e = chunk.e[i];
    double product = u64;
    a0 += product;
    a1 += product *= u32;
    a2 += product *= u16;
    a3 += product *= u8;
    a4 += product *= u4;
    a5 += product *= u2;
    a6 += product *= u1;
    b0 += e * u64;
    b1 += e * u32;
    b2 += e * u16;
    b3 += e * u8;
    b4 += e * u4;
    b5 += e * u2;
    b6 += e * u1;
  }
  const double sums[kLogitThetas] = {a0, a1, a2, a3, a4, a5, a6, b0, b1, b2, b3, b4, b5, b6};
  for (int i = 0; i < kLogitThetas; ++i) powers->sum[i] += sums[i];
}

// Returns p (1+s)log(1+s) + p (1-s)log(1-s), halved, with p = (pi + mu)/2 and s p = (pi - mu)/2.
double FarJensenShannon(double pi, double mu) {
  const double mean = (pi + mu) / 2;
  double sum = 0;
  if (pi > 0) sum += pi * std::log(pi / mean);
  if (mu > 0) sum += mu * std::log(mu / mean);
  return sum / 2;
}

PLUMB_INLINE void AddTails(const LogitChunk& train, double lse_train, const LogitChunk& rollout,
                           double lse_rollout, LogitTails* tails) {
  alignas(64) double pi[kLogitChunk], mu[kLogitChunk];
  constexpr double kNear = 0.25;  // |s| up to which the series is exact
  double js = 0, variation = 0, far = 0;
#pragma omp simd reduction(+ : js, variation, far)
  for (int i = 0; i < train.n; ++i) {
    const bool has_pi = train.z[i] > -kInfinity, has_mu = rollout.z[i] > -kInfinity;
    const double p = has_pi ? Exp(train.z[i] - lse_train) : 0;
    const double q = has_mu ? Exp(rollout.z[i] - lse_rollout) : 0;
    pi[i] = p;
    mu[i] = q;
    const double sum = p + q;
    const double s = (p - q) / (sum + 1e-300);  // 0 if both are 0
    const double size = s < 0 ? -s : s;
    const double near = size <= kNear ? 1 : 0;
    variation += p > q ? p - q : q - p;
    js += near * sum / 4 * EvenLogSeries(near * s * s);
    far += 1 - near;
  }
  if (far > 0) {
    for (int i = 0; i < train.n; ++i) {
      const double s = (pi[i] - mu[i]) / (pi[i] + mu[i] + 1e-300);
      if (!(std::fabs(s) <= kNear)) js += FarJensenShannon(pi[i], mu[i]);
    }
  }
  double w0 = 0, w1 = 0, w2 = 0, w3 = 0, w4 = 0, w5 = 0, w6 = 0;
#pragma omp simd reduction(+ : w0, w1, w2, w3, w4, w5, w6)
  for (int i = 0; i < train.n; ++i) {
    const double q = mu[i], down = mu[i] - pi[i];  // max(0, mu + lambda(mu - pi))
    const double m0 = q + down, m1 = q + down / 2, m2 = q + down / 4, m3 = q + down / 8,
                 m4 = q + down / 16, m5 = q + down / 32, m6 = q + down / 64;
    w0 += m0 > 0 ? m0 : 0;
    w1 += m1 > 0 ? m1 : 0;
    w2 += m2 > 0 ? m2 : 0;
    w3 += m3 > 0 ? m3 : 0;
    w4 += m4 > 0 ? m4 : 0;
    w5 += m5 > 0 ? m5 : 0;
    w6 += m6 > 0 ? m6 : 0;
  }
  const double sums[kLogitLambdas] = {w0, w1, w2, w3, w4, w5, w6};
  for (int i = 0; i < kLogitLambdas; ++i) tails->downward[i] += sums[i];
  tails->js += js;
  tails->variation += variation / 2;
}

// Compiles each loop again for its instruction set; the bodies are the same.
#define PLUMB_LOGIT_LOOPS(NAME, TARGET)                                                            \
  struct NAME {                                                                                    \
    TARGET static void Widen(const std::byte* data, DType dtype, const uint8_t* allowed, int n,    \
                             LogitChunk* out) {                                                    \
      WidenChunk(data, dtype, allowed, n, out);                                                    \
    }                                                                                              \
    TARGET static void Side(LogitChunk* chunk, LogitSide<double>* side) { AddSide(chunk, side); }  \
    TARGET static void Common(const LogitChunk& a, const LogitChunk& b, const LogitReference& r,   \
                              LogitSums<double>* sums) {                                           \
      AddCommon(a, b, r, sums);                                                                    \
    }                                                                                              \
    TARGET static void Powers(const LogitChunk& chunk, double max, LogitPowers* powers) {          \
      AddPowers(chunk, max, powers);                                                               \
    }                                                                                              \
    TARGET static void Tails(const LogitChunk& a, double lse_a, const LogitChunk& b, double lse_b, \
                             LogitTails* tails) {                                                  \
      AddTails(a, lse_a, b, lse_b, tails);                                                         \
    }                                                                                              \
    static constexpr LogitLoops kLoops = {Widen, Side, Common, Powers, Tails};                     \
  }

PLUMB_LOGIT_LOOPS(AnyProcessor, );
#if defined(__x86_64__)
PLUMB_LOGIT_LOOPS(WithAvx2, PLUMB_AVX2);
#endif
#undef PLUMB_LOGIT_LOOPS

}  // namespace

const LogitLoops& PortableLogitLoops() { return AnyProcessor::kLoops; }

const LogitLoops& LoopsOfLogits() {
#if defined(__x86_64__)
  static const bool wide = HasAvx2();
  if (wide) return WithAvx2::kLoops;
#endif
  return AnyProcessor::kLoops;
}

}  // namespace plumbline
