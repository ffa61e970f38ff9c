#include "audit/commands/blas_target.h"

#include <dlfcn.h>

#include <memory>
#include <new>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/half.h"

namespace plumbline::audit {
namespace {

using sums::Kind;
using sums::Target;
using Values = absl::Span<const double>;

constexpr int kColumnMajor = 102;
constexpr int kNoTranspose = 111;

// One BLAS operation: how its name begins, its inputs and its output.
struct BlasFunction {
  const char* name;
  Kind kind;
  DType input;
  DType output;
};
constexpr BlasFunction kFunctions[] = {{"sdot", Kind::kDot, DType::kF32, DType::kF32},
                                       {"ddot", Kind::kDot, DType::kF64, DType::kF64},
                                       {"dsdot", Kind::kDot, DType::kF32, DType::kF64},
                                       {"sgemv", Kind::kGemm, DType::kF32, DType::kF32},
                                       {"dgemv", Kind::kGemm, DType::kF64, DType::kF64},
                                       {"sgemm", Kind::kGemm, DType::kF32, DType::kF32},
                                       {"dgemm", Kind::kGemm, DType::kF64, DType::kF64}};

// Aligns every call's buffers to a cache line. Some libraries sum in an order that depends on the
// alignment (Eigen). With aligned buffers the fingerprint does not change between calls.
template <typename T>
struct AlignedAllocator {
  using value_type = T;
  AlignedAllocator() = default;
  template <typename U>
  AlignedAllocator(const AlignedAllocator<U>&) {}  // NOLINT: allocators convert
  T* allocate(size_t n) {
    return static_cast<T*>(::operator new(n * sizeof(T), std::align_val_t(64)));
  }
  void deallocate(T* p, size_t) { ::operator delete(p, std::align_val_t(64)); }
  bool operator==(const AlignedAllocator&) const { return true; }
};
template <typename T>
using Buffer = std::vector<T, AlignedAllocator<T>>;

template <typename T>
Buffer<T> Converted(Values x) {
  return Buffer<T>(x.begin(), x.end());
}

template <typename T, typename R>
Target::Call Dot(void* symbol, bool cblas) {
  return [=](Values a, Values b, double* y) {
    const Buffer<T> x = Converted<T>(a);
    const Buffer<T> z = Converted<T>(b);
    const int n = static_cast<int>(x.size());
    const int one = 1;
    if (cblas) {
      using F = R (*)(int, const T*, int, const T*, int);
      *y = reinterpret_cast<F>(symbol)(n, x.data(), 1, z.data(), 1);
    } else {
      using F = R (*)(const int*, const T*, const int*, const T*, const int*);
      *y = reinterpret_cast<F>(symbol)(&n, x.data(), &one, z.data(), &one);
    }
    return absl::OkStatus();
  };
}

// Returns a column-major matrix of `rows` rows. `row` is the middle one; all others are ones.
template <typename T>
Buffer<T> WithRow(int rows, Values row) {
  Buffer<T> matrix(static_cast<size_t>(rows) * row.size(), T{1});
  for (size_t k = 0; k < row.size(); ++k) {
    matrix[k * static_cast<size_t>(rows) + static_cast<size_t>(rows / 2)] = static_cast<T>(row[k]);
  }
  return matrix;
}

template <typename T>
Target::BatchedCall Gemv(void* symbol, bool cblas) {
  return [=](int rows, Values a, Values b, double* y) {
    const Buffer<T> matrix = WithRow<T>(rows, a);
    const Buffer<T> x = Converted<T>(b);
    Buffer<T> out(static_cast<size_t>(rows));
    const int k = static_cast<int>(a.size());
    const int one = 1;
    const T alpha = 1;
    const T beta = 0;
    if (cblas) {
      using F = void (*)(int, int, int, int, T, const T*, int, const T*, int, T, T*, int);
      reinterpret_cast<F>(symbol)(kColumnMajor, kNoTranspose, rows, k, alpha, matrix.data(), rows,
                                  x.data(), 1, beta, out.data(), 1);
    } else {
      using F = void (*)(const char*, const int*, const int*, const T*, const T*, const int*,
                         const T*, const int*, const T*, T*, const int*, size_t);
      reinterpret_cast<F>(symbol)("N", &rows, &k, &alpha, matrix.data(), &rows, x.data(), &one,
                                  &beta, out.data(), &one, 1);
    }
    *y = out[static_cast<size_t>(rows / 2)];
    return absl::OkStatus();
  };
}

template <typename T>
Target::BatchedCall Gemm(void* symbol, bool cblas, int columns) {
  return [=](int rows, Values a, Values b, double* y) {
    const Buffer<T> left = WithRow<T>(rows, a);
    Buffer<T> right(static_cast<size_t>(columns) * b.size(), T{1});
    const auto column = static_cast<size_t>(columns / 2);
    for (size_t i = 0; i < b.size(); ++i) right[column * b.size() + i] = static_cast<T>(b[i]);
    Buffer<T> out(static_cast<size_t>(rows) * static_cast<size_t>(columns));
    const int k = static_cast<int>(a.size());
    const T alpha = 1;
    const T beta = 0;
    if (cblas) {
      using F = void (*)(int, int, int, int, int, int, T, const T*, int, const T*, int, T, T*, int);
      reinterpret_cast<F>(symbol)(kColumnMajor, kNoTranspose, kNoTranspose, rows, columns, k, alpha,
                                  left.data(), rows, right.data(), k, beta, out.data(), rows);
    } else {
      using F =
          void (*)(const char*, const char*, const int*, const int*, const int*, const T*, const T*,
                   const int*, const T*, const int*, const T*, T*, const int*, size_t, size_t);
      reinterpret_cast<F>(symbol)("N", "N", &rows, &columns, &k, &alpha, left.data(), &rows,
                                  right.data(), &k, &beta, out.data(), &rows, 1, 1);
    }
    *y = out[column * static_cast<size_t>(rows) + static_cast<size_t>(rows / 2)];
    return absl::OkStatus();
  };
}

// Wraps T f(const T* a[, const T* b], size_t n). 16-bit types are passed as their bit patterns.
template <typename T, typename Encode, typename Decode>
Target::Call Plain(void* symbol, bool products, Encode encode, Decode decode) {
  return [=](Values a, Values b, double* y) {
    Buffer<T> x;
    Buffer<T> z;
    for (const double v : a) x.push_back(encode(v));
    for (const double v : b) z.push_back(encode(v));
    if (products) {
      using F = T (*)(const T*, const T*, size_t);
      *y = decode(reinterpret_cast<F>(symbol)(x.data(), z.data(), x.size()));
    } else {
      using F = T (*)(const T*, size_t);
      *y = decode(reinterpret_cast<F>(symbol)(x.data(), x.size()));
    }
    return absl::OkStatus();
  };
}

absl::Status SetPlain(const FunctionRequest& request, void* symbol, Target* target) {
  const bool products = request.kind == "dot";
  const auto to_float = [](double x) { return static_cast<float>(x); };
  const auto as_is = [](auto x) { return static_cast<double>(x); };
  target->kind = products ? Kind::kDot : Kind::kSum;
  if (request.dtype == "f64") {
    target->input = DType::kF64;
    target->call = Plain<double>(
        symbol, products, [](double x) { return x; }, as_is);
  } else if (request.dtype == "f32") {
    target->input = DType::kF32;
    target->call = Plain<float>(symbol, products, to_float, as_is);
  } else if (request.dtype == "f16") {
    target->input = DType::kF16;
    target->call = Plain<uint16_t>(
        symbol, products, [=](double x) { return FloatToF16(to_float(x)); },
        [](uint16_t x) { return static_cast<double>(F16ToFloat(x)); });
  } else if (request.dtype == "bf16") {
    target->input = DType::kBF16;
    target->call = Plain<uint16_t>(
        symbol, products, [=](double x) { return FloatToBF16(to_float(x)); },
        [](uint16_t x) { return static_cast<double>(BF16ToFloat(x)); });
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("--dtype: expected f64, f32, f16 or bf16, found ", request.dtype));
  }
  target->output = target->input;
  return absl::OkStatus();
}

void SetBlas(const BlasFunction& function, const FunctionRequest& request, void* symbol, bool cblas,
             Target* target) {
  target->kind = function.kind;
  target->input = function.input;
  target->output = function.output;
  const std::string name = function.name;
  if (name == "sdot") target->call = Dot<float, float>(symbol, cblas);
  if (name == "ddot") target->call = Dot<double, double>(symbol, cblas);
  if (name == "dsdot") target->call = Dot<float, double>(symbol, cblas);
  if (name == "sgemv") target->batched = Gemv<float>(symbol, cblas);
  if (name == "dgemv") target->batched = Gemv<double>(symbol, cblas);
  if (name == "sgemm") target->batched = Gemm<float>(symbol, cblas, request.columns);
  if (name == "dgemm") target->batched = Gemm<double>(symbol, cblas, request.columns);
  if (!target->batched) return;
  target->n = request.inner > 0 ? request.inner : request.n;
  target->call = [batched = target->batched, rows = request.rows](Values a, Values b, double* y) {
    return batched(rows, a, b, y);
  };
}

const BlasFunction* FindBlas(std::string name) {
  if (name.rfind("cblas_", 0) == 0) name = name.substr(6);
  if (!name.empty() && name.back() == '_') name.pop_back();
  for (const BlasFunction& function : kFunctions) {
    if (name == function.name) return &function;
  }
  return nullptr;
}

}  // namespace

