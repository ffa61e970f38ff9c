#include "analysis/product/case.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/block_formats.h"
#include "base/half.h"
#include "base/load.h"

namespace plumbline::analysis {
namespace {

constexpr int64_t kMostSamples = 4096;
constexpr int64_t kMostInner = int64_t{1} << 20;
constexpr int64_t kMostValues = int64_t{1} << 26;  // of a

absl::Status Factor(const char* name, const v1::Tensor& tensor, int64_t rows, const MatmulCase& c,
                    DType* dtype, Matrix* out) {
  if (absl::Status s = CheckTensor(name, tensor, {rows, c.inner}, true); !s.ok()) return s;
  *dtype = static_cast<DType>(tensor.dtype());
  if (*dtype == DType::kF64)
    return Cannot(
        absl::StrCat("f64-inputs: ", name, " is f64; products of at most f32 are judged"));
  *out = Matrix(&tensor.data(), *dtype, c.inner);
  return absl::OkStatus();
}

absl::Status Column(const char* name, const v1::Tensor& tensor, int samples, DType* dtype,
                    std::vector<double>* out) {
  if (absl::Status s = CheckTensor(name, tensor, {samples}, true); !s.ok()) return s;
  *dtype = static_cast<DType>(tensor.dtype());
  for (int64_t i = 0; i < samples; ++i) out->push_back(LoadDouble(tensor.data().data(), *dtype, i));
  return absl::OkStatus();
}

absl::Status SetSize(const v1::MatmulSample& sample, MatmulCase* c) {
  const v1::Tensor& a = sample.a();
  if (a.shape_size() != 2)
    return Cannot("bad-tensor: a: expected shape [m, K], found " + ShapeText(a));
  if (sample.has_a_index() != sample.has_b_index())
    return Cannot("bad-tensor: expected both or neither of a_index and b_index");
  const bool shared = sample.has_a_index();
  if (shared && sample.a_index().shape_size() != 1)
    return Cannot("bad-tensor: a_index: expected shape [m], found " + ShapeText(sample.a_index()));
  const int64_t m = shared ? sample.a_index().shape(0) : a.shape(0), k = a.shape(1);
  if (m == 0) return Cannot("no-samples: the sample is empty");
  if (m < 0 || k < 1)
    return Cannot("bad-tensor: a: expected extents of at least 1, found " + ShapeText(a));
  if (m > kMostSamples || k > kMostInner || m * k > kMostValues)
    return Cannot(absl::StrCat("too-large: ", m, " samples of ", k, " products; at most ",
                               kMostSamples, " of ", kMostInner, " and ", kMostValues,
                               " products in all are replayed"));
  c->samples = static_cast<int>(m);
  c->inner = static_cast<int>(k);
  return absl::OkStatus();
}

// Reads the row of a factor that went into each element.
absl::Status Index(const char* name, const v1::Tensor& tensor, int64_t m, int64_t rows,
                   std::vector<int64_t>* out) {
  if (absl::Status s = CheckTensor(name, tensor, {m}, false); !s.ok()) return s;
  out->resize(static_cast<size_t>(m));
  ReadIntegers(tensor, 0, m, out->data());
  for (const int64_t row : *out) {
    if (row < 0 || row >= rows)
      return Cannot(
          absl::StrCat("bad-tensor: ", name, ": expected rows below ", rows, ", found ", row));
  }
  return absl::OkStatus();
}

absl::Status ReadFactors(const v1::MatmulSample& sample, MatmulCase* c) {
  int64_t rows = c->samples, columns = c->samples;
  if (sample.has_a_index()) {
    if (sample.b().shape_size() != 2)
      return Cannot("bad-tensor: b: expected shape [q, K], found " + ShapeText(sample.b()));
    rows = sample.a().shape(0);
    columns = sample.b().shape(0);
    absl::Status s = Index("a_index", sample.a_index(), c->samples, rows, &c->a_index);
    if (s.ok()) s = Index("b_index", sample.b_index(), c->samples, columns, &c->b_index);
    if (!s.ok()) return s;
  }
  absl::Status s = Factor("a", sample.a(), rows, *c, &c->a_dtype, &c->a);
  return s.ok() ? Factor("b", sample.b(), columns, *c, &c->b_dtype, &c->b) : s;
}

// Decides by the given rows, else by the elements' places in a D with this number of columns.
std::vector<bool> Apart(const MatmulCase& c, uint64_t columns) {
  std::vector<bool> apart(static_cast<size_t>(c.samples), true);
  const bool placed = !c.offsets.empty() && columns > 0;
  if (c.a_index.empty() && !placed) return apart;
  std::set<uint64_t> rows, taken;
  for (size_t i = 0; i < apart.size(); ++i) {
    const bool indexed = !c.a_index.empty();
    const uint64_t row = indexed ? static_cast<uint64_t>(c.a_index[i]) : c.offsets[i] / columns;
    const uint64_t column = indexed ? static_cast<uint64_t>(c.b_index[i]) : c.offsets[i] % columns;
    apart[i] = rows.count(row) == 0 && taken.count(column) == 0;
    if (!apart[i]) continue;
    rows.insert(row);
    taken.insert(column);
  }
  return apart;
}

FloatFormat FormatNamed(const std::string& name, DType dtype) {
  if (name == "e2m1") return kE2M1;
  for (const DType t : {DType::kF32, DType::kF16, DType::kBF16, DType::kE4M3, DType::kE5M2}) {
    if (name == DTypeName(t)) return FormatOf(t);
  }
  return FormatOf(dtype);
}

bool AllValuesOf(const FloatFormat& format, const v1::Tensor& tensor) {
  const auto dtype = static_cast<DType>(tensor.dtype());
  const auto count = static_cast<int64_t>(tensor.data().size() / DTypeSize(dtype));
  for (int64_t i = 0; i < count; ++i) {
    const double x = LoadDouble(tensor.data().data(), dtype, i);
    if (std::isfinite(x) && !IsValueOf(format, x)) return false;
  }
  return true;
}

// Values that do not fit the declared format are either meant to be cut to it (tf32, bf16), or they
// contradict it.
absl::Status TakeFormat(const v1::MatmulSample& sample, const std::string& name, MatmulCase* c) {
  c->a_format = FormatOf(c->a_dtype);
  c->b_format = FormatOf(c->b_dtype);
  c->tf32_declared = name == "tf32";
  if (name.empty() || name == "tf32") return absl::OkStatus();
  const FloatFormat format = FormatNamed(name, c->a_dtype);
  if (AllValuesOf(format, sample.a()) && AllValuesOf(format, sample.b())) {
    c->a_format = FormatNamed(name, c->a_dtype);
    c->b_format = FormatNamed(name, c->b_dtype);
    return absl::OkStatus();
  }
  c->tf32_declared = name == "bf16";
  if (c->tf32_declared || name == "f32") return absl::OkStatus();
  return Cannot(absl::StrCat("input-format: a or b has values that ", name, " cannot represent"));
}

// Reads f32 numbers that are finite and not zero.
absl::Status Scales(const char* name, const v1::Tensor& tensor, const std::vector<int64_t>& shape,
                    std::vector<double>* out) {
  if (absl::Status s = CheckTensor(name, tensor, shape, true); !s.ok()) return s;
  const auto dtype = static_cast<DType>(tensor.dtype());
  const auto count = static_cast<int64_t>(tensor.data().size() / DTypeSize(dtype));
  for (int64_t i = 0; i < count; ++i) {
    const double x = LoadDouble(tensor.data().data(), dtype, i);
    if (!std::isfinite(x))
      return Cannot(absl::StrCat("bad-scale: ", name, " has a NaN or infinite scale"));
    out->push_back(static_cast<float>(x));
  }
  return absl::OkStatus();
}

bool PowersOfTwo(const std::vector<double>& scales) {
  return std::all_of(scales.begin(), scales.end(),
                     [](double x) { return x == 0 || (x > 0 && x == PowerOfTwo(std::ilogb(x))); });
}

absl::Status TakeBlocks(const v1::MatmulSample& sample, uint32_t block, MatmulCase* c) {
  if (!sample.has_a_scale() && !sample.has_b_scale()) return absl::OkStatus();
  if (!sample.has_a_scale() || !sample.has_b_scale() || block == 0 || block > kMostInner)
    return Cannot("bad-scale: expected a_scale and b_scale, and the products that share one");
  c->block = static_cast<int>(block);
  absl::Status s =
      Scales("a_scale", sample.a_scale(), {sample.a().shape(0), c->blocks()}, &c->a_scale);
  if (s.ok())
    s = Scales("b_scale", sample.b_scale(), {sample.b().shape(0), c->blocks()}, &c->b_scale);
  c->exact_blocks = PowersOfTwo(c->a_scale) && PowersOfTwo(c->b_scale);
  return s;
}

// Reads the factors of d: the metadata's, the sample's, and those of both tensors.
absl::Status TakeScale(const v1::MatmulSample& sample, double stated, MatmulCase* c) {
  const auto m = static_cast<size_t>(c->samples);
  std::vector<double> whole, a, b;
  if (sample.has_scale()) {
    const bool one = sample.scale().shape_size() == 1 && sample.scale().shape(0) == 1;
    if (absl::Status s = Scales("scale", sample.scale(), {one ? 1 : c->samples}, &whole); !s.ok())
      return s;
  } else if (stated != 0) {
    if (!std::isfinite(stated)) return Cannot("bad-scale: the scale is not finite");
    whole = {static_cast<double>(static_cast<float>(stated))};
  }
  absl::Status s = absl::OkStatus();
  if (sample.has_a_tensor_scale()) s = Scales("a_tensor_scale", sample.a_tensor_scale(), {1}, &a);
  if (s.ok() && sample.has_b_tensor_scale())
    s = Scales("b_tensor_scale", sample.b_tensor_scale(), {1}, &b);
  if (!s.ok() || (whole.empty() && a.empty() && b.empty())) return s;
  if (whole.size() == 1) whole.assign(m, whole[0]);
  if (!a.empty() && !b.empty() && whole.empty()) {
    c->scale_a.assign(m, a[0]);
    c->scale_b.assign(m, b[0]);
  }
  if (whole.empty()) whole.assign(m, 1);
  for (double& x : whole) x *= (a.empty() ? 1 : a[0]) * (b.empty() ? 1 : b[0]);
  c->scale = std::move(whole);
  return absl::OkStatus();
}

}  // namespace

int MatmulCase::factor_bits() const { return std::max(a_format.precision, b_format.precision); }

absl::StatusOr<MatmulCase> DecodeMatmul(const v1::Matmul& matmul) {
  if (!matmul.has_sample()) {
    const std::string& why = matmul.no_sample_reason();
    return Cannot(absl::StrCat("no-sample: the call was recorded without rows and columns",
                               why.empty() ? "" : ": " + why));
  }
  const v1::MatmulSample& sample = matmul.sample();
  const v1::MatmulConfig& config = matmul.config();
  MatmulCase c;
  if (absl::Status s = SetSize(sample, &c); !s.ok()) return s;
  if (absl::Status s = ReadFactors(sample, &c); !s.ok()) return s;
  if (absl::Status s = Column("d", sample.d(), c.samples, &c.d_dtype, &c.d); !s.ok()) return s;
  if (c.d_dtype == DType::kF64)
    return Cannot("f64-output: d is f64; results of at most f32 are judged");
  if (sample.has_c()) {
    if (absl::Status s = Column("c", sample.c(), c.samples, &c.c_dtype, &c.c); !s.ok()) return s;
  }
  if (sample.has_offsets()) {
    if (absl::Status s = CheckTensor("offsets", sample.offsets(), {c.samples}, false); !s.ok())
      return s;
    std::vector<int64_t> offsets(static_cast<size_t>(c.samples));
    ReadIntegers(sample.offsets(), 0, c.samples, offsets.data());
    c.offsets.assign(offsets.begin(), offsets.end());
  }
  c.accumulator_declared = config.declared_accumulator() != v1::DTYPE_UNSPECIFIED;
  if (c.accumulator_declared) c.declared = static_cast<DType>(config.declared_accumulator());
  if (!IsFloating(c.declared))
    return Cannot("bad-config: the declared accumulator is not a floating-point dtype");
  if (absl::Status s = TakeFormat(sample, config.input_format(), &c); !s.ok()) return s;
  if (absl::Status s = TakeBlocks(sample, config.block(), &c); !s.ok()) return s;
  if (absl::Status s = TakeScale(sample, config.scale(), &c); !s.ok()) return s;
  c.stochastic = config.output_rounding() == "stochastic";
  c.library = config.library();
  c.apart = Apart(c, config.columns());
  return c;
}

}  // namespace plumbline::analysis
