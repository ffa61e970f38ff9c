#include "bench/gpu/gemm/gemm_product.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace plumbline::bench {
namespace {

constexpr int kInner[] = {64, 512, 4096};
constexpr int kSides[] = {128, 512, 4096};

struct Kind {
  DType input;
  DType output;
  Compute compute;
  bool fast_accumulation = false;
};
constexpr Kind kKinds[] = {{DType::kF32, DType::kF32, Compute::k32F},
                           {DType::kF32, DType::kF32, Compute::k32FPedantic},
                           {DType::kF32, DType::kF32, Compute::k32FFastTF32},
                           {DType::kBF16, DType::kF32, Compute::k32F},
                           {DType::kBF16, DType::kBF16, Compute::k32F},
                           {DType::kF16, DType::kF16, Compute::k32F},
                           {DType::kF16, DType::kF16, Compute::k16F},
                           {DType::kE4M3, DType::kBF16, Compute::k32F},
                           {DType::kE4M3, DType::kBF16, Compute::k32F, true},
                           {DType::kF64, DType::kF64, Compute::k64F}};

Product ProductOf(const Kind& kind, const Shape& shape) {
  return {kind.input, kind.output, kind.compute, kind.fast_accumulation, shape, shape};
}

bool InTensorCores(const Product& p) {
  return p.input != DType::kF64 && p.compute != Compute::k32FPedantic &&
         (p.input != DType::kF32 || p.compute == Compute::k32FFastTF32);
}

// Returns multiplications and additions per second.
double RateOf(const Product& p) {
  if (!InTensorCores(p)) return 40e12;
  return p.input == DType::kF32 ? 300e12 : p.input == DType::kE4M3 ? 1000e12 : 600e12;
}

// Reduces large products whose thousands of calls would take too long. They keep the algorithm
// chosen for their size: an element's sum depends only on the algorithm and on K.
void Shrink(Product* p) {
  constexpr double kMostSeconds = 5;
  constexpr int kSide = 512;
  if (EstimatedSeconds(*p) > kMostSeconds) p->shape.rows = p->shape.columns = kSide;
}

void AddDefaults(std::vector<Product>* table) {
  for (const Kind& kind : kKinds) {
    for (const int side : kSides) {
      for (const int inner : kInner) {
        Product p = ProductOf(kind, {side, side, inner});
        if (inner == 4096 && side == 512 && !InTensorCores(p)) continue;  // each takes seconds
        Shrink(&p);
        // f64 factors have no dump; for long sums the largest and the smallest are sufficient.
        p.dump = kind.input != DType::kF64 && (inner == 64 || side != 512);
        table->push_back(p);
      }
    }
  }
}

void AddSplits(std::vector<Product>* table) {
  for (const Kind& kind : {kKinds[0], kKinds[3], kKinds[4]}) {
    for (const int inner : {512, 4096}) {
      for (const int parts : {2, 4}) {
        for (const Reduction r :
             {Reduction::kInPlace, Reduction::kComputeType, Reduction::kOutputType}) {
          Product p = ProductOf(kind, {128, 128, inner});
          if (inner == 4096 && parts == 2 && !InTensorCores(p)) continue;
          p.split_k = parts;
          p.reduction = r;
          p.dump = inner == 512 || (InTensorCores(p) && p.output == DType::kF32 && parts == 4);
          table->push_back(p);
        }
      }
    }
  }
}

}  // namespace

const char* ComputeName(Compute compute) {
  constexpr const char* kNames[] = {"32F", "32F_PEDANTIC", "32F_FAST_TF32", "16F", "64F"};
  return kNames[static_cast<int>(compute)];
}

const char* ReductionName(Reduction reduction) {
  constexpr const char* kNames[] = {"none", "inplace", "compute", "?", "output"};
  return kNames[static_cast<int>(reduction)];
}

std::string NameOf(const Product& p) {
  std::string name =
      absl::StrCat(DTypeName(p.input), "-", DTypeName(p.output), "-", ComputeName(p.compute),
                   p.fast_accumulation ? "-fast" : "", "-", p.algorithm.rows, "x",
                   p.algorithm.columns, "x", p.algorithm.inner);
  if (p.split_k > 0) absl::StrAppend(&name, "-split", p.split_k, "-", ReductionName(p.reduction));
  return name;
}

double EstimatedSeconds(const Product& p) {
  const double n = p.shape.inner;
  const bool blocks = InTensorCores(p);
  const double calls = 300 + (blocks ? 4 : 8) * n;
  const double work = 2.0 * p.shape.rows * p.shape.columns * n / RateOf(p);
  const double chain = n * (blocks ? 3e-9 : 6e-9);
  const double search = n * 5e-5;  // for models, on the host
  const double open = 0.1;         // the library loads its kernels at their first call
  return open + search + calls * (25e-6 + n * 5e-9 + std::max(work, chain));
}

std::vector<Product> GemmTable() {
  std::vector<Product> table;
  AddDefaults(&table);
  AddSplits(&table);
  std::stable_sort(table.begin(), table.end(), [](const Product& a, const Product& b) {
    return EstimatedSeconds(a) < EstimatedSeconds(b);
  });
  return table;
}

}  // namespace plumbline::bench
