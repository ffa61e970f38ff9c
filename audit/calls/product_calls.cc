#include "audit/calls/product_calls.h"

#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace plumbline::audit {
namespace {

// cudaDataType_t.
constexpr uint8_t kF32 = 0, kF16 = 2, kBF16 = 14;

const char* TypeName(uint8_t type) {
  switch (type) {
    case 0:
      return "f32";
    case 1:
      return "f64";
    case 2:
      return "f16";
    case 3:
      return "i8";
    case 10:
      return "i32";
    case 14:
      return "bf16";
    case 28:
      return "e4m3";
    case 29:
      return "e5m2";
    default:
      return "other";
  }
}

// cublasComputeType_t.
struct Compute {
  uint8_t number;
  const char* name;
  v1::DType accumulator;
  const char* factors;  // to which f32 factors may be rounded
};
constexpr Compute kComputes[] = {
    {64, "16F", v1::DTYPE_F16, ""},
    {65, "16F_PEDANTIC", v1::DTYPE_F16, ""},
    {68, "32F", v1::DTYPE_F32, ""},
    {69, "32F_PEDANTIC", v1::DTYPE_F32, ""},
    {70, "64F", v1::DTYPE_F64, ""},
    {71, "64F_PEDANTIC", v1::DTYPE_F64, ""},
    {74, "32F_FAST_16F", v1::DTYPE_F32, "f16"},
    {75, "32F_FAST_16BF", v1::DTYPE_F32, "bf16"},
    {77, "32F_FAST_TF32", v1::DTYPE_F32, "tf32"},
    {78, "32F_EMULATED_16BFX9", v1::DTYPE_F32, ""},
};

const Compute* ComputeOf(uint8_t number) {
  for (const Compute& known : kComputes)
    if (known.number == number) return &known;
  return nullptr;
}

// Returns the format to which the call permits rounding of f32 factors; "" if it permits none.
std::string FactorsOf(const CallKind& kind) {
  const Compute* compute = ComputeOf(kind.compute);
  if (kind.a != kF32 || compute == nullptr || (kind.flags & kCallOverride) != 0) return "";
  if (*compute->factors != '\0') return compute->factors;
  // A pedantic compute type takes precedence over the mode of the handle.
  if (kind.compute != 68 || kind.function == CallFunction::cublasLtMatmul) return "";
  const int mode = kind.flags & 0xf;
  return mode == 3 ? "tf32" : mode == 1 ? "f16" : "";
}

bool IsProduct(CallFunction function) {
  const std::string_view name = NameOf(function);
  return function == CallFunction::cublasLtMatmul ||
         (name.starts_with("cublas") && (name.find("gemm") != std::string_view::npos ||
                                         name.find("Gemm") != std::string_view::npos));
}

std::string OpOf(const CallKind& kind) {
  const absl::string_view name = NameOf(kind.function);
  std::string op(absl::StripSuffix(absl::StripSuffix(name, "_64"), "_v2"));
  const Compute* compute = ComputeOf(kind.compute);
  if (kind.a != kNoCallNumber)
    absl::StrAppend(&op, " ", TypeName(kind.a), " x ", TypeName(kind.b), " -> ", TypeName(kind.d));
  if (compute != nullptr) absl::StrAppend(&op, ", ", compute->name);
  if (const std::string factors = FactorsOf(kind); !factors.empty() && *compute->factors == '\0')
    absl::StrAppend(&op, ", ", factors, " math");
  if ((kind.flags & kCallFastAccumulation) != 0) op += ", fast accumulation";
  return op;
}

v1::Evidence ProductOf(const CountedCall& call) {
  v1::Evidence evidence;
  const CallKind& kind = call.kind;
  evidence.mutable_site()->set_layer("cuBLAS");
  evidence.mutable_site()->set_op(OpOf(kind));
  evidence.set_sample_size(call.calls);
  evidence.set_exercised(v1::EXERCISED_YES);
  v1::Matmul& product = *evidence.mutable_matmul();
  product.set_no_sample_reason("only the call was seen");
  v1::MatmulConfig& config = *product.mutable_config();
  if (const Compute* compute = ComputeOf(kind.compute); compute != nullptr)
    config.set_declared_accumulator(compute->accumulator);
  config.set_input_format(FactorsOf(kind));
  const bool narrow = (kind.flags & kCallNarrowSplit) != 0 && (kind.d == kF16 || kind.d == kBF16);
  config.set_library(absl::StrCat(NameOf(kind.function), narrow ? ", 16-bit parts" : ""));
  return evidence;
}

}  // namespace

void AddProducts(const std::vector<ProcessCalls>& processes, const CallAgents& agents,
                 std::vector<v1::Evidence>* evidence) {
  for (uint32_t p = 0; p < processes.size(); ++p) {
    std::map<std::string, uint32_t> times;
    for (const CountedCall& call : processes[p].counted) {
      if (!IsProduct(call.kind.function)) continue;
      v1::Evidence one = ProductOf(call);
      one.set_source(agents.AgentOf(p));
      one.set_call(times[one.site().op()]++);
      evidence->push_back(std::move(one));
    }
  }
}

}  // namespace plumbline::audit
