// Checksums, sums of squares and samples of host memory, at the speed of memory.
#include <cstring>

#include "agent/facade/error.h"
#include "plumbline/plumbline.h"

namespace plumbline::facade {
namespace {

constexpr uint64_t kPrime = 0x9e3779b97f4a7c15;  // odd, so that multiplying loses no bit
constexpr int kLanes = 8;                        // independent: a multiplication has latency

uint64_t Word(const unsigned char* at, uint64_t bytes) {
  uint64_t word = 0;
  std::memcpy(&word, at, bytes);
  return word;
}

uint64_t Mixed(uint64_t sum, uint64_t word) { return (sum ^ word) * kPrime; }

// Each step is injective in the word. The combination of the lanes is injective too.
uint64_t Checksum(const unsigned char* data, uint64_t bytes) {
  uint64_t lanes[kLanes];
  for (int i = 0; i < kLanes; ++i) lanes[i] = kPrime + static_cast<uint64_t>(i);
  uint64_t at = 0;
  for (; bytes - at >= sizeof lanes; at += sizeof lanes) {
    uint64_t words[kLanes];
    std::memcpy(words, data + at, sizeof words);
    for (int i = 0; i < kLanes; ++i) lanes[i] = Mixed(lanes[i], words[i]);
  }
  uint64_t sum = bytes;
  for (const uint64_t lane : lanes) sum = Mixed(sum, lane ^ (lane >> 32));
  while (at < bytes) {
    const uint64_t part = bytes - at < 8 ? bytes - at : 8;
    sum = Mixed(sum, Word(data + at, part));
    at += part;
  }
  return sum ^ (sum >> 29);
}

// Squares of fp32 and their sums fit into fp64.
double Squares(const float* data, uint64_t count) {
  double lanes[kLanes] = {};
  uint64_t i = 0;
  for (; count - i >= kLanes; i += kLanes) {
    for (int k = 0; k < kLanes; ++k) {
      const double x = data[i + static_cast<uint64_t>(k)];
      lanes[k] += x * x;
    }
  }
  double sum = 0;
  for (; i < count; ++i) sum += static_cast<double>(data[i]) * static_cast<double>(data[i]);
  for (const double lane : lanes) sum += lane;
  return sum;
}

void KeepElements(const float* data, uint64_t stride, uint64_t count, float* kept) {
  for (uint64_t i = 0; i < count; ++i) kept[i] = data[i * stride];
}

// Differences of fp32 in fp64: exact within 2^29 of each other, and their squares never overflow.
void AddMoved(const float* data, uint64_t stride, uint64_t count, const float* kept,
              double* squares) {
  double changed = 0, was = 0;
  for (uint64_t i = 0; i < count; ++i) {
    const double before = kept[i];
    const double change = data[i * stride] - before;
    changed += change * change;
    was += before * before;
  }
  squares[0] = changed;
  squares[1] = was;
}

}  // namespace
}  // namespace plumbline::facade

using namespace plumbline::facade;

extern "C" plumbline_status_t plumbline_checksums(const void* const* data, const uint64_t* bytes,
                                                  uint32_t n, uint64_t* sums) {
  if (n > 0 && (data == nullptr || bytes == nullptr || sums == nullptr))
    return Fail(PLUMBLINE_INVALID_ARGUMENT, "checksums: data, bytes or sums is NULL");
  for (uint32_t i = 0; i < n; ++i) {
    if (data[i] == nullptr && bytes[i] > 0)
      return Fail(PLUMBLINE_INVALID_ARGUMENT, "checksums: data[%u] is NULL", i);
    sums[i] = Checksum(static_cast<const unsigned char*>(data[i]), bytes[i]);
  }
  return PLUMBLINE_OK;
}

extern "C" plumbline_status_t plumbline_square_sums(const float* const* data,
                                                    const uint64_t* counts, uint32_t n,
                                                    double* sums) {
  if (n > 0 && (data == nullptr || counts == nullptr || sums == nullptr))
    return Fail(PLUMBLINE_INVALID_ARGUMENT, "square_sums: data, counts or sums is NULL");
  for (uint32_t i = 0; i < n; ++i) {
    if (data[i] == nullptr && counts[i] > 0)
      return Fail(PLUMBLINE_INVALID_ARGUMENT, "square_sums: data[%u] is NULL", i);
    sums[i] = Squares(data[i], counts[i]);
  }
  return PLUMBLINE_OK;
}

extern "C" plumbline_status_t plumbline_moved(const float* const* data, const uint64_t* strides,
                                              const uint64_t* counts, uint32_t n, float* kept,
                                              double* squares) {
  if (n > 0 && (data == nullptr || strides == nullptr || counts == nullptr || kept == nullptr))
    return Fail(PLUMBLINE_INVALID_ARGUMENT, "moved: data, strides, counts or kept is NULL");
  for (uint32_t i = 0; i < n; kept += counts[i++]) {
    if (data[i] == nullptr && counts[i] > 0)
      return Fail(PLUMBLINE_INVALID_ARGUMENT, "moved: data[%u] is NULL", i);
    if (squares == nullptr) {
      KeepElements(data[i], strides[i], counts[i], kept);
    } else {
      AddMoved(data[i], strides[i], counts[i], kept, squares + 2 * size_t{i});
    }
  }
  return PLUMBLINE_OK;
}
