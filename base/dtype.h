// Element types of tensors, shared by probes, kernels, evidence and readers. Header only, no
// dependencies: the façade and device code include it too.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__CUDACC__)
#define PLUMB_HD __host__ __device__
#else
#define PLUMB_HD
#endif

namespace plumbline {

// Values are stored in evidence and records (proto DType): never renumber.
enum class DType : uint8_t {
  kUnspecified = 0,
  kF64 = 1,
  kF32 = 2,
  kF16 = 3,
  kBF16 = 4,
  kE4M3 = 5,
  kE5M2 = 6,
  kI64 = 7,
  kI32 = 8,
  kI16 = 9,
  kI8 = 10,
  kU64 = 11,
  kU32 = 12,
  kU16 = 13,
  kU8 = 14,
  kBool = 15,
};

// Returns the bytes of one element; 0 for kUnspecified and unknown values.
PLUMB_HD constexpr size_t DTypeSize(DType t) {
  switch (t) {
    case DType::kF64:
    case DType::kI64:
    case DType::kU64:
      return 8;
    case DType::kF32:
    case DType::kI32:
    case DType::kU32:
      return 4;
    case DType::kF16:
    case DType::kBF16:
    case DType::kI16:
    case DType::kU16:
      return 2;
    case DType::kE4M3:
    case DType::kE5M2:
    case DType::kI8:
    case DType::kU8:
    case DType::kBool:
      return 1;
    case DType::kUnspecified:
      break;
  }
  return 0;
}

PLUMB_HD constexpr bool IsFloating(DType t) { return t >= DType::kF64 && t <= DType::kE5M2; }
PLUMB_HD constexpr bool IsInteger(DType t) { return t >= DType::kI64 && t <= DType::kBool; }

// Returns "f32", "bf16", "i64", ...; "?" for unknown values. Static storage.
constexpr const char* DTypeName(DType t) {
  constexpr const char* kNames[] = {"?",   "f64", "f32", "f16", "bf16", "e4m3", "e5m2", "i64",
                                    "i32", "i16", "i8",  "u64", "u32",  "u16",  "u8",   "bool"};
  const auto i = static_cast<size_t>(t);
  return i < sizeof(kNames) / sizeof(kNames[0]) ? kNames[i] : "?";
}

}  // namespace plumbline
