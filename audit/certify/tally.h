// Counts what was compared by bits, by kind of value, and keeps the first difference.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "base/dtype.h"

namespace plumbline::audit {

// The bits of one value. `dtype` is kUnspecified for other values; then only `text` is set.
struct BitValue {
  DType dtype = DType::kUnspecified;
  uint64_t bits = 0;
  std::string text;
};

// Returns the bits of element `i` of dense data.
BitValue BitValueAt(const void* data, DType dtype, size_t i);

// Where a value is. Fields that do not apply are empty.
struct BitPlace {
  std::optional<int64_t> step, position, token, element;
  std::optional<uint32_t> attempt, rank, call;
  std::string role, site, sequence, field, tensor, index;

  nlohmann::json Json() const;
};

// Values of one kind.
struct KindTally {
  static constexpr size_t kBins = 7;  // distances 1, 2, 3-4, 5-16, 17-256, 257-65536, more
  uint64_t compared = 0, differ = 0;
  uint64_t zero_signs = 0;  // -0 against +0: other bits, distance 0
  uint64_t non_finite = 0;  // a NaN or infinity on a side, other bits
  uint64_t other = 0;       // integers, dtypes and shapes: no distance
  std::map<std::string, std::pair<uint64_t, std::array<uint64_t, kBins>>>
      ulps;  // dtype -> largest distance, and numbers of values by distance
};

// Not thread-safe.
class Tally {
 public:
  // Compares two values. Returns true if they have the same bits.
  bool Take(const std::string& kind, const BitPlace& place, const BitValue& a, const BitValue& b);
  // Counts values that are known to be equal.
  void Equal(const std::string& kind, uint64_t count) { kinds_[kind].compared += count; }
  // Counts a value that has no bits to show (another shape).
  void Other(const std::string& kind, const BitPlace& place, const std::string& a,
             const std::string& b);
  // Counts values that could not be compared. If `open`, equality is not established.
  void Gap(const std::string& kind, const std::string& reason, uint64_t count, bool open);

  uint64_t compared() const;
  uint64_t differ() const;
  bool open() const { return open_; }
  const std::map<std::string, KindTally>& kinds() const { return kinds_; }
  nlohmann::json KindsJson() const;
  nlohmann::json GapsJson() const;                        // a list, sorted
  const nlohmann::json& first() const { return first_; }  // null if nothing differs

 private:
  void Keep(const std::string& kind, const BitPlace& place, const nlohmann::json& a,
            const nlohmann::json& b, const nlohmann::json& distance);

  std::map<std::string, KindTally> kinds_;
  std::map<std::tuple<std::string, std::string, bool>, uint64_t> gaps_;
  bool open_ = false;
  nlohmann::json first_;
};

}  // namespace plumbline::audit