absl::StatusOr<Target> FunctionTarget(const FunctionRequest& request) {
  const BlasFunction* blas = request.kind.empty() ? FindBlas(request.function) : nullptr;
  if (blas == nullptr && request.kind.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--function: expected one of ",
        absl::StrJoin(kFunctions, ", ",
                      [](std::string* out, const BlasFunction& f) { out->append(f.name); }),
        ", also as cblas_NAME or NAME_, or --kind and --dtype for another signature; found ",
        request.function));
  }
  void* library = dlopen(request.library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("--library: expected a shared library, found: ", dlerror()));
  }
  std::vector<std::string> names = {request.function};
  if (blas != nullptr && request.function == blas->name) {
    names = {absl::StrCat(blas->name, "_"), absl::StrCat("cblas_", blas->name)};
  }
  for (const std::string& name : names) {
    void* symbol = dlsym(library, name.c_str());
    if (symbol == nullptr) continue;
    Target target;
    target.name = name;
    target.library = request.library;
    target.n = request.n;
    if (blas == nullptr) {
      if (absl::Status s = SetPlain(request, symbol, &target); !s.ok()) return s;
    } else {
      SetBlas(*blas, request, symbol, name.rfind("cblas_", 0) == 0, &target);
    }
    return target;
  }
  return absl::InvalidArgumentError(absl::StrCat(request.library, ": expected a symbol ",
                                                 absl::StrJoin(names, " or "), ", found none"));
}

}  // namespace plumbline::audit
