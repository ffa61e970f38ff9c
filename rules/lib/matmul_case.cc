#include "rules/lib/matmul_case.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/half.h"
#include "base/load.h"

namespace plumbline::rules {
namespace {

constexpr int64_t kMostSamples = 4096;
constexpr int64_t kMostInner = int64_t{1} << 20;
constexpr int64_t kMostValues = int64_t{1} << 26;  // of a

absl::Status Factor(const char* name, const v1::Tensor& tensor, const MatmulCase& c, DType* dtype,
                    Matrix* out) {
  if (absl::Status s = CheckTensor(name, tensor, {c.samples, c.inner}, true); !s.ok()) return s;
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

absl::Status SetSize(const v1::Tensor& a, MatmulCase* c) {
  if (a.shape_size() != 2)
    return Cannot("bad-tensor: a: expected shape [m, K], found " + ShapeText(a));
  const int64_t m = a.shape(0), k = a.shape(1);
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

}  // namespace

int MatmulCase::factor_bits() const {
  return std::max(FormatOf(a_dtype).precision, FormatOf(b_dtype).precision);
}

absl::StatusOr<MatmulCase> DecodeMatmul(const v1::Matmul& matmul) {
  if (!matmul.has_sample()) {
    const std::string& why = matmul.no_sample_reason();
    return Cannot(absl::StrCat("no-sample: the call came without rows and columns",
                               why.empty() ? "" : ": " + why));
  }
  const v1::MatmulSample& sample = matmul.sample();
  const v1::MatmulConfig& config = matmul.config();
  MatmulCase c;
  if (absl::Status s = SetSize(sample.a(), &c); !s.ok()) return s;
  if (absl::Status s = Factor("a", sample.a(), c, &c.a_dtype, &c.a); !s.ok()) return s;
  if (absl::Status s = Factor("b", sample.b(), c, &c.b_dtype, &c.b); !s.ok()) return s;
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
    return Cannot("bad-config: the declared accumulator is no floating dtype");
  c.tf32_declared = config.input_format() == "tf32";
  c.library = config.library();
  return c;
}

}  // namespace plumbline::rules
