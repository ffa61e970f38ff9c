// cuBLASLt. A product's types are those of its descriptor and layouts, which are tracked from their
// creation. Of a descriptor the low byte is the compute type; of a layout, the dtype.
#include <cstring>

#include "agent/interpose/interpose.h"
#include "agent/interpose/numbers.h"
#include "agent/interpose/overrides.h"
#include "agent/interpose/values.h"

namespace plumbline::interpose {
namespace {

constexpr uint32_t kFast = 0x100;
// Of an algorithm: the number of parts, and 0x8000'0000 if they are stored in D's dtype.
constexpr uint32_t kNarrow = 0x8000'0000;
// Descriptors and layouts may be in the trainer's own memory, next to each other; an algorithm's
// key is shifted, so that it never meets theirs.
uint64_t KeyOfAlgorithm(Word algorithm) { return algorithm == 0 ? 0 : algorithm ^ (1ull << 63); }

uint8_t TypeOf(Word layout) {
  const uint32_t value = ValueOf(layout);
  return value == kNoValue ? kNoCallNumber : static_cast<uint8_t>(value);
}

void NoteMatmul(Word descriptor, Word a, Word b, Word d, Word algorithm) {
  const uint32_t known = ValueOf(descriptor);
  CallKind kind{.function = CallFunction::cublasLtMatmul,
                .a = TypeOf(a),
                .b = TypeOf(b),
                .d = TypeOf(d),
                .flags = static_cast<uint8_t>(TF32Override())};
  if (known != kNoValue) {
    kind.compute = static_cast<uint8_t>(known);
    if ((known & kFast) != 0) kind.flags |= kCallFastAccumulation;
  }
  const uint32_t split = ValueOf(KeyOfAlgorithm(algorithm));
  if (split != kNoValue && (split & kNarrow) != 0 && (split & ~kNarrow) > 1)
    kind.flags |= kCallNarrowSplit;
  Count(kind);
}

void SetDescriptor(Word descriptor, Word attribute, Word buffer, Word size) {
  const uint32_t known = ValueOf(descriptor);
  if (known == kNoValue || buffer == 0) return;
  const auto* bytes = reinterpret_cast<const unsigned char*>(buffer);
  if (AsInt(attribute) == kLtDescFastAccum && size >= 1)
    SetValue(descriptor, bytes[0] != 0 ? known | kFast : known & ~kFast);
  if (AsInt(attribute) == kLtDescComputeType && size >= 4)
    SetValue(descriptor, (known & ~0xffu) | bytes[0]);
}

void SetAlgorithm(Word algorithm, Word attribute, Word buffer, Word size) {
  if (buffer == 0 || size < 4) return;
  uint32_t value = 0;
  memcpy(&value, reinterpret_cast<const void*>(buffer), sizeof(value));
  const uint64_t key = KeyOfAlgorithm(algorithm);
  uint32_t known = ValueOf(key);
  if (known == kNoValue) known = 0;
  if (AsInt(attribute) == kLtAlgoSplitK) SetValue(key, (known & kNarrow) | (value & ~kNarrow));
  if (AsInt(attribute) == kLtAlgoReduction)
    SetValue(key, (known & ~kNarrow) | (value == kLtReductionInOutputType ? kNarrow : 0));
}

}  // namespace

PLUMB_INTERPOSE(int, cublasLtMatmul,
                (Word handle, Word descriptor, Word alpha, Word a, Word a_layout, Word b,
                 Word b_layout, Word beta, Word c, Word c_layout, Word d, Word d_layout,
                 Word algorithm, Word workspace, Word size, Word stream),
                (handle, descriptor, alpha, a, a_layout, b, b_layout, beta, c, c_layout, d,
                 d_layout, algorithm, workspace, size, stream),
                NoteMatmul(descriptor, a_layout, b_layout, d_layout, algorithm))
PLUMB_INTERPOSE(int, cublasLtMatmulDescInit_internal,
                (Word descriptor, Word size, Word compute, Word scale),
                (descriptor, size, compute, scale), SetValue(descriptor, AsByte(compute)))
PLUMB_INTERPOSE(int, cublasLtMatmulDescSetAttribute,
                (Word descriptor, Word attribute, Word buffer, Word size),
                (descriptor, attribute, buffer, size),
                SetDescriptor(descriptor, attribute, buffer, size))
PLUMB_INTERPOSE(int, cublasLtMatmulDescDestroy, (Word descriptor), (descriptor),
                ForgetValue(descriptor))
PLUMB_INTERPOSE(int, cublasLtMatrixLayoutInit_internal,
                (Word layout, Word size, Word type, Word rows, Word columns, Word ld),
                (layout, size, type, rows, columns, ld), SetValue(layout, AsByte(type)))
PLUMB_INTERPOSE(int, cublasLtMatrixLayoutDestroy, (Word layout), (layout), ForgetValue(layout))
PLUMB_INTERPOSE(int, cublasLtMatmulAlgoConfigSetAttribute,
                (Word algorithm, Word attribute, Word buffer, Word size),
                (algorithm, attribute, buffer, size),
                SetAlgorithm(algorithm, attribute, buffer, size))

PLUMB_EXPORT int cublasLtMatmulDescCreate(uint64_t* created, Word compute, Word scale) {
  const auto next = reinterpret_cast<int (*)(uint64_t*, Word, Word)>(
      NextOf(CallFunction::cublasLtMatmulDescCreate, "cublasLtMatmulDescCreate",
             __builtin_return_address(0)));
  const int status = next(created, compute, scale);
  if (status == kCublasSuccess && created != nullptr) SetValue(*created, AsByte(compute));
  return status;
}

PLUMB_EXPORT int cublasLtMatrixLayoutCreate(uint64_t* created, Word type, Word rows, Word columns,
                                            Word ld) {
  const auto next = reinterpret_cast<int (*)(uint64_t*, Word, Word, Word, Word)>(
      NextOf(CallFunction::cublasLtMatrixLayoutCreate, "cublasLtMatrixLayoutCreate",
             __builtin_return_address(0)));
  const int status = next(created, type, rows, columns, ld);
  if (status == kCublasSuccess && created != nullptr) SetValue(*created, AsByte(type));
  return status;
}

}  // namespace plumbline::interpose
